"""All parts of the server, as the routes use them, and the order in which they begin and end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ballcast.core.files import file_lock
from ballcast_server.access.auth import TokenAuth
from ballcast_server.access.tokens import TokenStore
from ballcast_server.jobs.feeds import Feeds
from ballcast_server.jobs.jobs import Jobs
from ballcast_server.jobs.labels import LabelReader
from ballcast_server.jobs.library import Library
from ballcast_server.jobs.renders import Renders
from ballcast_server.jobs.workers import Workers
from ballcast_server.predictors import LazyScheduler, PredictorFactory, open_session
from ballcast_server.settings import Settings
from ballcast_server.streams.store import StreamStore
from ballcast_server.streams.stream import OpenSession
from ballcast_server.web.quotas import UserLimit


class Service:
    """The parts of a server; jobs, workers and streams run within `opened`.

    Args:
        settings: options of `ballcast serve`.
        predictors: makes a predictor for each video and stream.
        sessions: opens a live session on an address; by default with one of them.

    Attributes:
        auth, tokens: who may use it.
        library, jobs, labels, renders: videos and what was computed along them.
        feeds: matches of which event files were sent.
        streams: the streams. scheduler: computes them.
        uploads, label_uploads, viewers: how many there may be at once.
        ready: whether requests are served.
    """

    workers: Workers
    streams: StreamStore

    def __init__(
        self, settings: Settings, predictors: PredictorFactory, *, sessions: OpenSession | None = None
    ) -> None:
        self.settings = settings
        self.predictors = predictors
        self.limits = settings.limits
        self.ready = False
        self.tokens = TokenStore(settings.data)
        self.auth = TokenAuth(settings.token, settings.limits, self.tokens)
        self.library = Library(settings.videos)
        self.jobs = Jobs(settings.data, self.library, settings.limits)
        self.labels = LabelReader(self.jobs, settings.limits)
        self.renders = Renders(self.jobs, settings.limits)
        self.feeds = Feeds(settings.data.absolute() / "feeds", settings.limits)
        self.scheduler = LazyScheduler(predictors.scheduler)
        self.uploads = UserLimit.of_uploads(settings.limits)
        self.label_uploads = UserLimit.of_uploads(settings.limits)
        self.viewers = UserLimit.of_viewers(settings.limits)
        self._sessions = sessions or open_session(predictors, self.scheduler, settings.limits)

    @contextmanager
    def opened(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Lock the data folder, and run the streams and workers until the end of the block.

        Args:
            loop: event loop of the viewers.
        """
        data = self.settings.data
        data.mkdir(parents=True, exist_ok=True)
        busy = f"{data}: another server uses this folder; stop it, or give another with --data"
        with file_lock(data / ".lock", busy), self.jobs.opened():
            self.streams = StreamStore(self.settings, self._sessions, loop)
            self.workers = Workers(self.jobs, self.predictors, self.limits, loop, self.settings.workers)
            self.workers.start()
            self.ready = True
            try:
                yield
            finally:
                self.close_channels()

    def close_channels(self) -> None:
        """Stop workers and streams, which ends the connections of their viewers."""
        self.ready = False
        self.workers.stop()
        self.streams.close()
        self.scheduler.close()
