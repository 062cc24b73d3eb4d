"""OSL JSON v2 (OpenSportsLab): event lists with `position_ms`, in and out, so that results open in their tools."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ballcast.core.actions import ACTIONS
from ballcast.core.clips import Clip, Event, Prediction
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, write_json
from ballcast.core.records import Defects, finite, get, whole_number

HEAD = "ball_action"


def write_osl(path: Path, items: Mapping[str, Sequence[Event | Prediction]], *, description: str = "") -> None:
    """Write one data item per video: its events, or its predictions with their confidence and class scores."""
    write_json(
        path,
        {
            "version": "2.0",
            "task": "action_spotting",
            "metadata": {"description": description, "source": "ballcast"},
            "labels": {HEAD: {"type": "single_label", "labels": list(ACTIONS)}},
            "data": [
                {
                    "id": name,
                    "inputs": [{"type": "video", "path": name, "fps": 25.0}],
                    "events": [_record(event) for event in events],
                }
                for name, events in items.items()
            ],
        },
        indent=1,
    )


def read_osl(path: Path) -> dict[str, tuple[Event | Prediction, ...]]:
    """The events of each data item by its id; an event with a confidence is a Prediction."""
    tree = read_json(path, "OSL JSON")
    items: dict[str, tuple[Event | Prediction, ...]] = {}
    defects = Defects(str(path), strict=True)
    with defects.at(""):
        for i, item in enumerate(get(tree, "data", list, "a list")):
            with defects.at(f"data[{i}]"):
                name = get(item, "id", str, "text")
                if name in items:
                    raise InputError(f"the id {name!r} appears a second time")
                events = []
                for j, record in enumerate(get(item, "events", list, "a list")):
                    with defects.at(f"data[{i}].events[{j}]"):
                        events.append(_event(record))
                items[name] = tuple(events)
    return items


def clips_to_osl(clips: Sequence[Clip]) -> dict[str, tuple[Event, ...]]:
    """All events of each clip, observed and to anticipate, on one time line."""
    return {clip.name: clip.observation + clip.anticipation for clip in clips}


def _record(event: Event | Prediction) -> dict[str, Any]:
    record: dict[str, Any] = {"head": HEAD, "label": event.label, "position_ms": event.position_ms}
    if isinstance(event, Prediction):
        record["confidence"] = event.confidence
        if event.scores:
            record["scores"] = list(event.scores)
    else:
        record["metadata"] = {"team": event.team, "visibility": "visible" if event.visible else "not shown"}
    return record


def _event(record: Any) -> Event | Prediction:
    label = get(record, "label", str, "text")
    position = whole_number(record, "position_ms")
    if "confidence" in record:
        scores = tuple(finite(v, "scores") for v in record.get("scores", ()))
        return Prediction(label, position, finite(record["confidence"], "confidence"), scores)
    metadata = record.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError("'metadata' is not a record")
    return Event(label, position, str(metadata.get("team", "")), metadata.get("visibility", "visible") == "visible")
