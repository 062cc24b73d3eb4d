"""Action spotting: average precision per class of the peaks of scores along a game.

A peak is the largest score of its class within `apart_ms` to either side. Peaks of all games, in order of falling
score, are each matched with the nearest free action of their class within the tolerance; one without a match is a
false positive. Reported are the 11-point AP and the area under the interpolated precision-recall curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, SHORT_NAMES
from ballcast.core.events import Event
from ballcast.metrics.average_precision import Floats, interpolated_precision


@dataclass(frozen=True)
class Peaks:
    """The P peaks of a game: `action` (P,) int64, `position_ms` (P,) and `score` (P,) float64."""

    action: NDArray[np.int64]
    position_ms: Floats
    score: Floats


@dataclass(frozen=True)
class SpottingScore:
    """Per class (C,): 11-point AP and area AP as fractions, NaN for a class without actions; and the action counts."""

    ap: Floats
    area: Floats
    events: NDArray[np.int64]
    least: int  # classes with fewer actions are excluded from the mean

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(C,): the classes with enough actions for the mean."""
        return self.events >= self.least

    @property
    def avg(self) -> float:
        """The mean 11-point AP over the classes with enough actions; 0 where none has."""
        return float(self.ap[self.counted].mean()) if self.counted.any() else 0.0

    @property
    def mean_area(self) -> float:
        """The mean area AP over the same classes."""
        return float(self.area[self.counted].mean()) if self.counted.any() else 0.0

    def summary(self) -> str:
        """One line, in per cent: "mean AP 61.30 (area 58.90) over 9 classes: pass 73.1, …"."""
        each = ", ".join(f"{n} {100 * self.ap[c]:.1f}" for c, n in enumerate(SHORT_NAMES) if self.events[c])
        means = f"mean AP {100 * self.avg:.2f} (area {100 * self.mean_area:.2f})"
        return f"{means} over {self.counted.sum()} class{'es' * bool(self.counted.sum() != 1)}: {each}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: the means, the classes they are over, and per class AP, area and count; None: no action."""
        per_class = {
            name: {"ap": _or_none(self.ap[c]), "area": _or_none(self.area[c]), "events": int(self.events[c])}
            for c, name in enumerate(ACTIONS)
        }
        names = [name for c, name in enumerate(ACTIONS) if self.counted[c]]
        return {
            "mean_ap": self.avg,
            "mean_area": self.mean_area,
            "mean_over": names,
            "least_events": self.least,
            "per_class": per_class,
        }


def suppress_non_maxima(scores: Floats, times_ms: Floats, *, apart_ms: float, smooth_ms: float = 0) -> Peaks:
    """Non-maximum suppression along time, for each class.

    Args:
        scores: (n, C).
        times_ms: (n,), rising and evenly spaced.
        apart_ms: a peak suppresses lower scores of its class up to this distance.
        smooth_ms: standard deviation of a Gaussian filter that is applied first; 0: none.

    Returns:
        The peaks, by class, in order of falling score.
    """
    if smooth_ms and len(times_ms) > 1:
        scores = _smooth(scores, smooth_ms / (times_ms[1] - times_ms[0]))
    actions = []
    times = []
    kept = []
    for action in range(scores.shape[1]):
        alive = np.ones(len(scores), bool)
        for i in np.argsort(-scores[:, action], kind="stable"):  # the earliest of equals
            if alive[i]:
                near = slice(
                    *np.searchsorted(times_ms, (times_ms[i] - apart_ms, np.nextafter(times_ms[i] + apart_ms, np.inf)))
                )
                alive[near] = False
                actions.append(action)
                times.append(times_ms[i])
                kept.append(scores[i, action])
    return Peaks(np.array(actions, np.int64), np.array(times, float), np.array(kept, float))


