"""A step: MixUp, dropped windows, the clipped gradient, the recorded step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import CLIPS, SMALL, WIDTH, WINDOWS

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.pretrain_config import AugmentConfig
from ballcast.data.samples.batches import TrainingBatch
from ballcast.loss.criterion import Criterion, at_least
from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots
from ballcast.training.augment import draw_augmentation
from ballcast.training.ema import Ema
from ballcast.training.optimizer import build_optimizer, set_learning_rate
from ballcast.training.step import FrameBatch, TrainStep, anticipation_losses, end_to_end_losses

STILL = ["model.hierarchy.dropout=0", "model.hierarchy.drop_path=0"]
RECIPE = load(Recipe, Path("paper"), [*SMALL, *STILL])


def batch(count: int, share: torch.Tensor | None = None, seed: int = 0, device: str = "cpu") -> TrainingBatch:
    """Samples that are not mixed, or mixed in pairs by `share` (count / 2,)."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 10, (count, 8), generator=draw)
    classes[:, 3:] = -1
    share = torch.ones(count) if share is None else share
    made = TrainingBatch(
        torch.randn(count, WINDOWS, CLIPS, WIDTH, generator=draw).half(),
        torch.ones(count, WINDOWS, dtype=torch.bool),
        classes,
        torch.randint(30_000, 35_000, (count, 8), generator=draw),
        torch.randint(0, 2, (count, CLIPS, 10), generator=draw).to(torch.uint8),
        share,
        torch.zeros(len(share), dtype=torch.long),
    )
    return TrainingBatch(*(t.to(device) for t in made.tensors()))


def parts(device: str = "cpu") -> tuple[Anticipator, Criterion]:
    torch.manual_seed(0)
    model = Anticipator(RECIPE.model).to(device).train()
    weights = torch.linspace(0.3, 2.5, 10)
    return model, Criterion(config=RECIPE.loss, model=RECIPE.model, class_weights=weights).to(device)


def losses(model: Anticipator, criterion: Criterion, samples: TrainingBatch) -> torch.Tensor:
    return torch.stack(anticipation_losses(model, criterion, samples)).detach()


def test_mixup_is_lambda_of_each_sources_loss_on_the_mixed_features() -> None:
    """One pair, three events each: λ·L_i + (1 − λ)·L_j with L against each source's events on its own."""
    model, criterion = parts()
    pair = batch(2, share=torch.tensor([0.3]))
    mixed = 0.3 * pair.features[:1].float() + 0.7 * pair.features[1:].float()
    by_hand = torch.zeros(5)
    for weight, i in ((0.3, 0), (0.7, 1)):
        targets = (pair.classes, pair.position_ms, pair.presence)
        classes, position_ms, presence = (t[i : i + 1] for t in targets)
        source = TrainingBatch(
            mixed, pair.present[:1], classes, position_ms, presence, torch.ones(1), torch.zeros(1, dtype=torch.long)
        )
        by_hand += weight * losses(model, criterion, source)
    torch.testing.assert_close(losses(model, criterion, pair), by_hand)


def test_a_share_of_one_is_the_first_source_alone() -> None:
    model, criterion = parts()
    both = batch(4, share=torch.ones(2))
    first = TrainingBatch(*(t[:2] for t in both.tensors()))
    torch.testing.assert_close(losses(model, criterion, both), losses(model, criterion, first))


def test_dropped_windows_are_not_seen() -> None:
    model, criterion = parts()
    samples, changed = batch(2), batch(2)
    samples.absent[0] = changed.absent[0] = 2
    changed.features[0, :2] = 7
    expected = anticipation_losses(model, criterion, samples).total
    assert torch.equal(anticipation_losses(model, criterion, changed).total, expected)
    changed.features[1, 0] = 7
    assert anticipation_losses(model, criterion, changed).total != expected


def test_a_window_absent_in_either_source_is_absent_in_the_mix() -> None:
    model, criterion = parts()
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    both = batch(4, share=torch.tensor([0.5, 0.5]))  # samples 0 and 1, mixed with 2 and 3
    both.present[0, :2] = False
    both.present[3, :1] = False
    losses(model, criterion, both)
    expected = torch.ones(2, WINDOWS, dtype=torch.bool)
    expected[0, :2] = False  # the first source's
    expected[1, :1] = False  # the second source's
    assert torch.equal(seen[0], expected)


