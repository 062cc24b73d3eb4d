"""Server-sent events from any thread to any number of viewers; each message is serialised once for all of them.

A viewer who reads too slowly loses the oldest messages and gets a "lost" event with their number; the publisher never
waits.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

MAX_QUEUED = 128  # messages of a slow viewer
HEARTBEAT_S = 10.0  # a comment after this time without events, so that both sides notice a lost connection


def message(event: str, data: Any) -> bytes:
    """Serialise one event.

    Args:
        event: its type.
        data: any JSON value.

    Returns:
        The event in the wire format, data as JSON on one line.
    """
    return f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Channel:
    """The events of one job or stream. `publish` may be called from any thread, `follow` on the event loop.

    Args:
        loop: event loop of the viewers.
        keep: number of earlier messages that a new viewer gets first; None: all.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keep: int | None = 0) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._latest: dict[str, bytes] = {}  # by event type; of these a new viewer gets the last one only
        self._viewers: set[_Viewer] = set()
        self._closed = False

    def publish(self, event: str, data: Any, *, state: bool = False) -> None:
        """Send an event to all viewers; never waits.

        Args:
            event: its type.
            data: any JSON value.
            state: of this type, new viewers get the latest event only.
        """
        written = message(event, data)
        with self._lock:
            if state:
                self._latest[event] = written
            else:
                self._kept.append(written)
            viewers = list(self._viewers)
        if viewers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, viewers, written)

    def close(self) -> None:
        """Mark the end: viewers get the queued messages, then their connections end."""
        with self._lock:
            self._closed = True
            viewers = list(self._viewers)
        if viewers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, viewers, None)

    async def follow(self) -> AsyncIterator[bytes]:
        """Iterate over the messages of one viewer, until the channel closes or the viewer disconnects."""
        with self._lock:
            viewer = _Viewer([*self._latest.values(), *self._kept], ended=self._closed)
            self._viewers.add(viewer)
        try:
            yield b"retry: 2000\n\n"
            async for written in viewer:
                yield written
        finally:
            with self._lock:
                self._viewers.discard(viewer)


class _Viewer:
    """Queue of one viewer. Event loop only."""

    def __init__(self, earlier: list[bytes], *, ended: bool) -> None:
        self._earlier: deque[bytes] = deque(earlier)  # from before the viewer came; may be more than MAX_QUEUED
        self._queue: deque[bytes] = deque()
        self._lost, self._ended = 0, ended
        self._changed = asyncio.Event()

    def add(self, written: bytes | None) -> None:
        """Append a message, dropping the oldest if the queue is full; None: there will be no more."""
        if written is None:
            self._ended = True
        else:
            if len(self._queue) == MAX_QUEUED:
                self._queue.popleft()
                self._lost += 1
            self._queue.append(written)
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._earlier:
                yield self._earlier.popleft()
            if self._lost:
                lost, self._lost = self._lost, 0
                yield message("lost", {"type": "lost", "count": lost})
            while self._queue and not self._lost:
                yield self._queue.popleft()
            if self._lost:
                continue
            if self._ended:
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": still here\n\n"


def _deliver(viewers: list[_Viewer], written: bytes | None) -> None:
    for viewer in viewers:
        viewer.add(written)


class EventStream(StreamingResponse):
    """Response with the events of `Channel.follow`; `ended` is called when the viewer has left, or they end."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], ended: Callable[[], None], status_code: int = 200) -> None:
        super().__init__(events, status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
