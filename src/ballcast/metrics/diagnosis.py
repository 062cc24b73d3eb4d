"""Diagnosis of a score: pairs of predictions and events, calibration, timing errors, confusion, single clips."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.events import Clip, Event, Prediction
from ballcast.metrics.average_precision import Score


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction and its event; a prediction without an event is false, an event without a prediction was missed."""

    prediction: Prediction | None
    event: Event | None

    @property
    def right(self) -> bool:
        """Whether both exist and have the same action."""
        return self.prediction is not None and self.event is not None and self.prediction.label == self.event.label

    @property
    def error_ms(self) -> int:
        """Predicted − actual time in ms; only for pairs with both."""
        assert self.prediction is not None
        assert self.event is not None
        return self.prediction.position_ms - self.event.position_ms


def pair(
    predictions: Sequence[Prediction], events: Sequence[Event], *, reach_ms: int, across: bool = True
) -> list[Pair]:
    """Pair the predictions and events of one clip greedily, the nearest of the same action first.

    Of equals, the prediction with higher confidence goes first, then the earlier.

    Args:
        predictions, events: of the clip.
        reach_ms: the largest distance of a pair.
        across: then also pair the rest across actions.

    Returns:
        A pair for each prediction in order, then one for each missed event.
    """
    order = sorted(
        (p.label != e.label, abs(p.position_ms - e.position_ms), -p.confidence, p.position_ms, i, j)
        for i, p in enumerate(predictions)
        for j, e in enumerate(events)
        if abs(p.position_ms - e.position_ms) <= reach_ms and (across or p.label == e.label)
    )
    event_of: dict[int, int] = {}
    taken: set[int] = set()
    for *_, i, j in order:
        if i not in event_of and j not in taken:
            event_of[i] = j
            taken.add(j)
    found = [Pair(p, events[event_of[i]] if i in event_of else None) for i, p in enumerate(predictions)]
    return found + [Pair(None, e) for j, e in enumerate(events) if j not in taken]


def pair_all(
    clips: Sequence[Clip], predictions: Mapping[str, Sequence[Prediction]], *, reach_ms: int, across: bool = True
) -> dict[str, list[Pair]]:
    """The pairs of every clip by its name; arguments as in `pair`."""
    return {
        clip.name: pair(predictions.get(clip.name, ()), clip.anticipation, reach_ms=reach_ms, across=across)
        for clip in clips
    }


NOTHING = len(ACTIONS)  # last row (missed events) and last column (false predictions) of the confusion matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reliability:
    """Predictions in N equal bins of confidence. Empty bins have count 0 and NaN elsewhere."""

    count: NDArray[np.int64]  # (N,)
    confidence: Floats  # (N,) mean in the bin
    hits: Floats  # (N,) share of right predictions
    low: Floats  # (N,) and high: 95 % interval of the share (Wilson), if the predictions are independent
    high: Floats

    @property
    def error(self) -> float:
        """Expected calibration error: mean |confidence − hits| over the predictions; NaN without any."""
        full = self.count > 0
        total = self.count.sum()
        if not total:
            return float("nan")
        return float((self.count * np.abs(self.confidence - self.hits))[full].sum() / total)


def reliability(confidence: Sequence[float], hit: Sequence[bool], bins: int = 10) -> Reliability | None:
    """Reliability diagram of predictions; None if a confidence is not a probability (outside 0–1).

    Args:
        confidence: (n,) of each prediction.
        hit: (n,) whether it was right.
        bins: N.
    """
    p = np.asarray(confidence, np.float64)
    right = np.asarray(hit, bool)
    if len(p) and not ((p >= 0) & (p <= 1)).all():
        return None
    bin_ = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty bin gives NaN, as documented
        mean = np.bincount(bin_, p, minlength=bins) / count
        share = np.bincount(bin_, right.astype(np.float64), minlength=bins) / count
        low, high = wilson(share, count)
    return Reliability(count, mean, share, low, high)


FAR = 0.15  # by how much the mean confidence may exceed the share that came


