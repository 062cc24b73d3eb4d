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

from ballcast.core.backbone_config import BackboneConfig, is_size, padding_sides
from ballcast.core.checks import show
from ballcast.core.errors import BallcastWarning, InputError, first_line
from ballcast.video.luma import Size

WIDE = (16, 9)  # the shape of broadcast frames
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
    picture_size: Size | None  # H, W of the frames before padding; None: not in `params`


def read_checkpoint(path: Path, *, fold: str | None = None) -> Checkpoint:
    """The checkpoint at `path`; without `fold`, it is read from "fold_3" in the folder's or file's name."""
    tree = load_torch_file(path)
    if not isinstance(tree, dict) or not isinstance(tree.get("nn_state_dict"), dict):
        raise InputError(f"{path}: has no 'nn_state_dict'; give a MultiDimStacker checkpoint or a backbone's folder")
    if not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in tree["nn_state_dict"].items()):
        raise InputError(f"{path}: its 'nn_state_dict' holds more than weights by name; is it damaged?")
    _check_storage(tree["nn_state_dict"], path)
    state = {rename(key): value for key, value in tree["nn_state_dict"].items()}
    state = {key: value[..., 0] if _pointwise(key, value) else value for key, value in state.items()}
    params = tree.get("params")
    params = params if isinstance(params, dict) else {}
    config = _config(state, params, path)
    size = _picture_size(params, path)
    if fold is None and (found := re.search(r"fold[_-]?(\w+?)(?=[_./-]|$)", str(path))):
        fold = found.group(1)
    warnings.warn(f"{path}: {LEAK}", BallcastWarning, stacklevel=3)
    return Checkpoint(config, state, f"lromul-{path.stem}", fold or "unknown", LEAK, size)


def rename(key: str) -> str:
    """Our name of a published weight, whatever wrapper's prefixes it carries."""
    key = re.sub(r"^(?:_orig_mod\.|module\.)+", "", key)
    for theirs, ours in _OURS:
        key = key.replace(theirs, ours)
    return key


def _pointwise(key: str, value: Tensor) -> bool:
    """Theirs are 3D convolutions of size 1, ours the same as 2D ones."""
    return key.startswith("blocks.") and value.ndim == 5 and tuple(value.shape[2:]) == (1, 1, 1)


def _check_storage(state: dict[str, Tensor], path: Path) -> None:
    """Raise an InputError if a tensor has more numbers than are stored: a stride of 0 makes terabytes of nothing."""
    for key, value in state.items():
        if value.layout != torch.strided or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            shape = str(tuple(value.shape))[:60]
            raise InputError(f"{path}: {show(key)} of shape {shape} has more numbers than the file stores; not loaded")


def load_torch_file(path: Path) -> Any:
    """What a file of `torch.save` holds, tensors and plain values only; code in it is never run."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a checkpoint or a backbone's folder") from None
    except UnpicklingError:
        raise InputError(f"{path}: holds more than weights (code, or it is damaged) and is not loaded") from None
    except Exception as error:  # whatever damaged bytes lead torch's reader to
        raise InputError(f"{path}: is not a torch checkpoint ({first_line(error, 120)})") from None


def _picture_size(params: dict[str, Any], path: Path) -> Size | None:
    """H, W of the frames that it was trained on, before padding.

    `params` gives the size after padding, as (width, height): the published frames of 1280×720 are zero-padded,
    centred, to 1280×736. A size that a 16:9 frame gets by padding to a multiple of 32 stands for that frame.
    """
    named = params.get("frames_processor")
    processor, given = named if isinstance(named, list | tuple) and len(named) == 2 else (None, {})
    given = given if isinstance(given, dict) else {}
    padding = (given.get("pad_mode", "constant"), given.get("fill_value", 0))
    if processor not in (None, "pad_normalize") or padding != ("constant", 0):
        how = ", ".join(map(show, (processor, *padding)))
        raise InputError(f"{path}: 'frames_processor' is {how}; only frames padded with 0 (pad_normalize) can be read")
    padded = given.get("size", params.get("image_size"))
    if padded is None:
        return None
    if not isinstance(padded, list | tuple) or not is_size(padded):
        raise InputError(f"{path}: its image size is {show(padded)} instead of a width and a height in pixels")
    width, height = padded
    scale = min(width / WIDE[0], height / WIDE[1])
    inside = round(WIDE[1] * scale), round(WIDE[0] * scale)
    left, right, above, below = padding_sides(*inside, BackboneConfig.padding)
    unpadded = (inside[0] + above + below, inside[1] + left + right) == (height, width)
    return inside if unpadded else (height, width)


def _config(state: dict[str, Tensor], params: dict[str, Any], path: Path) -> BackboneConfig:
    """Every size from the shapes of the weights; only the 2D network's name and the step come from `params`."""
    module = params.get("nn_module")
    given = module[1] if isinstance(module, list | tuple) and len(module) == 2 else module
    given = given if isinstance(given, dict) else {}
    try:
        stack = state["encoder.conv_stem.weight"].shape[1]
        channels = state["project2d.0.weight"].shape[0]
        inner = state["blocks.0.conv_pw.weight"].shape[0]
        projected = state["project3d.0.weight"].shape[0]
        classes, width = state["classifier.weight"].shape
        return BackboneConfig(
            encoder=str(given.get("model_name", BackboneConfig.encoder)),
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
