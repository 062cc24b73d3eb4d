"""The public model: features of 30 s in, slots for the next 5 s out; and its folder of weights and config."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ballcast.core import hub
from ballcast.core.anticipator_config import EmitConfig, LossConfig, ModelConfig
from ballcast.core.backbone_config import trained_size
from ballcast.core.checks import KEY, check_pair, check_weights, show
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json, write_pair
from ballcast.model import score_mapping
from ballcast.model.dense import Dense
from ballcast.model.faantra import Faantra
from ballcast.model.hierarchical import Hierarchy
from ballcast.model.score_mapping import FILE_NAME, ScoreMapping
from ballcast.model.slots import Slots
from ballcast.publish.cards import model_card

FORMAT = "ballcast-anticipator-1"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
PICKLES = ("pytorch_model.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


NETWORKS: dict[str, type[Hierarchy] | type[Faantra] | type[Dense]] = {
    "hierarchy": Hierarchy,
    "faantra": Faantra,
    "dense": Dense,
}


def build(config: ModelConfig) -> Hierarchy | Faantra | Dense:
    """Build the network of `config.kind`, in training mode, on the default device."""
    return NETWORKS[config.kind].from_config(config)


@dataclass(frozen=True)
class SavedModel:
    """The checked content of a model folder's `config.json`; `tree` is all of it, as parsed."""

    folder: Path
    model: ModelConfig
    emit: EmitConfig
    metadata: dict[str, Any]
    tree: dict[str, Any]


def save(
    folder: Path, weights: Mapping[str, Tensor], model: ModelConfig, emit: EmitConfig, metadata: dict[str, Any]
) -> None:
    """Write `model.safetensors` and `config.json`, linked by a hash (`core.files.write_pair`).

    A `calibration.json` in the folder that was fitted to other weights is removed.

    Args:
        folder: where to write; made if needed.
        weights: the tensors by their state-dict names.
        model, emit, metadata: the sections of `config.json`.
    """
    content = serialise({key: value.detach().cpu().contiguous() for key, value in weights.items()})
    tree = {"format": FORMAT, "model": to_dict(model), "emit": to_dict(emit), "metadata": metadata}
    tuned = folder / FILE_NAME
    if tuned.exists() and (folder / WEIGHTS).exists() and (folder / WEIGHTS).read_bytes() != content:
        tuned.unlink()
    write_pair(folder, WEIGHTS, content, CONFIG, tree)


def save_score_mapping(folder: Path, tuned: ScoreMapping) -> None:
    """Write `calibration.json` beside the weights in `folder`, with their hash."""
    saved = replace(tuned, weights=(score_mapping.weights_hash(folder / WEIGHTS),))
    score_mapping.write_score_mapping(folder / FILE_NAME, saved)


def _saved_score_mapping(folder: Path) -> ScoreMapping | None:
    """Read the folder's `calibration.json`; None if there is none, an InputError if it belongs to other weights."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    return score_mapping.read_score_mapping(path, [score_mapping.weights_hash(folder / WEIGHTS)])


def read_config(folder: Path) -> SavedModel:
    """Read and check the `config.json` of a model's folder."""
    path = folder / CONFIG
    if not path.exists() and (folder / "best" / CONFIG).exists():
        raise InputError(f"{folder}: is a run folder; give its model, {folder / 'best'}")
    tree = read_json(path, "model's config")
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise InputError(f"{path}: not a ballcast model (its format is not {FORMAT!r})")
    unknown = set(tree) - {"format", "model", "emit", "metadata", KEY}
    if unknown:
        raise InputError(f"{path}: unknown key '{min(unknown)}'; the keys are format, model, emit, metadata")
    for key in ("model", "emit", "metadata"):
        if not isinstance(tree.get(key), dict):
            raise InputError(f"{path}: '{key}' is missing or is not a section")
    model = from_dict(ModelConfig, tree["model"], where=str(path), prefix="model.")
    emit = from_dict(EmitConfig, tree["emit"], where=str(path), prefix="emit.")
    _check_metadata(tree["metadata"], path)
    return SavedModel(folder, model, emit, tree["metadata"], tree)


