"""Reliability, timing, confusion, the order of clips and the curves, against numbers worked out by hand."""

import numpy as np
import pytest

from ballcast.core.events import Clip, Event, Prediction
from ballcast.metrics.average_precision import RECALLS, score
from ballcast.metrics.diagnosis import (
    NOTHING,
    Pair,
    are_probabilities,
    confusion,
    envelope,
    hits,
    pair,
    pair_all,
    per_clip,
    quality,
    ranked,
    reliability,
    timing_errors,
    wilson,
)


def right(ms: int, error_ms: int = 0, label: str = "PASS", confidence: float = 0.5) -> Pair:
    return Pair(Prediction(label, ms + error_ms, confidence), Event(label, ms))


MISSED = Pair(None, Event("SHOT", 32_000))
IN_VAIN = Pair(Prediction("OUT", 33_000, 0.2), None)
MISTAKEN = Pair(Prediction("CROSS", 31_000, 0.4), Event("SHOT", 31_500))


def test_reliability_by_hand() -> None:
    found = reliability([0.1, 0.2, 0.3, 0.9, 1.0], [False, False, True, True, False], bins=2)
    assert found is not None
    assert found.count.tolist() == [3, 2]
    assert found.confidence == pytest.approx([0.2, 0.95])
    assert found.hits == pytest.approx([1 / 3, 1 / 2])
    assert found.error == pytest.approx((3 * (1 / 3 - 0.2) + 2 * (0.95 - 0.5)) / 5)


def test_a_calibrated_forecaster_has_a_small_error_and_an_overconfident_one_a_large() -> None:
    rng = np.random.default_rng(0)
    probability = rng.random(20_000)
    right = rng.random(20_000) < probability
    calibrated, overconfident = reliability(probability, right), reliability(np.sqrt(probability), right)
    assert calibrated is not None
    assert overconfident is not None
    assert calibrated.error < 0.015
    assert overconfident.error == pytest.approx(2 / 3 - 1 / 2, abs=0.01)  # mean of √p − p
    inside = (calibrated.low <= calibrated.confidence) & (calibrated.confidence <= calibrated.high)
    assert inside.sum() >= 9


def test_empty_bins_and_no_predictions_and_no_chances() -> None:
    found = reliability([0.05], [True])
    assert found is not None
    assert found.count.tolist() == [1] + [0] * 9
    assert np.isnan(found.hits[1:]).all()
    assert found.error == pytest.approx(0.95)
    nothing = reliability([], [])
    assert nothing is not None
    assert np.isnan(nothing.error)
    assert reliability([0.5, 1.2], [True, True]) is None
    assert reliability([float("nan")], [True]) is None


def test_wilson_is_the_known_interval() -> None:
    low, high = wilson(np.array([0.5, 0.0]), np.array([10, 10]))
    assert (low, high) == (pytest.approx([0.2366, 0.0], abs=1e-4), pytest.approx([0.7634, 0.2775], abs=1e-4))


def test_what_the_pairs_say() -> None:
    pairs = [right(31_000, 240), right(34_000, -80, "SHOT"), MISSED, IN_VAIN, MISTAKEN]
    assert timing_errors(pairs).tolist() == [240, -80]
    assert hits(pairs) == ([0.5, 0.5, 0.2, 0.4], [True, True, False, False])
    table = confusion(pairs)
    assert table.sum() == 5
    assert table[0, 0] == table[6, 6] == 1  # pass, shot
    assert table[NOTHING, 6] == 1  # missed
    assert table[7, NOTHING] == 1  # an out that did not come
    assert table[5, 6] == 1  # a shot taken for a cross


def test_quality_counts_nearness_and_what_is_too_much() -> None:
    assert quality([right(31_000)], 2_500) == 1
    assert quality([right(31_000, 500)], 2_500) == pytest.approx(0.8)
    assert quality([right(31_000), MISSED, IN_VAIN], 2_500) == pytest.approx(2 / 4)
    assert quality([MISTAKEN], 2_500) == 0
    assert quality([right(31_000)], 2_500, doubt=2) == 0.5
    assert quality([], 2_500) == 1


def test_the_order_of_clips() -> None:
    pairs = {
        "quiet": [IN_VAIN],  # nothing came: neither good nor bad to look at
        "missed": [MISSED],
        "sure and wrong": [MISSED, Pair(Prediction("OUT", 33_000, 0.9), None)],
        "one": [right(31_000)],
        "half": [right(31_000), MISSED],
        "two": [right(31_000), right(34_000, label="SHOT")],
    }
    assert ranked(pairs, 2_500) == ["two", "one", "half", "missed", "sure and wrong"]


def test_the_envelope_is_what_average_precision_reads() -> None:
    rng = np.random.default_rng(3)
    clips, predictions = [], {}
    for n in range(40):
        times = 30_000 + 160 * rng.choice(31, 3, replace=False)
        clips.append(Clip(f"c{n}", (), tuple(Event("PASS", int(t)) for t in times[:2])))
        predictions[f"c{n}"] = [Prediction("PASS", int(t), float(rng.random())) for t in times[1:]]
    result = score(clips, predictions)
    for t in range(6):
        recall, best = envelope(result, t, 0)
        assert (np.diff(recall) > 0).all()
        assert (np.diff(best) <= 0).all()
        read = [best[recall >= r].max() if (recall >= r).any() else 0 for r in RECALLS]
        assert np.mean(read) == pytest.approx(result.ap[t, 0])
    recall, best = envelope(result, 0, 6)  # no shot, no prediction of one
    assert (recall.tolist(), best.tolist()) == ([0], [0])


