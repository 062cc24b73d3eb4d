"""Streams that can be watched. One computation for all viewers of a stream, one scheduler for all streams.

A stream starts with its first viewer, and stops when it has had no viewer for `LINGER_S`; one that is always followed
starts with the server, and again after an error.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from ballcast.core.errors import BallcastError
from ballcast.live.broadcast import Subscription
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast, Record, Status
from ballcast.video.addresses import shown
from ballcast_server.server_sent_events import Channel, message
from ballcast_server.streams.alerts import Alerts
from ballcast_server.streams.clips import ClipStore
from ballcast_server.streams.cluster import ClusterSession
from ballcast_server.streams.ring import ring_of

LINGER_S = 15.0  # so that reloading the page does not restart the stream
KEPT = {"status": 1, "preview": 1, "anticipation": 60}  # sent to a new viewer first: the page has some history
FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 60.0  # before a stream that is always followed is begun again
_log = logging.getLogger("ballcast.web")

Session = LiveSession | ClusterSession
# Of an address, the seconds of packets to keep if there are clips, and `check` of `StreamSource` for added streams.
OpenSession = Callable[..., Session]


class Stream:
    """One stream and its viewers.

    Args:
        name: by which viewers know it.
        address: URL or file.
        open_: opens a session on the address.
        loop: event loop of the viewers.
        always: follow it without viewers too; see `keep`.

    Attributes:
        forecasts: made since the server began. latency_ms: of the last one.
        last_error: why the last session failed, for viewers.
    """

    def __init__(
        self, name: str, address: str, open_: OpenSession, loop: asyncio.AbstractEventLoop, *, always: bool = False
    ) -> None:
        self.name = name
        self.always = always
        self.forecasts = 0
        self.latency_ms = 0.0
        self.last_error = ""
        self._alerts: Alerts | None = None
        self._thresholds: Mapping[str, float] = {}
        self._clips: ClipStore | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost = {"dropped": 0, "gaps": 0, "reconnects": 0}  # of earlier sessions
        self._address = address
        self._open = open_
        self._loop = loop
        self._channel = Channel(loop, KEPT)
        self._session: Session | None = None
        self._stopping: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._viewers = 0  # counted from their request to the end of their connection
        self._session_id = ""  # lets a viewer that reconnects see that the clock has restarted
        self.started = 0  # sessions since the server began

    @property
    def viewers(self) -> int:
        """Number of viewers."""
        return self._viewers

    @property
    def state(self) -> str:
        """State of the session; "idle" without one."""
        return "idle" if self._session is None else self._session.status.state

    @property
    def status(self) -> Status | None:
        """The latest status of the session; None without one."""
        return None if self._session is None else self._session.status

    @property
    def message(self) -> str:
        """The latest status in words, for viewers."""
        status = self.status
        return "" if status is None else self._public(status.message, status.state)

    @property
    def behind_ms(self) -> int:
        """Length of the stream that waits to be computed."""
        return 0 if self.status is None else self.status.behind_ms

    @property
    def waits_for_room(self) -> bool:
        """Whether the machine follows as many streams as it can, and not this one."""
        return self._session is not None and self._session.running and self._session.held

    def lost(self, what: str) -> int:
        """Frames "dropped", "gaps" or "reconnects" since the server began."""
        return self._lost[what] + getattr(self.status, what, 0)

    def watch_for(self, alerts: Alerts, thresholds: Mapping[str, float], clips: ClipStore | None) -> None:
        """Raise alerts of the stream's forecasts, and keep clips of them."""
        self._alerts = alerts
        self._thresholds = thresholds
        self._clips = clips

    def keep(self) -> None:
        """Follow the stream from now on, with viewers or without; on the event loop."""
        self._keeper = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            try:
                await self._ensure_running()
            except BallcastError as error:
                self.last_error = self._public(error, "error")
            while self._session is not None and self._session.running:
                await asyncio.sleep(0.5)
            state = self.state
            if state == "ended":  # a recording
                return
            wait_s = FIRST_WAIT_S if self.forecasts and state != "error" else wait_s
            _log.warning("stream %s: %s; beginning again in %g s", self.name, self.last_error or state, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def follow(self) -> AsyncIterator[bytes]:
        """Iterate over the events of one viewer, beginning with the latest record of each type."""
        self._viewers += 1
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        try:
            try:
                await self._ensure_running()
            except BallcastError as error:
                yield message("status", {"type": "status", "state": "error", "message": self._public(error, "error")})
                return
            yield message("session", {"type": "session", "id": self._session_id})
            async for written in self._channel.follow():
                yield written
        finally:
            self._viewers -= 1
            if not self._viewers and not self.always and not self._loop.is_closed():
                self._stopping = self._loop.call_later(LINGER_S, self._stop_soon)

    def close(self) -> None:
        """Stop the session and end the viewers' connections; may be called from any thread."""
        session = self._session
        self._session = None
        keeper = self._keeper
        self._keeper = None
        self._channel.close()
        if keeper is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(keeper.cancel)
        if session is not None:
            session.close()

    def close_soon(self) -> None:
        """Close, without waiting for the session's end."""
        threading.Thread(target=self.close, daemon=True).start()

    async def _ensure_running(self) -> None:
        async with self._lock:
            if self._session is not None and self._session.running:
                return
            kept = [] if self._clips is None else [self._clips.ring_s]
            session = await asyncio.to_thread(self._open, self._address, *kept)
            for what in self._lost:
                self._lost[what] = self.lost(what)
            self._session = session
            self.started += 1
            self._session_id = secrets.token_hex(8)
            self._channel = Channel(self._loop, KEPT)
            records = session.subscribe(previews=True, capacity=256)
            thread = threading.Thread(target=self._relay, args=(records, self._channel, session), daemon=True)
            thread.start()
            await asyncio.to_thread(session.start)  # last: a cluster takes its time, and a viewer may leave meanwhile

    def _relay(self, records: Subscription[Record], channel: Channel, session: Session) -> None:
        """Publish the session's records to the viewers, and raise alerts; runs in its own thread."""
        for record in records:
            if isinstance(record, LiveForecast):
                self.forecasts += 1
                self.latency_ms = record.latency_ms
                self._raise_alerts(record, session)
            tree = record.to_json()
            if "message" in tree:
                tree["message"] = self._public(tree["message"], tree.get("state", ""))
            if isinstance(record, Status):
                self._log_status(record, tree["message"])
            channel.publish(tree["type"], tree)
        channel.close()

    def _raise_alerts(self, made: LiveForecast, session: Session) -> None:
        if self._alerts is None:
            return
        for alert in self._alerts.consider(self.name, made, self._thresholds):
            expected_s = session.timestamp(alert.position_ms)
            ring = ring_of(session.source) if isinstance(session, LiveSession) else session.ring
            if self._clips is not None and ring is not None and expected_s is not None:
                self._clips.request(alert, ring, expected_s)
            about = {"stream": self.name, "action": alert.action, "probability": alert.probability, "id": alert.id}
            _log.info("alert of stream %s: %s", self.name, alert.action, extra=about)

    def _log_status(self, status: Status, message: str) -> None:
        if status.state == "error":
            self.last_error = message
        about = {"stream": self.name, "state": status.state, "dropped": status.dropped, "behind_ms": status.behind_ms}
        level = logging.WARNING if status.state in ("error", "skipped") else logging.INFO
        _log.log(level, "stream %s: %s: %s", self.name, status.state, message, extra=about)

    def _public(self, text: object, state: str) -> str:
        """A message for viewers: with the stream's name instead of its address, which may contain a password, and
        without advice for the operator (what follows an error, or names an option)."""
        text = str(text).replace(self._address, self.name).replace(shown(self._address), self.name)
        fault, *more = text.split("; ")
        return "; ".join([fault, *(part for part in more if state != "error" and "--" not in part)])

    def _stop_soon(self) -> None:
        if self._viewers or self._session is None:
            return
        session = self._session
        self._session = None
        with suppress(RuntimeError):  # the interpreter is ending
            threading.Thread(target=session.close, daemon=True).start()
