"""The public model: features of 30 s in, slots for the next 5 s out; built from its config, saved as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ballcast.core import hub
from ballcast.core.anticipator_config import EmitConfig, LossConfig, ModelConfig
from ballcast.core.backbone_config import trained_size
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import KEY, check_pair, read_bytes, read_json, show, write_pair
from ballcast.model import calibration
from ballcast.model.calibration import FILE_NAME, Calibration
from ballcast.model.faantra import Faantra
from ballcast.model.hierarchical import Aggregator, Hierarchy, LocalEncoder, PresenceHead, SlotDecoder
from ballcast.model.layers import DecoderLayer, EncoderLayer, band, embedding
from ballcast.model.slots import Heads, Slots
from ballcast.publish.cards import model_card

POSITION_STD = 0.02
SLOT_STD = 1.0
Layer = TypeVar("Layer", EncoderLayer, DecoderLayer)


def build(config: ModelConfig) -> Hierarchy | Faantra:
    """The network of `config.kind`, in training mode, on the default device."""
    return build_hierarchy(config) if config.kind == "hierarchy" else build_faantra(config)


def build_hierarchy(config: ModelConfig) -> Hierarchy:
    h = config.hierarchy
    d = h.dim
    encoder = LocalEncoder(
        project=nn.Linear(config.width, d),
        positions=embedding(config.clips, d, std=POSITION_STD),
        layers=[
            EncoderLayer(dim=d, heads=h.encoder_heads, ffn=h.encoder_ffn, drop_path=h.drop_path)
            for _ in range(h.encoder_layers)
        ],
        norm=nn.LayerNorm(d),
    )
    aggregator = Aggregator(
        gru=nn.GRU(d, d, num_layers=h.gru_layers, batch_first=True),
        windows=config.windows,
        clips=config.clips,
        steps=h.steps,
        weight=h.window_weight,
        gamma=h.window_gamma,
    )
    decoder = SlotDecoder(
        slots=embedding(config.slots, d, std=SLOT_STD),
        context=nn.Linear(d, d, bias=False) if h.queries == "conditioned" else None,
        layers=[
            DecoderLayer(dim=d, heads=h.decoder_heads, ffn=h.decoder_ffn, dropout=h.dropout, norm=h.decoder_norm)
            for _ in range(h.decoder_layers)
        ],
        norm=nn.LayerNorm(d),
    )
    return Hierarchy(
        lookback=config.windows,
        encoder=encoder,
        aggregator=aggregator,
        decoder=decoder,
        heads=_heads(config, d, joint=h.heads == "joint"),
        presence=PresenceHead(dim=d, classes=config.classes) if config.auxiliary else None,
        every_layer=h.every_layer,
    )


def build_faantra(config: ModelConfig) -> Faantra:
    f = config.faantra
    d = f.dim

    def layers(kind: type[Layer], count: int) -> list[Layer]:
        return [
            kind(dim=d, heads=f.heads, ffn=f.ffn, dropout=f.dropout, norm="post", activation="relu")
            for _ in range(count)
        ]

    return Faantra(
        project=nn.Linear(config.width, d),
        positions=nn.Embedding(config.clips, d),
        encoder=layers(EncoderLayer, f.encoder_layers),
        queries=embedding(config.slots, d, std=SLOT_STD),
        decoder=layers(DecoderLayer, f.decoder_layers),
        decoder_norm=nn.LayerNorm(d),
        heads=_heads(config, d, joint=False),
        presence=nn.Linear(d, config.classes + 1) if config.auxiliary else None,
        reach=band(config.clips, f.encoder_reach_ms // f.clip_ms),
        query_reach=band(config.slots, f.decoder_reach),
    )


def _heads(config: ModelConfig, dim: int, *, joint: bool) -> Heads:
    return Heads(dim=dim, classes=config.classes, bins=config.bins, offset=config.offset, joint=joint)


FORMAT = "ballcast-anticipator-1"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
PICKLES = ("pytorch_model.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class SavedModel:
    """What a folder's `config.json` says."""

    folder: Path
    model: ModelConfig
    emit: EmitConfig
    metadata: dict[str, Any]
    tree: dict[str, Any]  # all of it, as it was read


