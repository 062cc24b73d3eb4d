"""The videos of the folder given with --videos, which can be submitted without an upload."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.util import natural
from ballcast.video.container import SUFFIXES

MAX_VIDEOS = 5000  # listed
LISTING_TTL_S = 5.0  # time for which a listing is reused


@dataclass(frozen=True, slots=True)
class Video:
    """A video of the folder given with --videos.

    Args:
        id: 16 hex digits of the hash of its name.
        name: path relative to the folder, for display.
        path: of the file.
        bytes: size of the file.
    """

    id: str
    name: str
    path: Path
    bytes: int


class Library:
    """A folder of videos, listed again when the last listing is older than `LISTING_TTL_S`."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give --videos a folder of videos")
        self.folder = folder.resolve() if folder is not None else None
        self._lock = threading.Lock()
        self._found: dict[str, Video] = {}
        self._listed_at = -LISTING_TTL_S

    def all(self) -> list[Video]:
        """All videos, in natural order of their names."""
        return list(self._videos().values())

    def get(self, video_id: str) -> Video | None:
        """The video with this id, or None."""
        return self._videos().get(video_id)

    def _videos(self) -> dict[str, Video]:
        with self._lock:
            if self.folder is not None and time.monotonic() - self._listed_at > LISTING_TTL_S:
                self._found = {video.id: video for video in _list_videos(self.folder)}
                self._listed_at = time.monotonic()
            return self._found


def _list_videos(folder: Path) -> list[Video]:
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in SUFFIXES:
            continue
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:  # deleted meanwhile
            continue
        if size is None:
            continue
        name = os.fsencode(path.relative_to(folder).as_posix())  # any bytes; displayed with replacement characters
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name.decode(errors="replace"))
        found.append(Video(hashlib.sha256(name).hexdigest()[:16], shown, path, size))
        if len(found) == MAX_VIDEOS:
            break
    return sorted(found, key=lambda video: natural(video.name))
