"""The event transformer's loss by hand, and distillation: a student equal to its teachers is at the minimum."""

import math

import pytest
import torch

from ballcast.core.events import GRID_BINS
from ballcast.core.feed_config import FeedLossConfig
from ballcast.data.samples.feed_samples import FeedTargets
from ballcast.loss.feed_criterion import distillation, feed_criterion, with_distillation
from ballcast.model.event_transformer import C, EventSlots

B, K, Z = 2, 3, 96
RATES = torch.full((C,), 0.5)


def slots(seed: int | None = None) -> EventSlots:
    """Logits that are 0, or random."""
    shapes = ((B, K, 1 + 2 * C), (B, K, C, GRID_BINS), (B, K, Z))
    draw = torch.Generator().manual_seed(seed or 0)
    return EventSlots(*(torch.zeros(s) if seed is None else torch.randn(s, generator=draw) for s in shapes))


def targets() -> FeedTargets:
    """Sample 0: action 2 by the other team in bin 5, in an unknown zone; then 4 in bin 9. Sample 1: nothing."""
    classes = torch.tensor([[2, 4, -1], [-1, -1, -1]])
    counts = torch.zeros(B, C, GRID_BINS)
    counts[0, 2, 5] = counts[0, 4, 9] = 1
    return FeedTargets(
        classes,
        torch.tensor([[1, 0, 0], [0, 0, 0]]),
        torch.tensor([[5, 9, 0], [0, 0, 0]]),
        torch.tensor([[-1, 7, -1], [-1, -1, -1]]),
        counts,
    )


def test_uniform_outputs_by_hand() -> None:
    losses = feed_criterion(slots(), targets(), FeedLossConfig(zones=0.5, counts=0.25), RATES)
    assert float(losses.kinds) == pytest.approx(math.log(1 + 2 * C))
    assert float(losses.times) == pytest.approx(2 / 6 * math.log(GRID_BINS))  # two of six slots have an action
    assert float(losses.zones) == pytest.approx(1 / 6 * math.log(Z))  # the zone of one is known
    each = K * 2 / (1 + 2 * C) / GRID_BINS  # expected actions of a class in a bin
    poisson = B * C * GRID_BINS * each - 2 * math.log(each + 1e-6)
    assert float(losses.counts) == pytest.approx(poisson / 6)
    total = losses.kinds + losses.times + 0.5 * losses.zones + 0.25 * losses.counts
    assert float(losses.total) == pytest.approx(float(total))
    assert float(losses.distilled) == 0


def test_the_right_answer_costs_least() -> None:
    """Of kinds and times; each is found in its place."""
    good = slots()
    for k, (kind, action, bin_) in enumerate(((1 + C + 2, 2, 5), (1 + 4, 4, 9))):
        good.kinds[0, k, kind] = 20
        good.times[0, k, action, bin_ - 1 : bin_ + 2] = 20
    good.kinds[0, 2, 0] = 20
    good.kinds[1, :, 0] = 20
    good.zones[0, 1, 7] = 20
    right = feed_criterion(good, targets(), FeedLossConfig(sigma=0.5), RATES)
    assert float(right.kinds) < 1e-3
    assert float(right.zones) < 1e-3
    assert float(right.times) < 0.75
    for name, column in (("kinds", good.kinds), ("times", good.times), ("zones", good.zones)):
        column[0, 1] = column[0, 1].flip(-1)
        wrong = feed_criterion(good, targets(), FeedLossConfig(sigma=0.5), RATES)
        assert getattr(wrong, name) > getattr(right, name) + 1, name


def test_rare_actions_count_for_more_in_the_counts() -> None:
    often, rare = RATES.clone(), RATES.clone()
    often[2], rare[2] = 2.0, 0.02
    config = FeedLossConfig()
    of_often, of_rare = (feed_criterion(slots(1), targets(), config, rates).counts for rates in (often, rare))
    assert of_rare > of_often


def test_a_student_equal_to_its_teachers_is_at_the_minimum() -> None:
    teachers = [slots(1), slots(1)]
    least = distillation(slots(1), teachers)
    for seed in (2, 3, None):
        assert least < distillation(slots(seed), teachers)
    student = EventSlots(*(t.clone().requires_grad_() for t in slots(1)))
    distillation(student, teachers[:1]).backward()
    for logits in student:
        assert logits.grad is None or float(logits.grad.abs().max()) < 1e-6


def test_two_teachers_are_averaged() -> None:
    one, two = slots(1), slots(2)
    mean = (distillation(slots(3), [one]) + distillation(slots(3), [two])) / 2
    torch.testing.assert_close(distillation(slots(3), [one, two]), mean)


def test_the_weight_is_the_teachers_share() -> None:
    losses = feed_criterion(slots(1), targets(), FeedLossConfig(), RATES)
    mixed = with_distillation(losses, torch.tensor(2.0), 0.25)
    assert float(mixed.total) == pytest.approx(0.75 * float(losses.total) + 0.5)
    assert float(mixed.distilled) == 2.0
    assert mixed.kinds == losses.kinds
