"""What really happened in a video, from a file of labels: uploaded with it, or lying beside it.

Read are SN-BAA's and SN-BAS's `Labels-ball.json`, simbaa's `matches.json` and OSL JSON.
"""

from pathlib import Path
from typing import Any

from ballcast.core.actions import IGNORED_LABELS
from ballcast.core.clips import Event, Prediction
from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast.core.records import Defects, get, whole_number
from ballcast.data.osl import read_osl
from ballcast.data.soccernet import read_labels
from ballcast.features.store import LABELS


def actual_beside(video: Path) -> tuple[Event, ...] | None:
    """The events of a video of a folder, from the first file beside it that knows it; None: none does."""
    for file in (video.with_suffix(".json"), video.parent / LABELS, video.parent / "matches.json"):
        if file.is_file():
            return read_actual(file, video.name)
    above = video.parent.parent / LABELS  # SN-BAA: train/Labels-ball.json, train/clip_1/224p.mp4
    if above.is_file():
        return read_actual(above, video.parent.name)
    return None


def read_actual(file: Path, video: str) -> tuple[Event, ...]:
    """The events of `video` (its name, or its clip's) in order of time; an InputError if the file has none of it.

    A file of a single video needs no matching name.
    """
    tree = read_json(file, "labels")
    if isinstance(tree, dict) and "videos" in tree:
        items = {clip.name: (*clip.observation, *clip.anticipation) for clip in read_labels(file)}
    elif isinstance(tree, dict) and "data" in tree:
        read = read_osl(file).items
        items = {name: tuple(e for e in events if isinstance(e, Event)) for name, events in read.items()}
        if any(isinstance(e, Prediction) for events in read.values() for e in events):
            raise InputError(f"{file}: holds predictions, not what happened; give labels")
    elif isinstance(tree, dict) and "annotations" in tree:
        items = {video: _annotations(tree["annotations"], Defects(str(file), strict=True), "annotations")}
    elif isinstance(tree, list):
        items = _matches(tree, Defects(str(file), strict=True))
    else:
        raise InputError(f"{file}: is none of {LABELS}, matches.json and OSL JSON")
    stem = Path(video).stem
    named = {name: events for name, events in items.items() if name in (video, stem) or Path(name).stem == stem}
    if not named and len(items) == 1:
        named = items
    if not named:
        raise InputError(f"{file}: has {len(items)} videos, none of them called {stem}; give the file of this video")
    return tuple(sorted(next(iter(named.values())), key=lambda event: event.position_ms))


def _matches(tree: list[Any], defects: Defects) -> dict[str, tuple[Event, ...]]:
    found = {}
    for i, match in enumerate(tree):
        with defects.at(f"[{i}]"):
            name = get(match, "video", str, "text")
            found[name] = _annotations(get(match, "actions", list, "a list"), defects, f"[{i}].actions")
    return found


def _annotations(records: Any, defects: Defects, place: str) -> tuple[Event, ...]:
    events = []
    with defects.at(place):
        if not isinstance(records, list):
            raise InputError("is not a list")
    for i, record in enumerate(records):
        with defects.at(f"{place}[{i}]"):
            label = get(record, "label", str, "text")
            if label not in IGNORED_LABELS:
                visible = record.get("visibility", "visible") == "visible"
                events.append(Event(label, whole_number(record, "position"), str(record.get("team", "")), visible))
    return tuple(events)
