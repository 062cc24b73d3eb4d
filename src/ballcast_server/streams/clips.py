"""Clips: the seconds around an anticipated action, as they came, without re-encoding.

A stream's latest packets are kept in memory (`ring.py`). After an alert, once its seconds have come, those from the
key frame before are written to an mp4 file (`ClipStore`), on a separate thread. Old clips are removed by age and
size, and the oldest ones where the disk fills.
"""

import heapq
import logging
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from ballcast.core.actions import HORIZON_MS
from ballcast_server.streams.alerts import Alert
from ballcast_server.streams.ring import Ring

GRACE_S = 10.0  # that the last packets of a clip may come late
FREE_BYTES = 256 << 20  # that clips leave free on the disk
PRUNE_S = 60.0  # interval between two looks at old clips
NAME = re.compile(r"\d{8}T\d{6}Z_[A-Z-]+_[0-9a-f]{16}\.mp4")
_log = logging.getLogger("ballcast.live")


@dataclass(order=True)
class _Request:
    due: float  # time.monotonic() at which it is looked at next
    number: int
    path: Path = field(compare=False)
    ring: Ring = field(compare=False)
    begin_s: float = field(compare=False)
    end_s: float = field(compare=False)
    until: float = field(compare=False)  # time.monotonic() at which it is written with what came


class ClipStore:
    """A folder of clips, one folder for each stream, and the thread that writes them.

    Args:
        folder: of the clips.
        before_s, after_s: seconds before and after the time at which the action is expected.
        keep_s, keep_bytes: older clips are removed, and the oldest if all take more.

    Attributes:
        written, failed, removed: clips since the start.
        error: why the last clip was not written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        before_s: float = 10.0,
        after_s: float = 10.0,
        keep_s: float = 7 * 86400.0,
        keep_bytes: int = 10 << 30,
    ) -> None:
        self.folder = folder
        self.before_s = before_s
        self.after_s = after_s
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self.written = self.failed = self.removed = 0
        self.error = ""
        self._requests: list[_Request] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="clips", daemon=True)
        self._thread.start()

    @property
    def ring_s(self) -> float:
        """Seconds of packets that a clip needs; an action is expected up to HORIZON_MS after its forecast."""
        return self.before_s + self.after_s + GRACE_S + HORIZON_MS / 1000

    @property
    def waiting(self) -> int:
        """Clips whose seconds have not all come."""
        return len(self._requests)

    def request(self, alert: Alert, ring: Ring, expected_s: float) -> str:
        """Keep a clip of an alert.

        Args:
            alert: the alert.
            ring: packets of its stream.
            expected_s: when the action is expected, on the clock of the packets.

        Returns:
            The name of the file, which is there once its seconds have come.
        """
        when = datetime.fromtimestamp(alert.wall_ms / 1000, UTC)
        name = f"{when:%Y%m%dT%H%M%SZ}_{alert.action.replace(' ', '-')}_{alert.id}.mp4"
        path = self.folder / alert.stream / name
        now = time.monotonic()
        begin_s = expected_s - self.before_s
        end_s = expected_s + self.after_s
        until = now + max(0.0, end_s - ring.newest_s) + GRACE_S
        with self._changed:
            heapq.heappush(self._requests, _Request(now, next(self._numbers), path, ring, begin_s, end_s, until))
            self._changed.notify()
        return name

    def clips(self, stream: str) -> list[Path]:
        """The clips of a stream, the newest first."""
        folder = self.folder / stream
        found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
        return sorted(found, key=lambda path: path.name, reverse=True)

    def close(self) -> None:
        """Write what has come, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        pruned = 0.0
        while True:
            with self._changed:
                wait_s = self._requests[0].due - time.monotonic() if self._requests else PRUNE_S
                if not self._closed and wait_s > 0:
                    self._changed.wait(min(wait_s, PRUNE_S))
                now = time.monotonic()
                due = self._requests and (self._closed or self._requests[0].due <= now)
                request = heapq.heappop(self._requests) if due else None
                if request is None and self._closed:
                    return
            tried = request is not None and self._look_at(request)  # a full disk needs pruning most
            if tried or time.monotonic() - pruned > PRUNE_S:
                pruned = time.monotonic()
                self.prune()

    def _look_at(self, request: _Request) -> bool:
        """Write a clip if its seconds have come, or no more will; else look again later. Whether it was tried."""
        now = time.monotonic()
        if request.ring.newest_s < request.end_s and now < request.until and not self._closed:
            request.due = now + min(1.0, max(0.1, request.end_s - request.ring.newest_s))
            with self._changed:
                heapq.heappush(self._requests, request)
            return False
        try:
            if not request.ring.write(request.path, request.begin_s, request.end_s):
                raise OSError("its packets are gone")
            self.written += 1
        except Exception as error:  # a full disk, or packets that no mp4 can hold: other clips are still written
            self.failed += 1
            self.error = str(error)
            _log.warning("%s: the clip was not kept: %s", request.path.name, error)
        return True

    def prune(self) -> None:
        """Remove clips that are too old, and the oldest while all are too large or the disk is nearly full."""
        if not self.folder.is_dir():
            return
        clips = []
        for folder in self.folder.iterdir():
            for path in self.clips(folder.name):
                try:
                    about = path.stat()
                except OSError:  # removed meanwhile
                    continue
                clips.append((about.st_mtime, about.st_size, path))
        clips.sort()
        total = sum(size for _, size, _ in clips)
        oldest = time.time() - self._keep_s
        for changed, size, path in clips:
            full = shutil.disk_usage(self.folder).free < FREE_BYTES
            if changed >= oldest and total <= self._keep_bytes and not full:
                break
            path.unlink(missing_ok=True)
            total -= size
            self.removed += 1
