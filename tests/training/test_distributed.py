"""Two processes on the CPU do what one does with the joined batch."""

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from synthetic import SMALL, make_game, make_split

from ballcast.core.anticipator_config import LossConfig, ModelConfig, Recipe
from ballcast.core.config import load
from ballcast.loss.criterion import Criterion
from ballcast.loss.matcher import Targets
from ballcast.model.slots import Slots
from ballcast.training.distributed import Ranks, joined
from ballcast.training.loop import RunContext, Trainer, open_run
from ballcast.training.run import build_task, train

ROOT = Path(__file__).parents[2]
# Draws inside the network differ between processes by design; everything else must not.
STILL = ["model.hierarchy.dropout=0", "model.hierarchy.drop_path=0", "train.epochs=2", "train.batch=8"]


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    make_game(tmp_path / "train", 90, seed=1)
    make_split(tmp_path / "valid", 13, seed=2)  # odd: the processes' shares differ
    return tmp_path


def torchrun(*command: object) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, *map(str, command)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def first_gradients(folder: Path, run: Path) -> dict[str, torch.Tensor]:
    """The gradients of the first step of the paper's recipe: MixUp, both matchings, dropped windows, auxiliary loss."""
    with joined("cpu") as (ranks, device):
        return gradients_of(folder, run, ranks, device)


def gradients_of(folder: Path, run: Path, ranks: Ranks, device: torch.device) -> dict[str, torch.Tensor]:
    recipe = load(Recipe, Path("paper"), [*SMALL, *STILL, f"data.features={folder}", "train.clip=1e9"])
    task = build_task(recipe, open_run(recipe, run, device, ranks))
    losses = task.step(next(task.batches(0, 0)))
    gradients = {name: p.grad.clone() for name, p in task.learner.named_parameters() if p.grad is not None}
    gradients["losses"] = ranks.mean(losses)
    if ranks.writes:
        save_file(gradients, run.with_suffix(".safetensors"))
    return gradients


def test_two_ranks_give_the_gradients_of_the_joined_batch(splits: Path, tmp_path: Path) -> None:
    alone = first_gradients(splits, tmp_path / "alone")
    torchrun(__file__, "gradients", splits, tmp_path / "both")
    both = load_file(tmp_path / "both.safetensors")
    assert both.keys() == alone.keys()
    assert len(alone) > 40
    for name, gradient in alone.items():
        torch.testing.assert_close(both[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def losses_of_a_share(out: Path) -> None:
    """The losses of four weighted samples, shared among the processes; only the last one may have positives."""
    torch.manual_seed(0)
    slots = Slots(torch.randn(4, 4), torch.randn(4, 4, 10), torch.randn(4, 4, 32), 32, torch.randn(4, 5, 10))
    classes = torch.tensor([[1, 2], [-1, -1], [3, -1], [-1, -1]])
    weight = torch.tensor([0.25, 0.75, 0.75, 0.25])
    found = {}
    with joined("cpu") as (ranks, _):
        own = slice(ranks.rank * 4 // ranks.count, (ranks.rank + 1) * 4 // ranks.count)
        for average in ("samples", "batch"):
            for positives in (0, 1, 2, 5):  # each of weight 0.25: together they are below 1, or above
                presence = torch.zeros(4, 5, 10)
                presence[3, :positives, 1] = 1
                targets = Targets.from_ms(classes, torch.tensor([[31_000, 33_000]] * 4), 32, presence)
                mine = Targets(*(t[own] for t in (targets.classes, targets.bins, targets.times, presence)))
                judge = Criterion(config=replace(LossConfig(), average=average), model=ModelConfig())  # type: ignore[arg-type]
                half = slots.map(lambda t: t[own])
                losses = judge(half, mine, weight[own], reduce=ranks.normalisers)
                spotting = judge.spotting(half.presence, presence[own], weight[own], reduce=ranks.normalisers)
                found[f"{average}, {positives}"] = ranks.mean(torch.stack([*losses, spotting]))
        if ranks.writes:
            save_file(found, out)


def test_two_ranks_give_the_loss_of_the_joined_batch(tmp_path: Path) -> None:
    """A process without positives must not count as one with one."""
    losses_of_a_share(tmp_path / "alone.safetensors")
    torchrun(__file__, "losses", tmp_path / "both.safetensors")
    alone, both = (load_file(tmp_path / f"{name}.safetensors") for name in ("alone", "both"))
    assert len(alone) == len(both) == 8
    for name, losses in alone.items():
        torch.testing.assert_close(both[name], losses, msg=name)


def test_a_training_that_is_over_is_freed_at_once(splits: Path, tmp_path: Path) -> None:
    """Without waiting for the garbage collector: DDP's threads must have ended before the process does."""
    recipe = load(Recipe, Path("paper"), [*SMALL, *STILL, f"data.features={splits}", "train.ema=0.9"])
    gc.disable()
    try:
        task = build_task(recipe, open_run(recipe, tmp_path / "run", torch.device("cpu"), Ranks()))
        task.step(next(task.batches(0, 0)))
        model = weakref.ref(task.learner)
        del task
        assert model() is None
    finally:
        gc.enable()


def test_a_run_of_two_processes_is_the_run_of_one(splits: Path, tmp_path: Path) -> None:
    """The command line under torchrun: one writer, validation shared, the same losses and score.

    Events are matched in order: the Hungarian matching of two slots that fit equally well depends on the last bit of a
    float, which differs between batches of 4 and of 8. It is per sample, and the test above has it.
    """
    overrides = [*SMALL, *STILL, "loss.matching=ordered", f"data.features={splits}"]
    config = "paper"
    torchrun("-m", "ballcast", "train", config, *overrides, "--out", tmp_path / "both", "--device", "cpu")
    recipe = load(Recipe, Path(config), overrides)
    train(recipe, tmp_path / "alone", device=torch.device("cpu"))
    for file in ("steps.csv", "epochs.csv"):
        one, two = (np.genfromtxt(tmp_path / run / file, delimiter=",", names=True) for run in ("alone", "both"))
        for column in set(one.dtype.names) - {"seconds"}:
            np.testing.assert_allclose(two[column], one[column], rtol=2e-5, atol=1e-6, err_msg=column)


def test_each_process_draws_its_own_dropout(splits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "wrap", lambda self, model: model)  # the other processes are not there
    recipe = load(Recipe, Path("paper"), [*SMALL, "train.batch=6", f"data.features={splits}"])
    drawn = set()
    for rank in range(3):
        context = RunContext(tmp_path, torch.device("cpu"), Ranks(rank, 3))
        Trainer(build_task(recipe, context), recipe, context)
        drawn.add(tuple(torch.rand(4).tolist()))
    assert len(drawn) == 3


def test_rows_of_all_ranks_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows among three ranks: 0 3 6, 1 4, 2 5."""
    rows = torch.arange(7.0)

    def gather(parts: list[torch.Tensor], own: torch.Tensor) -> None:
        for rank, part in enumerate(parts):
            part.zero_()[: len(rows[rank::3])] = rows[rank::3]
        assert torch.equal(parts[1], own)

    monkeypatch.setattr(torch.distributed, "all_gather", gather)
    assert torch.equal(Ranks(1, 3).interleave(rows[1::3], 7), rows)


if __name__ == "__main__":
    kind, *paths = sys.argv[1:]
    {"losses": losses_of_a_share, "gradients": first_gradients}[kind](*map(Path, paths))  # type: ignore[operator]