def save(
    folder: Path, weights: Mapping[str, Tensor], model: ModelConfig, emit: EmitConfig, metadata: dict[str, Any]
) -> None:
    """Write both files, which know each other (see `core.pair`). A calibration of other weights there is removed."""
    content = serialise({key: value.detach().cpu().contiguous() for key, value in weights.items()})
    tree = {"format": FORMAT, "model": to_dict(model), "emit": to_dict(emit), "metadata": metadata}
    tuned = folder / calibration.FILE_NAME
    if tuned.exists() and (folder / WEIGHTS).exists() and (folder / WEIGHTS).read_bytes() != content:
        tuned.unlink()
    write_pair(folder, WEIGHTS, content, CONFIG, tree)


def save_calibration(folder: Path, tuned: calibration.Calibration) -> None:
    """Write it beside the weights it belongs to."""
    own = replace(tuned, weights=(calibration.weights_hash(folder / WEIGHTS),))
    calibration.write_calibration(folder / calibration.FILE_NAME, own)


def read_calibration(folder: Path) -> calibration.Calibration | None:
    """The folder's, if it was tuned; an InputError if its weights are not those it was fitted to."""
    path = folder / calibration.FILE_NAME
    if not path.exists():
        return None
    return calibration.read_calibration(path, [calibration.weights_hash(folder / WEIGHTS)])


def read_config(folder: Path) -> SavedModel:
    path = folder / CONFIG
    if not path.exists() and (folder / "best" / CONFIG).exists():
        raise InputError(f"{folder}: is a run's folder; give the model in it, {folder / 'best'}")
    tree = read_json(path, "model's config")
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise InputError(f"{path}: not a ballcast model (its format is not {FORMAT!r})")
    unknown = set(tree) - {"format", "model", "emit", "metadata", KEY}
    if unknown:
        raise InputError(f"{path}: unknown key '{min(unknown)}'; the keys are format, model, emit, metadata")
    for key in ("model", "emit", "metadata"):
        if not isinstance(tree.get(key), dict):
            raise InputError(f"{path}: '{key}' is missing or is not a section with keys of its own")
    model = from_dict(ModelConfig, tree["model"], where=str(path), prefix="model.")
    emit = from_dict(EmitConfig, tree["emit"], where=str(path), prefix="emit.")
    _check_metadata(tree["metadata"], path)
    return SavedModel(folder, model, emit, tree["metadata"], tree)


