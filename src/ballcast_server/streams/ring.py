"""The latest packets of a stream, kept in memory as they came, so that a clip of what was can be written."""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, cast

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.files import replacing
from ballcast.video.sources import LiveSource, SourceOptions
from ballcast.video.stream import StreamSource

RING_BYTES = 96 << 20  # of one stream's packets


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
            self._kept = kept
            self._template = template
            self._unit = Fraction(stream.time_base or self._unit)

    def add(self, packet: av.Packet) -> None:
        """Keep a packet, and drop what is too old."""
        times = [t for t in (packet.dts, packet.pts) if t is not None]
        if not times or not packet.size:
            return
        content = bytes(packet)
        duration = packet.duration or 0
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
                copy.pts = packet.pts - chosen[0].dts
                copy.dts = packet.dts - chosen[0].dts
                copy.duration = packet.duration
                copy.time_base = unit
                copy.is_keyframe = packet.key
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
        self._container = container
        self._index = index
        self._ring = ring

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

    def __init__(self, address: str, ring: PacketRing, options: SourceOptions, *, colour: bool) -> None:
        super().__init__(address, speed=options.speed, give_up_s=options.give_up_s, colour=colour, check=options.check)
        self.ring = ring

    def _open(self, *how: Any) -> tuple[InputContainer, VideoStream]:
        container, stream = super()._open(*how)
        self.ring.begin(stream)
        return cast(InputContainer, _Tap(container, stream.index, self.ring)), stream


def ring_of(source: LiveSource) -> Ring | None:
    """The ring with the latest packets of a source of `decoder.open_stream`; None: they are not kept."""
    ring: Ring | None = getattr(source, "ring", None)
    return ring
