"""Run the model on a live stream: one source, one computation, any number of listeners.

    session = LiveSession(open_source("rtsp://camera/1"), predictor)
    with session.subscribe() as records, session:
        for record in records:            # LiveForecast, Status, …; `record.to_json()` is the wire format
            ...

Two threads: one decodes into a bounded queue, one computes. If the machine is too slow for a source that cannot wait
(a camera, a stream, a file played in real time), forecasts become rarer first, then frames are dropped and the window
fills again; status records report both. Frames without a gap give exactly what `predict` gives for them.
"""

import threading
import time
import warnings
from dataclasses import dataclass, replace
from typing import Protocol

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import BallcastError, BallcastWarning
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.live.broadcast import SessionBroadcast, Subscription
from ballcast.live.status import LiveForecast, Preview, Record, SessionStatus, Status, wall_ms
from ballcast.video.pitch import PitchDetector
from ballcast.video.queues import BoundedQueue, WhenFull
from ballcast.video.sources import FileSource, LiveFrame, LiveSource, StreamGap

QUEUE_FRAMES = 100  # 4 s: a forecast further behind would come after the events
SILENCE_S = 3.0  # time without a frame until the state is "waiting"


class Admission(Protocol):
    """Decides which sessions may run, by `LiveSession.admit` and `LiveSession.hold`: a server of many streams."""

    def enter(self, session: "LiveSession") -> None:
        """A session has started; it is held until it is admitted."""
        ...

    def leave(self, session: "LiveSession") -> None:
        """A session has ended."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    """In the queue: the session has no room from here on, until frames follow."""

    message: str


class LiveSession:
    """A running model on a stream, from `start()` (or entering the `with` block) to the source's end or `close()`.

    Args:
        source: the stream; the session closes it.
        predictor: used by this session only, and reset at the start.
        admission: decides when the session may run; None: at once.
        preview_every_ms: least time between two previews, which are made only while a listener wants them.
        preview_width: largest width of a preview in pixels.
        any_video: forecast also where no football pitch is seen.
    """

    def __init__(
        self,
        source: LiveSource,
        predictor: StreamPredictor,
        *,
        admission: Admission | None = None,
        preview_every_ms: int = 200,
        preview_width: int = 640,
        any_video: bool = True,
    ) -> None:
        self.source, self.predictor, self._admission = source, predictor, admission
        self.error: BaseException | None = None  # set when the session ends in state "error"
        self._preview_every_ms, self._preview_width = preview_every_ms, preview_width
        self._preview_failed = False
        self._detector = None if any_video else PitchDetector()
        self._broadcast = SessionBroadcast()
        when_full: WhenFull = "wait" if source.blocking else "clear"
        self._queue: BoundedQueue[LiveFrame | StreamGap | _Held] = BoundedQueue(QUEUE_FRAMES, when_full=when_full)
        self._stopped = threading.Event()
        self._room = threading.Event()  # set while the session may run
        self._going = threading.Event()  # clear while the session is paused
        self._going.set()
        self._missed_since: float | None = None  # time.monotonic() of the first frame that a pause left out
        self._held_ms = 0  # that a file waited for room: its frames are not late
        self._clock: tuple[int, float] | None = None  # stream time of a frame in ms, and its timestamp in seconds
        self._session_status = SessionStatus(source, predictor, self._queue.__len__, self._broadcast.send)
        self._threads = [
            threading.Thread(target=self._decode, name="live-decode", daemon=True),
            threading.Thread(target=self._compute, name="live-compute", daemon=True),
        ]

    def start(self) -> "LiveSession":
        """Start decoding and computing; returns the session."""
        self._broadcast.send(self._session_status.status)
        if self._admission is None:
            self._room.set()
        else:
            self._admission.enter(self)  # before the threads: a session that is closed already leaves at once
        for thread in self._threads:
            thread.start()
        return self

    def admit(self) -> None:
        """Let the session run; from any thread."""
        self._room.set()

    def hold(self, message: str) -> None:
        """Let the session wait: its source is not read, and its state is "waiting" with this message; any thread."""
        self._shut(self._room)
        self._queue.put(_Held(message))

    def pause(self, message: str) -> None:
        """Compute no frames until `resume`: its state is "waiting" with this message; from any thread.

        A stream is still read, or it would have to be opened again, and its frames are left out; a file waits.
        """
        self._shut(self._going)
        # The computing thread may wait for the very thing that the pause is for.
        self._broadcast.send(replace(self.status, state="waiting", message=message, wall_ms=wall_ms()))

    def resume(self) -> None:
        """Go on after a pause, which is a gap in the stream; from any thread."""
        self._going.set()

    def _shut(self, gate: threading.Event) -> None:
        """Let the decoding thread wait at this gate, unless the session was closed meanwhile: nobody would open it."""
        gate.clear()
        if self._stopped.is_set():
            gate.set()

    @property
    def held(self) -> bool:
        """Whether the session waits for room."""
        return not self._room.is_set()

    def timestamp(self, at_ms: int) -> float | None:
        """A stream time as seconds on the clock of the stream's packets; None before the first frame."""
        clock = self._clock
        return None if clock is None else clock[1] + (at_ms - clock[0]) / 1000

    @property
    def load(self) -> tuple[int, int]:
        """Frames that wait to be computed, and frames dropped since the start."""
        return len(self._queue), self._session_status.status.dropped

    def subscribe(self, *, previews: bool = False, capacity: int = 64) -> Subscription[Record]:
        """A queue of all records from now on, begun with the latest ones; see `SessionBroadcast.subscribe`."""
        return self._broadcast.subscribe(previews=previews, capacity=capacity)

    @property
    def status(self) -> Status:
        """The latest status that was sent."""
        return self._broadcast.latest or self._session_status.status

    @property
    def running(self) -> bool:
        """Whether the computing thread runs."""
        return self._threads[1].is_alive()

    def close(self) -> None:
        """Stop, and wait for the computing thread; a blocking read of the source ends with its own timeout."""
        started = self._threads[0].ident is not None
        self._stopped.set()
        self._room.set()
        self._going.set()
        self.source.close()
        self._queue.close()
        if not started and self.status.state != "stopped":
            self._session_status.publish("stopped", "stopped")
        for thread, limit in zip(self._threads, (2.0, None), strict=True):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(limit)

    def __enter__(self) -> "LiveSession":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ the two threads

    def _decode(self) -> None:
        """Put the frames of the source into the queue, and send previews."""
        shown = -1e9  # time.monotonic() of the last preview
        try:
            self._room.wait()  # before the source is opened
            for item in self.source.items() if not self._stopped.is_set() else ():
                if self.held:
                    self._wait_for_room()
                if isinstance(item, StreamGap):
                    self._queue.put(item)
                    continue
                if not self._passes():
                    continue
                if item.picture is not None and item.picture.time is not None:
                    self._clock = item.at_ms, item.picture.time
                if self._detector is not None and item.picture is not None:
                    self._detector.look(item.at_ms // FRAME_MS, item.picture)
                pitch = self._detector is None or self._detector.pitch
                late_ms = max(0, item.late_ms - self._held_ms)
                # Without the picture, which the decoder reuses; `dataclasses.replace` would take ten times as long.
                kept = LiveFrame(item.pixels, item.at_ms, item.arrived, turn=item.turn, pitch=pitch, late_ms=late_ms)
                if not self._queue.put(kept):
                    return
                due = time.monotonic() - shown >= self._preview_every_ms / 1000
                if due and item.picture is not None and self._broadcast.watched:
                    shown = time.monotonic()
                    self._send_preview(item)
        except BaseException as error:  # raised in the computing thread, after the frames before it
            self._queue.end(error)
        else:
            self._queue.end()

    def _wait_for_room(self) -> None:
        """Read no more until the session may run again; the window then fills anew."""
        began = time.monotonic()
        self._room.wait()
        waited_s = time.monotonic() - began
        if isinstance(self.source, FileSource):
            self._held_ms += round(1000 * waited_s)
        self._queue.put(StreamGap("gap", f"{self.source.name}: was not followed for {waited_s:.0f} s"))

    def _passes(self) -> bool:
        """Whether the frame that came is to be computed. After a pause nothing that is old is left in the queue."""
        if not self._going.is_set():
            if self._missed_since is None:
                self._missed_since = time.monotonic()
            if not isinstance(self.source, FileSource):
                return False
            self._going.wait()
            self._held_ms += round(1000 * (time.monotonic() - self._missed_since))
        if self._missed_since is not None:
            missed_s, self._missed_since = time.monotonic() - self._missed_since, None
            missed = f"was not followed for {missed_s:.0f} s, while the model was prepared for frames of a new size"
            self._queue.restart(StreamGap("gap", f"{self.source.name}: {missed}"))
        return True

    def _send_preview(self, frame: LiveFrame) -> None:
        """Send a preview; if it cannot be made, warn once, and the session goes on without it."""
        try:
            self._broadcast.send(self._preview(frame))
        except Exception as error:  # whatever the encoder or a picture of an unusual kind leads to
            if not self._preview_failed:
                self._preview_failed = True
                warnings.warn(f"{self.source.name}: no preview ({error})", BallcastWarning, stacklevel=2)

    def _preview(self, frame: LiveFrame) -> Preview:
        from ballcast.video.stills import to_jpeg

        assert frame.picture is not None
        assert frame.turn is not None
        width, height, jpeg = to_jpeg(frame.picture, frame.turn, self._preview_width)
        return Preview(frame.at_ms, round(1000 * frame.arrived), width, height, jpeg)

    def _compute(self) -> None:
        """Process the queue; always ends with a last status."""
        try:
            self.predictor.reset()
            self._run()
        except BaseException as error:
            self.error = error
            known = isinstance(error, BallcastError)
            self._session_status.publish("error", str(error) if known else f"{type(error).__name__}: {error}")
        else:
            if self._stopped.is_set():
                self._session_status.publish("stopped", "stopped")
            else:
                self._session_status.publish("ended", f"{self.source.name}: is over")
        finally:
            self._queue.close()
            self.source.close()
            if self._admission is not None:
                self._admission.leave(self)
            self._going.set()  # a session that failed in a pause is not resumed, and its decoding thread would wait

    def _run(self) -> None:
        begins = True  # the next frame begins a window
        while not self._stopped.is_set():
            got = self._queue.get(SILENCE_S)
            if got is None:
                if self._queue.over:
                    if not self._stopped.is_set():
                        self._session_status.check_length()
                    return
                if not self.held and self._going.is_set():
                    self._session_status.publish("waiting", f"no frame from {self.source.name} for {SILENCE_S:.0f} s")
                continue
            item, dropped = got
            if dropped:
                begins = True
                self._session_status.on_dropped(dropped)
            if isinstance(item, _Held):
                begins = True
                self._session_status.publish("waiting", item.message)
                continue
            if isinstance(item, StreamGap):
                begins = True
                self._session_status.on_gap(item)
                continue
            if begins:
                self.predictor.reset(item.at_ms)
                begins = False
            self._advance(item)

    def _advance(self, frame: LiveFrame) -> None:
        began = time.monotonic()
        forecast = self.predictor.push(frame.pixels)
        latency_ms = 1000 * (time.time() - frame.arrived)
        self._session_status.on_frame(frame, time.monotonic() - began)
        if forecast is not None and not frame.pitch:
            self._session_status.on_no_pitch()
        elif forecast is not None:
            every_ms, behind_ms = self.predictor.every_ms, self._session_status.behind_ms
            arrived_ms = round(1000 * frame.arrived)
            self._broadcast.send(LiveForecast(forecast, arrived_ms, latency_ms, behind_ms, every_ms))
            self._session_status.on_forecast()
        self._session_status.publish_if_due()