def _check_metadata(metadata: dict[str, Any], path: Path) -> None:
    """What others rely on is as they expect it, if it is there at all."""
    backbone = metadata.get("backbone", {})
    if not isinstance(backbone, dict):
        raise InputError(f"{path}: 'metadata.backbone' is {show(backbone)} instead of a record")
    for key in ("hash", "name"):
        if not isinstance(backbone.get(key, ""), str):
            raise InputError(f"{path}: 'metadata.backbone.{key}' is {show(backbone[key])} instead of text")
    weight = metadata.get("pos_weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e6:
        raise InputError(f"{path}: 'metadata.pos_weight' is {show(weight)} instead of a positive number")
    trained_size(metadata, str(path))


def read_weights(saved: SavedModel) -> dict[str, Tensor]:
    """The folder's tensors by name, checked to be exactly those the network of its config has."""
    folder = saved.folder
    path = folder / WEIGHTS
    if not path.exists() and any(next(folder.glob(pattern), None) for pattern in PICKLES):
        raise InputError(f"{folder}: holds pickled weights, which can run code; only {WEIGHTS} is read")
    raw = read_bytes(path, "model's weights")
    try:
        weights = load(raw)
    except (SafetensorError, KeyError, ValueError, RuntimeError):
        raise InputError(f"{path}: not a complete safetensors file; fetch or save it again") from None
    if saved.model.kind == "faantra" and "network.encoder_norm.weight" in weights:
        raise InputError(
            f"{path}: a FAANTRA of an older ballcast, with pre-norm layers; train it again with the recipe faantra"
        )
    with torch.device("meta"):  # no memory yet: the config may ask for anything
        expected = {f"network.{key}": value.shape for key, value in build(saved.model).state_dict().items()}
    for key, shape in expected.items():
        if key not in weights:
            raise InputError(f"{path}: tensor '{key}' is missing; {CONFIG} beside it describes another model")
        if weights[key].shape != shape:
            got, want = tuple(weights[key].shape), tuple(shape)
            raise InputError(f"{path}: '{key}' is {got} instead of {want}; {CONFIG} beside it describes another model")
        if not weights[key].is_floating_point():
            raise InputError(f"{path}: '{key}' holds {weights[key].dtype} instead of floating-point numbers")
    unknown = weights.keys() - expected.keys()
    if unknown:
        raise InputError(f"{path}: unknown tensor '{min(unknown)}'; {CONFIG} beside it describes another model")
    check_pair(path, raw, folder / CONFIG, saved.tree)
    return weights


class Anticipator(nn.Module):
    """Either network behind one interface.

    - `config`: the network and its sizes; `emit`: how its slots become predictions.
    - `metadata`: plain JSON data that travels with the weights: class weights, scores, backbone, provenance.
    - `calibration`: what `ballcast tune` found, for submissions; None if it was not tuned.

    Shapes: B samples, W windows of 5 s in order of time, N clips a window, D features a clip, d the token width.
    """

    def __init__(
        self,
        config: ModelConfig | None = None,
        *,
        emit: EmitConfig | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.config = config or ModelConfig()
        self.metadata = metadata or {}
        self.emit = (emit or EmitConfig()).of_loss(self.pos_weight)
        self.calibration: Calibration | None = None
        self.network = build(self.config)

    @property
    def pos_weight(self) -> float:
        """How much a matched slot counted in the loss it was trained with; the paper's, if it does not say."""
        return float(self.metadata.get("pos_weight", LossConfig().pos_weight))

    def encode_window(self, features: Tensor) -> Tensor:
        """Features (..., N, D) of any float type → tokens (..., N, d).

        A window's tokens depend on no other window: live use computes them once and keeps them.
        """
        expected = (self.config.clips, self.config.width)
        if tuple(features.shape[-2:]) != expected:
            got = " × ".join(map(str, features.shape[-2:]))
            raise InputError(
                f"the model reads windows of {expected[0]} clips × {expected[1]} features, these are {got}; "
                "extract the features with the backbone the model was trained on"
            )
        return self.network.encode_window(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Tokens (B, W, N, d) → slots.

        `present` (B, W) bool: False for windows before the video began. Only early windows may be absent, never the
        last; what their tokens hold has no influence. None: all are present.
        """
        return self.network.anticipate(tokens, present)

    def forward(self, features: Tensor, present: Tensor | None = None) -> Slots:
        """Features (B, W, N, D) → slots; `present` as in `anticipate`."""
        if features.ndim != 4 or features.shape[1] != self.config.windows:
            raise InputError(
                f"the model reads (samples, {self.config.windows} windows, clips, features), "
                f"this is {tuple(features.shape)}"
            )
        lookback = self.network.lookback  # windows it does not read are not encoded either
        present = None if present is None else present[:, -lookback:]
        return self.anticipate(self.encode_window(features[:, -lookback:]), present)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json`, and a calibration if there is one, into `folder`."""
        save(Path(folder), self.state_dict(), self.config, self.emit, self.metadata)
        if self.calibration is not None:
            save_calibration(Path(folder), self.calibration)

    @classmethod
    def from_pretrained(cls, source: Path | str) -> "Anticipator":
        """The model in a folder, or of a hub id like "someone/ballcast", in eval mode on the CPU."""
        folder = hub.locate(source, (CONFIG, WEIGHTS), also=(FILE_NAME,))
        saved = read_config(folder)
        weights = read_weights(saved)  # checked before any memory is taken
        model = cls(saved.model, emit=saved.emit, metadata=saved.metadata)
        model.load_state_dict(weights)
        model.calibration = read_calibration(folder)
        return model.eval()

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = True,
        licence: str = "apache-2.0",
        backbone: str | None = None,
        folder: Path | None = None,
    ) -> str:
        """Upload what `save_pretrained` writes, and a card that tells what the metadata does; returns the address.

        `licence`: of the weights, by the hub's short name. `backbone`: the hub id of the one it reads, for the card.
        `folder`: where it was read from, if it has not changed since; then those files go as they are.
        """
        card = model_card(repo_id, self.config, self.metadata, self.calibration, licence=licence, backbone=backbone)
        names = (CONFIG, WEIGHTS, FILE_NAME)
        return hub.push_model(repo_id, names, self.save_pretrained, card, private=private, folder=folder)
