"""What lies behind a score: which prediction was of which event, calibration, timing, confusion, single clips."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.events import Clip, Event, Prediction
from ballcast.metrics.average_precision import Score


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction and the event it was of; without an event, nothing came; without a prediction, it was missed."""

    prediction: Prediction | None
    event: Event | None

    @property
    def right(self) -> bool:
        """Both are there and of the same action."""
        return self.prediction is not None and self.event is not None and self.prediction.label == self.event.label

    @property
    def error_ms(self) -> int:
        """How much later than the event the prediction stands; only of pairs with both."""
        assert self.prediction is not None
        assert self.event is not None
        return self.prediction.position_ms - self.event.position_ms


def pair(
    predictions: Sequence[Prediction], events: Sequence[Event], *, reach_ms: int, across: bool = True
) -> list[Pair]:
    """Pairs of one clip: first those of one action, the nearest first; then, `across` actions, what is left.

    No pair is further apart than `reach_ms`. Of equals the surer prediction goes first, then the earlier. Predictions
    come first in the list, in their order; then the events that were missed.
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
    """The pairs of every clip, by its name."""
    return {
        clip.name: pair(predictions.get(clip.name, ()), clip.anticipation, reach_ms=reach_ms, across=across)
        for clip in clips
    }


NOTHING = len(ACTIONS)  # the confusion's last row (missed) and last column (nothing came)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reliability:
    """Predictions in bins of confidence; N bins of equal width. Empty bins have count 0 and the rest NaN."""

    count: NDArray[np.int64]  # (N,)
    confidence: Floats  # (N,) mean in the bin
    hits: Floats  # (N,) share that came true
    low: Floats  # (N,) and high: where the true share lies with 95 % (Wilson), if the predictions are independent
    high: Floats

    @property
    def error(self) -> float:
        """Expected calibration error: how far confidence and hits are apart, averaged over the predictions."""
        full = self.count > 0
        total = self.count.sum()
        if not total:
            return float("nan")
        return float((self.count * np.abs(self.confidence - self.hits))[full].sum() / total)


def reliability(confidence: Sequence[float], hit: Sequence[bool], bins: int = 10) -> Reliability | None:
    """How often predictions of each confidence came true; None if a confidence is no chance, outside 0–1."""
    p, came = np.asarray(confidence, np.float64), np.asarray(hit, bool)
    if len(p) and not ((p >= 0) & (p <= 1)).all():
        return None
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty bin gives the NaN that is wanted
        mean = np.bincount(place, p, minlength=bins) / count
        share = np.bincount(place, came.astype(np.float64), minlength=bins) / count
        low, high = wilson(share, count)
    return Reliability(count, mean, share, low, high)


def wilson(share: Floats, count: NDArray[np.int64], z: float = 1.96) -> tuple[Floats, Floats]:
    """Where a chance lies of which `share` of `count` draws came: Wilson's interval, (N,) each."""
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return centre - half, centre + half


def hits(pairs: Iterable[Pair]) -> tuple[list[float], list[bool]]:
    """Confidence of every prediction, and whether its action came; for `reliability`."""
    made = [p for p in pairs if p.prediction is not None]
    return [p.prediction.confidence for p in made if p.prediction], [p.right for p in made]


def timing_errors(pairs: Iterable[Pair]) -> NDArray[np.int64]:
    """Predicted − actual in ms of every right pair: above zero is too late."""
    return np.array([p.error_ms for p in pairs if p.right], np.int64)


def confusion(pairs: Iterable[Pair]) -> NDArray[np.int64]:
    """(11, 11) counts: row what was anticipated (last: nothing), column what came (last: nothing)."""
    table = np.zeros((NOTHING + 1, NOTHING + 1), np.int64)
    for p in pairs:
        row = ACTION_INDEX[p.prediction.label] if p.prediction else NOTHING
        table[row, p.event.action if p.event else NOTHING] += 1
    return table


def quality(pairs: Sequence[Pair], reach_ms: int, doubt: int = 0) -> float:
    """How well one clip was anticipated, 0 to 1: right pairs, each by how near it was, out of all there could be.

    2 · Σ (1 − |error| / reach) / (predictions + events); 1 also where nothing came and nothing was said. `doubt` counts
    as so many more that failed, so that one lucky prediction is worth less than three good ones.
    """
    near = sum(1 - abs(p.error_ms) / reach_ms for p in pairs if p.right)
    could = doubt + sum((p.prediction is not None) + (p.event is not None) for p in pairs)
    return 2 * near / could if could else 1.0


def ranked(pairs: Mapping[str, Sequence[Pair]], reach_ms: int) -> list[str]:
    """Names of the clips in which something came, the best anticipated first; of equals those with more events.

    Among the worst, those where much was surely said and did not come stand last.
    """

    def key(name: str) -> tuple[float, float, float]:
        value = quality(pairs[name], reach_ms, doubt=2)
        events = sum(p.event is not None for p in pairs[name])
        wrong = sum(p.prediction.confidence for p in pairs[name] if p.prediction and not p.right)
        return value, events if value else -events, -wrong

    return sorted((n for n in pairs if any(p.event for p in pairs[n])), key=key, reverse=True)


def envelope(score: Score, tolerance: int, action: int) -> tuple[Floats, Floats]:
    """Recall (M,) ascending from 0 and the best precision at it or beyond (M,), which is what AP reads."""
    recall, precision = score.recall[tolerance, action], score.precision[tolerance, action]
    reached = np.unique(recall[recall > 0])
    best = np.array([precision[recall >= r].max() for r in reached])
    return np.concatenate([[0.0], reached]), np.concatenate([best[:1] if len(best) else [0.0], best])


def per_clip(predictions: Mapping[str, Sequence[Prediction]]) -> float:
    """Predictions a clip."""
    return sum(map(len, predictions.values())) / max(len(predictions), 1)