def are_probabilities(confidence: Sequence[float], hit: Sequence[bool]) -> bool:
    """Whether confidences can be read as probabilities: between 0 and 1, and on average not far above what came.

    The scores of a tuned system are not: they are made for their order, which is all that the score reads. A few
    predictions may be far off by chance, so the excess must also be above three standard errors.
    """
    p, right = np.asarray(confidence, np.float64), np.asarray(hit, np.float64)
    if not len(p):
        return True
    if not ((p >= 0) & (p <= 1)).all():
        return False
    excess = float(p.mean() - right.mean())
    error = float(np.sqrt(max(right.mean() * (1 - right.mean()), 1 / (4 * len(p))) / len(p)))
    return excess <= max(FAR, 3 * error)


def wilson(share: Floats, count: NDArray[np.int64], z: float = 1.96) -> tuple[Floats, Floats]:
    """Wilson's interval for a probability of which `share` (N,) of `count` (N,) draws succeeded; (N,) each."""
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return centre - half, centre + half


def hits(pairs: Iterable[Pair]) -> tuple[list[float], list[bool]]:
    """Confidence of every prediction and whether it was right; for `reliability`."""
    made = [p for p in pairs if p.prediction is not None]
    return [p.prediction.confidence for p in made if p.prediction], [p.right for p in made]


def timing_errors(pairs: Iterable[Pair]) -> NDArray[np.int64]:
    """Predicted − actual in ms of every right pair: above zero is too late."""
    return np.array([p.error_ms for p in pairs if p.right], np.int64)


def confusion(pairs: Iterable[Pair]) -> NDArray[np.int64]:
    """(11, 11) counts; row: predicted action (last: none), column: actual action (last: none)."""
    table = np.zeros((NOTHING + 1, NOTHING + 1), np.int64)
    for p in pairs:
        row = ACTION_INDEX[p.prediction.label] if p.prediction else NOTHING
        table[row, p.event.action if p.event else NOTHING] += 1
    return table


def quality(pairs: Sequence[Pair], reach_ms: int, doubt: int = 0) -> float:
    """The quality of one clip's predictions, 0 to 1: 2 · Σ (1 − |error| / reach) / (predictions + events).

    The sum is over right pairs. 1 also for a clip without events and predictions.

    Args:
        pairs: of the clip.
        reach_ms: as in `pair`.
        doubt: added to the denominator, so that one right prediction ranks below three good ones.
    """
    near = sum(1 - abs(p.error_ms) / reach_ms for p in pairs if p.right)
    possible = doubt + sum((p.prediction is not None) + (p.event is not None) for p in pairs)
    return 2 * near / possible if possible else 1.0


def ranked(pairs: Mapping[str, Sequence[Pair]], reach_ms: int) -> list[str]:
    """Names of the clips with events, the best predicted first; of equals those with more events.

    Among the worst, those with confident false predictions come last.
    """

    def key(name: str) -> tuple[float, float, float]:
        value = quality(pairs[name], reach_ms, doubt=2)
        events = sum(p.event is not None for p in pairs[name])
        wrong = sum(p.prediction.confidence for p in pairs[name] if p.prediction and not p.right)
        return value, events if value else -events, -wrong

    return sorted((n for n in pairs if any(p.event for p in pairs[n])), key=key, reverse=True)


def envelope(score: Score, tolerance: int, action: int) -> tuple[Floats, Floats]:
    """The interpolated curve behind AP: recall (M,) rising from 0, and the best precision at it or beyond (M,)."""
    recall, precision = score.recall[tolerance, action], score.precision[tolerance, action]
    reached = np.unique(recall[recall > 0])
    best = np.array([precision[recall >= r].max() for r in reached])
    return np.concatenate([[0.0], reached]), np.concatenate([best[:1] if len(best) else [0.0], best])


def per_clip(predictions: Mapping[str, Sequence[Prediction]]) -> float:
    """Mean number of predictions per clip."""
    return sum(map(len, predictions.values())) / max(len(predictions), 1)
