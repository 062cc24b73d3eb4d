"""The loss of the dense head, a Poisson process for each class, worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch

from ballcast.core.anticipator_config import LossConfig, ModelConfig
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import Targets, gaussian_targets
from ballcast.model.slots import Slots

PASS, DRIVE, SHOT = 0, 1, 6
WEIGHTS = {"PASS": 2.0, "SHOT": 3.0}  # 13 in all, with 1 for the eight others


def logit(expected: float) -> float:
    """The logit whose softplus is `expected`."""
    return log(exp(expected) - 1)


def two_samples() -> tuple[Slots, Targets]:
    """Sample 0 expects 2 passes and half of everything else, and two passes and a shot come; sample 1 expects a quarter
    of everything, and a drive comes. Four bins of 1250 ms."""
    objectness = torch.full((2, 10), logit(0.5))
    objectness[0, PASS] = logit(2.0)
    objectness[1] = logit(0.25)
    torch.manual_seed(0)
    offsets = torch.randn(2, 10, 4)  # of the classes that do not come: without effect
    offsets[0, PASS] = torch.tensor([0.1, 0.2, 0.3, 0.4]).log() + 5  # a constant is without effect too
    offsets[0, SHOT] = torch.tensor([0.7, 0.1, 0.1, 0.1]).log()
    offsets[1, DRIVE] = 0.0
    targets = Targets.from_ms(
        torch.tensor([[PASS, SHOT, PASS, -1], [-1, DRIVE, -1, -1]]),
        torch.tensor([[31_250, 30_000, 34_999, 30_000], [30_000, 32_600, 30_000, 30_000]]),
        4,
    )
    return Slots(objectness, torch.zeros(2, 10, 10), offsets, 4, form="counts"), targets


def losses(slots: Slots, targets: Targets, weight: list[float] | None, reduce: Any = None, **changes: Any) -> Losses:
    config = replace(LossConfig(ce_weights=WEIGHTS, sigma=0.0, average="batch"), **changes)
    judge = Criterion(config=config, model=ModelConfig(width=8, clips=5, windows=2))
    return judge(slots, targets, None if weight is None else torch.tensor(weight), reduce=reduce)


COUNT = (2 * (2 - 2 * log(2)) + 3 * (0.5 - log(0.5)) + 8 * 0.5, 13 * 0.25 - log(0.25))
TIMES = (-2 * log(0.2) - 2 * log(0.4) - 3 * log(0.7), -log(0.25))


def test_counts_and_times_by_hand() -> None:
    found = losses(*two_samples(), [1.0, 3.0], objectness=2.0, offset=3.0)
    assert found.objectness.item() == pytest.approx((COUNT[0] + 3 * COUNT[1]) / 4, rel=1e-5)
    assert found.offset.item() == pytest.approx((TIMES[0] + 3 * TIMES[1]) / (3 * 1 + 1 * 3), rel=1e-5)  # by action
    assert found.classes.item() == found.auxiliary.item() == 0
    assert found.total.item() == pytest.approx(2 * found.objectness.item() + 3 * found.offset.item(), rel=1e-5)


def test_without_weights_every_sample_counts_once() -> None:
    found = losses(*two_samples(), None, pair_norm="samples")
    assert found.objectness.item() == pytest.approx(sum(COUNT) / 2, rel=1e-5)
    assert found.offset.item() == pytest.approx(sum(TIMES) / 2, rel=1e-5)


def test_the_target_of_a_time_is_as_wide_as_sigma() -> None:
    slots, targets = two_samples()
    found = losses(slots, targets, [0.0, 1.0], sigma=1.5).offset.item()  # the second sample alone
    assert found == pytest.approx(log(4), rel=1e-5)  # any target against an even spread
    first = losses(slots, targets, [1.0, 0.0], sigma=1.5).offset.item()
    soft = gaussian_targets(torch.tensor([1, 3, 0]), 4, 1.5)
    passes, shot = torch.tensor([0.1, 0.2, 0.3, 0.4]).log(), torch.tensor([0.7, 0.1, 0.1, 0.1]).log()
    expected = -2 * (soft[0] * passes).sum() - 2 * (soft[1] * passes).sum() - 3 * (soft[2] * shot).sum()
    assert first == pytest.approx(expected.item() / 3, rel=1e-5)


def test_the_auxiliary_loss_is_added() -> None:
    """p is a half everywhere: 0.25 · 0.5² log 2 at the one positive of each sample, 0.75 · … at the nine others."""
    slots, targets = two_samples()
    slots.presence, targets.presence = torch.zeros(2, 1, 10), torch.zeros(2, 1, 10, dtype=torch.uint8)
    targets.presence[:, 0, PASS] = 1
    found = losses(slots, targets, [1.0, 3.0], auxiliary=0.5)
    assert found.auxiliary.item() == pytest.approx((0.25 + 9 * 0.75) * 0.25 * log(2), rel=1e-5)
    without = found.objectness.item() + found.offset.item()
    assert found.total.item() == pytest.approx(without + 0.5 * found.auxiliary.item(), rel=1e-5)


def test_normalisers_are_reduced() -> None:
    """Samples, actions and the auxiliary loss's, which without presence is the number of samples."""
    seen: list[list[float]] = []

    def reduce(x: torch.Tensor, least: Sequence[float]) -> torch.Tensor:
        seen.append(x.tolist())
        return x * torch.tensor([2.0, 4.0, 1.0])

    slots, targets = two_samples()
    found, whole = losses(slots, targets, [1.0, 3.0], reduce), losses(slots, targets, [1.0, 3.0])
    assert seen == [[4.0, 6.0, 4.0]]
    assert found.objectness.item() == pytest.approx(whole.objectness.item() / 2)
    assert found.offset.item() == pytest.approx(whole.offset.item() / 4)


def test_nothing_expected_and_nothing_to_come_stay_finite() -> None:
    slots, targets = two_samples()
    slots.objectness.fill_(-200.0)  # softplus is exactly 0, whose logarithm is −∞
    found = losses(slots, targets, None)
    expected = -log(1e-6)  # times 2 · 2 + 3 for the passes and the shot, 1 for the drive
    assert found.objectness.item() == pytest.approx(8 * expected / 2, rel=1e-4)
    targets.classes.fill_(-1)
    found = losses(two_samples()[0], targets, None)
    assert found.offset.item() == 0
    assert found.objectness.item() == pytest.approx((2 * 2 + 3 * 0.5 + 8 * 0.5 + 13 * 0.25) / 2, rel=1e-5)


def test_weights_below_one_are_a_mean_too() -> None:
    small, whole = losses(*two_samples(), [0.0625, 0.0625]), losses(*two_samples(), None)
    assert [x.item() for x in small] == pytest.approx([x.item() for x in whole], rel=1e-5)
