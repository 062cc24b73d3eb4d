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
from collections.abc import Callable
from dataclasses import replace

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.timeline import Anticipation
from ballcast.inference.broadcast import Broadcast, Subscription
from ballcast.inference.live_records import Made, Preview, State, Status
from ballcast.inference.rolling import RollingAnticipator
from ballcast.video.live_source import Break, LiveFrame, LiveSource
from ballcast.video.ring import Ring

RING_FRAMES = 100  # 4 s: who is further behind anticipates what has happened already
SLOW_FRAMES = 25  # a second behind: anticipate less often
SLOWEST = 8  # times less often than asked for, at most
CALM_MS = 20_000  # of the stream without trouble before anticipations become more frequent again
LATE_MS = 2000  # frames that come so much later than others did: the source or its decoding is too slow
SILENCE_S = 3.0  # without a frame for so long, listeners are told
REPORT_S = 10.0  # from one status to the next while nothing changes
TO_FILL = "a window of 5 s has to fill"


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
        self._ring: Ring[LiveFrame | Break] = Ring(RING_FRAMES, patient=source.patient)
        self._stopped = threading.Event()
        self._every_ms = rolling.every_ms  # as asked for
        self._late_ms = 0  # of the last frame
        self._fruitful = True  # an anticipation was made since frames were last dropped
        self._ever = False  # an anticipation was made
        self._filling: str | None = f"{TO_FILL} first"  # why none can be made yet; None: they are made
        self._changed_ms = 0  # the stream's time when the rate last changed
        self._status = Status("opening", f"opening {source.name}", 0, _wall_ms(), rolling.every_ms)
        self._told_at = time.monotonic()
        self._computing = 0.0  # seconds since the last status
        self._threads = [
            threading.Thread(target=self._decode, name="live-decode", daemon=True),
            threading.Thread(target=self._compute, name="live-compute", daemon=True),
        ]

    def start(self) -> "LiveSession":
        self._hub.send(self._status)
        for thread in self._threads:
            thread.start()
        return self

    def subscribe(
        self, *, previews: bool = False, room: int = 64, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """A queue of all records from now on, begun with the latest ones; see `Broadcast.subscribe`."""
        return self._hub.subscribe(previews=previews, room=room, wake=wake)

    @property
    def status(self) -> Status:
        """How it fares, as last told."""
        return self._hub.latest or self._status

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
            self._tell("stopped", "stopped")
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
                if isinstance(item, Break):
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
        from ballcast.video.preview import to_jpeg  # needs PyAV, which a session on frames made elsewhere does not

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
            self._tell("error", str(error) if known else f"{type(error).__name__}: {error}")
        else:
            if self._stopped.is_set():
                self._tell("stopped", "stopped")
            else:
                self._tell("ended", f"{self.source.name}: is over")
        finally:
            self._ring.close()
            self.source.close()

    def _run(self) -> None:
        offset_ms: int | None = None  # the stream's time when the rolling state began; None: begin with the next frame
        while not self._stopped.is_set():
            got = self._ring.get(SILENCE_S)
            if got is None:
                if self._ring.over:
                    self._check_length()
                    return
                self._tell("waiting", f"no frame from {self.source.name} for {SILENCE_S:.0f} s")
                continue
            item, dropped = got
            if dropped:
                offset_ms = None
                self._tell_skip(dropped)
            if isinstance(item, Break):
                offset_ms = None
                self._tell_break(item)
                continue
            if offset_ms is None:
                offset_ms = item.at_ms
                self.rolling.reset()
            self._advance(item, offset_ms)

    def _check_length(self) -> None:
        """At the end: a stream that was too short to say anything about is a fault, as it is in `predict`."""
        if self._ever or self._stopped.is_set() or self._status.dropped:  # what was dropped has been told
            return
        length = f"{(self._status.at_ms + FRAME_MS) / 1000:.1f} s" if self.rolling.frames else "0 s"
        lack = f"no 5 s of its {length} came without a gap" if self._status.gaps else f"is only {length} long"
        raise InputError(f"{self.source.name}: {lack}; anticipation needs a whole window of 5 s behind it")

    def _advance(self, frame: LiveFrame, offset_ms: int) -> None:
        began = time.monotonic()
        made = self.rolling.push(frame.pixels)
        now = time.time()
        self._computing += time.monotonic() - began
        self._late_ms = frame.late_ms
        self._status = replace(self._status, at_ms=frame.at_ms, behind_ms=self._behind_ms())
        if made is not None:
            latency_ms = 1000 * (now - frame.arrived)
            every_ms, behind_ms = self.rolling.every_ms, self._status.behind_ms
            moved, self._fruitful, self._ever, self._filling = _moved(made, offset_ms), True, True, None
            self._hub.send(Made(moved, round(1000 * frame.arrived), latency_ms, behind_ms, every_ms))
            self._keep_up()
        changed = self._status.state != self._rate()[0]
        if changed or time.monotonic() - self._told_at > REPORT_S:
            self._tell(*self._rate())

    # ----------------------------------------------------------------------------------------------------- keeping up

    def _keep_up(self) -> None:
        """After each anticipation: rarer ones if the ring fills, back towards the rate asked for when it is empty."""
        behind, every_ms = len(self._ring), self.rolling.every_ms
        if self.source.patient:
            return
        if behind > SLOW_FRAMES and every_ms < SLOWEST * self._every_ms:
            self.rolling.every_ms = 2 * every_ms
        elif behind <= 2 and every_ms > self._every_ms and self._status.at_ms > self._changed_ms + CALM_MS:
            self.rolling.every_ms = max(self._every_ms, every_ms // 2)
        if self.rolling.every_ms != every_ms:
            self._changed_ms = self._status.at_ms
            self._tell(*self._rate())

    # -------------------------------------------------------------------------------------------------------- telling

    def _rate(self) -> tuple[State, str]:
        """What there is to say while frames flow."""
        every_ms, late = self.rolling.every_ms, LATE_MS // 2 if self._status.state == "slow" else LATE_MS
        if self._filling is not None:
            return "filling", self._filling
        if every_ms > self._every_ms:
            return "slow", f"this machine is behind, so it anticipates every {every_ms / 1000:g} s"
        if self._late_ms > late:
            return "slow", f"frames come in {self._late_ms / 1000:.1f} s late: the source or its decoding is too slow"
        return "running", f"anticipating every {every_ms / 1000:g} s"

    def _behind_ms(self) -> int:
        """How much of the stream is waiting to be read, here or before it came here."""
        return len(self._ring) * FRAME_MS + self._late_ms

    def _tell_skip(self, dropped: int) -> None:
        self._status = replace(self._status, dropped=self._status.dropped + dropped)
        said = f"this machine is too slow: {dropped * FRAME_MS / 1000:.1f} s were dropped"
        hope = TO_FILL
        if not self._fruitful:
            hope = "no window of 5 s can be read in time; --device cuda or a smaller picture would help"
        self._fruitful, self._filling = False, f"{said}; {hope}"
        self._tell("skipped", self._filling)

    def _tell_break(self, item: Break) -> None:
        gaps, again = self._status.gaps + (item.kind == "gap"), self._status.reconnects + (item.kind != "gap")
        self._status = replace(self._status, gaps=gaps, reconnects=again)
        if item.kind == "gap":
            self._filling = f"{item.message}; {TO_FILL}"
        self._tell(item.kind, item.message)

    def _tell(self, state: State, message: str) -> None:
        now = time.monotonic()
        busy = self._computing / max(now - self._told_at, 1e-9)
        self._told_at, self._computing = now, 0.0
        self._status = replace(
            self._status,
            state=state,
            message=message,
            wall_ms=_wall_ms(),
            every_ms=self.rolling.every_ms,
            behind_ms=self._behind_ms(),
            busy=min(1.0, busy),
        )
        self._hub.send(self._status)


def _moved(made: Anticipation, by_ms: int) -> Anticipation:
    """The same on a clock that began `by_ms` earlier."""
    if not by_ms:
        return made
    return Anticipation(
        made.at_ms + by_ms, tuple(replace(p, position_ms=p.position_ms + by_ms) for p in made.predictions)
    )


def _wall_ms() -> int:
    return round(1000 * time.time())
