"""The videos of the folder a server was started with, by ids: a request never names a path."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.order import natural
from ballcast.features.sources import SUFFIXES

MOST = 5000  # videos listed
FRESH_S = 5.0  # how long a listing is taken for true


@dataclass(frozen=True, slots=True)
class Video:
    """A file of the folder. id: 16 hex digits of its name's hash. name: its path below the folder, as shown."""

    id: str
    name: str
    path: Path
    bytes: int


class Library:
    """A folder of videos, looked through again when its listing is older than a few seconds."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give --videos a folder of videos")
        self.folder = folder.resolve() if folder is not None else None
        self._lock = threading.Lock()
        self._found: dict[str, Video] = {}
        self._looked = -FRESH_S

    def all(self) -> list[Video]:
        return list(self._look().values())

    def get(self, video_id: str) -> Video | None:
        return self._look().get(video_id)

    def _look(self) -> dict[str, Video]:
        with self._lock:
            if self.folder is not None and time.monotonic() - self._looked > FRESH_S:
                self._found = {video.id: video for video in _videos(self.folder)}
                self._looked = time.monotonic()
            return self._found


def _videos(folder: Path) -> list[Video]:
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in SUFFIXES:
            continue
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:  # it was taken away meanwhile
            continue
        if size is None:
            continue
        name = os.fsencode(path.relative_to(folder).as_posix())  # any bytes; shown is what of them is text
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name.decode(errors="replace"))
        found.append(Video(hashlib.sha256(name).hexdigest()[:16], shown, path, size))
        if len(found) == MOST:
            break
    return sorted(found, key=lambda video: natural(video.name))
