"""A model as files, in a folder or on the hub: `config.json`, `model.safetensors`, `calibration.json` if it was tuned.

Data only, no pickle.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as serialise
from torch import Tensor

from ballcast.core.backbone import trained_size
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json
from ballcast.core.pair import KEY, check_pair, write_pair
from ballcast.core.recipe import EmitConfig, ModelConfig
from ballcast.core.records import show
from ballcast.model import calibration
from ballcast.model.build import build

FORMAT = "ballcast-anticipator-1"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
PICKLES = ("pytorch_model.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Saved:
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


def read_config(folder: Path) -> Saved:
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
    return Saved(folder, model, emit, tree["metadata"], tree)


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


def read_weights(saved: Saved) -> dict[str, Tensor]:
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
