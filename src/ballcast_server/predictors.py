"""What computes forecasts for the server: a predictor for each video, a session for each stream."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ballcast.inference.runtime import Runtime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.live.reader import PreviewOptions
from ballcast.live.session import LiveSession
from ballcast.video.sources import SourceOptions
from ballcast_server.settings import Limits
from ballcast_server.streams.cluster import ClusterSessions
from ballcast_server.streams.decoder import open_stream
from ballcast_server.streams.scheduler import Scheduler
from ballcast_server.streams.stream import OpenSession, Session

PREVIEWS = PreviewOptions(every_ms=250, width=512)  # 200 viewers can be sent this many


@dataclass(frozen=True)
class PredictorFactory:
    """Makes predictors.

    Args:
        new: returns a predictor with its own state, for one video or stream.
        about: metadata that is written into results.
        scheduler: makes the scheduler of all streams, or the cluster that follows them; None: each has a
            separate predictor.
        any_video: forecast also where no football pitch is seen.
    """

    new: Callable[[], StreamPredictor]
    about: dict[str, Any] = field(default_factory=dict)
    scheduler: Callable[[], Scheduler | ClusterSessions] | None = None
    any_video: bool = True


def make_predictor_factory(
    new_runtime: Callable[[], Runtime],
    *,
    every_ms: int,
    any_video: bool = False,
    cluster: ClusterSessions | None = None,
) -> PredictorFactory:
    """Build the factory of a server.

    Args:
        new_runtime: returns a runtime for one video or stream; all of them share their networks.
        every_ms: interval between forecasts.
        any_video: forecast also where no football pitch is seen.
        cluster: follows the streams; None: this machine does.

    Returns:
        The factory.
    """
    first = new_runtime()
    about = {"every_ms": every_ms, **first.about, "pos_weight": first.pos_weight}
    if (measured := first.expected_precision) is not None:
        about["precision"] = {"tolerance_ms": measured.tolerance_ms, "default": measured.default}
    return PredictorFactory(
        lambda: StreamPredictor(new_runtime(), every_ms=every_ms),
        about,
        lambda: cluster or Scheduler(new_runtime, every_ms=every_ms),
        any_video,
    )


class LazyScheduler:
    """The scheduler of all streams, made for the first of them; or the cluster that follows them.

    Args:
        make: makes it; None: there is none.
    """

    def __init__(self, make: Callable[[], Scheduler | ClusterSessions] | None) -> None:
        self._make = make
        self._lock = threading.Lock()
        self.running: Scheduler | ClusterSessions | None = None

    def __call__(self) -> Scheduler | ClusterSessions | None:
        with self._lock:
            if self.running is None and self._make is not None:
                self.running = self._make()
            return self.running

    def close(self) -> None:
        """End it with all its sessions."""
        with self._lock:
            scheduler = self.running
            self.running = None
        if scheduler is not None:
            scheduler.close()


def open_session(predictors: PredictorFactory, scheduler: LazyScheduler, limits: Limits = Limits()) -> OpenSession:
    """Return a function that opens a session on an address, not started; in the scheduler, if there is one.

    Args:
        predictors: make its predictor. scheduler: computes it.
        limits: on the pixels, memory and time that its decoding takes.
    """

    def opened(address: str, ring_s: float | None = None, *, check: Callable[[str], None] | None = None) -> Session:
        shared = scheduler()
        options = SourceOptions(threads=1, check=check)  # many decode beside each other
        if isinstance(shared, ClusterSessions):
            return shared.session(address, ring_s=ring_s, source=options, previews=PREVIEWS, limits=limits)
        predictor = None if shared is not None else predictors.new()
        any_video = predictors.any_video
        source = open_stream(
            address,
            colour=(shared or predictor).colour,  # type: ignore[union-attr]  # one of them is there
            options=options,
            limits=limits,
            any_video=any_video,
            previews=PREVIEWS,
            ring_s=ring_s,
        )
        if shared is not None:
            return shared.session(source, previews=PREVIEWS, any_video=any_video)
        assert predictor is not None
        return LiveSession(source, predictor, previews=PREVIEWS, any_video=any_video)

    return opened
