"""Packets to frames, with an account of both: a packet whose frame never comes out is damage, not a pause."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.errors import InputError

MAX_GAP_S = 2  # a longer silence between two frames is lost video, not a still picture
# Decoders that give one frame for every packet, so that a frame lost inside them can be noticed.
_ONE_TO_ONE = frozenset({"h264", "hevc", "vp9", "av1", "libdav1d"})
_REMUX = "ffmpeg -i IN -c copy OUT.mp4"


def decoded(
    container: InputContainer,
    stream: VideoStream,
    path: Path,
    *,
    threads: int = 0,
    sought: int | None = None,
    origin: int | None = None,
) -> Iterator[tuple[int, av.VideoFrame]]:
    """The stream's frames in order of time, each with its timestamp; damage is an `InputError` that gives its time.

    container, stream: freshly opened. path: for the messages. threads: 0: one per core.
    sought: begin at the key frame before this timestamp; None: at the beginning.
    origin: timestamp of the video's first frame, which the times in messages count from.
    """
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = threads
    if sought is not None:
        container.seek(sought, stream=stream, backward=True)
    account = _Account(path, stream, origin)
    begun = sought is None
    for packet in _demuxed(container, stream, account):
        for frame in account.decode(packet):
            begun = begun or frame.key_frame
            if begun:  # what comes out before the key frame refers to pictures that were not read
                yield account.check(frame), frame
    account.close()


def _demuxed(container: InputContainer, stream: VideoStream, account: "_Account") -> Iterator[av.Packet]:
    try:
        yield from container.demux(stream)
    except (av.FFmpegError, OSError) as error:
        account.broken = f"cannot be read further ({error.strerror})"
        yield av.Packet()  # the frames that are still in the decoder are good


class _Account:
    """Which packets went into the decoder and have not come out as a frame yet, by timestamp."""

    def __init__(self, path: Path, stream: VideoStream, origin: int | None) -> None:
        assert stream.time_base is not None
        self._path, self._stream, self._origin = path, stream, origin
        self._unit = Fraction(stream.time_base)
        # AVI gives the times of decoding, not of display.
        self._counts = stream.codec_context.name in _ONE_TO_ONE and stream.container.format.name != "avi"
        self._pending: set[int] = set()
        self._failed: int | None = None  # timestamp of the packet the decoder choked on, or a few later: it works ahead
        self._partial = False  # the last packet is incomplete: the file ends inside it
        self._last: int | None = None  # of the frames given out
        self.broken = ""

    def decode(self, packet: av.Packet) -> list[av.VideoFrame]:
        """The frames that come out when this packet goes in; one that cannot be decoded is noted, not raised yet."""
        if packet.size and packet.pts is not None and not packet.is_discard:
            self._pending.add(packet.pts)
        if packet.size:
            self._partial = packet.is_corrupt
        try:
            if packet.size and packet.is_corrupt:
                raise av.InvalidDataError(0, "incomplete packet")
            return self._stream.decode(packet if packet.size else None)
        except av.EOFError:
            return []
        except av.FFmpegError:
            if self._failed is None:
                self._failed = next(t for t in (packet.pts, self._last, self._origin, 0) if t is not None)
            return []

    def check(self, frame: av.VideoFrame) -> int:
        """The frame's timestamp, if it is whole, follows the one before it, and none between them is missing."""
        at, last = frame.pts, self._last
        if at is None:
            raise InputError(f"{self._path}: its frames carry no times; give it a container that has them: {_REMUX}")
        if self._origin is None:
            self._origin = at
        if last is None:  # an edit list, or a recording that begins between key frames: expect nothing earlier
            self._pending = {t for t in self._pending if t >= at}
        self._counts = self._counts and not frame.interlaced_frame  # a field may be a packet of its own
        lost = min(self._pending, default=at) if self._counts else at
        if frame.is_corrupt or lost < at:
            raise self._damage(min(lost, at))
        if self._failed is not None and at >= self._failed:
            raise self._damage(self._failed)
        if last is not None and at < last:
            raise InputError(
                f"{self._path}: at {self._time(at)} the clock of its frames runs backwards; remux it: {_REMUX}"
            )
        if last is not None and (at - last) * self._unit > MAX_GAP_S:
            gap = f"has no pictures between {self._time(last)} and {self._time(at)}"
            raise InputError(f"{self._path}: {gap}; fetch it again, or cut it there")
        self._pending = {t for t in self._pending if t > at}
        self._last = at
        return at

    def close(self) -> None:
        """The stream is over: everything must have come out."""
        left = min(self._pending) if self._pending and self._counts else None
        if self._failed is not None or self.broken or left is not None:
            raise self._damage(next((t for t in (left, self._failed, self._last) if t is not None), 0))

    def _damage(self, at: int) -> InputError:
        if self.broken:
            return InputError(f"{self._path}: {self.broken} after {self._time(at)}; fetch it again")
        if self._partial:
            return InputError(
                f"{self._path}: is cut short, it ends inside the picture at {self._time(at)}; fetch it again"
            )
        return InputError(f"{self._path}: is corrupt at {self._time(at)}, where a picture is damaged; fetch it again")

    def _time(self, at: int) -> str:
        return f"{float((at - (self._origin or 0)) * self._unit):.2f} s"
