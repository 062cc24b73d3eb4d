"""Read and write OSL JSON v2 (OpenSportsLab): event lists with `position_ms`, which OSL's tools open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ballcast.core.actions import ACTIONS
from ballcast.core.checks import Defects, finite, get, whole_number
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.core.files import read_json, write_json

HEAD = "ball_action"
Kind = Literal["labels", "predictions", "timeline"]
Part = Literal["observation", "anticipation"]


@dataclass(frozen=True)
class Osl:
    """The content of an OSL JSON file.

    - `items`: the events of each data item by its id; an event with a confidence is a Prediction.
    - `kind`: what ballcast wrote into the file; None: another program wrote it.
    - `parts`: the part of the clip that each event of an item is in; None where the file does not give it.
    """

    items: dict[str, tuple[Event | Prediction, ...]]
    kind: Kind | None
    parts: dict[str, tuple[Part | None, ...]]


def write_osl(
    path: Path, items: Mapping[str, Sequence[Event | Prediction]], kind: Kind | None = None, *, description: str = ""
) -> None:
    """Write one data item per video: its events, or its predictions with their confidence and class scores."""
    _write(path, {name: [_record(event) for event in events] for name, events in items.items()}, kind, description)


def write_osl_labels(path: Path, clips: Sequence[Clip], *, description: str = "") -> None:
    """Write all events of each clip, observed and to anticipate, on one time line, with the part each is in."""
    parts: tuple[Part, ...] = get_args(Part)
    items = {c.name: [_record(event, part) for part in parts for event in getattr(c, part)] for c in clips}
    _write(path, items, "labels", description)


def read_osl(path: Path) -> Osl:
    """Read a file; the first defect is an InputError that names its place."""
    tree = read_json(path, "OSL JSON")
    items: dict[str, tuple[Event | Prediction, ...]] = {}
    parts: dict[str, tuple[Part | None, ...]] = {}
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
                        events.append((_event(record), _choice(_metadata(record).get("part"), Part)))
                items[name] = tuple(event for event, _ in events)
                parts[name] = tuple(part for _, part in events)
        kind = _choice(_metadata(tree).get("kind"), Kind)
    return Osl(items, kind, parts)


def _write(path: Path, items: Mapping[str, list[dict[str, Any]]], kind: Kind | None, description: str) -> None:
    metadata = {"description": description, "source": "ballcast"} | ({"kind": kind} if kind else {})
    write_json(
        path,
        {
            "version": "2.0",
            "task": "action_spotting",
            "metadata": metadata,
            "labels": {HEAD: {"type": "single_label", "labels": list(ACTIONS)}},
            "data": [
                {"id": name, "inputs": [{"type": "video", "path": name, "fps": 25.0}], "events": events}
                for name, events in items.items()
            ],
        },
        indent=1,
    )


def _record(event: Event | Prediction, part: Part | None = None) -> dict[str, Any]:
    record: dict[str, Any] = {"head": HEAD, "label": event.label, "position_ms": event.position_ms}
    if isinstance(event, Prediction):
        record["confidence"] = event.confidence
        if event.scores:
            record["scores"] = list(event.scores)
    else:
        record["metadata"] = {"team": event.team, "visibility": "visible" if event.visible else "not shown"}
        if part:
            record["metadata"]["part"] = part
    return record


def _event(record: Any) -> Event | Prediction:
    label = get(record, "label", str, "text")
    position = whole_number(record, "position_ms")
    if "confidence" in record:
        scores = get(record, "scores", list, "a list") if "scores" in record else ()
        confidence = finite(record["confidence"], "confidence")
        return Prediction(label, position, confidence, tuple(finite(v, "scores") for v in scores))
    metadata = _metadata(record)
    return Event(label, position, str(metadata.get("team", "")), metadata.get("visibility", "visible") == "visible")


def _metadata(record: dict[str, Any]) -> dict[str, Any]:
    metadata = record.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError("'metadata' is not a record")
    return metadata


def _choice(value: Any, choices: Any) -> Any:
    """Return `value` if it is one of `choices`, else None: other programs may use the same key for other things."""
    return value if value in get_args(choices) else None
