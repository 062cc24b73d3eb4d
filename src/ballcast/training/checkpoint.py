"""The full state of a run, as one safetensors file: it is whole or it is not there, and it is data, not code."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ballcast.core.errors import InputError
from ballcast.core.files import replacing

FILE_NAME = "state.safetensors"
FORMAT = "ballcast-state-1"


@dataclass
class Progress:
    """How far a run is: `step` steps done in all, and its best validation score so far."""

    step: int = 0
    best: float = -1.0
    best_epoch: int = 0
    finished: bool = False


def save_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Weights, moments, random states and progress: everything the next step depends on."""
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    # One key: safetensors writes several in any order, and the same state should be the same bytes.
    metadata = {FORMAT: json.dumps(asdict(progress))}
    with replacing(path) as temporary:
        save_file({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, temporary, metadata)


def load_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a run back where it was saved; the optimizer's state is made as its first step would make it."""
    tensors, progress = _read(path)
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    expected = model.state_dict()
    if weights.keys() != expected.keys() or any(weights[k].shape != expected[k].shape for k in expected):
        raise InputError(f"{path}: the state is of another model; resume with the recipe the run was started with")
    model.load_state_dict(weights)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state.pop(parameter, None)
    for name, parameter in model.named_parameters():
        keys = [k for k in ("step", "exp_avg", "exp_avg_sq") if f"optimizer.{k}.{name}" in tensors]
        for key in keys:
            value = tensors[f"optimizer.{key}.{name}"]
            # The step counter of a plain AdamW stays on the CPU; a fused one counts on the device.
            on_device = key != "step" or any(g.get("fused") or g.get("capturable") for g in optimizer.param_groups)
            optimizer.state[parameter][key] = value.to(parameter.device if on_device else "cpu")
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return progress


def read_progress(path: Path) -> Progress:
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Tensor], Progress]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise InputError(f"{path}: is no saved state of a run; start anew in another folder")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a dict)
        return tensors, Progress(**json.loads(metadata[FORMAT]))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as a saved state ({error}); start anew in another folder") from None
