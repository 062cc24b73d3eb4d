"""Spotting's score: counted by hand, and on what it must not reward."""

import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Event
from ballcast.metrics.spotting import (
    Peaks,
    average_precisions,
    random_score,
    spotting_score,
    suppress_non_maxima,
)
from benchmarks.resampled_spotting import resampled_spotting


def peaks(*found: tuple[int, float, float]) -> Peaks:
    action, time, score = zip(*found, strict=True) if found else ((), (), ())
    return Peaks(np.array(action, np.int64), np.array(time, float), np.array(score, float))


def passes(*times: int) -> list[Event]:
    return [Event("PASS", t) for t in times]


def test_by_hand() -> None:
    """True, false, true of three actions: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3."""
    eleven, area = average_precisions(np.array([True, False, True]), 3)
    assert eleven == pytest.approx((4 * 1 + 3 * 2 / 3 + 4 * 0) / 11)  # recalls 0–0.3, 0.4–0.6, beyond
    assert area == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3)
    assert average_precisions(np.array([], bool), 3) == (0.0, 0.0)
    assert average_precisions(np.ones(3, bool), 3) == (1.0, 1.0)


def test_an_action_is_found_once_and_by_the_surest() -> None:
    score = spotting_score([(passes(5000), peaks((0, 5400, 0.9), (0, 5000, 0.5)))], least=1)
    assert score.ap[0] == 1.0  # the second peak, though nearer, comes too late and does no harm at full recall
    late = spotting_score([(passes(5000), peaks((0, 9000, 0.9), (0, 5000, 0.5)))], least=1)
    assert late.ap[0] == pytest.approx(0.5)


def test_tolerance_class_and_game_must_fit() -> None:
    assert spotting_score([(passes(5000), peaks((0, 6000, 0.9)))], least=1).ap[0] == 1.0
    assert spotting_score([(passes(5000), peaks((0, 6001, 0.9)))], least=1).ap[0] == 0.0
    assert spotting_score([(passes(5000), peaks((1, 5000, 0.9)))], least=1).ap[0] == 0.0
    other = [(passes(5000), peaks()), (passes(), peaks((0, 5000, 0.9)))]
    assert spotting_score(other, least=1).ap[0] == 0.0


def test_a_peak_takes_the_nearest_free_action() -> None:
    found = spotting_score([(passes(5000, 5900), peaks((0, 5600, 0.9), (0, 4200, 0.8)))], least=1)
    assert found.ap[0] == 1.0  # 5600 takes 5900 and leaves 5000 to 4200


def test_the_mean_is_over_classes_with_enough_actions() -> None:
    events = [*passes(1000, 3000, 5000, 7000, 9000), Event("SHOT", 20_000)]
    score = spotting_score([(events, peaks(*[(0, t, 0.9) for t in (1000, 3000, 5000, 7000, 9000)]))])
    assert score.avg == score.mean_area == 1.0
    tree = score.as_dict()
    assert tree["mean_over"] == ["PASS"]
    assert tree["per_class"]["SHOT"] == {"ap": 0.0, "area": 0.0, "events": 1}
    assert tree["per_class"]["DRIVE"] == {"ap": None, "area": None, "events": 0}
    assert spotting_score([([], peaks())]).avg == 0.0


def test_peaks_silence_their_surroundings() -> None:
    scores = np.zeros((10, 2))
    scores[:, 0] = [0.1, 0.2, 0.9, 0.8, 0.3, 0.1, 0.7, 0.1, 0.0, 0.05]
    times = 100.0 * np.arange(10)
    found = suppress_non_maxima(scores, times, apart_ms=200)
    mine = found.action == 0
    assert found.position_ms[mine].tolist() == [200, 600, 900]  # 0–400 and 400–800 are silenced
    assert found.score[mine].tolist() == [0.9, 0.7, 0.05]


