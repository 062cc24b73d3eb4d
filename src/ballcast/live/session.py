"""Run the model on a live stream: one source, one computation, any number of listeners.

    session = LiveSession(open_source("rtsp://camera/1"), rolling)
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

from ballcast.core.errors import BallcastError
from ballcast.core.events import Forecast
from ballcast.inference.rolling import RollingAnticipator
from ballcast.live.broadcast import Broadcast, Subscription
from ballcast.live.status import LiveForecast, Preview, SessionStatus, Status
from ballcast.video.queues import BoundedQueue, WhenFull
from ballcast.video.sources import LiveFrame, LiveSource, StreamGap

QUEUE_FRAMES = 100  # 4 s: a forecast further behind would come after the events
SILENCE_S = 3.0  # time without a frame until the state is "waiting"


class LiveSession:
    """A running model on a stream, from `start()` (or entering the `with` block) to the source's end or `close()`.

    Args:
        source: the stream; the session closes it.
        rolling: the anticipator; used by this session only, and reset at the start.
        preview_every_ms: least time between two previews, which are made only while a listener wants them.
        preview_width: largest width of a preview in pixels.
    """

    def __init__(
        self,
        source: LiveSource,
        rolling: RollingAnticipator,
        *,
        preview_every_ms: int = 200,
        preview_width: int = 640,
    ) -> None:
        self.source, self.rolling = source, rolling
        self.error: BaseException | None = None  # set when the session ends in state "error"
        self._preview_every_ms, self._preview_width = preview_every_ms, preview_width
        self._broadcast = Broadcast()
        when_full: WhenFull = "wait" if source.blocking else "clear"
        self._queue: BoundedQueue[LiveFrame | StreamGap] = BoundedQueue(QUEUE_FRAMES, when_full=when_full)
        self._stopped = threading.Event()
        self._session_status = SessionStatus(source, rolling, self._queue.__len__, self._broadcast.send)
        self._threads = [
            threading.Thread(target=self._decode, name="live-decode", daemon=True),
            threading.Thread(target=self._compute, name="live-compute", daemon=True),
        ]

    def start(self) -> "LiveSession":
        """Start decoding and computing; returns the session."""
        self._broadcast.send(self._session_status.status)
        for thread in self._threads:
            thread.start()
        return self

    def subscribe(self, *, previews: bool = False, room: int = 64) -> Subscription:
        """A queue of all records from now on, begun with the latest ones; see `Broadcast.subscribe`."""
        return self._broadcast.subscribe(previews=previews, room=room)

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
            for item in self.source.items():
                if isinstance(item, StreamGap):
                    self._queue.put(item)
                    continue
                if not self._queue.put(replace(item, picture=None)):  # the decoder reuses its frames
                    return
                due = time.monotonic() - shown >= self._preview_every_ms / 1000
                if due and item.picture is not None and self._broadcast.watched:
                    shown = time.monotonic()
                    self._broadcast.send(self._preview(item))
        except BaseException as error:  # raised in the computing thread, after the frames before it
            self._queue.end(error)
        else:
            self._queue.end()

    def _preview(self, frame: LiveFrame) -> Preview:
        from ballcast.video.stills import to_jpeg

        assert frame.picture is not None
        assert frame.turn is not None
        width, height, jpeg = to_jpeg(frame.picture, frame.turn, self._preview_width)
        return Preview(frame.at_ms, round(1000 * frame.arrived), width, height, jpeg)

    def _compute(self) -> None:
        """Process the queue; always ends with a last status."""
        try:
            self.rolling.reset()
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

    def _run(self) -> None:
        offset_ms: int | None = None  # stream time at which the window began; None: the next frame begins one
        while not self._stopped.is_set():
            got = self._queue.get(SILENCE_S)
            if got is None:
                if self._queue.over:
                    if not self._stopped.is_set():
                        self._session_status.check_length()
                    return
                self._session_status.publish("waiting", f"no frame from {self.source.name} for {SILENCE_S:.0f} s")
                continue
            item, dropped = got
            if dropped:
                offset_ms = None
                self._session_status.on_dropped(dropped)
            if isinstance(item, StreamGap):
                offset_ms = None
                self._session_status.on_gap(item)
                continue
            if offset_ms is None:
                offset_ms = item.at_ms
                self.rolling.reset()
            self._advance(item, offset_ms)

    def _advance(self, frame: LiveFrame, offset_ms: int) -> None:
        began = time.monotonic()
        forecast = self.rolling.push(frame.pixels)
        latency_ms = 1000 * (time.time() - frame.arrived)
        self._session_status.on_frame(frame, time.monotonic() - began)
        if forecast is not None:
            every_ms, behind_ms = self.rolling.every_ms, self._session_status.status.behind_ms
            shifted, arrived_ms = _shift(forecast, offset_ms), round(1000 * frame.arrived)
            self._broadcast.send(LiveForecast(shifted, arrived_ms, latency_ms, behind_ms, every_ms))
            self._session_status.on_forecast()
        self._session_status.publish_if_due()


def _shift(forecast: Forecast, by_ms: int) -> Forecast:
    """Add `by_ms` to all times of a forecast."""
    if not by_ms:
        return forecast
    predictions = tuple(replace(p, position_ms=p.position_ms + by_ms) for p in forecast.predictions)
    return Forecast(forecast.at_ms + by_ms, predictions)
