"""What was expected along a video, in a few figures: how often each action, and the highlights."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

from ballcast.core.actions import ACTIONS, HORIZON_MS
from ballcast.core.events import Forecast, Prediction
from ballcast.core.util import strongest_apart

APART_MS = 10_000  # between two highlights that are listed


@dataclass(frozen=True)
class Highlight:
    """A forecast and its most confident prediction."""

    forecast: Forecast
    best: Prediction


@dataclass(frozen=True)
class TimelineSummary:
    """`expected`: label → the number of actions that the forecasts add up to, largest first. `highlights`: in order of
    time, the most confident of the video, at least `APART_MS` apart."""

    expected: dict[str, float]
    highlights: list[Highlight]


def summarise(timeline: Sequence[Forecast], every_ms: int, count: int = 6) -> TimelineSummary:
    """Summarise forecasts that were made every `every_ms`; `count`: of highlights, at most.

    Forecasts overlap: each second is seen by as many as fit into the horizon, so their sum is divided by that number.
    Of the probability p of at least one action within 5 s the expected number is −log(1 − p), as of a Poisson process;
    without it, the confidences are added up, which misses what was expected but not predicted.
    """
    sums = dict.fromkeys(ACTIONS, 0.0)
    share = min(1.0, every_ms / HORIZON_MS)
    for forecast in timeline:
        for label, p in zip(ACTIONS, forecast.within_5s, strict=False):
            sums[label] -= log1p(-min(p, 0.999)) * share
        for prediction in () if forecast.within_5s else forecast.predictions:
            sums[prediction.label] += prediction.confidence * share
    expected = dict(sorted(((k, v) for k, v in sums.items() if v), key=lambda pair: -pair[1]))
    candidates = [
        Highlight(forecast, max(forecast.predictions, key=lambda p: p.confidence))
        for forecast in timeline
        if forecast.predictions
    ]
    chosen = strongest_apart(
        candidates, count, APART_MS, strength=lambda m: m.best.confidence, time_ms=lambda m: m.best.position_ms
    )
    return TimelineSummary(expected, sorted(chosen, key=lambda m: m.best.position_ms))
