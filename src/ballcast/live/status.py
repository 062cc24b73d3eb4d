"""The records of a live session (forecasts, status, previews, losses), and how its status follows from what happens."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast
from ballcast.inference.rolling import RollingAnticipator
from ballcast.video.sources import LiveFrame, LiveSource, StreamGap

State = Literal[
    "opening",  # the source is being opened
    "filling",  # frames come, but not 5 s of them yet without a hole: no anticipation can be made
    "running",  # anticipations are made, at the rate asked for
    "slow",  # the machine is behind: anticipating less often, every `every_ms`; or frames come in ever later
    "skipped",  # it was too far behind: frames were dropped; `filling` follows
    "gap",  # frames are missing in the stream itself; `filling` follows
    "reconnecting",  # the stream broke off and is opened again
    "waiting",  # no frame for a while, the stream not closed
    "ended",  # the source is over; the last record
    "stopped",  # `close()` was called; the last record
    "error",  # it cannot go on, `message` says why; the last record
]
LAST: frozenset[State] = frozenset({"ended", "stopped", "error"})


@dataclass(frozen=True, slots=True)
class LiveForecast:
    """An anticipation, times on the stream's clock."""

    anticipation: Forecast
    wall_ms: int  # when its last frame arrived
    latency_ms: float  # from then to the prediction
    behind_ms: int  # how much of the stream was waiting to be read by then
    every_ms: int  # the rate at the time

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "anticipation",
            **self.anticipation.to_json(),
            "wall_ms": self.wall_ms,
            "latency_ms": round(self.latency_ms, 2),
            "behind_ms": self.behind_ms,
            "every_ms": self.every_ms,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """How the session fares; sent when that changes, and every few seconds."""

    state: State
    message: str  # one sentence for people
    at_ms: int  # of the last frame read; 0 before the first
    wall_ms: int
    every_ms: int  # from one anticipation to the next, as it is now
    behind_ms: int = 0  # stream waiting to be read
    busy: float = 0.0  # share of the time since the last status that went into computing
    dropped: int = 0  # frames dropped since the start because the machine was too slow
    gaps: int = 0  # times since the start that frames were missing in the stream
    reconnects: int = 0  # times since the start that it was opened again

    def to_json(self) -> dict[str, Any]:
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
    """A small colour picture of the stream, for people to look at."""

    at_ms: int
    wall_ms: int
    width: int
    height: int
    jpeg: bytes

    def to_json(self) -> dict[str, Any]:
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
    """This listener was too slow: its oldest `count` records were thrown away. The next record follows the loss."""

    count: int

    def to_json(self) -> dict[str, Any]:
        return {"type": "lost", "count": self.count}


Record = LiveForecast | Status | Preview | MissedRecords


SLOW_FRAMES = 25  # a second behind: anticipate less often
SLOWEST = 8  # times less often than asked for, at most
CALM_MS = 20_000  # of the stream without trouble before anticipations become more frequent again
LATE_MS = 2000  # frames that come so much later than others did: the source or its decoding is too slow
REPORT_S = 10.0  # from one status to the next while nothing changes
TO_FILL = "a window of 5 s has to fill"


