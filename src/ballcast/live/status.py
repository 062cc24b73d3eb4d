"""Records of a live session (forecasts, status, previews, missed records), and the logic that updates the status."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ballcast.core.actions import FRAME_MS
from ballcast.core.events import Forecast
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.video_predictor import NO_PITCH, no_window
from ballcast.video.sources import LiveFrame, LiveSource, StreamGap

State = Literal[
    "opening",  # the source is being opened
    "filling",  # frames arrive, but not yet 5 s of them without a gap, or they show no pitch: no forecast is made
    "running",  # forecasts are made at the requested rate
    "slow",  # the machine is behind: forecasts only every `every_ms`; or frames arrive late
    "skipped",  # the machine was too far behind: frames were dropped; `filling` follows
    "gap",  # frames are missing in the stream itself; `filling` follows
    "reconnecting",  # the connection was lost and is being opened again
    "waiting",  # no frame for a while, but the stream is still open
    "ended",  # the source has ended; last record
    "stopped",  # `close()` was called; last record
    "error",  # the session failed, `message` gives the reason; last record
]
LAST: frozenset[State] = frozenset({"ended", "stopped", "error"})


@dataclass(frozen=True, slots=True)
class LiveForecast:
    """A forecast of a live stream, with times on the stream's clock.

    Args:
        forecast: what is expected, and when it was made.
        wall_ms: Unix time in ms at which its last frame arrived.
        latency_ms: from the arrival of that frame to the forecast.
        behind_ms: length of the stream that was queued at that time.
        every_ms: interval between forecasts at that time.
    """

    forecast: Forecast
    wall_ms: int
    latency_ms: float
    behind_ms: int
    every_ms: int

    def to_json(self) -> dict[str, Any]:
        """The record as sent to clients."""
        return {
            "type": "anticipation",
            **self.forecast.to_json(),
            "wall_ms": self.wall_ms,
            "latency_ms": round(self.latency_ms, 2),
            "behind_ms": self.behind_ms,
            "every_ms": self.every_ms,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """State of a live session; sent when it changes, and every few seconds.

    Args:
        state: one of `State`.
        message: one sentence for the user.
        at_ms: stream time of the last processed frame; 0 before the first.
        wall_ms: Unix time in ms.
        every_ms: current interval between forecasts.
        behind_ms: length of the stream that is queued.
        busy: share of the time since the last status that was spent computing, in [0, 1].
        dropped: frames dropped since the start because the machine was too slow.
        gaps: times since the start that frames were missing in the stream.
        reconnects: times since the start that the stream was opened again.
    """

    state: State
    message: str
    at_ms: int
    wall_ms: int
    every_ms: int
    behind_ms: int = 0
    busy: float = 0.0
    dropped: int = 0
    gaps: int = 0
    reconnects: int = 0

    def to_json(self) -> dict[str, Any]:
        """The record as sent to clients."""
        return {
            "type": "status",
            "state": self.state,
            "message": self.message,
            "at_ms": self.at_ms,
            "wall_ms": self.wall_ms,
            "every_ms": self.every_ms,
            "behind_ms": self.behind_ms,
            "busy": round(self.busy, 3),
            "dropped": self.dropped,
            "gaps": self.gaps,
            "reconnects": self.reconnects,
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """A small colour image of the stream (JPEG), for display."""

    at_ms: int
    wall_ms: int
    width: int
    height: int
    jpeg: bytes

    def to_json(self) -> dict[str, Any]:
        """The record as sent to clients."""
        return {
            "type": "preview",
            "at_ms": self.at_ms,
            "wall_ms": self.wall_ms,
            "width": self.width,
            "height": self.height,
            "jpeg": base64.b64encode(self.jpeg).decode(),
        }


@dataclass(frozen=True, slots=True)
class MissedRecords:
    """Notice that this listener was too slow and its oldest `count` records were dropped."""

    count: int

    def to_json(self) -> dict[str, Any]:
        """The record as sent to clients."""
        return {"type": "lost", "count": self.count}


Record = LiveForecast | Status | Preview | MissedRecords


SLOW_FRAMES = 25  # queued frames (1 s) from which forecasts become rarer
MAX_SLOWDOWN = 8  # largest factor by which the requested interval grows
RECOVERY_MS = 20_000  # stream time without a rate change before forecasts become more frequent again
LATE_MS = 2000  # delay of a frame from which the source or its decoding counts as too slow
REPORT_S = 10.0  # interval between status records while nothing changes
TO_FILL = "a window of 5 s has to fill"


class SessionStatus:
    """Tracks the status of a session and adapts the interval between forecasts (`predictor.every_ms`) to the load.

    Args:
        source: the stream.
        predictor: the session's; its `every_ms` is the requested interval.
        waiting: returns the number of frames in the queue.
        send: receives each status record.
    """

    def __init__(
        self,
        source: LiveSource,
        predictor: StreamPredictor,
        waiting: Callable[[], int],
        send: Callable[[Status], None],
    ) -> None:
        self._source = source
        self._predictor = predictor
        self._waiting = waiting
        self._send = send
        self._every_ms = predictor.every_ms  # as requested
        self._at_ms, self._late_ms = 0, 0  # of the last frame; a status is made of them only when it is sent
        self._forecast_since_drop = True
        self._any_forecast = False
        self._filling: str | None = f"{TO_FILL} first"  # why no forecast can be made yet; None: they are made
        self._changed_ms = 0  # stream time of the last rate change
        self.status = Status("opening", f"opening {source.name}", 0, wall_ms(), predictor.every_ms)
        self._published_at = time.monotonic()
        self._computing = 0.0  # seconds of computing since the last status

    def on_frame(self, frame: LiveFrame, seconds: float) -> None:
        """Record that a frame was processed in `seconds`."""
        self._computing += seconds
        self._at_ms = frame.at_ms
        self._late_ms = frame.late_ms

    def on_forecast(self) -> None:
        """Record a forecast, and adapt the interval.

        The interval doubles while frames pile up, and halves towards the requested one once the queue is empty again.
        """
        self._forecast_since_drop = True
        self._any_forecast = True
        self._filling = None
        behind = self._waiting()
        every_ms = self._predictor.every_ms
        if self._source.blocking:
            return
        if behind > SLOW_FRAMES and every_ms < MAX_SLOWDOWN * self._every_ms:
            self._predictor.every_ms = 2 * every_ms
        elif behind <= 2 and every_ms > self._every_ms and self._at_ms > self._changed_ms + RECOVERY_MS:
            self._predictor.every_ms = max(self._every_ms, every_ms // 2)
        if self._predictor.every_ms != every_ms:
            self._changed_ms = self._at_ms
            self.publish(*self._current())

    def publish_if_due(self) -> None:
        """Send a status if the state has changed or the last one was sent `REPORT_S` ago."""
        state, message = self._current()
        if state != self.status.state or time.monotonic() - self._published_at > REPORT_S:
            self.publish(state, message)

    def on_no_pitch(self) -> None:
        """Record that a forecast was withheld, since no football pitch is seen."""
        self._any_forecast = True
        self._filling = f"{NO_PITCH}; nothing is forecast"

    def on_dropped(self, dropped: int) -> None:
        """Record and publish that `dropped` frames were dropped because the machine was too slow."""
        self.status = replace(self.status, dropped=self.status.dropped + dropped)
        fault = f"this machine is too slow: {dropped * FRAME_MS / 1000:.1f} s were dropped"
        advice = TO_FILL
        if not self._forecast_since_drop:
            advice = "no window of 5 s can be read in time; --device cuda or a smaller picture would help"
        self._forecast_since_drop = False
        self._filling = f"{fault}; {advice}"
        self.publish("skipped", self._filling)

    def on_gap(self, item: StreamGap) -> None:
        """Record and publish that frames are missing, or that the source is being opened again."""
        gaps = self.status.gaps + (item.kind == "gap")
        again = self.status.reconnects + (item.kind != "gap")
        self.status = replace(self.status, gaps=gaps, reconnects=again)
        if item.kind == "gap":
            self._filling = f"{item.message}; {TO_FILL}"
        self.publish(item.kind, item.message)

    def check_length(self) -> None:
        """Raise InputError if the stream ended before it had a window without gaps, as `predict` does."""
        if self._any_forecast or self.status.dropped:  # dropped frames have their own status
            return
        length = f"{(self._at_ms + FRAME_MS) / 1000:.1f} s" if self._predictor.frames else "0 s"
        raise no_window(self._source.name, length, gaps=self.status.gaps > 0)

    def publish(self, state: State, message: str) -> None:
        """Update the status and send it."""
        now = time.monotonic()
        busy = self._computing / max(now - self._published_at, 1e-9)
        self._published_at = now
        self._computing = 0.0
        self.status = replace(
            self.status,
            state=state,
            message=message,
            at_ms=self._at_ms,
            wall_ms=wall_ms(),
            every_ms=self._predictor.every_ms,
            behind_ms=self.behind_ms,
            busy=min(1.0, busy),
        )
        self._send(self.status)

    def _current(self) -> tuple[State, str]:
        """State and message while frames arrive."""
        every_ms = self._predictor.every_ms
        late = LATE_MS // 2 if self.status.state == "slow" else LATE_MS
        if self._filling is not None:
            return "filling", self._filling
        if every_ms > self._every_ms:
            return "slow", f"this machine is behind, so it anticipates every {every_ms / 1000:g} s"
        if self._late_ms > late:
            return "slow", f"frames come in {self._late_ms / 1000:.1f} s late: the source or its decoding is too slow"
        return "running", f"anticipating every {every_ms / 1000:g} s"

    @property
    def behind_ms(self) -> int:
        """Length of the stream that is queued here or delayed in the source."""
        return self._waiting() * FRAME_MS + self._late_ms


def wall_ms() -> int:
    """Current Unix time in ms."""
    return round(1000 * time.time())
