"""Reliability, timing, confusion, the order of clips and the curves, against numbers worked out by hand."""

import numpy as np
import pytest

from ballcast.core.clips import Clip, Event, Prediction
from ballcast.metrics.average_precision import RECALLS, score
from ballcast.metrics.diagnosis import (
    NOTHING,
    confusion,
    envelope,
    hits,
    quality,
    ranked,
    reliability,
    timing_errors,
    wilson,
)
from ballcast.metrics.pairing import Pair


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


def test_an_honest_forecaster_has_a_small_error_and_a_boastful_one_a_large() -> None:
    rng = np.random.default_rng(0)
    chance = rng.random(20_000)
    came = rng.random(20_000) < chance
    honest, boastful = reliability(chance, came), reliability(np.sqrt(chance), came)
    assert honest is not None
    assert boastful is not None
    assert honest.error < 0.015
    assert boastful.error == pytest.approx(2 / 3 - 1 / 2, abs=0.01)  # mean of √p − p
    inside = (honest.low <= honest.confidence) & (honest.confidence <= honest.high)
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
