"""Server-sent events: from any thread to any number of viewers, each message written out once for all of them.

A viewer who reads too slowly loses the oldest messages and is told how many ("lost"); nobody waits for them. One who
is gone, or takes nothing for a while, is let go.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

MOST = 128  # messages a slow viewer may be behind
HEARTBEAT_S = 10.0  # a comment when there is nothing else: tells both sides that the other is still there


def message(event: str, data: Any) -> bytes:
    """One event as it goes over the wire; `data` becomes JSON on one line."""
    return f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Channel:
    """One source's messages. `publish` from any thread; `follow` on the event loop.

    keep: how many of the earlier messages somebody who comes later gets first; None: all.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keep: int | None = 0) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._latest: dict[str, bytes] = {}  # of kinds of which only the last one matters to a newcomer
        self._viewers: set[_Viewer] = set()
        self._closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def publish(self, event: str, data: Any, *, state: bool = False) -> None:
        """state: only the latest of this kind is of interest to newcomers, and it always is."""
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
        """The end of the source: viewers get what is there, then their connection ends."""
        with self._lock:
            self._closed = True
            viewers = list(self._viewers)
        if viewers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, viewers, None)

    async def follow(self) -> AsyncIterator[bytes]:
        """All messages for one viewer, until the channel closes or the viewer goes."""
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
    """What one viewer has still to get. All on the event loop."""

    def __init__(self, first: list[bytes], *, ended: bool) -> None:
        self._first: deque[bytes] = deque(first)  # what was there before; may be more than MOST
        self._next: deque[bytes] = deque()
        self._lost, self._ended = 0, ended
        self._news = asyncio.Event()

    def add(self, written: bytes | None) -> None:
        if written is None:
            self._ended = True
        else:
            if len(self._next) == MOST:
                self._next.popleft()
                self._lost += 1
            self._next.append(written)
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._first:
                yield self._first.popleft()
            if self._lost:
                lost, self._lost = self._lost, 0
                yield message("lost", {"type": "lost", "count": lost})
            while self._next and not self._lost:
                yield self._next.popleft()
            if self._lost:
                continue
            if self._ended:
                return
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": still here\n\n"


def _deliver(viewers: list[_Viewer], written: bytes | None) -> None:
    for viewer in viewers:
        viewer.add(written)


class EventStream(StreamingResponse):
    """A response of events; see `Channel.follow`."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], status_code: int = 200) -> None:
        super().__init__(events, status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