class SessionStatus:
    """Keeps the status of a session, and the rate of its anticipations (`rolling.every_ms`) as high as it can be.

    Args:
        source: whose frames they are.
        rolling: the session's; every how many ms it anticipates is what was asked for.
        waiting: how many frames have come and are not read yet.
        send: takes each status that is told.
    """

    def __init__(
        self,
        source: LiveSource,
        rolling: RollingAnticipator,
        waiting: Callable[[], int],
        send: Callable[[Status], None],
    ) -> None:
        self._source, self._rolling, self._waiting, self._send = source, rolling, waiting, send
        self._every_ms = rolling.every_ms  # as asked for
        self._late_ms = 0  # of the last frame
        self._fruitful = True  # an anticipation was made since frames were last dropped
        self._ever = False  # an anticipation was made
        self._filling: str | None = f"{TO_FILL} first"  # why none can be made yet; None: they are made
        self._changed_ms = 0  # the stream's time when the rate last changed
        self.status = Status("opening", f"opening {source.name}", 0, wall_ms(), rolling.every_ms)
        self._told_at = time.monotonic()
        self._computing = 0.0  # seconds since the last status

    def read(self, frame: LiveFrame, seconds: float) -> None:
        """A frame was computed, which took so long."""
        self._computing += seconds
        self._late_ms = frame.late_ms
        self.status = replace(self.status, at_ms=frame.at_ms, behind_ms=self._behind_ms())

    def made(self) -> None:
        """An anticipation was made: rarer ones if frames pile up, back towards the rate asked for when none wait."""
        self._fruitful, self._ever, self._filling = True, True, None
        behind, every_ms = self._waiting(), self._rolling.every_ms
        if self._source.blocking:
            return
        if behind > SLOW_FRAMES and every_ms < SLOWEST * self._every_ms:
            self._rolling.every_ms = 2 * every_ms
        elif behind <= 2 and every_ms > self._every_ms and self.status.at_ms > self._changed_ms + CALM_MS:
            self._rolling.every_ms = max(self._every_ms, every_ms // 2)
        if self._rolling.every_ms != every_ms:
            self._changed_ms = self.status.at_ms
            self.tell(*self._rate())

    def tell_if_due(self) -> None:
        """While frames flow: if something has changed, or nothing was told for a while."""
        state, message = self._rate()
        if state != self.status.state or time.monotonic() - self._told_at > REPORT_S:
            self.tell(state, message)

    def skipped(self, dropped: int) -> None:
        """So many frames were dropped, since they were not read in time."""
        self.status = replace(self.status, dropped=self.status.dropped + dropped)
        said = f"this machine is too slow: {dropped * FRAME_MS / 1000:.1f} s were dropped"
        hope = TO_FILL
        if not self._fruitful:
            hope = "no window of 5 s can be read in time; --device cuda or a smaller picture would help"
        self._fruitful, self._filling = False, f"{said}; {hope}"
        self.tell("skipped", self._filling)

    def broke(self, item: StreamGap) -> None:
        """Frames are missing, or the source is being opened again."""
        gaps, again = self.status.gaps + (item.kind == "gap"), self.status.reconnects + (item.kind != "gap")
        self.status = replace(self.status, gaps=gaps, reconnects=again)
        if item.kind == "gap":
            self._filling = f"{item.message}; {TO_FILL}"
        self.tell(item.kind, item.message)

    def check_length(self) -> None:
        """At the end: a stream that was too short to say anything about is a fault, as it is in `predict`."""
        if self._ever or self.status.dropped:  # what was dropped has been told
            return
        length = f"{(self.status.at_ms + FRAME_MS) / 1000:.1f} s" if self._rolling.frames else "0 s"
        lack = f"no 5 s of its {length} came without a gap" if self.status.gaps else f"is only {length} long"
        raise InputError(f"{self._source.name}: {lack}; anticipation needs a whole window of 5 s behind it")

    def tell(self, state: State, message: str) -> None:
        now = time.monotonic()
        busy = self._computing / max(now - self._told_at, 1e-9)
        self._told_at, self._computing = now, 0.0
        self.status = replace(
            self.status,
            state=state,
            message=message,
            wall_ms=wall_ms(),
            every_ms=self._rolling.every_ms,
            behind_ms=self._behind_ms(),
            busy=min(1.0, busy),
        )
        self._send(self.status)

    def _rate(self) -> tuple[State, str]:
        """What there is to say while frames flow."""
        every_ms, late = self._rolling.every_ms, LATE_MS // 2 if self.status.state == "slow" else LATE_MS
        if self._filling is not None:
            return "filling", self._filling
        if every_ms > self._every_ms:
            return "slow", f"this machine is behind, so it anticipates every {every_ms / 1000:g} s"
        if self._late_ms > late:
            return "slow", f"frames come in {self._late_ms / 1000:.1f} s late: the source or its decoding is too slow"
        return "running", f"anticipating every {every_ms / 1000:g} s"

    def _behind_ms(self) -> int:
        """How much of the stream is waiting to be read, here or before it came here."""
        return self._waiting() * FRAME_MS + self._late_ms


def wall_ms() -> int:
    return round(1000 * time.time())
