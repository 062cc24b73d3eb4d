"""The 25 fps grid on which a video's frames are taken, by timestamp."""

from collections.abc import Generator, Iterator
from fractions import Fraction
from math import floor

import av

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError


class FrameResampler:
    """The 25 fps grid on a video's own clock.

    Args:
        origin: timestamp of the first frame. unit: seconds a tick of the clock.
        period: how long a frame is shown, in seconds, unless the frame has a duration.
    """

    def __init__(self, *, origin: int, unit: Fraction, period: Fraction) -> None:
        self.origin = origin
        self.unit = unit
        self.period = period
        exact = (1 / (FPS * unit)).denominator == 1  # the clock can express 1/25 s
        self._slack = Fraction(0) if exact else min(unit, Fraction(1, 1000))
        # (n / FPS + slack) / unit as whole numbers: this is asked twice a frame, and fractions are slow.
        self._step = self._slack.denominator * unit.denominator
        self._late = self._slack.numerator * FPS * unit.denominator
        self._whole = FPS * self._slack.denominator * unit.numerator

    def latest(self, n: int) -> int:
        """The latest timestamp that output frame n may show."""
        return self.origin + (n * self._step + self._late) // self._whole

    def first(self, at: int) -> int:
        """The first output frame that may show a frame with timestamp `at`."""
        n = max(0, floor((at - self.origin) * self.unit * FPS) - 1)
        while self.latest(n) < at:
            n += 1
        return n

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
                at = time
                held = frame
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


def snap(start: int, stride: int) -> int:
    """The latest frame of the grid (every `stride` frames from the video's first) that is not after `start`.

    Rolling and live prediction begin their windows there, so that windows a second apart share their clips' features;
    not later, so that no window sees beyond its own end.
    """
    return start - start % stride
