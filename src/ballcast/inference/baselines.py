"""Baselines that use no video: how often each action occurs, and how often after the last observed action.

Both are fitted to clips, or to the arrays of many windows (`of`), a few milliseconds for a hundred thousand.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, OBSERVED_MS
from ballcast.core.events import Clip, Event, Prediction

PARTS = 4  # predictions per clip, evenly spread over the 5 s
SINCE_MS = (500, 1000, 1500, 2000, 3000, 5000)  # edges of "time since the last action"

Ints = NDArray[np.int64]


class ClassPrior:
    """The same prediction for every clip: the share of training clips with each action in each part of the 5 s."""

    def __init__(self, clips: Sequence[Clip]) -> None:
        self._fit(*_events(clips))

    @classmethod
    def fit(cls, classes: Ints, position_ms: Ints) -> "ClassPrior":
        """Fit to the future events of n windows: classes (n, M), −1 for none, and positions (n, M) in ms."""
        made = cls.__new__(cls)
        made._fit(classes, position_ms)
        return made

    def _fit(self, classes: Ints, position_ms: Ints) -> None:
        self.probability = _occurrence(classes, position_ms).mean(0)  # (PARTS, C)

    def predict(self, clip: Clip) -> list[Prediction]:
        """The predictions for any clip."""
        return _predictions(self.probability)


class Markov:
    """The class prior given the last observed action and the time since it, smoothed towards the class prior.

    It uses the labels of the observed 30 s, which a model has to recognise from the video.
    """

    def __init__(self, clips: Sequence[Clip], smoothing: float = 5.0) -> None:
        self._fit(*_events(clips), np.array([_state(clip) for clip in clips]), smoothing)

    @classmethod
    def fit(cls, classes: Ints, position_ms: Ints, last: Ints, since_ms: Ints, smoothing: float = 5.0) -> "Markov":
        """Fit to future events as in `ClassPrior.fit`, the last action (n,), −1 for none, and ms since it (n,)."""
        made = cls.__new__(cls)
        made._fit(classes, position_ms, _states(last, since_ms), smoothing)
        return made

    def _fit(self, classes: Ints, position_ms: Ints, states: Ints, smoothing: float) -> None:
        occurrence = _occurrence(classes, position_ms)  # (n, PARTS, C)
        prior = occurrence.mean(0)
        self.probability = np.empty((_STATES, *prior.shape))
        for state in range(_STATES):
            seen = occurrence[states == state]
            self.probability[state] = (seen.sum(0) + smoothing * prior) / (len(seen) + smoothing)

    def predict(self, clip: Clip) -> list[Prediction]:
        """The predictions for a clip with labels of its observed part."""
        return _predictions(self.probability[_state(clip)])


_BRACKETS = len(SINCE_MS) + 1
_STATES = (len(ACTIONS) + 1) * _BRACKETS


def _state(clip: Clip) -> int:
    """The last observed action (or none) and the bracket of the time since, as one number."""
    if not clip.observation:
        return _STATES - 1
    last: Event = max(clip.observation, key=lambda e: e.position_ms)
    return int(_states(np.array([last.action]), np.array([OBSERVED_MS - last.position_ms]))[0])


def _states(last: Ints, since_ms: Ints) -> Ints:
    bracket = np.searchsorted(SINCE_MS, since_ms, side="right")
    return np.where(last < 0, _STATES - 1, last * _BRACKETS + bracket)


def _events(clips: Sequence[Clip]) -> tuple[Ints, Ints]:
    """Class and position of the future events, (n, M) each."""
    longest = max((len(clip.anticipation) for clip in clips), default=0)
    classes = np.full((len(clips), longest), -1, np.int64)
    position_ms = np.full((len(clips), longest), OBSERVED_MS, np.int64)
    for n, clip in enumerate(clips):
        for m, event in enumerate(clip.anticipation):
            classes[n, m], position_ms[n, m] = event.action, event.position_ms
    return classes, position_ms


def _occurrence(classes: Ints, position_ms: Ints) -> NDArray[np.bool_]:
    """(n, PARTS, C): whether an action occurs in each part of the 5 s."""
    found = np.zeros((len(classes), PARTS, len(ACTIONS)), bool)
    part = np.minimum((position_ms - OBSERVED_MS) * PARTS // HORIZON_MS, PARTS - 1)
    n, m = np.nonzero(classes >= 0)
    found[n, part[n, m], classes[n, m]] = True
    return found


def _predictions(probability: NDArray[np.float64]) -> list[Prediction]:
    """Predictions in the middle of each part; `probability` (PARTS, C)."""
    middles = OBSERVED_MS + (2 * np.arange(PARTS) + 1) * HORIZON_MS // (2 * PARTS)
    return [Prediction.from_scores(int(ms), row.tolist()) for ms, row in zip(middles, probability, strict=True)]
