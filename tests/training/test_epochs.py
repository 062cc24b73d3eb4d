"""Which samples each step sees: others in every epoch, the same when a run is resumed, each once among processes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from feeds import made_up
from games import make_matches
from synthetic import SMALL, make_game, make_split
from torch import Tensor

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.data.samples.batches import TrainingBatch
from ballcast.data.samples.feed_samples import FeedBatch
from ballcast.training.augment import Augmentation
from ballcast.training.distributed import Ranks
from ballcast.training.loop import AnyRecipe, RunContext, Task
from ballcast.training.run import build_task
from ballcast.training.step import FrameBatch, SnippetBatch

CPU = torch.device("cpu")
MakeTask = Callable[..., Task]


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AnyRecipe]:
    folder = tmp_path_factory.mktemp("data")
    make_game(folder / "features" / "train", 100, seed=1)
    make_split(folder / "features" / "valid", 6, seed=2)
    matches = make_matches(folder / "videos", ("train", "valid"), frames=1000)
    for seed, split in enumerate(("train", "train", "valid")):
        (folder / "feeds" / split).mkdir(parents=True, exist_ok=True)
        rows = [{**row, "matchId": seed} for row in made_up(120, seed)]
        (folder / "feeds" / split / f"{seed}.json").write_text(json.dumps({"events": rows}))
    head = [f"model.{part}" for part in ("width=16", "dense.dim=16", "dense.heads=2", "dense.ffn=16")]
    frames = ["encoder.network.encoder=test_efficientnet", "encoder.network.projected=16", "encoder.start=scratch"]
    spots = ["backbone.encoder=test_efficientnet", "backbone.channels=16", "backbone.blocks=1"]
    spots += ["backbone.projected=8", "backbone.se_ratio=4", "train.start=scratch", "clips.batch=4", "clips.run=2"]
    return {
        "features": load(
            Recipe,
            Path("paper"),
            [*SMALL, "train.batch=8", "data.drop_windows=0.5", f"data.features={folder / 'features'}"],
        ),
        "end to end": load(
            Recipe,
            Path("e2e"),
            [f"games.sources=[{matches}]", *frames, *head, "train.batch=2", "data.every_ms=2000", "augment.mixup=0.4"],
        ),
        "pretrain": load(
            PretrainRecipe,
            Path("pretrain"),
            [f"data.sources=[{matches}]", *spots, "train.steps=4", "augment.mixup=0.4"],
        ),
        "feed": load(
            FeedRecipe,
            Path("feed"),
            [f"data.source={folder / 'feeds'}", "model.dim=32", "model.heads=2", "train.steps=4", "train.batch=16"],
        ),
    }


@pytest.fixture
def make_task(recipes: dict[str, AnyRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTask:
    """Makes the task of a recipe, prepared for its first step."""
    monkeypatch.setattr(Ranks, "wrap", lambda self, model: model)  # these processes are not there

    def make(kind: str, *, seed: int = 0, rank: int = 0, count: int = 1) -> Task:
        recipe = recipes[kind]
        recipe = replace(recipe, train=replace(recipe.train, seed=seed))  # type: ignore[type-var]
        task = build_task(recipe, RunContext(tmp_path, CPU, Ranks(rank, count)))
        task.prepare(0)
        return task

    return make


def tensors(batch: Any) -> Iterator[Tensor]:
    """Everything that a batch holds."""
    for value in vars(batch).values():
        if isinstance(value, Augmentation):
            yield from tensors(value)
        else:
            yield from value if isinstance(value, list) else [value]


def samples(batch: Any) -> list[Tensor]:
    """What tells the samples of a batch apart, sample by sample."""
    match batch:
        case TrainingBatch():
            seen = [part.flatten(1).double() for part in batch.tensors()[:4]]
            pairs = [torch.cat(part.chunk(2), 1) for part in seen]  # a sample and its MixUp partner
            return list(torch.cat([*pairs, batch.share[:, None].double(), batch.absent[:, None].double()], 1))
        case FrameBatch():
            return list(torch.cat([batch.position_ms, *(p.flatten(1) for p in batch.presence)], 1))
        case SnippetBatch():
            return list(batch.frames.flatten(1).double())
        case FeedBatch():
            return list(torch.stack([batch.at, batch.mirrored.long()], 1))
    raise TypeError(batch)


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


@pytest.mark.parametrize("kind", ["features", "end to end", "pretrain", "feed"])
def test_every_epoch_draws_other_samples_and_a_resumed_one_the_rest_of_its_own(make_task: MakeTask, kind: str) -> None:
    task = make_task(kind)
    first, second = list(task.batches(0, 0)), list(task.batches(1, 0))
    assert len(first) == len(second) == task.steps_per_epoch > 2
    for one, other in zip(first, second, strict=True):
        assert not torch.equal(torch.stack(samples(one)), torch.stack(samples(other)))
        if hasattr(one, "augmentation"):
            assert not torch.equal(one.augmentation.shift, other.augmentation.shift)
    rest = list(task.batches(1, 2))
    assert len(rest) == len(second) - 2
    assert all(same(one, other) for one, other in zip(rest, second[2:], strict=True))


@pytest.mark.parametrize("kind", ["features", "end to end", "feed"])
def test_processes_share_the_samples_of_every_step(make_task: MakeTask, kind: str) -> None:
    whole = make_task(kind)
    parts = [make_task(kind, rank=rank, count=2) for rank in range(2)]
    for epoch in (0, 1):
        steps = zip(whole.batches(epoch, 1), *(part.batches(epoch, 1) for part in parts), strict=True)
        for together, *halves in steps:
            joined = [sample for half in halves for sample in samples(half)]
            assert len(joined) == len(samples(together))
            assert all(torch.equal(a, b) for a, b in zip(joined, samples(together), strict=True))
            if isinstance(together, FrameBatch):
                assert not torch.equal(*(half.augmentation.shift for half in halves))


@pytest.mark.parametrize("kind", ["features", "end to end", "pretrain", "feed"])
def test_another_seed_draws_other_samples(make_task: MakeTask, kind: str) -> None:
    one, other = (next(iter(make_task(kind, seed=seed).batches(0, 0))) for seed in (0, 1))
    assert any(not torch.equal(a, b) for a, b in zip(samples(one), samples(other), strict=True))
