"""SN-BAA on disk: `Labels-ball.json` and the unpacked folders, read, checked and written.

<root>/{224p,720p}/{train,valid,test,challenge}/clip_N/{224p,720p}.mp4
<root>/{224p,720p}/{train,valid,test}/Labels-ball.json         (the challenge split has no labels)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ballcast.core.actions import ACTIONS, END_MS, IGNORED_LABELS, OBSERVED_MS
from ballcast.core.checks import Defect, Defects, get, whole_number
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, action_index
from ballcast.core.files import read_json, write_json
from ballcast.core.util import natural
from ballcast.features.store import LABELS

SPLITS = ("train", "valid", "test", "challenge")
OFFICIAL_CLIPS = {"train": 4587, "valid": 1169, "test": 2376, "challenge": 2262}
RESOLUTIONS = ("224p", "720p")
_VISIBLE = {"visible": True, "not shown": False}
PARTS = {"observation": (0, OBSERVED_MS), "anticipation": (OBSERVED_MS, END_MS)}  # from, to; both included


def read_labels(path: Path) -> list[Clip]:
    """Read the clips of a `Labels-ball.json`; the first defect is an InputError that names its place.

    Args:
        path: the file or its split's folder. A folder without labels (challenge) gives its clips, unlabelled.

    Returns:
        The clips in file order.
    """
    if path.is_dir() and not (path / LABELS).exists():
        return [Clip(folder.name, labelled=False) for folder in _clip_folders(path)] or _no_split(path)
    file = path / LABELS if path.is_dir() else path
    return _parse(read_json(file, "labels"), Defects(str(file), strict=True))


def write_labels(path: Path, clips: Sequence[Clip], *, resolution: str = "224p", date: str = "2025.06.06") -> None:
    """Write labelled clips as SN-BAA does (positions as text)."""

    def records(events: Sequence[Event]) -> list[dict[str, str]]:
        return [
            {
                "label": e.label,
                "position": str(e.position_ms),
                "team": e.team,
                "visibility": "visible" if e.visible else "not shown",
            }
            for e in events
        ]

    videos = [
        {
            "annotations": {"observation": records(c.observation), "anticipation": records(c.anticipation)},
            "path": f"{c.name}/{resolution}.mp4",
            "input_type": "video",
        }
        for c in clips
    ]
    write_json(path, {"version": "1.0", "date": date, "videos": videos})


@dataclass(frozen=True)
class Split:
    """A split's folder, its clips, its number of videos and its defects."""

    name: str
    folder: Path
    clips: tuple[Clip, ...]
    videos: int
    defects: tuple[Defect, ...]

    @property
    def labelled(self) -> bool:
        return any(clip.labelled for clip in self.clips)

    def counts(self, part: str) -> list[int]:
        """Count the events of each action in the "observation" or the "anticipation" of all clips."""
        counts = [0] * len(ACTIONS)
        for clip in self.clips:
            for event in getattr(clip, part):
                counts[event.action] += 1
        return counts


def check(root: Path) -> list[Split]:
    """Check every split below `root`, which may also be a resolution's or a split's folder."""
    folders = _split_folders(root)
    if not folders:
        _no_split(root)
    return [_check_split(folder) for folder in folders]


def count_deviations(splits: Sequence[Split]) -> list[str]:
    """Describe each split of SN-BAA whose number of clips is not the official one, in one sentence each."""
    return [
        f"{split.folder}: {len(split.clips)} clips, where SN-BAA's {split.name} split has {official}; "
        f"{'a subset, or not all unpacked?' if len(split.clips) < official else 'not the official split?'}"
        for split in splits
        if (official := OFFICIAL_CLIPS.get(split.name)) is not None and len(split.clips) != official
    ]


def _parse(tree: Any, defects: Defects) -> list[Clip]:
    clips: list[Clip] = []
    names: set[str] = set()
    with defects.at(""):
        videos = get(tree, "videos", list, "a list")
        for i, video in enumerate(videos):
            place = f"videos[{i}]"
            with defects.at(place):
                name = clip_name(get(video, "path", str, "text"))
                annotations = get(video, "annotations", dict, "a record")
                if name in names:
                    defects.add(place, f"{name} appears a second time")
                names.add(name)
                observed, anticipated = (_events(annotations, part, defects, place) for part in PARTS)
                clips.append(Clip(name, observed, anticipated))
    return clips