def test_smoothing_prefers_what_lasts() -> None:
    scores = np.zeros((41, 1))
    scores[5, 0] = 0.9  # a flash
    scores[25:32, 0] = 0.7  # an action
    times = 120.0 * np.arange(41)
    found = suppress_non_maxima(scores, times, apart_ms=600, smooth_ms=240)
    assert found.position_ms[found.score.argmax()] == 28 * 120
    flat = suppress_non_maxima(np.full((41, 1), 0.5), times, apart_ms=1e9, smooth_ms=240)
    assert flat.score == pytest.approx([0.5])  # the ends are not darkened
    assert len(suppress_non_maxima(np.full((2, 1), 0.5), times[:2], apart_ms=1e9, smooth_ms=9000).score) == 1


def test_random_scores_are_not_zero_where_actions_are_frequent() -> None:
    """An action every 3 s covers two thirds of the time with ±1 s: that much precision costs nothing."""
    times = 120.0 * np.arange(2000)
    frequent = [Event("PASS", t) for t in range(1000, 240_000, 3000)]
    rare = [Event("SHOT", t) for t in range(1000, 240_000, 40_000)]
    random = random_score([([*frequent, *rare], times)], apart_ms=600)
    assert 0.4 < random.ap[0] < 0.75
    assert random.ap[ACTIONS.index("SHOT")] < 0.2
    again = random_score([([*frequent, *rare], times)], apart_ms=600)
    assert again.avg == random.avg


def test_the_line_that_is_printed() -> None:
    """Five passes found exactly, one of two shots; with at least three actions a class, only passes count."""
    events = [*passes(1000, 3000, 5000, 7000, 9000), Event("SHOT", 20_000), Event("SHOT", 30_000)]
    found = peaks(*[(0, t, 0.9) for t in (1000, 3000, 5000, 7000, 9000)], (6, 20_000, 0.5))
    one = spotting_score([(events, found)], least=3).summary()
    assert one == "mean AP 100.00 (area 100.00) over 1 class: pass 100.0, shot 54.5"  # 6 of 11 recalls
    two = spotting_score([(events, found)], least=2).summary()
    assert two == "mean AP 77.27 (area 75.00) over 2 classes: pass 100.0, shot 54.5"


def test_plain_json() -> None:
    events = [*passes(1000, 3000), Event("SHOT", 20_000)]
    tree = spotting_score([(events, peaks((0, 1000, 0.9)))], least=2).as_dict()
    shots = tree["per_class"].pop("SHOT")
    assert shots == {"ap": 0.0, "area": 0.0, "events": 1}
    assert tree["per_class"].pop("PASS") == {"ap": pytest.approx(6 / 11), "area": 0.5, "events": 2}
    assert list(tree["per_class"]) == [a for a in ACTIONS if a not in ("PASS", "SHOT")]
    assert all(own == {"ap": None, "area": None, "events": 0} for own in tree.pop("per_class").values())
    assert tree == {"mean_ap": pytest.approx(6 / 11), "mean_area": 0.5, "mean_over": ["PASS"], "least_events": 2}


def test_smoothing_by_hand() -> None:
    """σ is one sample: weights 1, e^−½, e^−2, e^−9/2 at 0 to 3 samples, and no further; at the ends the rest is 1."""
    a, b, c = np.exp(-0.5), np.exp(-2), np.exp(-4.5)
    scores = np.zeros((9, 1))
    scores[4, 0] = 1.0
    times = 700 + 100.0 * np.arange(9)
    found = suppress_non_maxima(scores, times, apart_ms=0, smooth_ms=100)
    smooth = dict(zip(found.position_ms.tolist(), found.score.tolist(), strict=True))
    whole = 1 + 2 * (a + b + c)
    expected = [0, c / (whole - b - c), b / (whole - c), a / whole, 1 / whole]
    assert [smooth[t] for t in times.tolist()] == pytest.approx([*expected, *expected[3::-1]])
    assert found.action.tolist() == [0] * 9
    alone = suppress_non_maxima(np.full((1, 1), 0.5), np.array([700.0]), apart_ms=100, smooth_ms=100)
    assert (alone.position_ms.tolist(), alone.score.tolist()) == ([700.0], [0.5])  # nothing to smooth it with


