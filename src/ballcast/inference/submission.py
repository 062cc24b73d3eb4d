"""The challenge's submission file, `results_anticipation.json` or a zip of it: read, checked, merged, written."""

import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from ballcast.core.actions import ACTIONS, END_MS, OBSERVED_MS
from ballcast.core.checks import Defect, Defects, finite, get, show, whole_number
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Prediction, action_index, grid_bin, merge_bins
from ballcast.core.files import parse_json, read_bytes, write_bytes, write_json
from ballcast.core.util import natural
from ballcast.data.labels.soccernet import clip_name

RESULTS = "results_anticipation.json"
VECTOR = 1 + len(ACTIONS)  # BACKGROUND first
LARGEST = 512 * 2**20  # bytes of JSON; the challenge split of 2262 clips makes about 3 MB

# Raised by zipfile for archives that are damaged, encrypted or of an unknown kind.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError)

Predictions = dict[str, tuple[Prediction, ...]]


def read_submission(path: Path, *, read: str = "vector", hand_in: bool = False) -> Predictions:
    """Read a submission; the first defect is an InputError that names its place.

    Args:
        path: .json, or .zip, which is read without being unpacked.
        read: "vector" requires class vectors, "label" does not.
        hand_in: whether it is meant for the server; then confidences must lie between 0 and 1. A file that is only
            scored may hold any numbers.

    Returns:
        Predictions by clip, in file order.
    """
    predictions: Predictions = {}
    defects = Defects(str(path), strict=True)
    missing = (
        "the server needs them: predict again" if hand_in else "score it by label and confidence with --read label"
    )
    for place, name, records in _videos(_load(path), defects):
        entries = []
        for j, record in enumerate(records):
            with defects.at(f"{place} ({name}) anticipation[{j}]"):
                prediction = _prediction(record)
                if read == "vector" and not prediction.scores:
                    raise InputError(f"has no 'confidence_vect'; {missing}")
                if hand_in:
                    check_confidences(prediction)
                entries.append(prediction)
        predictions[name] = tuple(entries)
    return predictions


