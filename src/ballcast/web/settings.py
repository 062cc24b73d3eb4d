from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ballcast.inference.rolling import RollingAnticipator
from ballcast.inference.runtime import Runtime


@dataclass(frozen=True)
class Limits:
    """Bounds on what one request, one user or one video may cost. Sizes in bytes, times in seconds."""

    upload_bytes: int = 4 << 30  # of one video
    labels_bytes: int = 16 << 20  # of one file of labels
    body_bytes: int = 64 << 10  # of any other request
    free_bytes: int = 1 << 30  # of the disk always stay free
    stall_s: float = 30.0  # a client that neither sends nor takes anything for so long is let go
    slow_bytes_s: int = 16 << 10  # an upload slower than this on average, after its first `stall_s`, is refused
    discard_s: float = 2.0  # the rest of a refused upload is read for so long: else the sentence why would be lost
    discard_bytes: int = 32 << 20  # and as much of it, at most
    headers_s: float = 10.0  # from a connection's opening to the end of its request's headers
    uploads: int = 8  # at once, of all users
    uploads_a_user: int = 2
    waiting_a_user: int = 20  # jobs that are queued or running
    kept_a_user: int = 200  # jobs in all
    pixels: int = 1920 * 1088  # of a frame, within which no turn ends: 23 times those of 398 × 224
    video_s: float = 4 * 3600.0  # of a video
    memory_bytes: int = 3 << 30  # of the process that decodes
    frame_s: float = 60.0  # to decode one frame
    slice_s: float = 10.0  # one user's turn at the computer while others wait
    open_jobs: int = 8  # begun and not ended, of all users
    viewers: int = 1000  # following streams or jobs at once
    connections: int = 2000
    guesses: int = 10  # wrong tokens from one address within `guesses_s`
    guesses_s: float = 60.0


@dataclass(frozen=True)
class Settings:
    """Everything `ballcast serve` was told.

    data: the folder of jobs, uploads and results. videos: a folder to pick from, or None. streams: name → address,
    the only ones that can be watched. token: asked of everyone, or None for nobody. hosts: names, besides addresses
    and the machine's own, under which the server may be asked for. every_ms: from one anticipation to the next.
    """

    data: Path
    videos: Path | None = None
    streams: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    hosts: tuple[str, ...] = ()
    workers: int = 1
    every_ms: int = 1000
    limits: Limits = field(default_factory=Limits)


class RequestError(Exception):
    """status: HTTP's. sentence: what is wrong and what to do. retry_s: after how long to try again."""

    def __init__(self, status: int, sentence: str, *, retry_s: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_s = status, sentence, retry_s

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}


@dataclass(frozen=True)
class Engine:
    """`new()` gives an anticipator with a state of its own, for one video or stream; `about` goes into results."""

    new: Callable[[], RollingAnticipator]
    about: dict[str, Any] = field(default_factory=dict)


def make_engine(new_runtime: Callable[[], Runtime], *, every_ms: int) -> Engine:
    """`new_runtime()` gives a runtime for one video or stream; all of them share their networks."""
    first = new_runtime()
    about = {"every_ms": every_ms, **first.about, "pos_weight": first.pos_weight}
    return Engine(lambda: RollingAnticipator(new_runtime(), every_ms=every_ms), about)
