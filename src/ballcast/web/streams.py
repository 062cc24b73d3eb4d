"""Streams that can be watched: those named at start, and no others. One computation each, however many watch.

A stream runs while somebody watches and a little longer; when the last viewer has been gone for `LINGER_S`, it stops.
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

LINGER_S = 15.0  # a page that is loaded again finds its stream running
KEPT = 60  # anticipations a newcomer gets, so that there is something to look back at
PREVIEW_MS = 250  # from one picture to the next: what 200 viewers at once can be sent

OpenSession = Callable[[str], LiveSession]


def open_session(engine: Engine) -> OpenSession:
    """From an address to a session on it, not started."""
    from ballcast.video.sources import open_source

    return lambda address: LiveSession(
        open_source(address), engine.new(), preview_every_ms=PREVIEW_MS, preview_width=512
    )


class Stream:
    """One stream; `follow` is one viewer's events."""

    def __init__(self, name: str, address: str, open_: OpenSession, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._address, self._open, self._loop = address, open_, loop
        self._channel = Channel(loop, keep=KEPT)
        self._session: LiveSession | None = None
        self._stopping: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._watching = 0  # viewers, counted from when they ask to when they are gone
        self._session_id = ""  # a viewer who comes back sees by it whether the clock began anew
        self.started = 0  # sessions since the server began

    @property
    def viewers(self) -> int:
        return self._watching

    @property
    def state(self) -> str:
        """ "idle" while nobody watches, else the session's own."""
        return "idle" if self._session is None else self._session.status.state

    async def follow(self) -> AsyncIterator[bytes]:
        """All records from now on, begun with the latest of each kind."""
        self._watching += 1
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        try:
            try:
                await self._ensure_running()
            except BallcastError as error:
                yield message("status", {"type": "status", "state": "error", "message": self._shown(error, "error")})
                return
            yield message("session", {"type": "session", "id": self._session_id})
            async for written in self._channel.follow():
                yield written
        finally:
            self._watching -= 1
            if not self._watching and not self._loop.is_closed():
                self._stopping = self._loop.call_later(LINGER_S, self._stop_soon)

    def close(self) -> None:
        """Stop now, from any thread; viewers' connections end."""
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
        """From the session's thread to the viewers: one listener for all of them."""
        for record in records:
            tree = record.to_json()
            if "message" in tree:
                tree["message"] = self._shown(tree["message"].replace(source, self.name), tree.get("state", ""))
            channel.publish(tree["type"], tree, state=not isinstance(record, LiveForecast))
        channel.close()

    def _shown(self, text: object, state: str) -> str:
        """A message for viewers. An address may hold a camera's password: they see the stream's name instead. Nor is
        it of use to them what whoever runs the server should do: what follows an error, or names an option."""
        said, *more = str(text).replace(self._address, self.name).split("; ")
        return "; ".join([said, *(part for part in more if state != "error" and "--" not in part)])

    def _stop_soon(self) -> None:
        if self._watching or self._session is None:
            return
        session, self._session = self._session, None
        with suppress(RuntimeError):  # the interpreter is ending
            threading.Thread(target=session.close, daemon=True).start()