def test_the_same_action_comes_first_then_the_nearest_of_what_is_left() -> None:
    shot, early, late = Event("SHOT", 31_000), Event("PASS", 30_200), Event("PASS", 34_000)
    a, b, c = Prediction("PASS", 31_000, 0.5), Prediction("SHOT", 32_000, 0.4), Prediction("CROSS", 33_500, 0.3)
    # The pass at 31 s is nearest to the shot, but takes the early pass: the shot is for the prediction of a shot.
    assert pair([a, b, c], [shot, early, late], reach_ms=2_500) == [Pair(a, early), Pair(b, shot), Pair(c, late)]
    # Within one action only, the cross is of nothing and the late pass is missed.
    assert pair([a, b, c], [shot, early, late], reach_ms=2_500, across=False) == [
        Pair(a, early),
        Pair(b, shot),
        Pair(c, None),
        Pair(None, late),
    ]


def test_reach_is_a_limit_and_is_included() -> None:
    event, guess = Event("PASS", 31_000), Prediction("PASS", 32_000, 0.5)
    assert pair([guess], [event], reach_ms=1_000) == [Pair(guess, event)]
    assert pair([guess], [event], reach_ms=999) == [Pair(guess, None), Pair(None, event)]


def test_of_equals_the_surer_and_then_the_earlier() -> None:
    event = Event("PASS", 31_000)
    unsure, sure = Prediction("PASS", 30_500, 0.2), Prediction("PASS", 31_500, 0.6)
    assert pair([unsure, sure], [event], reach_ms=5_000) == [Pair(unsure, None), Pair(sure, event)]
    early, late = Prediction("PASS", 30_500, 0.2), Prediction("PASS", 31_500, 0.2)
    assert pair([late, early], [event], reach_ms=5_000) == [Pair(late, None), Pair(early, event)]


def test_right_and_by_how_much() -> None:
    wrong = Pair(Prediction("CROSS", 31_000, 1.0), Event("SHOT", 31_160))
    assert not wrong.right
    assert wrong.error_ms == -160
    assert not Pair(None, Event("SHOT", 31_160)).right


def test_all_clips_also_those_without_predictions() -> None:
    clips = [Clip("a", (), (Event("PASS", 31_000),)), Clip("b")]
    assert pair_all(clips, {"b": [Prediction("OUT", 32_000, 0.1)]}, reach_ms=5_000) == {
        "a": [Pair(None, Event("PASS", 31_000))],
        "b": [Pair(Prediction("OUT", 32_000, 0.1), None)],
    }


def test_ranks_are_not_probabilities_and_a_few_unlucky_ones_are() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 0.6, 400)
    came = rng.random(400) < p
    assert are_probabilities(p.tolist(), came.tolist())
    ranks = (np.argsort(np.argsort(p)) / 399).tolist()  # the same order, spread from 0 to 1
    assert not are_probabilities(ranks, came.tolist())
    assert are_probabilities([0.9, 0.8, 0.9], [False, True, False])  # three say nothing
    assert not are_probabilities([2.0], [True])
    assert are_probabilities([], [])


def test_predictions_per_clip() -> None:
    one = Prediction("PASS", 31_000, 0.5)
    assert per_clip({"a": [one, one, one], "b": [one], "c": []}) == pytest.approx(4 / 3)
    assert per_clip({"a": [one, one]}) == 2
    assert per_clip({}) == 0


def test_the_worst_clip_missed_most_and_was_surest() -> None:
    """Without a right prediction, more events are worse, then the sum of the confidences of false ones."""
    sure = Pair(Prediction("OUT", 33_000, 0.9), None)
    pairs = {
        "two missed": [MISSED, MISSED],
        "one missed, sure": [MISSED, sure],
        "one missed": [MISSED],
        "one missed, unsure twice": [MISSED, IN_VAIN, IN_VAIN],
        "one right": [right(31_000)],
        "two right": [right(31_000), right(32_000)],
        "nothing to miss": [sure],
    }
    assert ranked(pairs, 1000) == [
        "two right",
        "one right",
        "one missed",
        "one missed, unsure twice",
        "one missed, sure",
        "two missed",
    ]


def test_what_is_far_for_a_few_predictions() -> None:
    """Four that fail: a standard error of at least √(1/16 / 4) = 1/8, so up to 3/8 may be chance."""
    assert are_probabilities([0.375] * 4, [False] * 4)
    assert not are_probabilities([0.376] * 4, [False] * 4)
    # Of 10 000 that half come true, the error is 0.005: then 0.15 is the limit.
    half = [True, False] * 5000
    assert are_probabilities([0.6499] * 10_000, half)
    assert not are_probabilities([0.6501] * 10_000, half)
    assert are_probabilities([0.0, 1.0], [True, True])  # too low is no fault
    assert not are_probabilities([0.5, 1.01], [True, True])
    assert not are_probabilities([-0.01, 0.5], [True, True])
    # Of 16 of which 4 came, √(3/16 / 16) · 3 = 0.3248.
    quarter = [True] * 4 + [False] * 12
    assert are_probabilities([0.25 + 0.324] * 16, quarter)
    assert not are_probabilities([0.25 + 0.326] * 16, quarter)


def test_clips_may_be_paired_within_actions_only() -> None:
    clips, predictions = [Clip("a", (), (Event("SHOT", 31_000),))], {"a": [Prediction("PASS", 31_000, 0.5)]}
    assert len(pair_all(clips, predictions, reach_ms=500, across=False)["a"]) == 2
    assert len(pair_all(clips, predictions, reach_ms=500)["a"]) == 1


def test_no_right_pair_has_no_errors() -> None:
    assert timing_errors([MISSED, IN_VAIN, MISTAKEN]).dtype == np.int64
    assert len(timing_errors([MISSED])) == 0
