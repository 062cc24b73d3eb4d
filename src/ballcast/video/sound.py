"""Copy a video's sound into another file without encoding it again."""

from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
from av.container import OutputContainer

from ballcast.video.container import ALONE, TOLERANT

IN_MP4 = frozenset({"aac", "ac3", "alac", "eac3", "flac", "mp2", "mp3", "opus"})  # what players expect in MP4


class SoundCopy:
    """Copies the first sound of `source` that MP4 can hold into `target`, packet by packet; enter it, then copy.

    origin: time in the source, in seconds on its own clock, that is 0 in the target. end: where to stop, likewise.
    """

    def __init__(self, source: Path, target: OutputContainer, *, origin: Fraction, end: Fraction | None) -> None:
        self._target = target
        self._origin = origin
        self._end = end
        self._input = av.open(str(source), mode="r", options=ALONE, **TOLERANT)
        found = [s for s in self._input.streams.audio if s.codec_context is not None and s.codec_context.name in IN_MP4]
        self._packets = self._input.demux(found[0]) if found else iter(())
        self._stream = target.add_stream_from_template(found[0]) if found else None
        self._next: av.Packet | None = None
        self._last: int | None = None  # decoding time of the packet before
        self._failed = False

    def copy_until(self, seconds: Fraction | None) -> None:
        """Copy the packets up to a time of the target (None: all that are left)."""
        while self._stream is not None and (packet := self._peek()) is not None:
            assert packet.pts is not None
            assert packet.time_base is not None
            time = packet.pts * packet.time_base
            if seconds is not None and time - self._origin > seconds:
                return
            self._next = None
            dts = packet.pts if packet.dts is None else packet.dts
            if time < self._origin or (self._end is not None and time >= self._end):
                continue
            if self._last is None or dts > self._last:  # after damage the clock may go back
                self._last = dts
                shift = round(self._origin / packet.time_base)
                packet.pts = packet.pts - shift
                packet.dts = dts - shift
                packet.stream = self._stream
                self._target.mux(packet)

    def _peek(self) -> av.Packet | None:
        try:
            while self._next is None and not self._failed:
                packet = next(self._packets, None)
                if packet is None:
                    return None
                if packet.size and packet.pts is not None and not packet.is_corrupt:
                    self._next = packet
        except (av.FFmpegError, OSError, IndexError):  # as damaged as the frames may be: the copy is silent from here
            self._failed = True
        return self._next

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._input.close()
