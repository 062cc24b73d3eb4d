"""Spots: the actions that a spotter found in a video, and how a model reads them as tokens.

A spot has a class, a time and a confidence, at best a team and a player, never a place.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, ACTIONS

# The columns of a token: whole numbers (codes), and age in s and confidence (values).
ACTION, TEAM, PLAYER, PLAYER_BEFORE = range(4)
AGE, CONFIDENCE = range(2)
CODES = 4
VALUES = 2
UNKNOWN, SAME, OTHER = range(3)  # of a team or player, compared with another spot's
SPOT_TOKENS = 20  # the last spots before T

# Classes that some spotters do not have: a high pass is then one of their passes, and balls out are not reported.
HIGH_PASS, OUT = ACTION_INDEX["HIGH PASS"], ACTION_INDEX["OUT"]
DETAILS = ("HIGH PASS", "OUT", "team", "player", "confidence")  # what spots may have or lack, in order

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Spots:
    """The n spots of a video, in order of time.

    - `position_ms` (n,) int64: from the video's start.
    - `action` (n,) int64: index in `ACTIONS`.
    - `confidence` (n,) float32: 0 to 1.
    - `team`, `player` (n,) int64: any numbers, equal for the same team or player; −1: unknown.
    - `details`: which of `DETAILS` the spotter reports.
    - `name`: of the video.
    """

    position_ms: Ints
    action: Ints
    confidence: NDArray[np.float32]
    team: Ints
    player: Ints
    details: frozenset[str] = frozenset(DETAILS)
    name: str = ""

    def __len__(self) -> int:
        return len(self.position_ms)

    def take(self, chosen: Any) -> "Spots":
        """Select the spots `chosen`, an index or a mask, in that order."""
        columns = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name not in ("details", "name")}
        return replace(self, **columns)

    @property
    def flags(self) -> NDArray[np.bool_]:
        """(details,) bool: which of `DETAILS` the spotter reports, in order."""
        return np.array([name in self.details for name in DETAILS])

    @property
    def forecast(self) -> NDArray[np.bool_]:
        """(C,) bool: the classes that are forecast. One that the spotter does not have is not."""
        return np.array([label not in DETAILS or label in self.details for label in ACTIONS])

    def counts(self) -> Ints:
        """How many spots of each action there are, (C,)."""
        return np.bincount(self.action, minlength=len(ACTIONS))


def without_details(spots: Spots) -> Spots:
    """The spots as a spotter without high passes and balls out reports them."""
    kept = spots.take(spots.action != OUT)
    action = np.where(kept.action == HIGH_PASS, ACTION_INDEX["PASS"], kept.action)
    return replace(kept, action=action, details=kept.details - {"HIGH PASS", "OUT"})
