"""Which prediction was of which event: one to one, for looking at single predictions.

The official score lets each class choose on its own; here a prediction of the wrong action is paired with what came
instead, so that one can say what was taken for what.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ballcast.core.clips import Clip, Event, Prediction


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
