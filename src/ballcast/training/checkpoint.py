"""The full state of a run, as one safetensors file, written atomically."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ballcast.core.checks import add_safetensors_checksum, verify_checksum
from ballcast.core.config import Record, from_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, write_bytes
from ballcast.training.ema import Ema

FILE_NAME = "state.safetensors"
FORMAT = "ballcast-state-1"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's state of a parameter


@dataclass
class Progress(Record):
    """How far a run is: `step` steps done in all, and its best validation score so far."""

    step: int = 0
    best: float = -1.0
    best_epoch: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        if self.step < 0 or self.best_epoch < 0 or not -1 <= self.best <= 1:
            raise InputError("the saved progress is impossible: counts are never negative, and scores are at most 1")


def save_state(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, ema: Ema | None = None
) -> None:
    """Write all the next step depends on: weights, their moving average, AdamW's state, random states and progress."""
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"ema.{k}": v for k, v in ema.state_dict().items()} if ema else {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    # One key: safetensors writes several in any order, and the same state should be the same bytes.
    metadata = {FORMAT: json.dumps(asdict(progress))}
    raw = serialise({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, metadata)
    write_bytes(path, add_safetensors_checksum(raw))


def load_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None = None) -> Progress:
    """Restore the model, optimizer, EMA and random states from a saved state; returns the run's progress."""
    tensors, progress = _read(path)
    _check(path, tensors, model, ema)
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    if ema is not None:
        ema.load_state_dict({k.removeprefix("ema."): v for k, v in tensors.items() if k.startswith("ema.")})
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state.pop(parameter, None)
    for name, parameter in model.named_parameters():
        for key in MOMENTS if f"optimizer.step.{name}" in tensors else ():
            value = tensors[f"optimizer.{key}.{name}"]
            # The step counter of a plain AdamW stays on the CPU; a fused one counts on the device.
            on_device = key != "step" or any(g.get("fused") or g.get("capturable") for g in optimizer.param_groups)
            placed = value.to(parameter.device if on_device else "cpu")
            if key != "step":  # laid out as the parameter is: fused optimizers go through both in memory's order
                placed = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(placed)
            optimizer.state[parameter][key] = placed
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return progress


def read_progress(path: Path) -> Progress:
    """Read the progress of a saved state, without its tensors."""
    return _read(path, tensors=False)[1]


def _check(path: Path, tensors: dict[str, Tensor], model: nn.Module, ema: Ema | None) -> None:
    """Raise an InputError unless the tensors are those of this model, its optimizer and the random states."""
    expected = {f"model.{k}": _kind(v) for k, v in model.state_dict().items()}
    expected |= {f"ema.{k}": _kind(v) for k, v in ema.state_dict().items()} if ema else {}
    expected["random.cpu"] = _kind(torch.get_rng_state())
    if "random.cuda" in tensors:  # a run may be resumed without a GPU
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else tensors["random.cuda"]
        expected["random.cuda"] = _kind(cuda)
    for name, parameter in model.named_parameters():
        if any(f"optimizer.{key}.{name}" in tensors for key in MOMENTS):  # none before the first step
            kinds = (((), torch.float32), _kind(parameter), _kind(parameter))
            expected |= {f"optimizer.{key}.{name}": kind for key, kind in zip(MOMENTS, kinds, strict=True)}
    wrong = [k for k in sorted(tensors.keys() | expected) if k not in tensors or expected.get(k) != _kind(tensors[k])]
    if wrong:
        raise InputError(
            f"{path}: the state is damaged or of another model (see {wrong[0]}); resume with the recipe the run was "
            "started with, or start a new run in another folder"
        )


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.dtype


def _read(path: Path, *, tensors: bool = True) -> tuple[dict[str, Tensor], Progress]:
    verify_checksum(read_bytes(path, "saved state"), path, "start a new run in another folder")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise InputError(f"{path}: is no saved state of a run; start a new run in another folder")
            names = file.keys() if tensors else []
            loaded = {key: file.get_tensor(key) for key in names}
        return loaded, _progress(json.loads(metadata[FORMAT]), path)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read as a saved state ({error}); start a new run in another folder"
        ) from None


def _progress(tree: Any, path: Path) -> Progress:
    if not isinstance(tree, dict) or tree.keys() != {field.name for field in fields(Progress)}:
        raise InputError(f"{path}: does not say how far the run is; start a new run in another folder")
    return from_dict(Progress, tree, where=str(path))
