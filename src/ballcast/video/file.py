"""Frames, grayscale or I420, at exactly 25 fps, by timestamp, from any video file, on the CPU or by NVDEC."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import chain, islice
from math import floor
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import av
import numpy as np
from av.codec.hwaccel import HWAccel
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Gap
from ballcast.video.container import MAX_GAP_S, VideoInfo, declared_end, decoded, nvdec, open_container
from ballcast.video.damage import DamageError, PacketReplay
from ballcast.video.luma import SquarePixels, Turn, array_shape, even, luma, pixels, turn_of
from ballcast.video.resample import FrameResampler

MOST_BEGINS = 200  # damaged stretches before the first whole frame
_Timed = tuple[int, av.VideoFrame]


class FrameSource(Protocol):
    """What a decoder gives; another one than PyAV's has to give the same."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of every frame."""
        ...

    def frames(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """Frames start … stop − 1 at 25 fps (None: to the end), each (H, W) uint8, C-contiguous, its own memory."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Frames start … stop − 1 as (T, H, W) uint8; T is smaller at the end of the video, 0 beyond it."""
        ...


class VideoFile:
    """A video file as a `FrameSource`, decoded with PyAV. Audio is ignored.

    path: the file. threads: 0: one per core; H.264 is decoded by one. accel: a hardware decoder; see `open_video`.
    strict: damage is an error in `pictures` too. Pixels that are not square are stretched.
    Several `frames` iterators may run at once: each decodes on its own. Consecutive `read`s continue without seeking.
    """

    def __init__(
        self, path: Path | str, *, threads: int = 0, accel: HWAccel | None = None, strict: bool = True
    ) -> None:
        self.path = Path(path)
        self.strict = strict
        self.decoder = "PyAV on the CPU" if accel is None else "PyAV on the GPU (NVDEC)"
        self._threads = threads
        self._accel = accel
        self._reading: tuple[int, bool, Iterator[np.ndarray]] | None = None
        container, stream = open_container(self.path)
        with container:
            assert stream.time_base is not None
            self._origin, first = self._first(container, stream)
            self._unit = Fraction(stream.time_base)  # seconds a tick of the file's clock
            self._turn = turn_of(first, str(self.path))
            self._coded_size = (first.height, first.width)
            self._square = SquarePixels(stream.sample_aspect_ratio)
            first = self._square(first)
            period = 1 / Fraction(stream.average_rate or FPS)  # how long a frame stands, in seconds
            self._grid = FrameResampler(origin=self._origin, unit=self._unit, period=period)
            self._end = declared_end(container, stream)
            self._info = self._describe(container, stream, first)
            # A program stream times only some packets: after a seek the times are guesses, and so is its length.
            self._timed = container.format.name != "mpeg"

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the upright frame."""
        return self._info.height, self._info.width

    @property
    def duration_ms(self) -> int | None:
        """Duration stated in the file, in ms; None if it states none."""
        return self._info.duration_ms

    def frame_count(self) -> int | None:
        """How many frames the file should give at 25 fps, by its stated duration; None: it states none, or a guess."""
        if self.duration_ms is None or not self._timed:
            return None
        return max(1, floor(self.duration_ms * FPS / 1000 + 0.5))

    def probe(self) -> VideoInfo:
        return self._info

    def frames(self, start: int = 0, stop: int | None = None, *, colour: bool = False) -> Iterator[np.ndarray]:
        """Frames start … stop − 1 at 25 fps (None: to the end), each (H, W) uint8, or I420; see `FrameSource`."""
        for picture in self.sampled(start, stop):
            yield pixels(picture, self._turn, colour=colour)

    def sampled(self, start: int = 0, stop: int | None = None) -> Iterator[av.VideoFrame]:
        """The same as decoded frames, in colour and as coded; `upright` turns their planes for display."""
        if start < 0:
            raise ValueError(f"frames are counted from 0, start is {start}")
        if stop is not None and start >= stop:
            return
        end = yield from self._grid.sample(self._from(start), start, stop)
        if end is not None:
            self._check_end(end)

    def read(self, start: int, stop: int, *, colour: bool = False) -> np.ndarray:
        """Frames start … stop − 1 as (T, H, W) uint8, or I420; T is smaller at the end of the video, 0 beyond it."""
        taken = list(self._following(start, stop - start, colour=colour))
        none = array_shape(even(self.size) if colour else self.size, colour=colour)
        return np.stack(taken) if taken else np.empty((0, *none), np.uint8)

    def read_into(
        self, out: np.ndarray, start: int, *, colour: bool = False, fit: Callable[[np.ndarray], np.ndarray]
    ) -> int:
        """Write frames from `start` on, as `fit` gives them, into `out` (T, H, W) uint8; return how many there are."""
        count = 0
        for frame in self._following(start, len(out), colour=colour):
            out[count] = fit(frame)
            count += 1
        return count

    def _following(self, start: int, count: int, *, colour: bool) -> Iterator[np.ndarray]:
        """The next `count` frames from `start` on, without seeking where the last ones ended there."""
        if self._reading is None or self._reading[:2] != (start, colour):
            self._reading = (start, colour, self.frames(start, colour=colour))
        source = self._reading[2]
        self._reading = None  # an error below ends the iterator
        taken = 0
        for frame in islice(source, max(0, count)):
            yield frame
            taken += 1
        self._reading = (start + taken, colour, source)

    def sampled_and_gaps(self, start: int = 0, stop: int | None = None) -> Iterator[av.VideoFrame | Gap]:
        """As `sampled`, but continues at the next whole key frame after damage, with a `Gap` for what is between."""
        n, lost = start, ""  # the next output frame, and why those before it are missing
        for stretch in self._stretches(start):
            try:
                first = next(stretch, None)
                if first is None:
                    break
                if lost:
                    begins = max(n, self._grid.first(first[0]))
                    if begins > n or n > start:  # else it lies before the start
                        yield Gap(n * FRAME_MS, begins * FRAME_MS, lost)
                    n = begins
                    lost = ""
                elif n == 0:
                    n = self._grid.first(first[0])
                    if n:
                        yield Gap(0, n * FRAME_MS, "a picture is damaged")
                for picture in self._grid.sample(chain([first], stretch), n, stop):
                    yield picture
                    n += 1
                    if n == stop:
                        return
            except DamageError as damage:
                lost = lost or damage.reason
        length = None if self._end is None else self._end - self._origin * self._unit
        end = n if length is None else max(n, floor(length * FPS))
        if stop is not None:
            end = min(end, stop)
        if lost or end - n > FPS // 2:
            yield Gap(n * FRAME_MS, end * FRAME_MS, lost or "the file is cut short")

    def pictures(self, start: int = 0) -> Iterator[tuple[Fraction, av.VideoFrame]]:
        """The file's own frames, in colour and at its own rate, each with its time in seconds since the first.

        From the one shown at output frame `start` on, or a few before it. `upright` turns their planes for display.
        Those that are damaged are left out, unless `strict`.
        """
        frames = self._from(start) if self.strict else self._whole(start)
        for at, frame in frames:
            yield (at - self._origin) * self._unit, frame

    @property
    def begin(self) -> Fraction:
        """When the first frame is shown, in seconds on the file's own clock."""
        return self._origin * self._unit

    @property
    def upright(self) -> Turn:
        """What lays a plane (H, W) of the file's frames out for display."""
        return self._turn

    def close(self) -> None:
        self._reading = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _first(self, container: InputContainer, stream: VideoStream) -> _Timed:
        """The timestamp from which times count, and the first whole frame."""
        replay = PacketReplay(container, stream)
        origin = None
        packets = replay.first()
        for _ in range(MOST_BEGINS):
            try:
                begin = next(decoded(container, stream, self.path, threads=1, packets=packets, begins=origin is None))
            except StopIteration:
                raise InputError(f"{self.path}: has a video stream without a single frame; fetch it again") from None
            except DamageError as damage:
                if self.strict:
                    raise
                origin = damage.at if origin is None else origin
                packets = replay.after(damage.at)
            else:
                return (begin[0] if origin is None else min(origin, begin[0])), begin[1]
        raise InputError(f"{self.path}: no whole picture after {MOST_BEGINS} damaged ones; fetch it again")

    def _whole(self, n: int) -> Iterator[_Timed]:
        """As `_from`, without what is damaged."""
        last = None
        for stretch in self._stretches(n):
            with suppress(DamageError):
                for at, frame in stretch:
                    if last is None or at > last:
                        last = at
                        yield at, frame

    def _stretches(self, n: int) -> Iterator[Iterator[_Timed]]:
        """As `_from`, in stretches: each but the last ends with a `DamageError`. Read one before the next."""
        target = self._grid.latest(n)
        damage = None
        sought = None
        for sought in self._places(n):
            with suppress(InputError):
                first = next(self._decoded(sought), None)
                if first is not None and first[0] <= target:
                    break
        else:
            sought = None

        def stretch(packets: Iterator[av.Packet]) -> Iterator[_Timed]:
            nonlocal damage
            begins = damage is None and sought is None
            damage = None
            try:
                yield from self._checked(self._pairs(container, stream, packets=packets, begins=begins))
            except DamageError as error:
                damage = error
                raise

        container, stream = open_container(self.path, self._accel)
        with container:
            if sought is not None:
                container.seek(sought, stream=stream, backward=True)
            replay = PacketReplay(container, stream)
            yield stretch(replay.first())
            while damage is not None:
                yield stretch(replay.after(damage.at))

    def _pairs(
        self,
        container: InputContainer,
        stream: VideoStream,
        *,
        sought: int | None = None,
        packets: Iterator[av.Packet] | None = None,
        begins: bool = False,
    ) -> Iterator[_Timed]:
        return decoded(
            container,
            stream,
            self.path,
            threads=self._threads,
            sought=sought,
            origin=self._origin,
            packets=packets,
            begins=begins,
        )

    def _places(self, n: int) -> Iterator[int]:
        """Timestamps to seek for output frame n; if all lead to later ones, decode from the start."""
        # A seek may land late (transport streams, broken indices), so go back further.
        for back in (0, 2, 10) if n and self._timed else ():
            sought = self._grid.latest(n) - floor(back / self._unit)
            if sought <= self._origin:
                return
            yield sought

    def _from(self, n: int) -> Iterator[_Timed]:
        """Timestamps and frames in order of time, from one that output frame n may show or an earlier one on."""
        target = self._grid.latest(n)
        for sought in self._places(n):
            frames = self._decoded(sought)
            try:
                first = next(frames, None)
            except InputError:  # no key frame from there on
                continue
            if first is not None and first[0] <= target:
                yield first
                yield from frames
                return
        yield from self._decoded(None)

    def _decoded(self, sought: int | None) -> Iterator[_Timed]:
        """Timestamps and frames from the key frame before `sought` on (None: from the start), all of one size."""
        container, stream = open_container(self.path, self._accel)
        with container:
            yield from self._checked(self._pairs(container, stream, sought=sought))

    def _checked(self, pairs: Iterator[_Timed]) -> Iterator[_Timed]:
        """The frames with square pixels, if all are of one size and none is far beyond the end of the file."""
        latest = None if self.strict or self._end is None else floor((self._end + MAX_GAP_S) / self._unit)
        for at, frame in pairs:
            if (frame.height, frame.width) != self._coded_size:
                size = f"{frame.width}×{frame.height}"
                raise InputError(f"{self.path}: at {self._time(at)} its size changes to {size}; cut it there")
            if latest is not None and at > latest:
                raise DamageError(f"{self.path}: its clock jumps to {self._time(at)}", None, "the clock jumps")
            yield at, self._square(frame)

    def _check_end(self, end: Fraction) -> None:
        """Raise an InputError if the frames end more than half a second before the stated duration."""
        declared = None if self._end is None else self._end - self._origin * self._unit
        if declared is not None and end < declared - Fraction(1, 2):
            extent = f"its pictures end at {float(end):.2f} s of {float(declared):.2f} s"
            raise InputError(f"{self.path}: is cut short, {extent}; fetch it again")

    def _time(self, at: int) -> str:
        return f"{float((at - self._origin) * self._unit):.2f} s"

    def _describe(self, container: InputContainer, stream: VideoStream, first: av.VideoFrame) -> VideoInfo:
        height, width = luma(first, self._turn).shape
        length = None if self._end is None else self._end - self._origin * self._unit
        if length is None and container.duration:
            length = Fraction(container.duration, 1_000_000)
        return VideoInfo(
            container=container.format.name,
            codec=stream.codec_context.name,
            pixels=first.format.name,
            height=height,
            width=width,
            rate=float(stream.average_rate) if stream.average_rate else None,
            duration_ms=None if length is None else round(length * 1000),
        )


def open_video(path: Path | str, *, device: str = "cpu", threads: int = 0) -> VideoFile:
    """The video at `path`, decoded on `device` ("cpu", "cuda", "cuda:1") if that can be, else on the CPU.

    `VideoFile.decoder` names the decoder used, and why if not the one requested. threads: of the CPU; 0: one a core.
    """
    if device == "cpu":
        return VideoFile(path, threads=threads)
    accel = nvdec(device)
    try:
        video = VideoFile(path, threads=threads, accel=accel)
        next(video.pictures())
        return video
    except (InputError, av.FFmpegError, OSError, NotImplementedError, RuntimeError) as error:
        why = str(error)
    # A video that is at fault itself fails here again, with its own sentence.
    video = VideoFile(path, threads=threads)
    video.decoder = f"PyAV on the CPU, since NVDEC failed: {why}"
    return video
