"""The benchmark on real clips: its measures against hand-worked numbers."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.real import ClipScores, LabelledClip, auc, average_precision, in_blocks, spotting, with_interval


def test_auc_counts_pairs_and_halves_ties() -> None:
    positive = np.array([True, False, True, False])
    assert auc(positive, np.array([3.0, 1.0, 2.0, 2.0])) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert np.isnan(auc(np.array([False, False]), np.array([1.0, 2.0])))


def test_average_precision_takes_each_action_once() -> None:
    peaks = [(np.array([1.0, 1.2, 5.0]), np.array([0.9, 0.8, 0.7]))]
    truth = [np.array([1.1, 4.6, 9.0])]
    # The first peak takes 1.1, the second finds nothing left within 0.5 s, the third takes 4.6.
    assert average_precision(peaks, truth, 0.5) == pytest.approx((1 / 1 + 2 / 3) / 3)


def test_only_what_is_labelled_counts() -> None:
    times = np.arange(0, 10, 0.08)
    scores = np.zeros((len(times), 10))
    scores[:, 0] = np.abs(times - 2.0) <= 0.3
    scores[times > 6, 0] = 5.0  # wrong, where nothing is labelled
    clip = LabelledClip(Path("a.mp4"), ((2.0, 0),), ((0.0, 5.0),))
    along = ClipScores(times, scores, np.zeros(0), np.zeros((0, 10, 32)))
    measured = spotting([clip], [along])
    assert measured["pass"]["auc"][0] == 1.0
    assert measured["pass"]["by_clip"] == {"a.mp4": 1.0}
    assert measured["drive"]["auc"] is None


def test_blocks_are_six_seconds() -> None:
    times = np.array([0.0, 5.9, 6.0, 13.0])
    assert [block[0].tolist() for block in in_blocks(times, times)] == [[0.0, 5.9], [6.0], [13.0]]


def test_an_interval_holds_the_measure() -> None:
    value = with_interval(lambda chosen: float(np.mean(chosen)), 40)
    assert value is not None
    assert value[0] == pytest.approx(19.5)
    assert value[1] < 19.5 < value[2]
