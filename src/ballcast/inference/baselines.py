"""Anticipation that sees no video: how often actions come, and how often after the last one. What models must beat."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, OBSERVED_MS
from ballcast.core.clips import Clip, Prediction

PARTS = 4  # predictions a clip, evenly spread over the 5 s
SINCE_MS = (500, 1000, 1500, 2000, 3000, 5000)  # edges of "time since the last action"


class ClassPrior:
    """The same prediction for every clip: the share of training clips with each action in each part of the 5 s."""

    def __init__(self, clips: Sequence[Clip]) -> None:
        self.chance = _occurrence(clips).mean(0)  # (PARTS, C)

    def predict(self, clip: Clip) -> list[Prediction]:
        return _predictions(self.chance)


class Markov:
    """The class prior given the last observed action and how long ago it was, smoothed towards the class prior.

    It sees the true past, which a model has to see for itself.
    """

    def __init__(self, clips: Sequence[Clip], smoothing: float = 5.0) -> None:
        occurrence = _occurrence(clips)  # (n, PARTS, C)
        states = np.array([_state(clip) for clip in clips])
        prior = occurrence.mean(0)
        self.chance = np.empty((_STATES, *prior.shape))
        for state in range(_STATES):
            seen = occurrence[states == state]
            self.chance[state] = (seen.sum(0) + smoothing * prior) / (len(seen) + smoothing)

    def predict(self, clip: Clip) -> list[Prediction]:
        return _predictions(self.chance[_state(clip)])


_STATES = (len(ACTIONS) + 1) * (len(SINCE_MS) + 1)


def _state(clip: Clip) -> int:
    """The last observed action (or none) and the bracket of the time since, as one number."""
    if not clip.observation:
        return _STATES - 1
    last = max(clip.observation, key=lambda e: e.position_ms)
    bracket = int(np.searchsorted(SINCE_MS, OBSERVED_MS - last.position_ms, side="right"))
    return last.action * (len(SINCE_MS) + 1) + bracket


def _occurrence(clips: Sequence[Clip]) -> NDArray[np.float64]:
    """(n, PARTS, C): 1 where an action comes in a part of the clip's 5 s."""
    found = np.zeros((len(clips), PARTS, len(ACTIONS)))
    for n, clip in enumerate(clips):
        for event in clip.anticipation:
            part = min((event.position_ms - OBSERVED_MS) * PARTS // HORIZON_MS, PARTS - 1)
            found[n, part, event.action] = 1
    return found


def _predictions(chance: NDArray[np.float64]) -> list[Prediction]:
    middles = OBSERVED_MS + (2 * np.arange(PARTS) + 1) * HORIZON_MS // (2 * PARTS)
    return [Prediction.from_scores(int(ms), row.tolist()) for ms, row in zip(middles, chance, strict=True)]
