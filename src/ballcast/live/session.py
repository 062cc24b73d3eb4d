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
from dataclasses import replace
from typing import Protocol

from ballcast.core.errors import BallcastError
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.live.broadcast import SessionBroadcast, Subscription
from ballcast.live.reader import FrameReader, Gate, Held, Item, PreviewOptions
from ballcast.live.status import LiveForecast, Record, SessionStatus, Status, wall_ms
from ballcast.video.queues import BoundedQueue
from ballcast.video.sources import LiveFrame, LiveSource, StreamGap

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


class LiveSession:
    """A running model on a stream, from `start()` (or entering the `with` block) to the source's end or `close()`.

    Args:
        source: the stream; the session closes it.
        predictor: used by this session only, and reset at the start.
        admission: decides when the session may run; None: at once.
        previews: size and rate of the previews.
        any_video: forecast also where no football pitch is seen.

    Attributes:
        error: why the session ended, if its state is "error".
    """

    def __init__(
        self,
        source: LiveSource,
        predictor: StreamPredictor,
        *,
        admission: Admission | None = None,
        previews: PreviewOptions = PreviewOptions(),
        any_video: bool = True,
    ) -> None:
        self.source = source
        self.predictor = predictor
        self.error: BaseException | None = None
        self._admission = admission
        self._broadcast = SessionBroadcast()
        self._queue: BoundedQueue[Item] = BoundedQueue(QUEUE_FRAMES, when_full="wait" if source.blocking else "clear")
        self._stopped = threading.Event()
        self._gate = Gate()
        self._reader = FrameReader(
            source,
            self._queue,
            self._gate,
            previews=previews,
            send_preview=self._broadcast.send,
            watched=lambda: self._broadcast.watched,
            any_video=any_video,
        )
        self._session_status = SessionStatus(source, predictor, self._queue.__len__, self._broadcast.send)
        self._decoding = threading.Thread(target=self._reader.run, name="live-decode", daemon=True)
        self._computing = threading.Thread(target=self._compute, name="live-compute", daemon=True)

    def start(self) -> "LiveSession":
        """Start decoding and computing; returns the session."""
        self._broadcast.send(self._session_status.status)
        if self._admission is None:
            self._gate.admit()
        else:
            self._admission.enter(self)  # before the threads: a session that is closed already leaves at once
        self._decoding.start()
        self._computing.start()
        return self

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
        return self._computing.is_alive()

    def timestamp(self, at_ms: int) -> float | None:
        """A stream time as seconds on the clock of the stream's packets; None before the first frame."""
        return self._reader.timestamp(at_ms)

    def close(self) -> None:
        """Stop, and wait for the computing thread; a blocking read of the source ends with its own timeout."""
        started = self._decoding.ident is not None
        self._stopped.set()
        self._gate.release()
        self.source.close()
        self._queue.close()
        if not started and self.status.state != "stopped":
            self._session_status.publish("stopped", "stopped")
        for thread, limit in ((self._decoding, 2.0), (self._computing, None)):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(limit)

    def __enter__(self) -> "LiveSession":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ called by an `Admission`, from any thread

    @property
    def held(self) -> bool:
        """Whether the session waits for room."""
        return not self._gate.has_room

    @property
    def load(self) -> tuple[int, int]:
        """Frames that wait to be computed, and frames dropped since the start."""
        return len(self._queue), self._session_status.status.dropped

    def admit(self) -> None:
        """Let the session run."""
        self._gate.admit()

    def hold(self, message: str) -> None:
        """Let the session wait: its source is not read, and its state is "waiting" with this message."""
        self._gate.hold()
        self._queue.put(Held(message))

    def pause(self, message: str) -> None:
        """Compute no frames until `resume`: its state is "waiting" with this message."""
        self._gate.pause()
        # The computing thread may wait for the very thing that the pause is for.
        self._broadcast.send(replace(self.status, state="waiting", message=message, wall_ms=wall_ms()))

    def resume(self) -> None:
        """Go on after a pause, which is a gap in the stream."""
        self._gate.resume()

    # -------------------------------------------------------------------------------------------- the computing thread

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
            self._gate.release()  # a session that failed in a pause is not resumed, and its reader would wait

    def _run(self) -> None:
        begins = True  # the next frame begins a window
        while not self._stopped.is_set():
            got = self._queue.get(SILENCE_S)
            if got is None:
                if self._queue.over:
                    if not self._stopped.is_set():
                        self._session_status.check_length()
                    return
                if not self.held and not self._gate.paused:
                    self._session_status.publish("waiting", f"no frame from {self.source.name} for {SILENCE_S:.0f} s")
                continue
            item, dropped = got
            if dropped:
                begins = True
                self._session_status.on_dropped(dropped)
            if isinstance(item, Held):
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
