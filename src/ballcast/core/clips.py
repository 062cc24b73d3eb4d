"""Events, predictions and clips: the records every room exchanges. Times are integer milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from ballcast.core.actions import ACTIONS, action_index
from ballcast.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Event:
    """An action that happened: `position_ms` from the clip's start."""

    label: str
    position_ms: int
    team: str = ""
    visible: bool = True

    def __post_init__(self) -> None:
        action_index(self.label)

    @property
    def action(self) -> int:
        return action_index(self.label)


@dataclass(frozen=True, slots=True)
class Prediction:
    """An action expected: its label and confidence, and a score for each of the ten actions.

    `scores` is empty for systems that give only a label and a confidence.
    """

    label: str
    position_ms: int
    confidence: float
    scores: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        action_index(self.label)
        if self.scores and len(self.scores) != len(ACTIONS):
            raise InputError(f"a prediction has {len(self.scores)} scores instead of {len(ACTIONS)}")

    @classmethod
    def from_scores(cls, position_ms: int, scores: Sequence[float]) -> "Prediction":
        """The prediction whose label is the best-scored action (the first of equals)."""
        best = max(range(len(scores)), key=scores.__getitem__)
        return cls(ACTIONS[best], position_ms, float(scores[best]), tuple(map(float, scores)))

    @property
    def vector(self) -> tuple[float, ...]:
        """Ten scores: the given ones, else the confidence at the label's place and 0 elsewhere."""
        if self.scores:
            return self.scores
        return tuple(self.confidence if label == self.label else 0.0 for label in ACTIONS)


@dataclass(frozen=True, slots=True)
class Clip:
    """30 s of video and, unless it belongs to the blind challenge split, what happened in it and in the next 5 s.

    `name` is the folder's name ("clip_1"), which is also what a submission calls it.
    """

    name: str
    observation: tuple[Event, ...] = ()
    anticipation: tuple[Event, ...] = ()
    labelled: bool = True
