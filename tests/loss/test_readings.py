"""What the paper leaves open in the loss, and what FAANTRA does otherwise, against numbers worked by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import LossConfig, ModelConfig
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import Targets, segments, widen
from ballcast.model.slots import Slots

PASS, SHOT = ACTIONS.index("PASS"), ACTIONS.index("SHOT")


def losses(slots: Slots, targets: Targets, weight: Tensor | None = None, **changes: Any) -> Losses:
    config = replace(LossConfig(average="batch"), **changes)
    return Criterion(config=config, model=ModelConfig(slots=slots.objectness.shape[1]))(slots, targets, weight)


def presences(there: list[tuple[int, int]], samples: int = 1, tokens: int = 33) -> Tensor:
    """(samples, tokens, 10): ones at these (token, action) of the first sample."""
    presence = torch.zeros(samples, tokens, 10, dtype=torch.uint8)
    for token, action in there:
        presence[0, token, action] = 1
    return presence


def quiet(samples: int, presence: Tensor) -> tuple[Slots, Targets]:
    """Nothing to come; the auxiliary head outputs 0 (p 1/2) everywhere."""
    slots = Slots(
        torch.zeros(samples, 2),
        torch.zeros(samples, 2, 10),
        torch.zeros(samples, 2, 32),
        32,
        torch.zeros(presence.shape),
    )
    none = torch.full((samples, 1), -1)
    return slots, Targets.from_ms(none, torch.full((samples, 1), 30_000), 32, presence)


def test_the_auxiliary_loss_is_divided_by_positives_or_by_cells() -> None:
    """At p 1/2 the focal loss of a positive is log 2 / 16, of a negative three times that; 330 cells, 3 positive."""
    slots, targets = quiet(2, presences([(4, PASS), (5, PASS), (6, PASS)], samples=2))
    whole = (3 + 3 * (660 - 3)) * math.log(2) / 16
    assert losses(slots, targets).auxiliary.item() == pytest.approx(whole / 3)
    assert losses(slots, targets, auxiliary_norm="cells").auxiliary.item() == pytest.approx(whole / 660)
    # MixUp's weights count in both: a quarter of the first sample, three quarters of the second.
    weight = torch.tensor([0.25, 0.75])
    mixed = (0.25 * (3 + 3 * 327) + 0.75 * 3 * 330) * math.log(2) / 16
    assert losses(slots, targets, weight).auxiliary.item() == pytest.approx(mixed / 1)  # 0.75 positives count as 1


def test_without_a_positive_the_auxiliary_loss_is_divided_by_one() -> None:
    slots, targets = quiet(1, presences([]))
    assert losses(slots, targets).auxiliary.item() == pytest.approx(330 * 3 * math.log(2) / 16)


def test_an_action_may_be_present_further_to_either_side() -> None:
    near = presences([(0, PASS), (1, PASS), (9, SHOT), (10, SHOT), (11, SHOT)])
    wide = widen(near, 3)
    assert wide[0, :, PASS].nonzero().flatten().tolist() == [0, 1, 2, 3]  # around token 0
    assert wide[0, :, SHOT].nonzero().flatten().tolist() == list(range(7, 14))  # around token 10
    assert torch.equal(widen(near, 1), near)
    slots, targets = quiet(1, near)
    whole = (11 + 3 * (330 - 11)) * math.log(2) / 16
    assert losses(slots, targets, auxiliary_beside=3).auxiliary.item() == pytest.approx(whole / 11)


def test_segments_have_one_action_the_last() -> None:
    """A pass around token 10 and a shot around token 16, each ±5: they meet at 11 to 15, where the later one counts."""
    near = presences([*((t, PASS) for t in (9, 10, 11)), *((t, SHOT) for t in (15, 16, 17))])
    truth = segments(near, 5)[0].tolist()
    assert truth == [10] * 5 + [PASS] * 6 + [SHOT] * 11 + [10] * 11
    assert segments(presences([(0, PASS), (1, PASS)]), 2)[0, :4].tolist() == [PASS, PASS, PASS, 10]
    same = presences([(t, a) for t in (3, 4, 5) for a in (PASS, SHOT)])
    assert segments(same, 1)[0, 2:7].tolist() == [10, SHOT, SHOT, SHOT, 10]  # at once: the higher index


def test_segmentation_is_a_weighted_cross_entropy_with_background() -> None:
    near = presences([(3, SHOT), (4, SHOT), (5, SHOT)])
    slots, targets = quiet(1, near)
    slots.presence = torch.randn(1, 33, 11)
    truth = torch.full((33,), 10)
    truth[3:6] = SHOT
    weights = torch.ones(11)
    weights[SHOT], weights[10] = 4.5, 0.03
    expected = functional.cross_entropy(slots.presence[0], truth, weight=weights)
    loss = losses(slots, targets, ce_weights={"SHOT": 4.5}, background_weight=0.03)
    assert loss.auxiliary.item() == pytest.approx(expected.item(), rel=1e-5)
    slots.presence = torch.zeros(1, 33, 11)  # undecided everywhere: log 11, whatever the weights
    loss = losses(slots, targets, ce_weights={"SHOT": 4.5}, background_weight=0.03)
    assert loss.auxiliary.item() == pytest.approx(math.log(11))


def two_events() -> tuple[Slots, Targets]:
    """Two samples of two slots: a pass at 1 s and a shot at 2 s in the first, nothing in the second."""
    classes = torch.full((2, 2, 10), -30.0)
    classes[:, 0, PASS], classes[:, 1, PASS], classes[:, 1, SHOT] = 0.0, math.log(3.0), 0.0  # sure; 1 in 4 a shot
    slots = Slots(torch.zeros(2, 2), classes, torch.tensor([[0.3, 0.5], [0.0, 0.0]]), 32, form="fraction")
    return slots, Targets.from_ms(torch.tensor([[PASS, SHOT], [-1, -1]]), torch.tensor([[31_000, 32_000]] * 2), 32)


def test_class_weights_of_the_cross_entropy() -> None:
    """The pass costs nothing, the shot log 4: the mean of weights 0.5 and 2 is (2 log 4) / 2.5."""
    settings = {"matching": "ordered", "label_smoothing": 0.0}
    slots, targets = two_events()
    assert losses(slots, targets, **settings).classes.item() == pytest.approx(math.log(4) / 2)
    weighted = losses(slots, targets, **settings, ce_weights={"PASS": 0.5, "SHOT": 2.0})
    assert weighted.classes.item() == pytest.approx(2 * math.log(4) / 2.5)
    assert weighted.offset.item() == pytest.approx(0.1)  # (|0.3 - 0.2| + |0.5 - 0.4|) / 2, not weighted


@pytest.mark.parametrize(("norm", "count"), [("pairs", 2), ("samples", 2), ("slots", 4)])
def test_what_class_and_time_are_divided_by(norm: Any, count: int) -> None:
    slots, targets = two_events()
    loss = losses(slots, targets, matching="ordered", label_smoothing=0.0, pair_norm=norm)
    assert loss.classes.item() == pytest.approx(math.log(4) / count)
    assert loss.offset.item() == pytest.approx(0.2 / count)


def test_samples_without_events_count_unless_pairs_do() -> None:
    slots, targets = two_events()
    one = Targets(targets.classes.clone(), targets.bins, targets.times)
    one.classes[0, 1] = -1  # one pair, two samples, four slots
    by = [losses(slots, one, matching="ordered", pair_norm=n).offset.item() for n in ("pairs", "samples", "slots")]
    assert by == pytest.approx([0.1, 0.05, 0.025])


def test_faantras_offset_loss_is_the_square_of_exponentials() -> None:
    slots, targets = two_events()
    loss = losses(slots, targets, matching="ordered", scalar_loss="exponential")
    expected = ((math.exp(0.3) - math.exp(0.2)) ** 2 + (math.exp(0.5) - math.exp(0.4)) ** 2) / 2
    assert loss.offset.item() == pytest.approx(expected, rel=1e-5)


def test_the_later_action_wins_though_its_index_is_lower() -> None:
    """A shot at snippet 1 and a pass at 3 reach one snippet further: between them both do, and the pass is later."""
    presence = presences([(1, SHOT), (3, PASS)], tokens=6)
    none = len(ACTIONS)
    assert segments(presence, 2)[0].tolist() == [SHOT, SHOT, PASS, PASS, PASS, none]
    assert segments(presence, 1)[0].tolist() == [none, SHOT, none, PASS, none, none]
    both = presences([(1, SHOT), (1, PASS)], tokens=3)
    assert segments(both, 2)[0].tolist() == [SHOT, SHOT, SHOT]  # at the same snippet the higher index


def test_weights_below_one_are_a_mean_too() -> None:
    """An eighth of every sample is the same mean, though all normalisers are below 1."""
    slots, targets = two_events()
    small = torch.stack(losses(slots, targets, torch.full((2,), 0.125)))
    assert small.tolist() == pytest.approx(torch.stack(losses(slots, targets)).tolist(), rel=1e-5)


def test_segments_of_soft_targets_are_those_of_at_least_a_half() -> None:
    """The background has half of the probability at four tokens, a pass a twentieth; it is there at one, by 0.5."""
    presence = torch.zeros(1, 4, 10)
    presence[0, 1, PASS], presence[0, 2, PASS] = 0.5, 0.49
    slots, targets = quiet(1, presence)
    slots.presence = torch.zeros(1, 4, 11)
    slots.presence[..., 10] = math.log(10)
    assert losses(slots, targets, auxiliary_beside=3).auxiliary.item() == pytest.approx(
        (3 * math.log(2) + math.log(20)) / 4
    )


def test_mixup_weighs_the_samples_own_losses() -> None:
    """λ 1/4: a sample of two events, each 0.1 away, with one of a single event, 0.2 away."""
    presence = presences([(4, PASS), (5, PASS), (6, PASS)], samples=2)
    slots, targets = two_events()
    slots.presence, targets.presence = torch.zeros(presence.shape), presence
    targets.classes[1, 0] = PASS
    share, settings = torch.tensor([0.25, 0.75]), {"matching": "ordered", "label_smoothing": 0.0}
    own = losses(slots, targets, share, **settings, average="samples")
    assert own.offset.item() == pytest.approx(0.25 * 0.1 + 0.75 * 0.2)
    assert own.classes.item() == pytest.approx(0.25 * math.log(4) / 2)  # the passes are sure
    unit = math.log(2) / 16  # of a positive, at p 1/2; of a negative it is three times that
    three, none = (3 + 3 * 327) * unit / 3, 3 * 330 * unit
    assert own.auxiliary.item() == pytest.approx(0.25 * three + 0.75 * none)
    both = losses(slots, targets, share, **settings)
    assert both.offset.item() == pytest.approx((0.25 * 2 * 0.1 + 0.75 * 0.2) / (0.25 * 2 + 0.75))
    assert both.classes.item() == pytest.approx(0.25 * math.log(4) / (0.25 * 2 + 0.75))
    assert both.auxiliary.item() == pytest.approx((0.25 * 3 * three + 0.75 * none) / 1)  # 0.75 positives count as 1
    assert own.objectness.item() == pytest.approx(both.objectness.item())


def test_the_mean_of_samples_is_over_those_without_events_too() -> None:
    slots, targets = two_events()
    loss = losses(slots, targets, matching="ordered", label_smoothing=0.0, average="samples")
    assert loss.offset.item() == pytest.approx((0.1 + 0) / 2)
    assert loss.classes.item() == pytest.approx((math.log(4) / 2 + 0) / 2)
    weighted = {"ce_weights": {"PASS": 0.5, "SHOT": 2.0}, "matching": "ordered", "label_smoothing": 0.0}
    assert losses(slots, targets, average="samples", **weighted).classes.item() == pytest.approx(2 * math.log(4) / 5)


def test_the_loss_of_a_further_label_set_is_divided_by_its_positives() -> None:
    """Two samples of 3 tokens and 2 classes at p 1/2: a positive and a half in the first, none in the second."""
    target = torch.zeros(2, 3, 2)
    target[0, 0, 0], target[0, 1, 1] = 1.0, 0.5
    weight, unit = torch.tensor([0.5, 0.5]), math.log(2) / 16
    first, second = (1 + 0.5 + 3 * 0.5 + 4 * 3) * unit, 6 * 3 * unit
    for average, expected in (("samples", (first / 1.5 + second) / 2), ("batch", (first + second) / 2 / 1)):
        judge = Criterion(config=LossConfig(average=average), model=ModelConfig())  # type: ignore[arg-type]
        assert judge.spotting(torch.zeros(2, 3, 2), target, weight).item() == pytest.approx(expected)
