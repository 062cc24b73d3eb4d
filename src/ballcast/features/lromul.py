"""Published spotting checkpoints as backbones: read as data, never as code.

A file holds `{"model_name", "params", "nn_state_dict"}`, as `torch.save` writes it.
"""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.features.backbone import BackboneConfig

LEAK = (
    "this spotting model was trained on games of SN-BAA's valid and test splits (at least two of the three), "
    "so scores on them with its features are too good; pre-train on the training games for a clean result"
)
_OURS = (  # their names and ours
    ("conv2d_encoder.", "encoder."),
    ("conv2d_projection.", "project2d."),
    ("conv3d_encoder.", "blocks."),
    ("conv3d_projection.", "project3d."),
    ("global_pool.", "pool."),
    (".bn3d.", "."),
)


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint in our terms."""

    config: BackboneConfig
    state: dict[str, Tensor]
    name: str
    fold: str | None
    note: str


def read_checkpoint(path: Path, *, fold: str | None = None) -> Checkpoint:
    """The checkpoint at `path`; without `fold`, a folder or file name with "fold_3" in it tells which it is."""
    tree = _load(path)
    if not isinstance(tree, dict) or not isinstance(tree.get("nn_state_dict"), dict):
        raise InputError(f"{path}: has no 'nn_state_dict'; give a MultiDimStacker checkpoint or a backbone's folder")
    if not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in tree["nn_state_dict"].items()):
        raise InputError(f"{path}: its 'nn_state_dict' holds more than weights by name; is it damaged?")
    state = {rename(key): value for key, value in tree["nn_state_dict"].items()}
    state = {key: value[..., 0] if _pointwise(key, value) else value for key, value in state.items()}
    params = tree.get("params")
    config = _config(state, params if isinstance(params, dict) else {}, path)
    if fold is None and (found := re.search(r"fold[_-]?(\w+?)(?=[_./-]|$)", str(path))):
        fold = found.group(1)
    warnings.warn(f"{path}: {LEAK}", BallcastWarning, stacklevel=3)
    return Checkpoint(config, state, f"lromul-{path.stem}", fold or "unknown", LEAK)


def rename(key: str) -> str:
    """Our name of a published weight, whatever wrapper's prefixes it carries."""
    key = re.sub(r"^(?:_orig_mod\.|module\.)+", "", key)
    for theirs, ours in _OURS:
        key = key.replace(theirs, ours)
    return key


def _pointwise(key: str, value: Tensor) -> bool:
    """Theirs are 3D convolutions of size 1, ours the same as 2D ones."""
    return key.startswith("blocks.") and value.ndim == 5 and tuple(value.shape[2:]) == (1, 1, 1)


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a checkpoint or a backbone's folder") from None
    except UnpicklingError:
        raise InputError(f"{path}: holds more than weights (code, or it is damaged) and is not loaded") from None
    except Exception as error:  # whatever damaged bytes lead torch's reader to
        why = str(error).partition("\n")[0][:120] or type(error).__name__
        raise InputError(f"{path}: is not a torch checkpoint ({why})") from None


def _config(state: dict[str, Tensor], params: dict[str, Any], path: Path) -> BackboneConfig:
    """Every size as the weights' shapes tell it; only the 2D network's name and the step come from `params`."""
    module = params.get("nn_module")
    told = module[1] if isinstance(module, list | tuple) and len(module) == 2 else module
    told = told if isinstance(told, dict) else {}
    try:
        stack = state["encoder.conv_stem.weight"].shape[1]
        channels = state["project2d.0.weight"].shape[0]
        inner = state["blocks.0.conv_pw.weight"].shape[0]
        projected = state["project3d.0.weight"].shape[0]
        classes, width = state["classifier.weight"].shape
        return BackboneConfig(
            encoder=str(told.get("model_name", BackboneConfig.encoder)),
            frames=width // projected * stack,
            stack=stack,
            step=int(params.get("frame_stack_step", BackboneConfig.step)),
            channels=channels,
            blocks=len({key.split(".")[1] for key in state if key.startswith("blocks.")}),
            expansion=inner // channels,
            se_ratio=inner // state["blocks.0.se.conv_reduce.weight"].shape[0],
            projected=projected,
            classes=classes,
        )
    except InputError as error:  # sizes that fit no network
        raise InputError(f"{path}: is not a MultiDimStacker checkpoint ({error})") from None
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: is not a MultiDimStacker checkpoint (no {error})") from None
