"""Labels of whole games: SN-BAS's `Labels-ball.json`, and the `matches.json` of simulated matches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ballcast.core.actions import IGNORED_LABELS, action_index
from ballcast.core.clips import Event
from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast.core.records import Defects, get, whole_number

MATCHES = "matches.json"
_GAME_TIME = re.compile(r"\s*([12])\s*-")  # "2 - 05:17": the half, and the minute in it


@dataclass(frozen=True)
class Match:
    """A simulated match: its video's name, the split it belongs to, its frames, its actions in order of time."""

    video: str
    split: str
    frames: int
    events: tuple[Event, ...]


def read_halves(path: Path) -> dict[int, tuple[Event, ...]]:
    """The actions of an SN-BAS game in each half (1, 2), positions in ms as the file has them, in order of time.

    FREE KICK and GOAL are left out.
    """
    defects = Defects(str(path), strict=True)
    halves: dict[int, list[Event]] = {}
    with defects.at(""):
        for i, record in enumerate(get(read_json(path, "labels"), "annotations", list, "a list")):
            with defects.at(f"annotations[{i}]"):
                if (event := _event(record)) is None:
                    continue
                told = get(record, "gameTime", str, "text") if "gameTime" in record else "1 -"
                half = _GAME_TIME.match(told)
                if half is None:
                    raise InputError(f"'gameTime' is {told!r} instead of something like '1 - 00:12'")
                halves.setdefault(int(half.group(1)), []).append(event)
    return {half: _in_order(events) for half, events in halves.items()}


def begins_anew(halves: Mapping[int, tuple[Event, ...]]) -> bool:
    """Whether the second half's positions count from its own start, and not from that of a video of the whole game."""
    first, second = halves.get(1, ()), halves.get(2, ())
    return bool(first and second) and second[0].position_ms < first[-1].position_ms


def one_clock(path: Path, halves: Mapping[int, tuple[Event, ...]]) -> tuple[Event, ...]:
    """The actions of a game that is one video, from the halves of the file `path`, in order of time.

    Usually all of them say half 1. Where the second half begins anew, no label says where in the video: an InputError.
    """
    if begins_anew(halves):
        raise InputError(
            f"{path}: its second half counts from its own start, and where that is in a video of the whole game is not "
            "told; give a video of each half, 1_224p.mp4 and 2_224p.mp4"
        )
    return halves.get(1, ()) + halves.get(2, ())


def read_matches(path: Path) -> list[Match]:
    """The matches of a `matches.json`, in file order."""
    defects = Defects(str(path), strict=True)
    tree, matches = read_json(path, "matches"), []
    if not isinstance(tree, list):
        raise InputError(f"{path}: must be a list of matches")
    for i, record in enumerate(tree):
        with defects.at(f"[{i}]"):
            video, frames = get(record, "video", str, "text"), whole_number(record, "frames")
            if Path(video).name != video or frames <= 0:
                raise InputError(f"'video' must be the name of a file beside {MATCHES}, and 'frames' positive")
            events = []
            for k, action in enumerate(get(record, "actions", list, "a list")):
                with defects.at(f"[{i}].actions[{k}]"):
                    if (event := _event(action)) is not None:
                        events.append(event)
            matches.append(Match(video, get(record, "split", str, "text"), frames, _in_order(events)))
    return matches


def _event(record: Any) -> Event | None:
    label, position = get(record, "label", str, "text"), whole_number(record, "position")
    if label in IGNORED_LABELS:
        return None
    action_index(label)
    if position < 0:
        raise InputError(f"position {position} is before the video begins")
    team = get(record, "team", str, "text") if "team" in record else ""
    return Event(label, position, team, record.get("visibility", "visible") != "not shown")


def _in_order(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.position_ms))
