"""Sources of a live session: frames as they arrive, and a `StreamGap` wherever some are missing."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Gap
from ballcast.video.file import VideoFile
from ballcast.video.luma import pixels

if TYPE_CHECKING:
    import av

    from ballcast.video.luma import Turn


SHORT_S = 0.05  # a shorter wait is slept, which takes less of the processor than waiting for an event does
DRIFT = 0.001  # clocks that differ by less than this are taken for two clocks, not for frames that come ever later


@dataclass(frozen=True, slots=True)
class Still:
    """A frame as a small JPEG."""

    width: int
    height: int
    jpeg: bytes


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """A frame at 25 fps."""

    pixels: np.ndarray  # (H, W) uint8, or I420 (3H/2, W), not shared with the decoder
    at_ms: int  # when it begins, on the stream's clock: since the session's first frame
    arrived: float  # Unix time in seconds when it could first be read
    picture: "av.VideoFrame | None" = None  # in colour, as decoded, for previews
    turn: "Turn | None" = None  # what brings the frame's planes upright
    pitch: bool = True  # whether a football pitch was seen in the last seconds
    late_ms: int = 0  # of the stream, more than the promptest before it: the source or its decoding does not keep up
    time_s: float | None = None  # without a picture: its timestamp
    still: Still | None = None  # without a picture: its preview, if one is due


@dataclass(frozen=True, slots=True)
class StreamGap:
    """The frame after this one does not follow the one before it."""

    kind: Literal["gap", "reconnecting"]
    message: str  # one sentence


class LiveSource(Protocol):
    """A stream of frames. One reader, once."""

    name: str  # for people; holds no password

    @property
    def blocking(self) -> bool:
        """Whether it waits for its reader, so that no frame is lost; else frames that are not read in time are."""
        ...

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        """Frames as they come. Raises an InputError if it fails; ends where the source ends or is closed."""
        ...

    def close(self) -> None:
        """From any thread: end `items` soon."""
        ...


@runtime_checkable
class StillSource(Protocol):
    """A `LiveSource` whose frames have no pictures: it makes the previews itself, while they are `watched`."""

    watched: Callable[[], bool]


class Pacer:
    """Holds frames back until their time. A frame that is late moves the clock: those after it are not hurried.

    speed: seconds of the stream a second; 0: do not wait at all.
    """

    def __init__(self, speed: float, stopped: threading.Event) -> None:
        self._speed = speed
        self._stopped = stopped
        self._zero: float | None = None  # on time.monotonic: when the stream's time 0 is due

    def wait(self, at_ms: int) -> bool:
        """Wait for the time of `at_ms`; False: the source was closed meanwhile."""
        if not self._speed:
            return not self._stopped.is_set()
        now = time.monotonic()
        due = at_ms / 1000 / self._speed
        if self._zero is None or now > self._zero + due:
            self._zero = now - due
        wait_s = max(0.0, self._zero + due - now)
        if wait_s > SHORT_S:
            return not self._stopped.wait(wait_s)
        if wait_s:
            time.sleep(wait_s)
        return not self._stopped.is_set()


class DelayMeter:
    """Delay of each frame relative to the smallest delay seen. speed: of the stream; 0: they are never late."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._best: float | None = None  # milliseconds of time passed less those of the stream
        self._seen = 0.0

    def of(self, at_ms: int) -> int:
        """Of the frame that came just now, in milliseconds of the stream."""
        if not self._speed:
            return 0
        now = time.monotonic()
        offset = 1000 * now * self._speed - at_ms
        drift = DRIFT * 1000 * (now - self._seen) * self._speed  # no two clocks agree for ever
        self._best = offset if self._best is None else min(offset, self._best + drift)
        self._seen = now
        return round(offset - self._best)


class StreamClock:
    """The session's clock through breaks: by timestamps where they continue, else by the time that passed."""

    def __init__(self, speed: float) -> None:
        self.end_ms = 0  # of the last frame
        self._speed = speed
        self._began: float | None = None  # time.monotonic() of the first frame
        self._anchor: tuple[Fraction, int] | None = None  # a time on the stream's clock, and on ours

    def restarts(self) -> None:
        """The stream's clock means something else from now on."""
        self._anchor = None

    def begin(self, seconds: Fraction) -> int:
        """When a stretch begins whose first frame is at `seconds` on the stream's clock."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self._anchor = (seconds, 0)
            return 0
        at_ms = max(self.end_ms, round(1000 * (now - self._began) * self._speed))
        if self._anchor is not None:
            goes_on = self._anchor[1] + round(1000 * (seconds - self._anchor[0]))
            if 0 <= goes_on - self.end_ms <= 3_600_000:
                at_ms = goes_on
        self._anchor = (seconds, at_ms)
        return at_ms


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source is opened; see `open_source`."""

    speed: float = 1.0
    give_up_s: float = 60.0
    strict: bool = False
    threads: int = 0
    check: Callable[[str], None] | None = None


def open_source(
    address: str,
    *,
    speed: float = 1.0,
    give_up_s: float = 60.0,
    colour: bool = False,
    strict: bool = False,
    threads: int = 0,
    check: Callable[[str], None] | None = None,
) -> LiveSource:
    """Open the file or stream that a user names; an InputError if there is none.

    speed: of a file or stdin; 0: as fast as they are read. give_up_s: how long a stream that broke is tried for.
    colour: frames are I420 (`BackboneConfig.colour`). strict: damage ends a file; streams always continue.
    threads: that decode a file, 0: one per core; streams are decoded by one.
    check: of a stream, as in `StreamSource`.
    """
    if speed < 0:
        raise InputError(f"a speed of {speed} would play backwards; give 1 for real time, 0 for as fast as it goes")
    from ballcast.video.addresses import is_stream
    from ballcast.video.stream import StreamSource

    if is_stream(address):
        return StreamSource(address, speed=speed, give_up_s=give_up_s, colour=colour, check=check)
    return FileSource(address, speed=speed, colour=colour, strict=strict, threads=threads)


class FileSource:
    """A file played in real time, `speed` times as fast, or for 0 as fast as it is read.

    Damage is a `StreamGap` as long as the frames that are lost; or where `strict`, an InputError. colour: frames are
    I420. threads: of the decoder; 0: one per core.
    """

    def __init__(
        self, path: Path | str, *, speed: float = 1.0, colour: bool = False, strict: bool = False, threads: int = 0
    ) -> None:
        self.name = str(path)
        self._colour = colour
        self._video = VideoFile(path, strict=strict, threads=threads)
        self._speed = speed
        self._stopped = threading.Event()

    @property
    def blocking(self) -> bool:
        return not self._speed

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        pacer = Pacer(self._speed, self._stopped)
        lateness = DelayMeter(self._speed)
        turn = self._video.upright
        at_ms = 0
        for item in self._video.sampled() if self._video.strict else self._video.sampled_and_gaps():
            if isinstance(item, Gap):
                at_ms = item.end_ms
                yield StreamGap("gap", f"{self.name}: no pictures {item}")
                continue
            content = pixels(item, turn, colour=self._colour)
            if not pacer.wait(at_ms):
                return
            yield LiveFrame(content, at_ms, time.time(), item, turn, late_ms=lateness.of(at_ms))
            at_ms += FRAME_MS

    def close(self) -> None:
        self._stopped.set()
