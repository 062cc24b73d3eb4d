"""Frames, grayscale or I420, at exactly 25 fps, by timestamp, from any video file, on the CPU or by NVDEC."""

from collections.abc import Generator, Iterator
from fractions import Fraction
from itertools import islice
from math import floor
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import av
import numpy as np
from av.codec.hwaccel import HWAccel, hwdevices_available

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.video.container import VideoInfo, declared_end, decoded, open_container
from ballcast.video.luma import Turn, array_shape, even, luma, pixels, turn_of


class Grid:
    """The 25 fps grid on a video's own clock.

    Args:
        origin: timestamp of the first frame. unit: seconds a tick of the clock.
        period: how long a frame is shown, in seconds, unless the frame has a duration.
    """

    def __init__(self, *, origin: int, unit: Fraction, period: Fraction) -> None:
        self.origin, self.unit, self.period = origin, unit, period
        exact = (1 / (FPS * unit)).denominator == 1  # the clock can express 1/25 s
        self._slack = Fraction(0) if exact else min(unit, Fraction(1, 1000))

    def latest(self, n: int) -> int:
        """The latest timestamp that output frame n may show."""
        return self.origin + floor((Fraction(n, FPS) + self._slack) / self.unit)

    def sample(
        self, frames: Iterator[tuple[int, av.VideoFrame]], start: int = 0, stop: int | None = None
    ) -> Generator[av.VideoFrame, None, Fraction | None]:
        """The frames shown at start … stop − 1 (None: to the end), out of `frames`, timestamped and in order of time.

        Each comes out as soon as no later one can take its place. Returns when the last one ends, in seconds, or None
        if it did not get there. An InputError in `frames` comes through, after the frames before it.
        """
        n = start
        held: av.VideoFrame | None = None
        at = self.origin  # the held frame's timestamp
        try:
            for time, frame in frames:
                while held is not None and self.latest(n) < time:
                    yield held
                    n += 1
                    if n == stop:
                        return None
                at, held = time, frame
                if self.latest(n) == at:  # whatever comes next is later
                    yield held
                    n += 1
                    if n == stop:
                        return None
        except InputError:
            if held is not None and (self.latest(n) - at) * self.unit < self.period:  # it is not to blame
                yield held
                if n + 1 == stop:
                    return None
            raise
        if held is None:
            return None
        stands = min(self.period, held.duration * self.unit) if held.duration else self.period
        since = (at - self.origin) * self.unit  # when the last frame begins
        count = max(floor((since + self._slack) * FPS) + 1, floor((since + stands) * FPS + Fraction(1, 2)))
        for _ in range(n, count if stop is None else min(stop, count)):
            yield held
        return since + stands if stop is None or stop > count else None


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

    path: the file. threads: of the decoder; 0: one per core. accel: a hardware decoder; see `gpu.open_video`.
    Several `frames` iterators may run at once: each decodes on its own. Consecutive `read`s continue without seeking.
    """

    def __init__(self, path: Path | str, *, threads: int = 0, accel: HWAccel | None = None) -> None:
        self.path = Path(path)
        self.decoder = "PyAV on the CPU" if accel is None else "PyAV on the GPU (NVDEC)"
        self._threads, self._accel = threads, accel
        self._reading: tuple[int, bool, Iterator[np.ndarray]] | None = None
        container, stream = open_container(self.path, self._accel)
        with container:
            begin = next(decoded(container, stream, self.path, threads=1), None)
            if begin is None:
                raise InputError(f"{self.path}: has a video stream without a single frame; fetch it again")
            assert stream.time_base is not None
            self._origin, first = begin
            self._unit = Fraction(stream.time_base)  # seconds a tick of the file's clock
            self._turn = turn_of(first, str(self.path))
            self._coded_size = (first.height, first.width)
            period = 1 / Fraction(stream.average_rate or FPS)  # how long a frame stands, in seconds
            self._grid = Grid(origin=self._origin, unit=self._unit, period=period)
            self._end = declared_end(container, stream)
            self._info = self._describe(container, stream, first)
            # A program stream times only some packets: after a seek the times are guesses, and so is its length.
            self._timed = container.format.name != "mpeg"

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the upright picture."""
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
        """The same as decoded pictures, in colour and as coded; `upright` turns their planes for display."""
        if start < 0:
            raise ValueError(f"frames are counted from 0, start is {start}")
        if stop is not None and start >= stop:
            return
        end = yield from self._grid.sample(self._from(start), start, stop)
        if end is not None:
            self._check_end(end)

    def read(self, start: int, stop: int, *, colour: bool = False) -> np.ndarray:
        """Frames start … stop − 1 as (T, H, W) uint8, or I420; T is smaller at the end of the video, 0 beyond it."""
        if self._reading is None or self._reading[:2] != (start, colour):
            self._reading = (start, colour, self.frames(start, colour=colour))
        source = self._reading[2]
        self._reading = None  # an error below ends the iterator
        taken = list(islice(source, max(0, stop - start)))
        self._reading = (start + len(taken), colour, source)
        none = array_shape(even(self.size) if colour else self.size, colour=colour)
        return np.stack(taken) if taken else np.empty((0, *none), np.uint8)

    def pictures(self, start: int = 0) -> Iterator[tuple[Fraction, av.VideoFrame]]:
        """The file's own frames, in colour and at its own rate, each with its time in seconds since the first.

        From the one shown at output frame `start` on, or a few before it. `upright` turns their planes for display.
        """
        for at, frame in self._from(start):
            yield (at - self._origin) * self._unit, frame

    @property
    def upright(self) -> Turn:
        """What lays a plane (H, W) of the file's pictures out for display."""
        return self._turn

    def close(self) -> None:
        self._reading = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _from(self, n: int) -> Iterator[tuple[int, av.VideoFrame]]:
        """Timestamps and frames in order of time, from one that output frame n may show or an earlier one on."""
        target = self._grid.latest(n)
        # A seek may land late (transport streams, broken indices): go back further, in the end decode from the start.
        for back in (0, 2, 10) if n and self._timed else ():
            sought = target - floor(back / self._unit)
            if sought <= self._origin:
                break
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

    def _decoded(self, sought: int | None) -> Iterator[tuple[int, av.VideoFrame]]:
        """Timestamps and frames from the key frame before `sought` on (None: from the start), all of one size."""
        container, stream = open_container(self.path, self._accel)
        with container:
            pairs = decoded(container, stream, self.path, threads=self._threads, sought=sought, origin=self._origin)
            for at, frame in pairs:
                if (frame.height, frame.width) != self._coded_size:
                    size = f"{frame.width}×{frame.height}"
                    raise InputError(f"{self.path}: at {self._time(at)} its size changes to {size}; cut it there")
                yield at, frame

    def _check_end(self, end: Fraction) -> None:
        """Raise an InputError if the frames end more than half a second before the stated duration."""
        declared = None if self._end is None else self._end - self._origin * self._unit
        if declared is not None and end < declared - Fraction(1, 2):
            extent = f"its pictures end at {float(end):.2f} s of {float(declared):.2f} s"
            raise InputError(f"{self.path}: is cut short, {extent}; fetch it again")

    def _time(self, at: int) -> str:
        return f"{float((at - self._origin) * self._unit):.2f} s"

    def _describe(
        self, container: av.container.InputContainer, stream: av.VideoStream, first: av.VideoFrame
    ) -> VideoInfo:
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
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return VideoFile(path, threads=threads)
    if kind != "cuda" or not (number or "0").isdigit():
        raise InputError(f"device {device!r} is not one that decodes; give cpu, cuda or cuda:1")
    try:
        accel = HWAccel("cuda", device=number or "0", allow_software_fallback=False)
        return VideoFile(path, threads=threads, accel=accel)
    except (InputError, av.FFmpegError, OSError, NotImplementedError, RuntimeError) as error:
        why = str(error)
    # A video that is at fault itself fails here again, with its own sentence.
    video = VideoFile(path, threads=threads)
    video.decoder = f"PyAV on the CPU, since NVDEC failed: {why}"
    return video


def decoder_report() -> dict[str, str]:
    """What decodes here, for `ballcast doctor`: the library, and whether it knows NVDEC (not whether there is one)."""
    codec = ".".join(map(str, av.library_versions["libavcodec"]))
    built = "cuda" in hwdevices_available()
    return {
        "decoder": f"PyAV {av.__version__}, libavcodec {codec}",
        "nvdec": "built in; used for device cuda if the driver allows" if built else "not in this build of PyAV",
    }


def snap(start: int, stride: int) -> int:
    """The latest frame of the grid (every `stride` frames from the video's first) that is not after `start`.

    Rolling and live prediction begin their windows there, so that windows a second apart share their clips' features;
    not later, so that no window sees beyond its own end.
    """
    return start - start % stride
