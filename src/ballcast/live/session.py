"""A live session: one source, one computation, any number of listeners.

    session = LiveSession(open_source("rtsp://camera/1"), rolling)
    with session.subscribe() as records, session:
        for record in records:            # Made, Status, …; `record.to_json()` is what goes over the wire
            ...

Two threads: one decodes into a bounded ring, one computes. A source that cannot wait (a camera, a stream, a file
played in real time) and a machine too slow for it: anticipations become rarer first, then frames are dropped and the
windows fill anew; both are told. Whatever frames come without a gap give what `predict` gives for them, bit for bit.
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

RING_FRAMES = 100  # 4 s: who is further behind anticipates what has happened already
SILENCE_S = 3.0  # without a frame for so long, listeners are told


class LiveSession:
    """Runs from `start()` (or entering the `with` block) until the source ends, fails, or `close()`.

    Args:
        source: where frames come from; the session closes it.
        rolling: the model at work; it is the session's alone, and is reset first.
        preview_every_ms: the least time between two previews, which are made only while somebody wants them.
        preview_width: of a preview in pixels, at most.
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
        self.error: BaseException | None = None  # why it ended, if it had to
        self._preview_every_ms, self._preview_width = preview_every_ms, preview_width
        self._hub = Broadcast()
        when_full: WhenFull = "wait" if source.blocking else "clear"
        self._ring: BoundedQueue[LiveFrame | StreamGap] = BoundedQueue(RING_FRAMES, when_full=when_full)
        self._stopped = threading.Event()
        self._course = SessionStatus(source, rolling, self._ring.__len__, self._hub.send)
        self._threads = [
            threading.Thread(target=self._decode, name="live-decode", daemon=True),
            threading.Thread(target=self._compute, name="live-compute", daemon=True),
        ]

    def start(self) -> "LiveSession":
        self._hub.send(self._course.status)
        for thread in self._threads:
            thread.start()
        return self

    def subscribe(self, *, previews: bool = False, room: int = 64) -> Subscription:
        """A queue of all records from now on, begun with the latest ones; see `Broadcast.subscribe`."""
        return self._hub.subscribe(previews=previews, room=room)

    @property
    def status(self) -> Status:
        """How it fares, as last told."""
        return self._hub.latest or self._course.status

    @property
    def running(self) -> bool:
        return self._threads[1].is_alive()

    def close(self) -> None:
        """Stop, and wait for the computing thread; one that waits inside a source's read ends with its timeout."""
        started = self._threads[0].ident is not None
        self._stopped.set()
        self.source.close()
        self._ring.close()
        if not started and self.status.state != "stopped":
            self._course.tell("stopped", "stopped")
        for thread, limit in zip(self._threads, (2.0, None), strict=True):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(limit)

    def __enter__(self) -> "LiveSession":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ the two threads

    def _decode(self) -> None:
        """Source → ring, and previews."""
        shown = -1e9  # time.monotonic() of the last preview
        try:
            for item in self.source.items():
                if isinstance(item, StreamGap):
                    self._ring.put(item)
                    continue
                if not self._ring.put(replace(item, picture=None)):  # the decoder wants its pictures back
                    return
                due = time.monotonic() - shown >= self._preview_every_ms / 1000
                if due and item.picture is not None and self._hub.watched:
                    shown = time.monotonic()
                    self._hub.send(self._preview(item))
        except BaseException as error:  # told by the computing thread, after the frames before it
            self._ring.end(error)
        else:
            self._ring.end()

    def _preview(self, frame: LiveFrame) -> Preview:
        from ballcast.video.stills import to_jpeg

        assert frame.picture is not None
        assert frame.turn is not None
        width, height, jpeg = to_jpeg(frame.picture, frame.turn, self._preview_width)
        return Preview(frame.at_ms, round(1000 * frame.arrived), width, height, jpeg)

    def _compute(self) -> None:
        """Ring → records. Ends with the last status, whatever happens."""
        try:
            self.rolling.reset()
            self._run()
        except BaseException as error:
            self.error = error
            known = isinstance(error, BallcastError)
            self._course.tell("error", str(error) if known else f"{type(error).__name__}: {error}")
        else:
            if self._stopped.is_set():
                self._course.tell("stopped", "stopped")
            else:
                self._course.tell("ended", f"{self.source.name}: is over")
        finally:
            self._ring.close()
            self.source.close()

    def _run(self) -> None:
        offset_ms: int | None = None  # the stream's time when the rolling state began; None: begin with the next frame
        while not self._stopped.is_set():
            got = self._ring.get(SILENCE_S)
            if got is None:
                if self._ring.over:
                    if not self._stopped.is_set():
                        self._course.check_length()
                    return
                self._course.tell("waiting", f"no frame from {self.source.name} for {SILENCE_S:.0f} s")
                continue
            item, dropped = got
            if dropped:
                offset_ms = None
                self._course.skipped(dropped)
            if isinstance(item, StreamGap):
                offset_ms = None
                self._course.broke(item)
                continue
            if offset_ms is None:
                offset_ms = item.at_ms
                self.rolling.reset()
            self._advance(item, offset_ms)

    def _advance(self, frame: LiveFrame, offset_ms: int) -> None:
        began = time.monotonic()
        made = self.rolling.push(frame.pixels)
        latency_ms = 1000 * (time.time() - frame.arrived)
        self._course.read(frame, time.monotonic() - began)
        if made is not None:
            every_ms, behind_ms = self.rolling.every_ms, self._course.status.behind_ms
            moved, arrived_ms = _moved(made, offset_ms), round(1000 * frame.arrived)
            self._hub.send(LiveForecast(moved, arrived_ms, latency_ms, behind_ms, every_ms))
            self._course.made()
        self._course.tell_if_due()


def _moved(made: Forecast, by_ms: int) -> Forecast:
    """The same on a clock that began `by_ms` earlier."""
    if not by_ms:
        return made
    return Forecast(made.at_ms + by_ms, tuple(replace(p, position_ms=p.position_ms + by_ms) for p in made.predictions))
