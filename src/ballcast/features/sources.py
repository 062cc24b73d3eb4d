"""Which videos there are to extract: a split of SN-BAA, a folder of videos, or one video."""

import re
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.actions import CLIP_FRAMES
from ballcast.core.errors import InputError
from ballcast.core.order import natural

SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".ts", ".mpg", ".mpeg")
_CLIP = re.compile(r"clip_\d+")


@dataclass(frozen=True)
class Source:
    """One video.

    Attributes:
        name: its entry's name in the store.
        path: the file.
        label: the file relative to what was given, as the store records it.
        frames: how many frames it must have, for a clip of SN-BAA; None: as many as it has.
    """

    name: str
    path: Path
    label: str
    frames: int | None
    size: int
    mtime_ns: int


def find_sources(given: Path) -> list[Source]:
    """The videos at `given`, in natural order; folders clip_1, clip_2, … make it a split of SN-BAA."""
    if given.is_file():
        return [_source(given.stem, given, given.parent, None)]
    if not given.is_dir():
        raise InputError(f"{given}: no such file or folder; give a video, a folder of videos or a split of SN-BAA")
    inside = sorted(given.iterdir(), key=lambda path: natural(path.name))
    clips = [path for path in inside if path.is_dir() and _CLIP.fullmatch(path.name)]
    if clips:
        return [_source(clip.name, _only_video(clip), given, CLIP_FRAMES) for clip in clips]
    videos = [path for path in inside if _is_video(path)]
    if not videos:
        splits = [
            path.name for path in inside if path.is_dir() and any(_CLIP.fullmatch(p.name) for p in path.iterdir())
        ]
        hint = f"; give one of its splits, such as {given / splits[0]}" if splits else ""
        raise InputError(f"{given}: has no videos ({', '.join(SUFFIXES)}) and no folders clip_1, clip_2, …{hint}")
    stems = [path.stem for path in videos]
    names = [path.stem if stems.count(path.stem) == 1 else path.name for path in videos]
    if len(set(names)) < len(names):  # a.mp4, a.mkv and a.mp4.mkv
        names = [path.name for path in videos]
    return [_source(name, path, given, None) for name, path in zip(names, videos, strict=True)]


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _only_video(folder: Path) -> Path:
    """A clip's one video; both resolutions in one folder would leave the choice to chance."""
    videos = sorted(path for path in folder.iterdir() if _is_video(path))
    if len(videos) > 1:
        raise InputError(f"{folder}: has {len(videos)} videos; a clip's folder must have one")
    return videos[0] if videos else folder / "224p.mp4"  # not there: listed as failed, the others are still done


def _source(name: str, path: Path, root: Path, frames: int | None) -> Source:
    found = path.stat() if path.exists() else None
    label = _readable(path.relative_to(root).as_posix())
    return Source(
        _readable(name), path, label, frames, found.st_size if found else 0, found.st_mtime_ns if found else 0
    )


def _readable(name: str) -> str:
    """The name with bytes that are not UTF-8 written out: manifests and terminals hold text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
