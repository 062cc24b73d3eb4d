import math
from typing import Any

import numpy as np
import pytest
import torch

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.model import postprocess
from ballcast.model.postprocess import SlotProbabilities, emit, emit_arrays, emit_flat, sigmoid
from ballcast.model.slots import Slots

PASS, DRIVE, SHOT = 0, 1, 6


@pytest.fixture
def slots() -> Slots:
    """One sample: slot 0 has p_obj 0.8 and is a pass (0.6) or a drive (0.4), slot 1 p_obj 0.25 and surely a shot."""
    objectness = torch.logit(torch.tensor([[0.8, 0.25]]))
    classes = torch.full((1, 2, 10), -1e9)
    classes[0, 0, PASS], classes[0, 0, DRIVE] = torch.tensor([0.6, 0.4]).log()
    classes[0, 1, SHOT] = 0.0
    offsets = torch.zeros(1, 2, 32)
    offsets[0, 0, 9] = 5.0
    offsets[0, 1, 2] = 5.0
    return Slots(objectness, classes, offsets, 32)


def vector(**scores: float) -> tuple[float, ...]:
    names = {"pass_": PASS, "drive": DRIVE, "shot": SHOT}
    out = [0.0] * len(ACTIONS)
    for name, score in scores.items():
        out[names[name]] = score
    return tuple(out)


def test_time_by_hand(slots: Slots) -> None:
    position_ms, scores, keep = emit_arrays(slots, EmitConfig())
    assert position_ms[..., 0].tolist() == [[31484, 30391]]  # 9.5 · 156.25 = 1 484.4, 2.5 · 156.25 = 390.6
    assert position_ms.shape == scores.shape == keep.shape == (1, 2, 10)


def test_slot_mode_emits_the_likeliest_class_of_slots_above_tau(slots: Slots) -> None:
    (only,) = emit(slots, EmitConfig(mode="slot", vector="full", threshold=0.3))[0]
    assert (only.label, only.position_ms) == ("PASS", 31484)
    assert only.confidence == pytest.approx(0.48)
    assert only.scores == pytest.approx(vector(pass_=0.48, drive=0.32))
    (only,) = emit(slots, EmitConfig(mode="slot", vector="emitted", threshold=0.3))[0]
    assert only.scores == pytest.approx(vector(pass_=0.48))


def test_class_mode_emits_every_class_above_tau(slots: Slots) -> None:
    shot, first, second = emit(slots, EmitConfig(mode="class", vector="full", threshold=0.2))[0]
    assert [p.label for p in (shot, first, second)] == ["SHOT", "PASS", "DRIVE"]  # in order of time
    assert first.scores == second.scores == pytest.approx(vector(pass_=0.48, drive=0.32))
    assert (first.confidence, second.confidence) == pytest.approx((0.48, 0.32))
    assert shot.scores == pytest.approx(vector(shot=0.25))
    (only,) = emit(slots, EmitConfig(mode="class", vector="emitted", threshold=0.4))[0]
    assert only.scores == pytest.approx(vector(pass_=0.48))


def test_pos_weight_changes_the_scores_but_not_what_is_emitted(slots: Slots) -> None:
    for config in (EmitConfig(threshold=0.3), EmitConfig(mode="class", threshold=0.2)):
        own, undo_pos_weight = emit(slots, config)[0], emit(slots, config, pos_weight=4.0)[0]
        assert [(p.label, p.position_ms) for p in own] == [(p.label, p.position_ms) for p in undo_pos_weight]
    (only,) = emit(slots, EmitConfig(threshold=0.3), pos_weight=4.0)[0]
    assert only.confidence == pytest.approx(0.3)  # p_obj 0.8 becomes 0.5, times 0.6 for a pass
    assert only.scores == pytest.approx(vector(pass_=0.3, drive=0.2))


def test_class_mode_at_a_low_threshold_can_flood_a_clip() -> None:
    """The paper's 15.3 predictions from 4 slots: possible only when a slot emits several classes."""
    slots = Slots(torch.full((1, 4), 9.0), torch.zeros(1, 4, 10), torch.zeros(1, 4, 32), 32)
    assert len(emit(slots, EmitConfig(mode="class", threshold=0.05))[0]) == 40
    assert len(emit(slots, EmitConfig(mode="slot", threshold=0.05))[0]) == 4


@pytest.mark.parametrize("mode", ["slot", "class"])
def test_exactly_tau_is_not_above_it(mode: Any) -> None:
    """p_obj is 0.5 and its class is sure, exactly: both modes' value is τ itself."""
    classes = torch.full((1, 1, 10), -1e9)
    classes[0, 0, SHOT] = 0.0
    slots = Slots(torch.zeros(1, 1), classes, torch.zeros(1, 1, 32), 32)
    assert slots.arrays().scores().max() == 0.5
    assert emit(slots, EmitConfig(mode=mode, threshold=0.5)) == [[]]
    assert len(emit(slots, EmitConfig(mode=mode, threshold=0.4999))[0]) == 1


def test_nothing_above_tau_emits_nothing(slots: Slots) -> None:
    assert emit(slots, EmitConfig(threshold=0.9)) == [[]]


