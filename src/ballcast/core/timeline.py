"""What was anticipated, and when: the predictions of a whole video on its own clock."""

from dataclasses import dataclass

from ballcast.core.clips import Prediction


@dataclass(frozen=True, slots=True)
class Anticipation:
    """The predictions made at one moment. `at_ms` and every `position_ms` count from the start of the video."""

    at_ms: int
    predictions: tuple[Prediction, ...] = ()


Timeline = tuple[Anticipation, ...]