def _events(annotations: dict[str, Any], part: str, defects: Defects, place: str) -> tuple[Event, ...]:
    begin, end = PARTS[part]
    events: list[Event] = []
    if part == "observation" and part not in annotations:  # the score needs only the events to anticipate
        return ()
    for i, record in enumerate(get(annotations, part, list, "a list")):
        with defects.at(f"{place}.annotations.{part}[{i}]"):
            label = get(record, "label", str, "text")
            position = whole_number(record, "position")
            visibility = get(record, "visibility", str, "text") if "visibility" in record else "visible"
            if label in IGNORED_LABELS:
                continue
            action_index(label)
            if not begin <= position <= end:
                raise InputError(f"position {position} is outside {begin}–{end}, where an event in '{part}' must be")
            if visibility not in _VISIBLE:
                raise InputError(f"visibility {visibility!r} is neither 'visible' nor 'not shown'")
            team = get(record, "team", str, "text") if "team" in record else ""
            events.append(Event(label, position, team, _VISIBLE[visibility]))
    return tuple(events)


def clip_name(path: str) -> str:
    """Return "clip_1" for "clip_1/720p.mp4", and for "clip_1" itself."""
    name = path.split("/")[0]
    if not name:
        raise InputError(f"path {path!r} names no clip; it should read like 'clip_1/224p.mp4'")
    return name


def _split_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        what = "is a file" if root.exists() else "no such folder"
        raise InputError(f"{root}: {what}; give the folder SN-BAA was unpacked into")
    resolutions = [root / r for r in RESOLUTIONS if (root / r).is_dir()] or [root]
    splits = [parent / s for parent in resolutions for s in SPLITS if (parent / s).is_dir()]
    return splits or ([root] if (root / LABELS).exists() or _clip_folders(root) else [])


def _clip_folders(folder: Path) -> list[Path]:
    found = (f for f in folder.iterdir() if f.is_dir() and re.fullmatch(r"clip_\d+", f.name))
    return sorted(found, key=lambda f: natural(f.name))


def _no_split(root: Path) -> list[Clip]:
    raise InputError(
        f"{root}: holds no split of SN-BAA; expected folders like 224p/train with clip_1, clip_2, … and {LABELS}"
    )


def _check_split(folder: Path) -> Split:
    defects = Defects(str(folder))
    folders = {f.name: f for f in _clip_folders(folder)}
    labels = folder / LABELS
    if labels.exists():
        inside = Defects(str(labels))
        try:
            clips = _parse(read_json(labels, "labels"), inside)
        except InputError as error:  # unreadable as a whole
            clips = []
            problem = str(error).removeprefix(f"{labels}: ")
            inside.add("", problem)
        defects.found += inside.found
    else:
        clips = [Clip(name, labelled=False) for name in folders]
        if folder.name != "challenge":
            defects.add("", f"no {LABELS}; only the challenge split comes without labels")
    labelled = {clip.name for clip in clips}
    for clip in clips:
        if clip.name not in folders and folders:
            defects.add(clip.name, "is in the labels but has no folder")
    for name in sorted(folders.keys() - labelled, key=natural) if clips else ():
        defects.add(name, "has a folder but no labels")
    if not folders:
        defects.add("", "no clip folders; unpack the videos here if you want to extract features")
    videos = 0
    for name, clip_folder in folders.items():
        found = [clip_folder / f"{r}.mp4" for r in RESOLUTIONS if (clip_folder / f"{r}.mp4").is_file()]
        videos += len(found)
        if not found:
            defects.add(name, "holds no 224p.mp4 or 720p.mp4")
        for video in found:
            if not video.stat().st_size:
                defects.add(f"{name}/{video.name}", "is empty (0 bytes); unpack it again")
    return Split(folder.name, folder, tuple(clips), videos, tuple(defects.found))