def test_a_scalar_at_the_very_end_stays_in_the_horizon() -> None:
    slots = Slots(torch.full((1, 2), 9.0), torch.zeros(1, 2, 10), torch.tensor([[0.0, 1.0]]), 32, form="fraction")
    assert [p.position_ms for p in emit(slots, EmitConfig())[0]] == [30_000, 35_000]


@pytest.mark.parametrize("mode", ["slot", "class", "expected"])
def test_a_slot_outside_the_horizon_says_nothing(mode: Any) -> None:
    classes = torch.full((1, 3, 10), -1e9)
    classes[0, :, SHOT] = 0.0
    slots = Slots(torch.full((1, 3), 9.0), classes, torch.tensor([[-0.01, 0.52, 1.01]]), 32, form="fraction")
    emitted = emit(slots, EmitConfig(mode=mode, threshold=0.0, inflation=1.0))[0]
    alone = Slots(slots.objectness[:, 1:2], classes[:, 1:2], slots.offsets[:, 1:2], 32, form="fraction")
    assert emitted == emit(alone, EmitConfig(mode=mode, threshold=0.0, inflation=1.0))[0]
    assert emitted


@pytest.fixture
def apart(slots: Slots) -> Slots:
    """The same slots, but each class has a time of its own: bin 3 + class."""
    offsets = torch.zeros(1, 2, 10, 32)
    for c in range(10):
        offsets[0, :, c, 3 + c] = 5.0
    return Slots(slots.objectness, slots.classes, offsets, 32, form="class bins")


def test_a_class_may_have_a_time_of_its_own(apart: Slots) -> None:
    """One prediction a class of the slots that are emitted, each at its own time: bin 3 for a pass, 4 for a drive."""
    emitted = emit(apart, EmitConfig(threshold=0.3))[0]
    assert len(emitted) == 10
    assert [p.label for p in emitted] == list(ACTIONS)  # bins 3, 4, … are in their order
    assert [p.position_ms for p in emitted[:2]] == [30_547, 30_703]  # 3.5 and 4.5 · 156.25 = 546.9 and 703.1
    assert emitted[1].scores == pytest.approx(vector(drive=0.32))
    (only,) = emit(apart, EmitConfig(threshold=0.3, vector="emitted"))[0]
    assert (only.label, only.position_ms) == ("PASS", 30_547)


@pytest.mark.parametrize("times", ["slots", "apart"])
@pytest.mark.parametrize("config", [EmitConfig(), EmitConfig(threshold=0.05, vector="emitted", mode="class")])
def test_arrays_say_what_predictions_say(request: pytest.FixtureRequest, times: str, config: EmitConfig) -> None:
    given = request.getfixturevalue(times)
    for pos_weight in (1.0, 4.0):
        sample, position_ms, scores = emit_flat(given, config, pos_weight=pos_weight)
        flat = {(int(s), int(t), tuple(v.tolist())) for s, t, v in zip(sample, position_ms, scores, strict=True)}
        assert flat == {(0, p.position_ms, p.scores) for p in emit(given, config, pos_weight=pos_weight)[0]}
    assert flat != {(0, p.position_ms, p.scores) for p in emit(given, config)[0]}


def test_what_is_expected_of_a_class_is_gathered_from_all_slots() -> None:
    """Two slots that may be a pass at nearly the same time are one pass; the next times hold what is left."""
    objectness = torch.logit(torch.tensor([[0.5, 0.5]]))
    classes = torch.full((1, 2, 10), -1e9)
    classes[0, :, PASS] = 0.0
    offsets = torch.full((1, 2, 32), -1e9)
    offsets[0, 0, 10], offsets[0, 1, 11] = 0.0, 0.0
    given = Slots(objectness, classes, offsets, 32)
    emitted = emit(given, EmitConfig(mode="expected", inflation=1.0))[0]
    best = max(emitted, key=lambda p: p.confidence)
    assert best.label == "PASS"
    assert abs(best.position_ms - 31_720) <= 160  # bins 10 and 11 of 156.25 ms
    assert best.confidence == pytest.approx(1 - math.exp(-1), abs=0.01)  # one action gathered, all within reach
    assert sum(p.scores[PASS] > 0 for p in emitted) == 8
    deflated = emit(given, EmitConfig(mode="expected", inflation=3.0))[0]
    assert max(p.confidence for p in deflated) == pytest.approx(1 - math.exp(-0.5), abs=0.01)  # odds 1 : 3, twice
    assert emit(given, EmitConfig(mode="expected"), pos_weight=3.0)[0] == deflated  # the loss's, if none was chosen
    assert emit(given, EmitConfig(mode="expected", inflation=3.0), pos_weight=4.0)[0] == deflated
    sample, position_ms, scores = emit_flat(given, EmitConfig(mode="expected", inflation=1.0))
    assert [(p.position_ms, p.scores) for p in emitted] == [
        (int(t), tuple(v.tolist())) for t, v in zip(position_ms, scores, strict=True)
    ]
    assert not sample.any()


