"""The folder that `ballcast export` writes: graphs and a `config.json`, written, read and checked. No torch here.

Four parts, each an ONNX file. B is any batch, H and W any multiple of the padding:

- `stacks`: frames (B, stack, H, W) uint8, or I420 (B, 1, 3H/2, W) → feature maps (B, C, h, w); with a temporal shift, B
  is a multiple of N
- `clips`: feature maps (B, J, C, h, w) of each snippet's stacks → features (B, D); a frame encoder's maps are 1×1
- `window`: features (B, N, D) → tokens (B, N, d)
- `slots`: tokens (B, W, N, d), present (B, W) bool → objectness, classes, offsets, as in `SlotArrays`

The export of a model of event feeds has no backbone, and so only `window` and `slots`.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ballcast.core import hub
from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.core.backbone_config import SIZE, BackboneConfig, is_size
from ballcast.core.config import Record, from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json, write_json
from ballcast.core.util import cache_folder
from ballcast.model.score_mapping import ScoreMapping

FORMAT = "ballcast-export-1"
CONFIG = "config.json"
INPUTS = {"stacks": ("pictures",), "clips": ("maps",), "window": ("features",), "slots": ("tokens", "present")}
OUTPUTS = {
    "stacks": ("maps",),
    "clips": ("features",),
    "window": ("tokens",),
    "slots": ("objectness", "classes", "offsets"),
}
PARTS = tuple(INPUTS)
BACKBONE_PARTS = PARTS[:2]
MODEL_PARTS = PARTS[2:]
EMBEDDED = "graphs.json"  # the config, where graphs lie beside the weights that they read: in the package


@dataclass(frozen=True)
class BackboneRecord(Record):
    """The exported backbone: its name, the hash of its weights, and its config; None: the features are of a feed."""

    name: str
    hash: str
    config: BackboneConfig | None = None


@dataclass(frozen=True)
class FileRecord(Record):
    """One part: its file beside the config, and the file's SHA-256."""

    file: str
    sha256: str


@dataclass(frozen=True)
class ExportConfig(Record):
    """Everything a runtime needs besides the graphs.

    - `kind`, `precision`: onnx and fp32; version 0.1 also wrote torch and int8.
    - `lookback`: number of windows the model reads. `pos_weight`: of the loss it was trained with.
    - `actions`: the classes in their order. `calibration`: the score mapping of `ballcast tune`.
    - `picture_size`: height and width of the frames in training, if known.
    - `weights`: SHA-256 of the model's `model.safetensors`.
    - `key`: of the files of model and backbone it was made from, see `export_key`.
    - `figures`: measured at export: the differences from torch.
    """

    kind: Literal["onnx", "torch"]
    precision: Literal["fp32", "int8"]
    source: str
    backbone: BackboneRecord
    model: ModelConfig
    emit: EmitConfig
    lookback: int
    pos_weight: float
    files: dict[str, FileRecord]
    actions: tuple[str, ...] = tuple(ACTIONS)
    calibration: ScoreMapping | None = None
    picture_size: tuple[int, int] | None = None
    figures: dict[str, float] = field(default_factory=dict)
    weights: str = ""
    ballcast: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if self.actions != tuple(ACTIONS):
            raise InputError("actions are not those of this version, in their order")
        parts = PARTS if self.backbone.config else MODEL_PARTS
        if set(self.files) != set(parts):
            raise InputError(f"files must name the parts {', '.join(parts)}")
        if any(Path(r.file).name != r.file or not r.file.isprintable() for r in self.files.values()):
            raise InputError("files must lie beside the config")
        if not 1 <= self.lookback <= self.model.windows:
            raise InputError(f"lookback must be between 1 and the model's {self.model.windows} windows")
        if not 0 < self.pos_weight <= 1e6:
            raise InputError("pos_weight must be above 0 and at most a million")
        if self.picture_size and not is_size(self.picture_size):
            raise InputError(f"picture_size must be {SIZE}")


def write_config(folder: Path, config: ExportConfig, name: str = CONFIG) -> None:
    """Write the `config.json` of an export."""
    tree: dict[str, Any] = {"format": FORMAT, **to_dict(config)}
    write_json(folder / name, tree, indent=1, checksum=True)


def read_export(source: Path | str) -> tuple[Path, ExportConfig]:
    """Locate an export (folder or hub id) and read its config; an InputError if it is not an export."""
    folder = hub.locate(source, (CONFIG,), also=tuple(f"{part}.onnx" for part in PARTS))
    path = folder / CONFIG
    if not path.exists():
        raise InputError(f"{folder}: not an export: it has no {CONFIG}; write one with `ballcast export`")
    return folder, _parse(path)


def read_embedded(folder: Path) -> ExportConfig:
    """Read the config of the graphs in a model's folder (see `tools/embed_models.py`)."""
    return _parse(folder / EMBEDDED)


def _parse(path: Path) -> ExportConfig:
    tree = read_json(path, "export's config")
    if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
        raise InputError(
            f"{path}: not the config of an export (its format is not {FORMAT!r}); write one with `ballcast export`"
        )
    return from_dict(ExportConfig, tree, where=str(path))


def is_export(source: Path | str) -> bool:
    """Whether a folder's `config.json` is that of an export."""
    path = Path(source) / CONFIG
    tree = read_json(path, "config") if path.is_file() else None
    return isinstance(tree, dict) and tree.get("format") == FORMAT


def export_key(model: Path | str, backbone: Path | str) -> str:
    """A hash of all that an export is made from: the files of model and backbone; "" unless both are here."""
    digest = hashlib.sha256()
    for place in (Path(model), Path(backbone)):
        if not place.exists():  # on the hub
            return ""
        # How often predictions come true is read beside the model, and does not change the export.
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        for path in files:
            if path.suffix in (".json", ".safetensors", ".pth") and path.name != "precision.json":
                digest.update(f"{path.name}:{sha256(path.read_bytes())};".encode())
        digest.update(b"/")
    return digest.hexdigest()


def find_export(model: Path | str, backbone: Path | str) -> Path | None:
    """The folder of an export of exactly this model and backbone: `exported` in the model's folder or beside it, or in
    the cache; None: there is none."""
    key = export_key(model, backbone)
    if not key:
        return None
    folder = Path(model).resolve()
    for found in (folder / "exported", folder.parent / "exported", cached_export(key)):
        with suppress(InputError):  # damaged, or of another version
            if is_export(found):
                _, config = read_export(found)
                if config.key == key and (config.kind, config.precision) == ("onnx", "fp32"):
                    for part in config.files:
                        read_part(found, config, part)
                    return found
    return None


def cached_export(key: str) -> Path:
    """Where the export of this key lies in the cache, if it is there."""
    return cache_folder() / "exports" / key[:32]


def read_part(folder: Path, config: ExportConfig, part: str) -> bytes:
    """Read a part's bytes; an InputError unless they have the recorded hash."""
    record = config.files[part]
    raw = read_bytes(folder / record.file, f"exported {part}")
    if sha256(raw) != record.sha256:
        raise InputError(f"{folder / record.file}: differs from what was exported; export it again")
    return raw


def sha256(raw: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(raw).hexdigest()