def write_submission(path: Path, predictions: Mapping[str, Sequence[Prediction]]) -> None:
    """Write `path` (.json, or .zip with the file at its root); entries of a clip in one bin are merged first."""
    videos = [
        {
            "annotations": {"observation": [], "anticipation": [_record(p) for p in merge_bins(entries)]},
            "path": name,
        }
        for name, entries in predictions.items()
    ]
    if path.suffix != ".zip":
        write_json(path, {"videos": videos})
        return
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        # A fixed date, so that the same predictions make the same file.
        info = zipfile.ZipInfo(RESULTS, (2025, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, json.dumps({"videos": videos}, allow_nan=False))
    write_bytes(path, content.getvalue())


def merge_systems(systems: Sequence[Predictions]) -> Predictions:
    """Average the predictions of several systems, bin by bin and class by class.

    A system without a prediction in a bin counts as 0 there. A bin's time is the mean of its entries' times, weighted
    by their confidence.

    Args:
        systems: predictions by clip, of the same clips, with confidences between 0 and 1.
    """
    clips = list(systems[0])
    result: Predictions = {}
    for name in clips:
        bins: dict[int, list[Prediction]] = {}
        for system in systems:
            for prediction in merge_bins(system[name]):
                check_confidences(prediction)  # the mean of unbounded numbers may not even be finite
                bins.setdefault(grid_bin(prediction.position_ms), []).append(prediction)
        merged = []
        for _, entries in sorted(bins.items()):
            weight = sum(p.confidence for p in entries)
            centre = sum(p.confidence * p.position_ms for p in entries) / weight if weight else entries[0].position_ms
            scores = [sum(column) / len(systems) for column in zip(*(p.vector for p in entries), strict=True)]
            merged.append(Prediction.from_scores(round(centre), scores))
        result[name] = tuple(merged)
    return result


def require_same_clips(predictions: Mapping[str, Any], names: Sequence[str], path: Path, other: Path) -> None:
    """Raise an InputError unless `predictions` (of `path`) has exactly the clips `names` (of `other`)."""
    missing = [name for name in names if name not in predictions]
    extra = sorted(predictions.keys() - set(names), key=natural)
    for found, fault in ((missing, "has no predictions for"), (extra, "has predictions for clips not there:")):
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(
                f"{path}: {fault} {found[0]}{more}; it has {len(predictions)} clips and {other} has {len(names)}: "
                "are these predictions of another split?"
            )


def check_submission(path: Path, clips: Sequence[Clip]) -> list[Defect]:
    """Find every defect that the server would reject or score differently from what was meant.

    Args:
        path: the submission.
        clips: of the split, in its order.
    """
    defects = Defects(str(path))
    if path.suffix == ".zip":
        _check_root(path, defects)
    else:
        defects.add("", "is not a zip, which the server wants; zip it with `ballcast submit`")
    found: dict[str, None] = {}
    for place, name, records in _videos(_load(path), defects, hand_in=True):
        found[name] = None
        bins: set[int] = set()
        for j, record in enumerate(records):
            _check_entry(record, bins, f"{place} ({name}) anticipation[{j}]", defects)
    names = {clip.name: None for clip in clips}
    if not names:
        defects.add("", "nothing to compare with: the split has no clip")
    for name in (n for n in names if n not in found):
        defects.add(name, "is in the split but not in the submission")
    for name in sorted(found.keys() - names.keys(), key=natural):
        defects.add(name, "is in the submission but not in the split")
    order = [name for name in found if name in names]
    for place_, (is_, should) in enumerate(zip(order, [n for n in names if n in found], strict=True)):
        if is_ != should:
            defects.add(f"videos[{place_}]", f"is {is_} where the split's order has {should}")
            break
    return defects.found


def _check_root(path: Path, defects: Defects) -> None:
    with _open_zip(path) as archive:
        for name in archive.namelist():
            if name != RESULTS and not name.endswith("/"):
                defects.add(name, f"does not belong in the zip; it must hold {RESULTS} at its root and nothing else")


def _load(path: Path) -> Any:
    if path.suffix != ".zip":
        return parse_json(read_bytes(path, "predictions"), path, "predictions")
    with _open_zip(path) as archive:
        if RESULTS not in archive.namelist():
            raise InputError(f"{path}: the zip has no {RESULTS} at its root")
        if archive.getinfo(RESULTS).file_size > LARGEST:
            raise InputError(
                f"{path}: {RESULTS} would unpack to more than {LARGEST // 2**20} MB; is this the right file?"
            )
        try:
            raw = archive.read(RESULTS)
        except _UNREADABLE as error:
            raise InputError(
                f"{path}: {RESULTS} in the zip cannot be read ({str(error)[:120]}); write it again"
            ) from None
    return parse_json(raw, f"{path}/{RESULTS}", "predictions")


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(BytesIO(read_bytes(path, "predictions")))
    except _UNREADABLE as error:
        raise InputError(f"{path}: is not a readable zip archive ({error}); write it again") from None


def _videos(tree: Any, defects: Defects, *, hand_in: bool = False) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (place, clip, anticipation records) of each video; `hand_in`: also check what only the server requires."""
    seen: set[str] = set()
    videos: list[Any] = []
    with defects.at(""):
        videos = get(tree, "videos", list, "a list")
        if hand_in and not videos:
            raise InputError("holds no clip")
    for i, video in enumerate(videos):
        place = f"videos[{i}]"
        name = ""
        records = None
        with defects.at(place):
            path = get(video, "path", str, "text")
            name = clip_name(path)
            if name in seen:
                raise InputError(f"{name} appears a second time")
            seen.add(name)
            if hand_in and path != name:
                defects.add(place, f"path {path!r} must be only the clip's name, {name!r}")
            annotations = get(video, "annotations", dict, "a record")
            if hand_in:
                with defects.at(place):
                    get(annotations, "observation", list, "a list")
            records = get(annotations, "anticipation", list, "a list")
        if records is not None:
            yield place, name, records
        elif name:
            yield place, name, []


def _prediction(record: Any) -> Prediction:
    label, position, confidence = _label(record), _position(record), _confidence(record)
    return Prediction(label, position, confidence, _vector(record)[1:] if "confidence_vect" in record else ())


def _label(record: Any) -> str:
    label: str = get(record, "label", str, "text")
    action_index(label)
    return label


def _position(record: Any) -> int:
    position = whole_number(record, "position")
    if not OBSERVED_MS <= position <= END_MS:
        raise InputError(f"position {show(position)} is outside {OBSERVED_MS}–{END_MS}")
    return position


def _confidence(record: dict[str, Any]) -> float:
    if "confidence" not in record:
        raise InputError("has no 'confidence'; are these labels instead of predictions?")
    return finite(record["confidence"], "confidence")


def _vector(record: dict[str, Any]) -> tuple[float, ...]:
    """The 11 entries of a class vector, BACKGROUND first."""
    vector = get(record, "confidence_vect", list, "a list")
    if len(vector) != VECTOR:
        raise InputError(f"'confidence_vect' has {len(vector)} entries instead of {VECTOR} (BACKGROUND, then the ten)")
    return tuple(finite(v, "confidence_vect") for v in vector)


def check_confidences(prediction: Prediction) -> None:
    """Raise an InputError unless all confidences lie between 0 and 1."""
    if not all(0 <= v <= 1 for v in (*prediction.scores, prediction.confidence)):
        raise InputError("confidences must be between 0 and 1, since the scorer's thresholds are")


def _check_entry(record: Any, bins: set[int], place: str, defects: Defects) -> None:
    """Add every defect of an entry, also what the scorer would read differently from what was meant.

    Args:
        record: the entry.
        bins: those of the clip's earlier entries; the entry's own is added.
        place: of the entry in the file.
        defects: collects them.
    """
    if not isinstance(record, dict):
        defects.add(place, f"is {show(record)} instead of a record")
        return
    label = confidence = vector = None
    with defects.at(place):
        label = _label(record)
    with defects.at(place):
        position = _position(record)
        if not isinstance(record["position"], int):
            defects.add(place, f"position {record['position']!r} must be a whole number, not text or a decimal")
        bin_ = grid_bin(position)
        if bin_ in bins:
            raise InputError(f"position {position} falls in a 160 ms bin that has an entry already; merge them")
        bins.add(bin_)
    with defects.at(place):
        confidence = _confidence(record)
    with defects.at(place):
        vector = _vector(record)
    if any(not 0 <= v <= 1 for v in (*(vector or ()), 0 if confidence is None else confidence)):
        defects.add(place, "confidences must be between 0 and 1, since the scorer's thresholds are")
    if vector and confidence is not None and abs(max(vector) - confidence) > 1e-6:
        defects.add(place, f"confidence {confidence} is not the maximum of its vector, {max(vector)}")
    if vector and label and vector[1 + action_index(label)] < max(vector[1:]):
        defects.add(place, f"label {label} is not the vector's best-scored action")


def _record(prediction: Prediction) -> dict[str, Any]:
    return {
        "label": prediction.label,
        "position": prediction.position_ms,
        "confidence": prediction.confidence,
        "confidence_vect": [0.0, *prediction.vector],
    }
