"""Clips: the seconds around an anticipated action, as they came, without re-encoding.

A stream's latest packets are kept in memory (`PacketRing`). After an alert, once its seconds have come, those from the
key frame before are written to an mp4 file (`ClipStore`), on a thread of its own. Old clips are removed by age and
size, and the oldest ones where the disk fills.
"""

import heapq
import logging
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Protocol, cast

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.actions import HORIZON_MS
from ballcast.core.files import replacing
from ballcast.video.sources import LiveSource, open_source
from ballcast.video.stream import StreamSource
from ballcast_server.streams.alerts import Alert

RING_BYTES = 96 << 20  # of one stream's packets
GRACE_S = 10.0  # that the last packets of a clip may come late
FREE_BYTES = 256 << 20  # that clips leave free on the disk
PRUNE_S = 60.0  # interval between two looks at old clips
NAME = re.compile(r"\d{8}T\d{6}Z_[A-Z-]+_[0-9a-f]{16}\.mp4")
_log = logging.getLogger("ballcast.live")


@dataclass(frozen=True, slots=True)
class StoredPacket:
    """A packet of video, times in units of its stream's time base."""

    content: bytes
    pts: int
    dts: int
    duration: int
    key: bool


class PacketRing:
    """The packets of a stream's last `seconds`, from a key frame on. Written by one thread, read by others."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._groups: deque[list[StoredPacket]] = deque()  # each begins with a key frame, and is dropped as a whole
        self._bytes = 0
        self._lock = threading.Lock()
        self._template: Any = None  # an output stream: it outlives the connection
        self._kept: Any = None
        self._unit = Fraction(1, 90_000)

    def begin(self, stream: VideoStream) -> None:
        """A connection was opened: packets of another one do not fit to those that come now."""
        kept = av.open(BytesIO(), "w", format="mp4")
        template = kept.add_stream_from_template(stream)
        with self._lock:
            self._groups.clear()
            self._bytes = 0
            self._kept, self._template, self._unit = kept, template, Fraction(stream.time_base or self._unit)

    def add(self, packet: av.Packet) -> None:
        """Keep a packet, and drop what is too old."""
        times = [t for t in (packet.dts, packet.pts) if t is not None]
        if not times or not packet.size:
            return
        content, duration = bytes(packet), packet.duration or 0
        stored = StoredPacket(content, times[-1], times[0], duration, packet.is_keyframe)
        with self._lock:
            if stored.key:
                self._groups.append([])
            elif not self._groups:
                return
            self._groups[-1].append(stored)
            self._bytes += len(content)
            oldest = stored.dts - self._seconds / self._unit
            while len(self._groups) > 1 and (self._groups[1][0].dts <= oldest or self._bytes > RING_BYTES):
                self._bytes -= sum(len(packet.content) for packet in self._groups.popleft())
            if self._bytes > RING_BYTES:  # one key frame in more than there is room for
                self._groups.clear()
                self._bytes = 0

    @property
    def _packets(self) -> list[StoredPacket]:
        return [packet for group in self._groups for packet in group]

    @property
    def newest_s(self) -> float:
        """Time of the newest packet on the stream's clock; -1 without one."""
        with self._lock:
            return float(self._groups[-1][-1].dts * self._unit) if self._groups else -1.0

    def write(self, path: Path, begin_s: float, end_s: float) -> bool:
        """Write the packets of these seconds on its clock, from the key frame before; False: there are none."""
        with self._lock:
            packets, unit, template = self._packets, self._unit, self._template
        keys = [i for i, packet in enumerate(packets) if packet.key and packet.pts * unit <= begin_s]
        first = keys[-1] if keys else 0
        chosen = [packet for packet in packets[first:] if packet.dts * unit <= end_s]
        if not chosen:
            return False
        with replacing(path) as new, av.open(str(new), "w", format="mp4") as out:
            stream = out.add_stream_from_template(template)
            for packet in chosen:
                copy = av.Packet(packet.content)
                copy.pts, copy.dts = packet.pts - chosen[0].dts, packet.dts - chosen[0].dts
                copy.duration, copy.time_base, copy.is_keyframe = packet.duration, unit, packet.key
                copy.stream = stream
                out.mux(copy)
        return True


class Ring(Protocol):
    """What a clip is written from: a `PacketRing`, or one on another machine."""

    @property
    def newest_s(self) -> float: ...

    def write(self, path: Path, begin_s: float, end_s: float) -> bool: ...


class _Tap:
    """A container whose packets of one stream are kept in a ring as they are read."""

    def __init__(self, container: InputContainer, index: int, ring: PacketRing) -> None:
        self._container, self._index, self._ring = container, index, ring

    def demux(self, *streams: Any) -> Iterator[av.Packet]:
        for packet in self._container.demux(*streams):
            if packet.stream.index == self._index:
                self._ring.add(packet)
            yield packet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def __enter__(self) -> "_Tap":
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()


class RecordedStream(StreamSource):
    """A stream whose latest packets are kept in a ring."""

    def __init__(self, address: str, ring: PacketRing, **how: Any) -> None:
        super().__init__(address, **how)
        self.ring = ring

    def _open(self, *how: Any) -> tuple[InputContainer, VideoStream]:
        container, stream = super()._open(*how)
        self.ring.begin(stream)
        return cast(InputContainer, _Tap(container, stream.index, self.ring)), stream


def open_recorded(address: str, ring: PacketRing | None, *, threads: int = 0, **how: Any) -> LiveSource:
    """Open a source as `open_source` does; with a ring a stream, whose latest packets are kept in it."""
    return open_source(address, threads=threads, **how) if ring is None else RecordedStream(address, ring, **how)


def ring_of(source: LiveSource) -> PacketRing | None:
    """The ring with the latest packets of a source that `open_recorded` opened; None: they are not kept."""
    return source.ring if isinstance(source, RecordedStream) else None


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
        self.folder, self.before_s, self.after_s = folder, before_s, after_s
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
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
        path, now = self.folder / alert.stream / name, time.monotonic()
        begin_s, end_s = expected_s - self.before_s, expected_s + self.after_s
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
            self.failed, self.error = self.failed + 1, str(error)
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
        total, oldest = sum(size for _, size, _ in clips), time.time() - self._keep_s
        for changed, size, path in clips:
            full = shutil.disk_usage(self.folder).free < FREE_BYTES
            if changed >= oldest and total <= self._keep_bytes and not full:
                break
            path.unlink(missing_ok=True)
            total -= size
            self.removed += 1
