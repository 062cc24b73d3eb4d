"""What was anticipated, and when: the predictions of a whole video on its own clock."""

from dataclasses import dataclass
from typing import Any

from ballcast.core.clips import Prediction


@dataclass(frozen=True, slots=True)
class Anticipation:
    """The predictions made at one moment. `at_ms` and every `position_ms` count from the start of the video."""

    at_ms: int
    predictions: tuple[Prediction, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The one JSON form, in files and on the wire."""
        return {
            "at_ms": self.at_ms,
            "predictions": [
                {
                    "label": p.label,
                    "position_ms": p.position_ms,
                    "confidence": p.confidence,
                    "scores": list(p.scores),
                }
                for p in self.predictions
            ],
        }


Timeline = tuple[Anticipation, ...]
