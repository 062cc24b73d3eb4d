"""Overlapping clips joined back into stretches of their game, so that windows can be cut at any second of it.

SN-BAA is one clip every 5 s of a game, and says nowhere which game. Two clips that follow each other are of one game if
the 30 s of labels they share agree; a share without any label proves nothing, and the clips stay apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ballcast.core.actions import END_MS, HORIZON_MS, OBSERVED_MS
from ballcast.core.clips import Clip, Event

STEP_MS = 5_000  # from one clip's start to the next one's


@dataclass(frozen=True)
class Stretch:
    """Clips of one game, each starting `STEP_MS` after the one before."""

    clips: tuple[Clip, ...]

    def events(self) -> list[Event]:
        """All events in order of time, in ms from the first clip's start, each once."""
        found: dict[tuple[int, str, str], Event] = {}
        for i, clip in enumerate(self.clips):
            for event in clip.observation + clip.anticipation:
                moved = shift(event, i * STEP_MS)
                found.setdefault((moved.position_ms, moved.label, moved.team), moved)
        return sorted(found.values(), key=lambda e: e.position_ms)


def stitch(clips: Sequence[Clip]) -> list[Stretch]:
    """All clips, in order, as the longest stretches their labels prove."""
    stretches: list[list[Clip]] = []
    for clip in clips:
        if stretches and follows(stretches[-1][-1], clip):
            stretches[-1].append(clip)
        else:
            stretches.append([clip])
    return [Stretch(tuple(group)) for group in stretches]


def follows(first: Clip, second: Clip) -> bool:
    """Whether `second` starts `STEP_MS` after `first` in the same game, by the labels both carry."""
    shared_by_first = {shift(e, -STEP_MS) for e in first.observation + first.anticipation}
    shared_by_first = {e for e in shared_by_first if 0 <= e.position_ms < OBSERVED_MS + HORIZON_MS - STEP_MS}
    shared_by_second = {e for e in second.observation if e.position_ms < OBSERVED_MS + HORIZON_MS - STEP_MS}
    return bool(shared_by_first) and shared_by_first == shared_by_second


def shift(event: Event, by_ms: int) -> Event:
    return Event(event.label, event.position_ms + by_ms, event.team, event.visible)


def cut_clip(events: Sequence[Event], start_ms: int, name: str) -> Clip:
    """The clip that starts at `start_ms` of a game: the events of its 30 s, and of the 5 s after them."""
    moved = [shift(e, -start_ms) for e in events if start_ms <= e.position_ms < start_ms + END_MS]
    observed = tuple(e for e in moved if e.position_ms < OBSERVED_MS)
    return Clip(name, observed, tuple(e for e in moved if e.position_ms >= OBSERVED_MS))
