"""The decoding half of a live session: reads the source into the session's queue, and makes previews.

A server with many streams closes the session's `Gate` while the machine has no room for it, or while the model is
prepared for something else.
"""

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import BallcastWarning
from ballcast.live.status import Preview
from ballcast.video.pitch import PitchDetector
from ballcast.video.queues import BoundedQueue
from ballcast.video.sources import FileSource, LiveFrame, LiveSource, StillSource, StreamGap


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """Small images of a stream, which are made only while a listener wants them.

    Args:
        every_ms: least time between two.
        width: largest width in pixels.
    """

    every_ms: int = 200
    width: int = 640


@dataclass(frozen=True, slots=True)
class Held:
    """In the queue: the session has no room from here on, until frames follow."""

    message: str


Item = LiveFrame | StreamGap | Held


class Gate:
    """Whether a session's source is read; closed and opened from any thread, and waited at by the `FrameReader`.

    Without room, nothing is read. In a pause a stream is read, or it would have to be opened again, and its frames are
    left out; a file waits. The gate is closed at first, for room.
    """

    def __init__(self) -> None:
        self._room = threading.Event()
        self._going = threading.Event()  # clear in a pause
        self._going.set()
        self.released = False

    @property
    def has_room(self) -> bool:
        """Whether there is room for the session."""
        return self._room.is_set()

    @property
    def paused(self) -> bool:
        """Whether the session is paused."""
        return not self._going.is_set()

    def admit(self) -> None:
        """Give the session room."""
        self._room.set()

    def hold(self) -> None:
        """Take the session's room."""
        self._room.clear()
        self._reopen_if_released()

    def pause(self) -> None:
        """Pause the session."""
        self._going.clear()
        self._reopen_if_released()

    def resume(self) -> None:
        """End a pause."""
        self._going.set()

    def release(self) -> None:
        """The session has ended: whoever waits here continues, and the gate stays open."""
        self.released = True
        self._room.set()
        self._going.set()

    def wait_for_room(self) -> None:
        """Wait until there is room."""
        self._room.wait()

    def wait_for_resume(self) -> None:
        """Wait until the session is not paused."""
        self._going.wait()

    def _reopen_if_released(self) -> None:
        """Nobody would open it again."""
        if self.released:
            self._room.set()
            self._going.set()


class FrameReader:
    """Reads a source into a queue until its end; `run` is the decoding thread of a session.

    Args:
        source: the stream.
        queue: gets the frames, without the decoded ones they came from, and the gaps; then its end, or the error.
        gate: where the reader waits.
        previews: their size and rate.
        send_preview: receives them. watched: whether anybody wants them now.
        any_video: do not look for a football pitch.
    """

    def __init__(
        self,
        source: LiveSource,
        queue: BoundedQueue[Item],
        gate: Gate,
        *,
        previews: PreviewOptions,
        send_preview: Callable[[Preview], None],
        watched: Callable[[], bool],
        any_video: bool,
    ) -> None:
        self._source = source
        self._queue = queue
        self._gate = gate
        self._previews = previews
        self._send_preview = send_preview
        self._watched = watched
        self._detector = None if any_video else PitchDetector()
        if isinstance(source, StillSource):
            source.watched = watched
        self._preview_at = -1e9  # time.monotonic() of the last preview
        self._preview_failed = False
        self._missed_since: float | None = None  # time.monotonic() of the first frame that a pause left out
        self._held_ms = 0  # that a file waited for room or in a pause: its frames are not late
        self._clock: tuple[int, float] | None = None  # stream time of a frame in ms, and its timestamp in seconds

    def timestamp(self, at_ms: int) -> float | None:
        """A stream time as seconds on the clock of the stream's packets; None before the first frame."""
        clock = self._clock
        return None if clock is None else clock[1] + (at_ms - clock[0]) / 1000

    def run(self) -> None:
        """Put the frames of the source into the queue, and send previews."""
        try:
            self._gate.wait_for_room()  # before the source is opened
            for item in self._source.items() if not self._gate.released else ():
                if not self._gate.has_room:
                    self._wait_for_room()
                if isinstance(item, StreamGap):
                    self._queue.put(item)
                elif self._passes() and not self._take(item):
                    return
        except BaseException as error:  # raised in the computing thread, after the frames before it
            self._queue.end(error)
        else:
            self._queue.end()

    def _take(self, frame: LiveFrame) -> bool:
        """Queue a frame, and send its preview if one is due; False once the queue is closed."""
        picture, pitch = frame.picture, frame.pitch
        time_s = frame.time_s if picture is None else picture.time
        if time_s is not None:
            self._clock = frame.at_ms, time_s
        if self._detector is not None and picture is not None:
            self._detector.look(frame.at_ms // FRAME_MS, picture)
            pitch = self._detector.pitch
        late_ms = max(0, frame.late_ms - self._held_ms)
        # Without the decoded frame: the decoder reuses its memory. `dataclasses.replace` would take ten times as long.
        kept = LiveFrame(frame.pixels, frame.at_ms, frame.arrived, turn=frame.turn, pitch=pitch, late_ms=late_ms)
        if not self._queue.put(kept):
            return False
        due = time.monotonic() - self._preview_at >= self._previews.every_ms / 1000
        if due and picture is not None and self._watched():
            self._preview_at = time.monotonic()
            self._make_preview(frame)
        if (still := frame.still) is not None and self._watched():
            arrived = round(1000 * frame.arrived)
            self._send_preview(Preview(frame.at_ms, arrived, still.width, still.height, still.jpeg))
        return True

    def _wait_for_room(self) -> None:
        """Read no more until the session may run again; the window then fills again."""
        began = time.monotonic()
        self._gate.wait_for_room()
        waited_s = time.monotonic() - began
        if isinstance(self._source, FileSource):
            self._held_ms += round(1000 * waited_s)
        self._queue.put(StreamGap("gap", f"{self._source.name}: was not followed for {waited_s:.0f} s"))

    def _passes(self) -> bool:
        """Whether the frame that came is to be computed. After a pause nothing that is old is left in the queue."""
        if self._gate.paused:
            if self._missed_since is None:
                self._missed_since = time.monotonic()
            if not isinstance(self._source, FileSource):
                return False
            self._gate.wait_for_resume()
            self._held_ms += round(1000 * (time.monotonic() - self._missed_since))
        if self._missed_since is not None:
            missed_s = time.monotonic() - self._missed_since
            self._missed_since = None
            missed = f"was not followed for {missed_s:.0f} s, while the model was prepared for frames of a new size"
            self._queue.restart(StreamGap("gap", f"{self._source.name}: {missed}"))
        return True

    def _make_preview(self, frame: LiveFrame) -> None:
        """Send a preview; if it cannot be made, warn once, and the session continues without it."""
        from ballcast.video.stills import to_jpeg

        assert frame.picture is not None
        assert frame.turn is not None
        try:
            width, height, jpeg = to_jpeg(frame.picture, frame.turn, self._previews.width)
            self._send_preview(Preview(frame.at_ms, round(1000 * frame.arrived), width, height, jpeg))
        except Exception as error:  # whatever the encoder or a frame of an unusual kind leads to
            if not self._preview_failed:
                self._preview_failed = True
                warnings.warn(f"{self._source.name}: no preview ({error})", BallcastWarning, stacklevel=2)
