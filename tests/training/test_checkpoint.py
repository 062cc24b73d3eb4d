"""The saved state of a run: what comes back is what was saved, and what is damaged is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ballcast.core.anticipator_config import TrainConfig
from ballcast.core.errors import InputError
from ballcast.training.checkpoint import FORMAT, Progress, load_state, save_state
from ballcast.training.optimizer import build_optimizer


def trained(seed: int, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = build_optimizer(model, TrainConfig(lr=0.1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(5, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_state(tmp_path / "state.safetensors", *trained(0), Progress(7, 0.25, 1))
    return tmp_path / "state.safetensors"


@pytest.mark.parametrize("steps", [0, 2])
def test_a_run_goes_on_where_it_was(tmp_path: Path, steps: int) -> None:
    model, optimizer = trained(0, steps)
    save_state(tmp_path / "state", model, optimizer, Progress(7, 0.25, 1))
    expected = torch.rand(3)
    other, its = trained(1)
    assert load_state(tmp_path / "state", other, its) == Progress(7, 0.25, 1)
    assert torch.equal(torch.rand(3), expected)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert optimizer.state[mine].keys() == its.state[theirs].keys()
        for key, value in optimizer.state[mine].items():
            assert torch.equal(value, its.state[theirs][key])


def test_moments_are_laid_out_as_their_parameters(tmp_path: Path) -> None:
    def network() -> nn.Module:
        return nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    model = network()
    optimizer = build_optimizer(model, TrainConfig())
    model(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    save_state(tmp_path / "state", model, optimizer, Progress())
    other = network()
    its = build_optimizer(other, TrainConfig())
    load_state(tmp_path / "state", other, its)
    assert other.weight.stride() == model.weight.stride()
    assert its.state[other.weight]["exp_avg"].stride() == other.weight.stride()
    assert torch.equal(its.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


def remove(key: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda tensors: tensors.pop(key)


def put(key: str, value: Tensor) -> Callable[[dict[str, Tensor]], Any]:
    return lambda tensors: tensors.update({key: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (remove("random.cpu"), "random.cpu"),
        (put("random.cpu", torch.zeros(3, dtype=torch.uint8)), "random.cpu"),
        (put("random.cpu", torch.zeros(5056)), "random.cpu"),
        (remove("optimizer.exp_avg.0.weight"), "optimizer.exp_avg.0.weight"),
        (remove("optimizer.step.2.bias"), "optimizer.step.2.bias"),
        (put("optimizer.exp_avg_sq.0.weight", torch.zeros(1)), "optimizer.exp_avg_sq.0.weight"),
        (put("optimizer.exp_avg_sq.0.bias", torch.zeros(4, dtype=torch.float64)), "optimizer.exp_avg_sq.0.bias"),
        (put("optimizer.step.0.bias", torch.zeros(2)), "optimizer.step.0.bias"),
        (put("optimizer.exp_avg.9.bias", torch.zeros(4)), "optimizer.exp_avg.9.bias"),
        (remove("model.0.weight"), "model.0.weight"),
        (put("model.0.weight", torch.zeros(3, 4)), "model.0.weight"),
        (put("model.0.weight", torch.zeros(4, 3, dtype=torch.int32)), "model.0.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(path: Path, change: Callable[..., Any], named: str) -> None:
    tensors = load_file(path)
    change(tensors)
    with safe_open(path, "pt") as file:
        metadata = {FORMAT: file.metadata()[FORMAT]}  # without the checksum
    save_file(tensors, path, metadata)
    model, optimizer = trained(1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(InputError, match=f"damaged or of another model .see {named}."):
        load_state(path, model, optimizer)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": -5}, "never negative"),
        ({"step": "x"}, "'step' must be a whole number"),
        ({"best": "x"}, "'best' must be a number"),
        ({"best": float("nan")}, "'best' must be a finite number"),
        ({"finished": 1}, "'finished' must be true or false"),
        ({"steps": 3}, "does not say how far the run is"),
        (None, "does not say how far the run is"),
        ([], "does not say how far the run is"),
    ],
)
def test_progress_that_cannot_be_is_one_sentence(path: Path, change: Any, words: str) -> None:
    good = {"step": 7, "best": 0.25, "best_epoch": 1, "finished": False}
    told = {**good, **change} if isinstance(change, dict) else change
    save_file(load_file(path), path, {FORMAT: json.dumps(told)})
    with pytest.raises(InputError, match=words) as caught:
        load_state(path, *trained(1))
    assert str(path) in str(caught.value)
    save_file(load_file(path), path, {FORMAT: json.dumps({"step": 7})})
    with pytest.raises(InputError, match="does not say how far"):
        load_state(path, *trained(1))


def test_a_state_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(InputError, match="state: cannot be written"):
        save_state(tmp_path / "state", *trained(0), Progress())


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    for at in (0, 9, 40, 200, len(raw) // 2, len(raw) - 1):
        damaged = bytes(raw[:at]) + bytes([raw[at] ^ 64]) + bytes(raw[at + 1 :])
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"state\.safetensors: its checksum differs"):
            load_state(path, *trained(1))
    path.write_bytes(raw)
    assert load_state(path, *trained(1)).step == 7