def test_every_term_is_normalised_over_the_processes() -> None:
    """From frames, with a further label set: twice the normalisers halve all terms."""
    recipe = load(Recipe, Path("e2e"), ["augment.mixup=0"])
    slots = Slots(torch.randn(2, 4), torch.randn(2, 4, 10), torch.randn(2, 4, 32), 32, torch.randn(2, 5, 10))
    logits = [torch.randn(2, 5, 3)]
    batch = FrameBatch(
        torch.zeros(2, 5, 3),
        torch.tensor([[1, 2], [3, -1]]),
        torch.full((2, 2), 31_000),
        [torch.rand(2, 5, 10), torch.rand(2, 5, 3)],
        torch.tensor([0, 1]),
        draw_augmentation(AugmentConfig(mixup=0), 1, 2, 1, np.random.default_rng(0))[0],
    )
    criterion = Criterion(config=recipe.loss, model=replace(recipe.model, slots=4))

    def losses(reduce: Any = None) -> torch.Tensor:
        return torch.stack(end_to_end_losses(lambda _: (slots, logits), criterion, batch, recipe, reduce=reduce))  # type: ignore[arg-type]

    torch.testing.assert_close(losses(lambda sums, least: 2 * at_least(sums, least)), losses() / 2)
    assert (losses() > 0).all()


def make_step(device: str = "cpu", *, recorded: bool = False, clip: float = 1.0, decay: float = 0.0) -> TrainStep:
    model, criterion = parts(device)
    # In order of time: rounding can swap a Hungarian pair, and then the losses may rightly differ.
    criterion.config = replace(criterion.config, matching="ordered")
    optimizer = build_optimizer(model, RECIPE.train, recorded=recorded and device == "cuda")
    ema = Ema(model, decay) if decay else None
    losses_of = partial(anticipation_losses, model, criterion)
    return TrainStep(losses_of, optimizer, clip=clip, ema=ema, recorded=recorded)


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_gradients_norm_is_clipped(clip: float) -> None:
    """The optimizer sees a gradient no longer than train.clip, and a shorter one as it is."""
    norms = {}
    for bound in (clip, 1e9):
        step = make_step(clip=bound)
        step(batch(4))
        grads = torch.stack([p.grad.norm() for p in step.parameters if p.grad is not None])
        norms[bound] = float(grads.norm())
    free = norms[1e9]
    assert 1e-3 < free < 1e3
    assert norms[clip] == pytest.approx(min(clip, free), rel=1e-3)


def compare_steps(plain: TrainStep, recorded: TrainStep, device: str, *, rtol: float, atol: float) -> None:
    """Five steps with different batches and rates."""
    for i in range(5):
        share = torch.full((4,), 0.2 * (i + 1))
        found = []
        for step in (plain, recorded):
            set_learning_rate(step.optimizer, 1e-4 * (i + 1))
            found.append(step(batch(8, share, seed=i, device=device)))
        torch.testing.assert_close(found[0], found[1], rtol=rtol, atol=atol)
    for a, b in zip(plain.parameters, recorded.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=5 * rtol, atol=10 * atol)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_recorded_step_does_what_the_plain_one_does() -> None:
    """Same losses, same weights; the warm-up leaves no trace."""
    compare_steps(make_step("cuda"), make_step("cuda", recorded=True), "cuda", rtol=2e-3, atol=1e-4)


def test_the_warm_up_of_a_recording_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with a recording that runs the work again: weights, moments, average and random numbers are as before.

    Each batch is copied into the memory that was recorded, and losses that were returned stay as they are.
    """

    def record(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        for _ in range(3):
            torch.rand(1)
            work()
        result = work()

        def replay() -> None:
            result.copy_(work())

        return replay, result

    monkeypatch.setattr("ballcast.training.step.record", record)
    monkeypatch.setattr("torch.cuda.default_generators", (torch.default_generator,))
    plain, recorded = make_step(decay=0.9), make_step(decay=0.9, recorded=True)
    before, share = torch.get_rng_state(), torch.full((4,), 0.5)
    first = recorded(batch(8, share, seed=0))
    assert torch.equal(torch.get_rng_state(), before)
    expected = plain(batch(8, share, seed=0))
    second = recorded(batch(8, share, seed=1))
    plain(batch(8, share, seed=1))
    assert torch.equal(first, expected)
    assert not torch.equal(first, second)
    compare_steps(plain, recorded, "cpu", rtol=1e-6, atol=1e-7)
    assert plain.ema is not None
    assert recorded.ema is not None
    for key, value in plain.ema.state_dict().items():
        torch.testing.assert_close(recorded.ema.state_dict()[key], value)