def spotting_score(
    games: Sequence[tuple[Sequence[Event], Peaks]], *, tolerance_ms: float = 1000, least: int = 5
) -> SpottingScore:
    """Score the peaks of several games.

    Args:
        games: the actions and the peaks of each game.
        tolerance_ms: the largest distance of a match.
        least: actions a class must have to be part of the means.
    """
    ap = np.full(len(ACTIONS), np.nan)
    area = np.full(len(ACTIONS), np.nan)
    counts = np.zeros(len(ACTIONS), np.int64)
    for action in range(len(ACTIONS)):
        times = [np.array([e.position_ms for e in events if e.action == action], float) for events, _ in games]
        counts[action] = sum(map(len, times))
        if counts[action]:
            true = match_peaks(times, [of_class(peaks, action) for _, peaks in games], tolerance_ms)
            ap[action], area[action] = average_precisions(true, int(counts[action]))
    return SpottingScore(ap, area, counts, least)


def random_score(
    games: Sequence[tuple[Sequence[Event], Floats]],
    *,
    apart_ms: float,
    tolerance_ms: float = 1000,
    least: int = 5,
    draws: int = 5,
) -> SpottingScore:
    """The mean score of uniformly random scores, a baseline: far from 0 where actions are frequent.

    Args:
        games: the actions of each game, and the times (n,) in ms that are scored.
        apart_ms: as in `suppress_non_maxima`. tolerance_ms, least: as in `spotting_score`.
        draws: random scores to average over.
    """
    rng = np.random.default_rng(0)
    ap = []
    area = []
    for _ in range(draws):
        drawn = [
            (events, suppress_non_maxima(rng.random((len(times), len(ACTIONS))), times, apart_ms=apart_ms))
            for events, times in games
        ]
        score = spotting_score(drawn, tolerance_ms=tolerance_ms, least=least)
        ap.append(score.ap)
        area.append(score.area)
    return SpottingScore(np.mean(ap, 0), np.mean(area, 0), score.events, least)


def average_precisions(true: NDArray[np.bool_], events: int) -> tuple[float, float]:
    """11-point and area AP of predictions in order of falling score; `true` (P,): which are true positives."""
    if not len(true):
        return 0.0, 0.0
    found = np.cumsum(true)
    precision = found / np.arange(1, len(true) + 1)
    recall = found / events
    best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or beyond
    eleven = interpolated_precision(precision[::-1], recall[::-1]).mean()
    return float(eleven), float((np.diff(recall, prepend=0.0) * best).sum())


def of_class(peaks: Peaks, action: int) -> tuple[Floats, Floats]:
    mine = peaks.action == action
    return peaks.position_ms[mine], peaks.score[mine]


def match_peaks(
    events: Sequence[Floats], peaks: Sequence[tuple[Floats, Floats]], tolerance_ms: float
) -> NDArray[np.bool_]:
    """Which peaks of one class, of all games and in order of falling score, are matched with an action."""
    game = np.repeat(np.arange(len(peaks)), [len(times) for times, _ in peaks])
    times = np.concatenate([times for times, _ in peaks])
    order = np.argsort(-np.concatenate([scores for _, scores in peaks]), kind="stable")
    free = [np.ones(len(events_of_game), bool) for events_of_game in events]
    true = np.zeros(len(order), bool)
    for rank, i in enumerate(order):
        events_of_game = events[game[i]]
        distance = np.where(free[game[i]], np.abs(events_of_game - times[i]), np.inf)
        if len(events_of_game) and distance.min() <= tolerance_ms:
            free[game[i]][distance.argmin()] = False
            true[rank] = True
    return true


def _smooth(scores: Floats, deviation: float) -> Floats:
    """Gaussian filter along time, its standard deviation in samples; renormalised at the ends."""
    reach = min(int(np.ceil(3 * deviation)), (len(scores) - 1) // 2)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    weight = np.convolve(np.ones(len(scores)), kernel, mode="same")
    return np.stack([np.convolve(column, kernel, mode="same") / weight for column in scores.T], 1)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
