"""What `ballcast export` writes, read back and checked: a folder of graphs with a `config.json`. No torch here.

Four parts, each a file (`.onnx`, or `.pt2` for torch.export). B is any batch, H and W any multiple of the padding:

- `stacks`: pictures (B, stack, H, W) uint8 → maps (B, C, h, w)
- `clips`: maps (B, J, C, h, w) of each clip's stacks → features (B, D)
- `window`: features (B, N, D) → tokens (B, N, d)
- `slots`: tokens (B, W, N, d), present (B, W) bool → objectness, classes, offsets, as in `SlotArrays`
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ballcast.core import hub
from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.core.backbone_config import MAX_SIDE, BackboneConfig, is_size
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json, write_json
from ballcast.model.calibration import Calibration

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


@dataclass(frozen=True)
class BackboneRecord:
    """The backbone inside: what it is called, the hash of its weights, and its sizes."""

    name: str
    hash: str
    config: BackboneConfig


@dataclass(frozen=True)
class FileRecord:
    """One part: its file beside the config, and the SHA-256 of its bytes."""

    file: str
    sha256: str


@dataclass(frozen=True)
class ExportConfig:
    """All that a runtime needs beside the graphs.

    - `kind`: onnx or torch. `precision`: fp32, or int8 where the backbone's convolutions are quantised.
    - `lookback`: how many windows the model reads. `pos_weight`: of the loss it was trained with.
    - `actions`: the classes in their order. `calibration`: what `ballcast tune` found.
    - `picture_size`: H, W of the pictures in training, where that is known.
    - `figures`: what was measured when it was written: how far the parts are from torch, what INT8 costs.
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
    calibration: Calibration | None = None
    picture_size: tuple[int, int] | None = None
    figures: dict[str, float] = field(default_factory=dict)
    ballcast: str = ""

    def __post_init__(self) -> None:
        if self.actions != tuple(ACTIONS):
            raise InputError("actions are not those of this version, in their order")
        if set(self.files) != set(PARTS):
            raise InputError(f"files must name the parts {', '.join(PARTS)}")
        if any(Path(record.file).name != record.file for record in self.files.values()):
            raise InputError("files must lie beside the config")
        if not 1 <= self.lookback <= self.model.windows:
            raise InputError(f"lookback must be between 1 and the model's {self.model.windows} windows")
        if not 0 < self.pos_weight <= 1e6:
            raise InputError("pos_weight must be above 0 and at most a million")
        if self.picture_size and not is_size(self.picture_size):
            raise InputError(f"picture_size must be a height and a width between 1 and {MAX_SIDE} pixels")


def write_config(folder: Path, config: ExportConfig) -> None:
    tree: dict[str, Any] = {"format": FORMAT, **to_dict(config)}
    write_json(folder / CONFIG, tree, indent=1)


def read_config(source: Path | str) -> tuple[Path, ExportConfig]:
    """The folder (or hub id) `source` and what its config says; an InputError if it is no export."""
    folder = hub.locate(source, (CONFIG,), also=tuple(f"{part}.onnx" for part in PARTS))
    path = folder / CONFIG
    if not path.exists():
        raise InputError(f"{folder}: no export here, it has no {CONFIG}; write one with `ballcast export`")
    tree = read_json(path, "export's config")
    if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
        raise InputError(
            f"{path}: is not of an export (its format is not {FORMAT!r}); write one with `ballcast export`"
        )
    return folder, from_dict(ExportConfig, tree, where=str(path))


def is_export(source: Path | str) -> bool:
    """Whether a folder says it is one."""
    path = Path(source) / CONFIG
    tree = read_json(path, "config") if path.is_file() else None
    return isinstance(tree, dict) and tree.get("format") == FORMAT


def read_part(folder: Path, config: ExportConfig, part: str) -> bytes:
    """The part's bytes, which must be those that were written."""
    record = config.files[part]
    raw = read_bytes(folder / record.file, f"exported {part}")
    if sha256(raw) != record.sha256:
        raise InputError(f"{folder / record.file}: is not what was exported, some of it was changed; export it again")
    return raw


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