def test_people_are_shown_a_prediction_a_slot() -> None:
    assert EmitConfig(mode="expected", threshold=0.2).shown == EmitConfig(mode="slot", threshold=0.2)
    assert EmitConfig(mode="class").shown == EmitConfig(mode="class")


@pytest.mark.parametrize(("run", "at"), [(1, 2.5), (2, 2.0), (3, 2.5), (4, 2.0), (9, 2.0)])
def test_the_likeliest_bins_in_a_row(run: int, at: float) -> None:
    """Bins of 0.1, 0.3, 0.35, 0.25: 2 is the likeliest, 1 and 2 (0.65) before 2 and 3 (0.6), then 1 to 3, then all."""
    offsets = torch.tensor([0.1, 0.3, 0.35, 0.25]).log()[None, None] + 3
    given = Slots(torch.zeros(1, 1), torch.zeros(1, 1, 10), offsets, 4).arrays()
    assert given.position(run).tolist() == [[pytest.approx(at / 4)]]
    assert given.position(run).dtype == np.float32
    if run == 1:
        assert given.position() == given.position(1)
    position_ms, _, _ = emit_arrays(given, EmitConfig(run=run))
    assert set(position_ms.ravel().tolist()) == {30_000 + int(at * 1250)}


def test_extreme_logits_neither_overflow_nor_saturate_early() -> None:
    """p_obj at ±100 is that at ±80; at ±70, e^−70 is still there."""
    logits = np.array([-100, -70, 70, 100], np.float32)
    with np.errstate(over="raise"):
        p = sigmoid(logits)
        slots = SlotProbabilities(logits[:, None] * 10, np.eye(10, dtype=np.float32)[[[0]] * 4], np.ones((4, 1, 1, 32)))
        expected = slots.intensity([1.0] * 10)[0, :, 0]
    assert p.tolist() == pytest.approx([math.exp(-80), math.exp(-70), 1, 1], rel=1e-5)
    assert expected.tolist() == pytest.approx([0, 0, 1, 1], abs=1e-20)
    near = SlotProbabilities(np.array([[-59.0]], np.float32), np.ones((1, 1, 10), np.float32), np.ones((1, 1, 1, 32)))
    assert near.intensity([1.0] * 10).max() == pytest.approx(math.exp(-59), rel=1e-4)


def test_a_large_set_is_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for classes in (1, 10):
        times = rng.random((7, 3, classes, 32)).astype(np.float32)
        slots = SlotProbabilities(rng.normal(size=(7, 3)).astype(np.float32), rng.random((7, 3, 10)), times)
        whole = slots.intensity([2.0] * 10)
        with monkeypatch.context() as patched:
            patched.setattr(postprocess, "CHUNK", 3)
            assert slots.intensity([2.0] * 10) == pytest.approx(whole)
        by_hand = np.zeros((10, 7, 32))
        for n, k, c in np.ndindex(7, 3, 10):
            p = 1 / (1 + 2 * math.exp(-slots.objectness[n, k]))
            by_hand[c, n] += p * slots.classes[n, k, c] * times[n, k, c if classes == 10 else 0]
        assert whole == pytest.approx(by_hand, rel=1e-5)


def test_times_chosen_for_hits_by_hand() -> None:
    """One action expected at bin 10: hit with probability 1 − 1/e at every tolerance; the next time has 1/e left."""
    intensity = np.zeros((1, 1, 32), np.float32)
    intensity[0, 0, 10] = 1
    scores = postprocess.select_hits(intensity, 2)[0, :, 0]
    first, second = np.argsort(scores)[::-1][:2]
    assert first == 10
    assert abs(second - 10) == 1
    assert scores[first] == pytest.approx(1 - math.exp(-1))
    assert scores[second] == pytest.approx(1 - math.exp(-math.exp(-1)))
    assert np.count_nonzero(scores) == 2


def test_a_time_between_two_actions_is_hit_by_either() -> None:
    """Half an action at bins 4 and 12: within 3 bins one is reached, within 6 both, from bins 6, 7, 9 and 10."""
    intensity = np.zeros((1, 1, 32), np.float32)
    intensity[0, 0, [4, 12]] = 0.5
    scores = postprocess.select_hits(intensity, 1)[0, :, 0]
    near, far = 1 - math.exp(-0.5), 1 - math.exp(-1)
    assert int(scores.argmax()) in (6, 7, 9, 10)
    assert scores.max() == pytest.approx(3 / 9 * near + 6 / 9 * far)


def test_times_for_hits_are_within_reach_and_chosen_for_each_class() -> None:
    rng = np.random.default_rng(0)
    intensity = rng.gamma(0.3, 0.05, (3, 50, 32)).astype(np.float32)
    scores = postprocess.select_hits(intensity, 4)
    assert scores.shape == (50, 32, 3)
    assert ((scores > 0).sum(1) == 4).all()
    assert scores.max() <= 1 - math.exp(-intensity.sum(-1).max())
    one = postprocess.select_hits(intensity[1:2], 4)
    np.testing.assert_array_equal(one[..., 0], scores[..., 1])
