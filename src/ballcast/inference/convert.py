"""Convert between the challenge's JSON files and OSL JSON; the direction follows from the source's content."""

from pathlib import Path
from typing import Any

from ballcast.core.actions import END_MS, OBSERVED_MS
from ballcast.core.checks import Defects
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.core.files import check_not_source, read_json
from ballcast.data.labels.osl import Osl, read_osl, write_osl, write_osl_labels
from ballcast.data.labels.soccernet import PARTS, clip_name, read_labels, write_labels
from ballcast.inference.submission import check_confidences, read_submission, write_submission


def convert(source: Path, target: Path) -> str:
    """Write `source` in the other format to `target`.

    Returns:
        A phrase that describes what was written, such as "labels of 12 clips".
    """
    check_not_source(target, source)
    tree = {} if source.suffix == ".zip" or source.is_dir() else read_json(source, "labels or predictions")
    if isinstance(tree, dict) and "data" in tree:
        return _from_osl(source, target)
    if source.suffix == ".zip" or _are_predictions(tree):
        predictions = read_submission(source, read="label")
        write_osl(target, predictions, "predictions", description=f"predictions of {source.name}")
        return f"OSL JSON of the predictions for {len(predictions)} clips"
    clips = read_labels(source)
    write_osl_labels(target, clips, description=f"labels of {source.name}")
    return f"OSL JSON of the labels of {len(clips)} clips"


def _from_osl(source: Path, target: Path) -> str:
    """Write an OSL JSON as the challenge's labels or submission; an InputError if these could not hold it."""
    osl = read_osl(source)
    if osl.kind == "timeline":
        raise InputError(f"{source}: holds forecasts along a video; the challenge's files hold clips of 30 s")
    defects = Defects(str(source), strict=True)
    for i, name in enumerate(osl.items):
        with defects.at(f"data[{i}]"):
            if not name or clip_name(name) != name:
                raise InputError(f"the id {name!r} is not the name of a clip, like clip_1")
    if osl.kind == "predictions" or any(isinstance(e, Prediction) for events in osl.items.values() for e in events):
        predictions = {name: _predictions(i, name, osl, defects) for i, name in enumerate(osl.items)}
        write_submission(target, predictions)
        return f"a submission of {len(predictions)} clips"
    clips = [_clip(i, name, osl, defects) for i, name in enumerate(osl.items)]
    write_labels(target, clips)
    return f"labels of {len(clips)} clips"


def _predictions(i: int, name: str, osl: Osl, defects: Defects) -> list[Prediction]:
    predictions = []
    for j, event in enumerate(osl.items[name]):
        with defects.at(f"data[{i}].events[{j}]"):
            if not isinstance(event, Prediction):
                raise InputError("has no 'confidence', unlike other events; they must be of one kind")
            _check_time(event, OBSERVED_MS, END_MS)
            check_confidences(event)
            predictions.append(event)
    return predictions


def _clip(i: int, name: str, osl: Osl, defects: Defects) -> Clip:
    """The clip's events by their part, or by their time if they have none."""
    events: dict[str, list[Event]] = {part: [] for part in PARTS}
    for j, (event, part) in enumerate(zip(osl.items[name], osl.parts[name], strict=True)):
        with defects.at(f"data[{i}].events[{j}]"):
            assert isinstance(event, Event)
            _check_time(event, *(PARTS[part] if part else (0, END_MS)))
            events[part or ("observation" if event.position_ms < OBSERVED_MS else "anticipation")].append(event)
    return Clip(name, tuple(events["observation"]), tuple(events["anticipation"]))


def _check_time(event: Event | Prediction, begin: int, end: int) -> None:
    if not begin <= event.position_ms <= end:
        raise InputError(
            f"position_ms {event.position_ms} is outside {begin}–{end}, where the challenge's files have their events"
        )


def _are_predictions(tree: Any) -> bool:
    """Whether the first event in the file has a confidence; without events, whether paths are clip names only."""
    videos = tree.get("videos") if isinstance(tree, dict) else None
    videos = [video for video in videos if isinstance(video, dict)] if isinstance(videos, list) else []
    for video in videos:
        annotations = video.get("annotations")
        for part in annotations.values() if isinstance(annotations, dict) else ():
            if isinstance(part, list) and part:
                return isinstance(part[0], dict) and "confidence" in part[0]
    return bool(videos) and not any("input_type" in video or "/" in str(video.get("path")) for video in videos)
