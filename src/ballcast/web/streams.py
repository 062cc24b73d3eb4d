"""Streams that can be watched: those given with --stream, and no others. One computation for all viewers of a stream.

A stream starts with its first viewer, and stops when it has had no viewer for `LINGER_S`.
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from ballcast.core.errors import BallcastError
from ballcast.live.broadcast import Subscription
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast
from ballcast.web.server_sent_events import Channel, message
from ballcast.web.settings import Engine

LINGER_S = 15.0  # so that reloading the page does not restart the stream
KEPT = 60  # forecasts sent to a new viewer, so that the page has some history
PREVIEW_MS = 250  # interval between previews; 200 viewers can be sent this many

OpenSession = Callable[[str], LiveSession]


def open_session(engine: Engine) -> OpenSession:
    """Return a function that opens a session on an address, not started."""
    from ballcast.video.sources import open_source

    def opened(address: str) -> LiveSession:
        rolling = engine.new()
        source = open_source(address, colour=rolling.colour)
        return LiveSession(source, rolling, preview_every_ms=PREVIEW_MS, preview_width=512)

    return opened


class Stream:
    """One stream and its viewers.

    Args:
        name: by which viewers know it.
        address: URL or file.
        open_: opens a session on the address.
        loop: event loop of the viewers.
    """

    def __init__(self, name: str, address: str, open_: OpenSession, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._address, self._open, self._loop = address, open_, loop
        self._channel = Channel(loop, keep=KEPT)
        self._session: LiveSession | None = None
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
            if not self._viewers and not self._loop.is_closed():
                self._stopping = self._loop.call_later(LINGER_S, self._stop_soon)

    def close(self) -> None:
        """Stop the session and end the viewers' connections; may be called from any thread."""
        session, self._session = self._session, None
        self._channel.close()
        if session is not None:
            session.close()

    async def _ensure_running(self) -> None:
        async with self._lock:
            if self._session is not None and self._session.running:
                return
            session = await asyncio.to_thread(self._open, self._address)
            self._session, self.started = session, self.started + 1
            self._session_id = secrets.token_hex(8)
            self._channel = Channel(self._loop, keep=KEPT)
            records = session.subscribe(previews=True, room=256)
            session.start()
            thread = threading.Thread(
                target=self._relay, args=(records, self._channel, session.source.name), daemon=True
            )
            thread.start()

    def _relay(self, records: Subscription, channel: Channel, source: str) -> None:
        """Publish the session's records to the viewers; runs in its own thread."""
        for record in records:
            tree = record.to_json()
            if "message" in tree:
                tree["message"] = self._public(tree["message"].replace(source, self.name), tree.get("state", ""))
            channel.publish(tree["type"], tree, state=not isinstance(record, LiveForecast))
        channel.close()

    def _public(self, text: object, state: str) -> str:
        """A message for viewers: with the stream's name instead of its address, which may contain a password, and
        without advice for the operator (what follows an error, or names an option)."""
        fault, *more = str(text).replace(self._address, self.name).split("; ")
        return "; ".join([fault, *(part for part in more if state != "error" and "--" not in part)])

    def _stop_soon(self) -> None:
        if self._viewers or self._session is None:
            return
        session, self._session = self._session, None
        with suppress(RuntimeError):  # the interpreter is ending
            threading.Thread(target=session.close, daemon=True).start()
