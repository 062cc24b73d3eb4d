"""Overlapping clips joined back into stretches of their game, so that windows can be cut at any second of it.

SN-BAA is one clip every 5 s of a game, and says nowhere which game. Two clips that follow each other are of one game if
the 30 s of labels they share agree, up to a tolerance in time; clips that share no label stay apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ballcast.core.actions import END_MS, FRAME_MS, OBSERVED_MS
from ballcast.core.clips import Clip, Event

STEP_MS = 5_000  # from one clip's start to the next one's


@dataclass(frozen=True)
class Stretch:
    """Clips of one game, each starting `STEP_MS` after the one before.

    `tolerance_ms`: how far apart two clips may put one event.
    """

    clips: tuple[Clip, ...]
    tolerance_ms: int = 0

    def events(self) -> list[Event]:
        """All events in order of time, in ms from the first clip's start, each once, at its earliest clip's time."""
        found: list[Event] = []
        for i, clip in enumerate(self.clips):
            moved: dict[tuple[int, str, str], Event] = {}
            for event in clip.observation + clip.anticipation:
                late = shift(event, i * STEP_MS)
                moved.setdefault((late.position_ms, late.label, late.team), late)
            recent = [e for e in found if e.position_ms >= i * STEP_MS - self.tolerance_ms]
            found += match_events(recent, moved.values(), self.tolerance_ms)[2]
        return sorted(found, key=lambda e: e.position_ms)


def stitch(clips: Sequence[Clip], tolerance_ms: int = FRAME_MS) -> list[Stretch]:
    """All clips, in order, as the longest stretches their labels prove."""
    stretches: list[list[Clip]] = []
    for clip in clips:
        if stretches and follows(stretches[-1][-1], clip, tolerance_ms):
            stretches[-1].append(clip)
        else:
            stretches.append([clip])
    return [Stretch(tuple(group), tolerance_ms) for group in stretches]


def follows(first: Clip, second: Clip, tolerance_ms: int = FRAME_MS) -> bool:
    """Whether `second` starts `STEP_MS` after `first` in the same game, by the labels both carry.

    An event that only one of them has is allowed within the tolerance of the shared time's ends, [0, 30 s).
    """
    earlier = {shift(e, -STEP_MS) for e in first.observation + first.anticipation}
    earlier = {e for e in earlier if 0 <= e.position_ms < OBSERVED_MS}
    later = {e for e in second.observation if e.position_ms < OBSERVED_MS}
    pairs, only_earlier, only_later = match_events(earlier, later, tolerance_ms)
    return pairs > 0 and all(
        e.position_ms < tolerance_ms or e.position_ms >= OBSERVED_MS - tolerance_ms for e in only_earlier + only_later
    )


def match_events(
    first: Iterable[Event], second: Iterable[Event], tolerance_ms: int
) -> tuple[int, list[Event], list[Event]]:
    """Pair events of the same label, team and visibility at most `tolerance_ms` apart, in order of time.

    Returns the number of pairs, the unpaired events of `first` and those of `second`.
    """
    groups: defaultdict[tuple[str, str, bool], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate((first, second)):
        for event in sorted(events, key=lambda e: e.position_ms):
            groups[event.label, event.team, event.visible][side].append(event)
    pairs = 0
    unpaired: tuple[list[Event], list[Event]] = ([], [])
    for a, b in groups.values():
        i = j = 0
        while i < len(a) and j < len(b):
            apart = b[j].position_ms - a[i].position_ms
            if abs(apart) <= tolerance_ms:
                pairs, i, j = pairs + 1, i + 1, j + 1
            elif apart > 0:
                unpaired[0].append(a[i])
                i += 1
            else:
                unpaired[1].append(b[j])
                j += 1
        unpaired[0].extend(a[i:])
        unpaired[1].extend(b[j:])
    return pairs, *unpaired


def shift(event: Event, by_ms: int) -> Event:
    return Event(event.label, event.position_ms + by_ms, event.team, event.visible)


def cut_clip(events: Sequence[Event], start_ms: int, name: str) -> Clip:
    """The clip that starts at `start_ms` of a game: the events of its 30 s, and of the 5 s after them."""
    moved = [shift(e, -start_ms) for e in events if start_ms <= e.position_ms < start_ms + END_MS]
    observed = tuple(e for e in moved if e.position_ms < OBSERVED_MS)
    return Clip(name, observed, tuple(e for e in moved if e.position_ms >= OBSERVED_MS))
