"""What a live session tells: anticipations, how it fares, previews, and what a slow listener missed.

Every record has one JSON form, `to_json()`, used by `ballcast live --json` and by the page; docs/live.md describes it.
`at_ms` is the stream's own clock, milliseconds since its first frame; `wall_ms` is Unix time.
"""

import base64
from dataclasses import dataclass
from typing import Any, Literal

from ballcast.core.timeline import Anticipation

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
class Made:
    """An anticipation, times on the stream's clock."""

    anticipation: Anticipation
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
class Lost:
    """This listener was too slow: its oldest `count` records were thrown away. The next record follows the loss."""

    count: int

    def to_json(self) -> dict[str, Any]:
        return {"type": "lost", "count": self.count}


Record = Made | Status | Preview | Lost
