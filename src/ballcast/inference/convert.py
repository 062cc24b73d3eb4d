"""Between the challenge's JSON files and OSL JSON, by what the source holds."""

from pathlib import Path
from typing import Any

from ballcast.core.actions import OBSERVED_MS
from ballcast.core.clips import Clip, Event, Prediction
from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast.data.osl import clips_to_osl, read_osl, write_osl
from ballcast.data.soccernet import read_labels, write_labels
from ballcast.inference.submission import read_submission, write_submission


def convert(source: Path, target: Path) -> str:
    """Write `source` in the other format to `target`; gives a sentence that says what was written."""
    tree = {} if source.suffix == ".zip" or source.is_dir() else read_json(source, "labels or predictions")
    if isinstance(tree, dict) and "data" in tree:
        return _from_osl(source, target)
    if source.suffix == ".zip" or _has_confidence(tree):
        predictions = read_submission(source, read="label")
        write_osl(target, predictions, description=f"predictions of {source.name}")
        return f"OSL JSON of the predictions for {len(predictions)} clips"
    clips = read_labels(source)
    write_osl(target, clips_to_osl(clips), description=f"labels of {source.name}")
    return f"OSL JSON of the labels of {len(clips)} clips"


def _from_osl(source: Path, target: Path) -> str:
    items = read_osl(source)
    predicted = [name for name, events in items.items() if any(isinstance(e, Prediction) for e in events)]
    if predicted:
        for name, events in items.items():
            if not all(isinstance(e, Prediction) for e in events):
                raise InputError(f"{source}: {name} has events with and without a confidence; they must be of one kind")
        write_submission(target, {n: [e for e in v if isinstance(e, Prediction)] for n, v in items.items()})
        return f"a submission of {len(items)} clips"
    clips = []
    for name, events in items.items():
        known = [e for e in events if isinstance(e, Event)]
        observed = tuple(e for e in known if e.position_ms < OBSERVED_MS)
        clips.append(Clip(name, observed, tuple(e for e in known if e.position_ms >= OBSERVED_MS)))
    write_labels(target, clips)
    return f"labels of {len(clips)} clips"


def _has_confidence(tree: Any) -> bool:
    """Whether the first event that the file holds is a prediction."""
    videos = tree.get("videos") if isinstance(tree, dict) else None
    for video in videos if isinstance(videos, list) else ():
        annotations = video.get("annotations") if isinstance(video, dict) else None
        for part in annotations.values() if isinstance(annotations, dict) else ():
            if isinstance(part, list) and part:
                return isinstance(part[0], dict) and "confidence" in part[0]
    return False
