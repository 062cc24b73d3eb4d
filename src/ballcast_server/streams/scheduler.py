"""Many streams on one device: one loaded model, frames of all streams batched, as many streams as hold real time.

    scheduler = Scheduler(model.new_runtime)
    with scheduler.session(open_source("rtsp://camera/1")) as one, scheduler.session(open_source("b.mp4")) as two:
        ...

Every stream is a `LiveSession`: it decodes on a separate thread into a bounded queue, and asks the `Batcher` for its
steps. Streams beyond what the machine computes in real time wait, with the state "waiting" and a message that begins
with "no room". How many that are is measured: the steps are timed before the first frame, and then in use; sessions
that fall behind show the rest. The last that came is the first to wait.

The first stream of a frame size has the steps for it recorded and timed, on a GPU for half a minute, in which nothing
else is computed. So until the first size is known, few streams are opened; and those that run pause in that time. What
they miss then is a gap, and not a sign that they are too many.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from ballcast.core.actions import FPS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import BallcastError
from ballcast.inference.runtime import Runtime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.live.reader import PreviewOptions
from ballcast.live.session import LiveSession
from ballcast.video.luma import array_shape
from ballcast.video.sources import LiveSource
from ballcast_server.streams.batcher import Batcher

STREAMS = 128  # places on the device, by default
SHARE = 0.85  # of the GPU's or the cores' time that streams may take; the rest is for decoding and bursts
REVIEW_S = 1.0  # interval between two looks at the load
USE_LOOKS = 5  # looks over which the time of a stream's steps in use is averaged
BEHIND_FRAMES = 2 * FPS  # that wait in a session's queue: it does not hold real time
RETRY_S, LONGEST_RETRY_S = 60.0, 900.0  # until more streams are tried after too many were
STEP = 0.1  # of the streams that wait at once where there are too many, or are tried at once; at least one
PROBE_S = 3.0  # until a further stream is opened, while none has shown yet what a step takes
APART_S = 0.01  # between two streams that begin: else the forecasts of all would be due at the same time
CALM_S = 5.0  # after streams paused, until it is judged again whether they fall behind
PREPARING = "the model is being prepared for frames of a new size"


@dataclass(frozen=True)
class Load:
    """What a scheduler does: sessions that run and that wait, steps that wait, and the share of the device in use."""

    running: int = 0
    waiting: int = 0
    queued: int = 0
    busy: float = 0.0
    batches: int = 0
    steps: int = 0


class Scheduler:
    """Runs sessions on many streams with one model.

    Args:
        new_runtime: returns a runtime; one is taken.
        every_ms: interval of the forecasts, by default.
        streams: followed at once, at most.
        share: of the device's time that may be taken, in (0, 1].
    """

    def __init__(
        self, new_runtime: Callable[[], Runtime], *, every_ms: int = 1000, streams: int = STREAMS, share: float = SHARE
    ) -> None:
        self._every_ms = every_ms
        self._streams = streams
        self._share = share
        self.batcher = Batcher(new_runtime().for_streams(streams))
        self.batcher.prepare()
        self._lock = threading.RLock()
        self._admitted: list[LiveSession] = []  # in the order of their admission
        self._waiting: list[LiveSession] = []  # in the order of their arrival
        self._paused: list[LiveSession] = []  # of those admitted
        self._ahead = True  # whether steps are still to be timed before the first stream
        self._admitted_at = -inf  # time.monotonic() of the latest admission
        self._notified: dict[LiveSession, bool] = {}  # of those that wait: whether by the message of the preparation
        self._loads: dict[LiveSession, tuple[int, int]] = {}  # at the last look
        self._most: int | None = None  # streams that were found to be the most
        self._most_until = 0.0
        self._retry_s = RETRY_S
        self._tried = False
        self._busy = 0.0
        self._sampled = (time.monotonic(), self.batcher.used_s)
        self._uses: deque[float] = deque(maxlen=USE_LOOKS)  # of the GPU, or cores, that one running stream took
        self._least_use = inf  # lowest cost seen; never raised, or admission would oscillate
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="live-admission", daemon=True)
        self._thread.start()

    def predictor(self, *, every_ms: int | None = None, emit: EmitConfig | None = None) -> StreamPredictor:
        """An anticipator for one stream."""
        return StreamPredictor(self.batcher, every_ms=every_ms or self._every_ms, emit=emit)

    def session(
        self,
        source: LiveSource,
        *,
        every_ms: int | None = None,
        emit: EmitConfig | None = None,
        previews: PreviewOptions = PreviewOptions(),
        any_video: bool = True,
    ) -> LiveSession:
        """A session on a stream, not started.

        Args:
            source: the stream.
            every_ms: interval of its forecasts.
            emit: as of a `StreamPredictor`.
            previews: size and rate of its previews.
            any_video: forecast also where no football pitch is seen.
        """
        predictor = self.predictor(every_ms=every_ms, emit=emit)
        return LiveSession(source, predictor, admission=self, previews=previews, any_video=any_video)

    @property
    def colour(self) -> bool:
        """Whether frames are I420 and not luma."""
        return self.batcher.backbone.colour

    @property
    def load(self) -> Load:
        """What is done now."""
        with self._lock:
            running, waiting = len(self._admitted), len(self._waiting)
        batcher = self.batcher
        return Load(running, waiting, batcher.queued, self._busy, batcher.batches, batcher.steps)

    def room(self) -> int:
        """Streams that hold real time, as far as is known."""
        known = self._streams
        if self.batcher.costs:
            stacks = FPS / self.batcher.backbone.stride
            every_ms = self._every_ms
            cost = max(each.of(stacks, every_ms) for each in list(self.batcher.costs.values()))
            cost = min(cost, self._least_use)  # a machine that was busy when the steps were timed may be free now
            known = min(known, max(1, int(self._share * self.batcher.capacity / cost)))
        return known if self._most is None else min(known, self._most)

    def close(self) -> None:
        """End all sessions, then the threads."""
        self._closed.set()
        self._wake.set()
        with self._lock:
            sessions = [*self._admitted, *self._waiting]
        for session in sessions:
            session.close()
        self.batcher.close()
        self._thread.join()

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------ called by sessions, from any thread

    def enter(self, session: LiveSession) -> None:
        with self._lock:
            self._waiting.append(session)
        self._wake.set()

    def leave(self, session: LiveSession) -> None:
        with self._lock:
            self._loads.pop(session, None)
            self._notified.pop(session, None)
            for sessions in (self._admitted, self._waiting, self._paused):
                if session in sessions:
                    sessions.remove(session)
        self._wake.set()
        with suppress(BallcastError):  # the batcher is closed already
            session.predictor.close()

    # ------------------------------------------------------------------------------------------------------ admission

    def _watch(self) -> None:
        reviewed = time.monotonic()
        wait_s = REVIEW_S
        while not self._closed.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            if self._waiting:
                self._measure_ahead()
            with self._lock:
                now = time.monotonic()
                if self.batcher.in_long_call:
                    self._pause()
                    wait_s = REVIEW_S / 10
                    continue
                if now - reviewed >= REVIEW_S:
                    reviewed = now
                    self._sample()
                    if now - self.batcher.long_call_ended > CALM_S:
                        self._review()
                more = self._resume_one() or self._admit_one()
                wait_s = APART_S if more else REVIEW_S / 10 if self._waiting and not self.batcher.costs else REVIEW_S

    def _pause(self) -> None:
        """Nothing is computed: streams that cannot wait leave frames out, those that wait for room get the reason."""
        for session in self._admitted:
            if not session.source.blocking and session not in self._paused:
                self._paused.append(session)
                session.pause(PREPARING)
        self._notify(PREPARING)

    def _resume_one(self) -> bool:
        """Let one stream continue after a pause, if there was one; returns whether it did."""
        if not self._paused:
            return False
        self._paused.pop(0).resume()
        self._loads.clear()
        self._uses.clear()
        self._sampled = (time.monotonic(), self.batcher.used_s)
        return True

    def _measure_ahead(self) -> None:
        """Time the steps before the first stream is opened, if the size of its frames is known."""
        size = self.batcher.picture_size
        if self._ahead and not self.batcher.costs and size is not None:
            self._ahead = False
            with self._lock:
                self._notify(PREPARING)
            # Closed meanwhile; or a fault, which the first stream meets and reports: here it would end the admission.
            with suppress(Exception):
                stream = self.batcher.open_stream(array_shape(size, colour=self.colour))
                self.batcher.close_stream(stream)

    def _sample(self) -> None:
        """The share of the device's time that was used since the last look."""
        (then, before_s) = self._sampled
        now = time.monotonic()
        used_s = self.batcher.used_s
        self._sampled = (now, used_s)
        used = (used_s - before_s) / max(now - then, 1e-9)
        self._busy = min(1.0, used / self.batcher.capacity)
        running = sum(session.status.state == "running" for session in self._admitted)
        late = any(s.status.state == "slow" or (not s.source.blocking and s.load[0] > FPS) for s in self._admitted)
        if not running or late or not used:  # streams that wait for the device take less than they need
            self._uses.clear()
            return
        self._uses.append(used / running)
        if len(self._uses) == USE_LOOKS:
            self._least_use = min(self._least_use, max(self._uses))

    def _review(self) -> None:
        """Let sessions wait where there are too many to hold real time, the last first; or try a few more."""
        behind = [session for session in self._admitted if self._falls_behind(session)]
        # Streams take turns, so a machine that is too slow leaves most of them behind. A single one has another reason.
        overloaded = len(behind) >= max(2, len(self._admitted) / 2)
        now = time.monotonic()
        count = len(self._admitted)
        if overloaded:
            if self._tried:
                self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
            self._most = count - _step(count)
            self._most_until = now + self._retry_s
            self._tried = False
        elif self._most is not None and self._waiting and now > self._most_until and not behind:
            self._most += _step(count)
            self._most_until = now + self._retry_s
            self._tried = True
        for session in [s for s in self._admitted if not s.source.blocking][::-1]:
            if len(self._admitted) <= self.room():
                break
            self._admitted.remove(session)
            self._waiting.insert(0, session)
            self._notified[session] = False
            session.hold(self._message())

    def _admit_one(self) -> bool:
        """Let one session run if there is room for it, and notify the others; whether it did."""
        now = time.monotonic()
        unknown = bool(self._admitted) and not self.batcher.costs
        if self._waiting and unknown and now - self._admitted_at < PROBE_S:
            self._notify(PREPARING)
        elif self._waiting and len(self._admitted) < self.room():
            session = self._waiting.pop(0)
            self._admitted_at = now
            self._admitted.append(session)
            self._notified.pop(session, None)
            session.admit()
            return True
        else:
            self._notify(self._message())
        return False

    def _notify(self, message: str) -> None:
        """Give the sessions that wait for room the reason, once."""
        for session in self._waiting:
            if self._notified.get(session) != (message == PREPARING):
                self._notified[session] = message == PREPARING
                session.hold(message)

    def _falls_behind(self, session: LiveSession) -> bool:
        """Whether frames were dropped since the last look, or too many wait, and not fewer than then."""
        waiting, dropped = session.load
        waited, before = self._loads.get(session, (0, dropped))
        self._loads[session] = waiting, dropped
        return not session.source.blocking and (waiting > max(BEHIND_FRAMES, waited - 1) or dropped > before)

    def _message(self) -> str:
        count = len(self._admitted)
        followed = f"{count} stream{'s' if count != 1 else ''}"
        return f"no room: this machine follows {followed} in real time; waiting for one to end"


def _step(count: int) -> int:
    """Number of streams to add or remove at once: 10 %, at least 1."""
    return max(1, int(STEP * count))