def _check_metadata(metadata: dict[str, Any], path: Path) -> None:
    """Check the types of the metadata that the code reads, where present."""
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
    """Read the folder's tensors by name; an InputError unless they are exactly those of its config's network."""
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
        expected = {f"network.{key}": value for key, value in build(saved.model).state_dict().items()}
    check_weights(expected, weights, str(path), f"; {CONFIG} beside it describes another model")
    check_pair(path, raw, folder / CONFIG, saved.tree)
    return weights


class Anticipator(nn.Module):
    """Any of the networks behind one interface.

    Shapes: B samples, W windows of 5 s in order of time, N snippets per window (`config.clips`), D features per
    snippet (`config.width`), d the token width.

    Args:
        config: the network and its sizes; by default the paper's.
        emit: how slots become predictions; by default the paper's way.
        metadata: JSON data saved with the weights: class weights, scores, backbone, provenance.

    Attributes:
        score_mapping: the score mapping that `ballcast tune` fitted, for submissions; None if the model was not tuned.
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
        self.score_mapping: ScoreMapping | None = None
        self.network = build(self.config)

    @property
    def pos_weight(self) -> float:
        """The weight of matched slots in the objectness loss of training; the paper's if the metadata has none."""
        return float(self.metadata.get("pos_weight", LossConfig().pos_weight))

    def encode_window(self, features: Tensor) -> Tensor:
        """Encode windows, each independently of the others; live use computes a window's tokens once and keeps them.

        Args:
            features: (..., N, D), any floating-point type.

        Returns:
            Tokens (..., N, d).
        """
        expected = (self.config.clips, self.config.width)
        if tuple(features.shape[-2:]) != expected:
            got = " × ".join(map(str, features.shape[-2:]))
            raise InputError(
                f"the model reads windows of {expected[0]} snippets × {expected[1]} features, these are {got}; "
                "extract the features with the backbone the model was trained on"
            )
        return self.network.encode_window(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Predict slots from the tokens of the observed windows.

        Args:
            tokens: (B, W, N, d).
            present: (B, W) bool, False for windows before the video began, whose tokens have no influence. Only early
                windows may be absent, never the last. None: all are present.

        Returns:
            K slots per sample.
        """
        return self.network.anticipate(tokens, present)

    def forward(self, features: Tensor, present: Tensor | None = None) -> Slots:
        """Predict slots: features (B, W, N, D) → `Slots`; `present` (B, W) as in `anticipate`."""
        if features.ndim != 4 or features.shape[1] != self.config.windows:
            raise InputError(
                f"the model reads (samples, {self.config.windows} windows, snippets, features), "
                f"this is {tuple(features.shape)}"
            )
        lookback = self.network.lookback  # windows the network does not read are not encoded
        present = None if present is None else present[:, -lookback:]
        return self.anticipate(self.encode_window(features[:, -lookback:]), present)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json`, and `calibration.json` if the model was tuned, into `folder`."""
        save(Path(folder), self.state_dict(), self.config, self.emit, self.metadata)
        if self.score_mapping is not None:
            save_score_mapping(Path(folder), self.score_mapping)

    @classmethod
    def from_pretrained(cls, source: Path | str) -> "Anticipator":
        """Load a model in eval mode on the CPU.

        Args:
            source: a folder, or a hub id like "someone/ballcast".
        """
        folder = hub.locate(source, (CONFIG, WEIGHTS), also=(FILE_NAME,))
        saved = read_config(folder)
        weights = read_weights(saved)  # checked before the network is allocated
        model = cls(saved.model, emit=saved.emit, metadata=saved.metadata)
        model.load_state_dict(weights)
        model.score_mapping = _saved_score_mapping(folder)
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
        """Upload the files of `save_pretrained` and a model card made from the metadata.

        Args:
            repo_id: such as "someone/ballcast".
            private: whether a new repository is private.
            licence: of the weights, by the hub's short name.
            backbone: hub id of the model's backbone, for the card.
            folder: where the model was loaded from, if it has not changed since; its files are uploaded unchanged.

        Returns:
            The address of the repository.
        """
        card = model_card(repo_id, self.config, self.metadata, self.score_mapping, licence=licence, backbone=backbone)
        names = (CONFIG, WEIGHTS, FILE_NAME)
        return hub.push_model(repo_id, names, self.save_pretrained, card, private=private, folder=folder)