def test_random_scores_by_their_draws() -> None:
    """The mean over the draws of what uniform scores from seed 0 give, draw after draw, game after game."""
    times = 500.0 * np.arange(20)
    games = [(passes(1000, 4000), times), (passes(2500), times[:8])]
    rng, ap, area = np.random.default_rng(0), [], []
    for _ in range(3):
        drawn = [(events, suppress_non_maxima(rng.random((len(own), 10)), own, apart_ms=1000)) for events, own in games]
        score = spotting_score(drawn, tolerance_ms=500, least=2)
        ap.append(score.ap[0])
        area.append(score.area[0])
    found = random_score(games, apart_ms=1000, tolerance_ms=500, least=2, draws=3)
    assert found.ap[0] == pytest.approx(np.mean(ap))
    assert found.area[0] == pytest.approx(np.mean(area))
    assert (found.events[0], found.least) == (3, 2)
    assert found.ap.shape == found.area.shape == (10,)
    assert random_score([(passes(10_501), times)], apart_ms=0).ap[0] == 0  # 1001 ms after the last time
    assert random_score([(passes(10_500), times)], apart_ms=0).ap[0] > 0
    usual = random_score(games, apart_ms=1000)
    assert usual.least == 5
    assert usual.ap[0] == pytest.approx(random_score(games, apart_ms=1000, tolerance_ms=1000, draws=5).ap[0])


def test_of_equals_the_earlier_comes_first() -> None:
    """Forty peaks of one score: those of the first game, all true, come before those of the second, all false."""
    first, second = passes(*range(0, 40_000, 2000)), [(0, float(t), 0.5) for t in range(0, 40_000, 2000)]
    score = spotting_score([(first, peaks(*second)), ([], peaks(*second))])
    assert score.ap[0] == score.area[0] == 1.0
    assert score.events.dtype == np.int64
    flat = suppress_non_maxima(np.full((50, 1), 0.5), 10.0 * np.arange(50), apart_ms=1000)
    assert flat.position_ms.tolist() == [0]


def test_many_ties_keep_their_order() -> None:
    """300 peaks of three scores, every third of them right, each with an action of its own."""
    rng = np.random.default_rng(0)
    scores, right = rng.choice([0.3, 0.5, 0.7], 300), rng.random(300) < 1 / 3
    found = peaks(*[(0, 5000.0 * i, s) for i, s in enumerate(scores)])
    score = spotting_score([(passes(*(5000 * np.flatnonzero(right)).tolist()), found)])
    order = sorted(range(300), key=lambda i: -scores[i])
    assert (score.ap[0], score.area[0]) == pytest.approx(average_precisions(right[order], int(right.sum())))


def test_a_game_that_is_drawn_twice_counts_twice() -> None:
    """As the score of games that are listed so often; a class with too few actions is left out of both."""
    rng, games = np.random.default_rng(0), []
    for _ in range(4):
        events = [
            Event(ACTIONS[int(a)], int(t))
            for a, t in zip(rng.integers(0, 2, 12), rng.integers(0, 60_000, 12), strict=True)
        ]
        found = [
            (int(a), float(t), float(s))
            for a, t, s in zip(rng.integers(0, 3, 40), rng.uniform(0, 6e4, 40), rng.random(40), strict=True)
        ]
        games.append((events, peaks(*found)))
    weights = np.array([[1, 1, 1, 1], [2, 0, 1, 1], [0, 0, 4, 0], [0, 3, 0, 1]])
    means = resampled_spotting(games, weights, least=1)
    for row, mean in zip(weights, means, strict=True):
        listed = [game for game, count in zip(games, row, strict=True) for _ in range(count)]
        assert mean == pytest.approx(spotting_score(listed, least=1).avg)
    assert len(set(means.round(6))) == 4
    assert resampled_spotting(games, weights, least=1000).tolist() == [0, 0, 0, 0]
