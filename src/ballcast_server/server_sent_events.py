"""Server-sent events from any thread to any number of viewers; each message is serialised once for all of them.

A viewer who reads too slowly loses the oldest messages and gets a "lost" event with their number, as every listener of
a `Broadcast` does; the publisher never waits.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ballcast.live.broadcast import Broadcast

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
        keep: how many of the latest events of each type a new viewer gets first, in this order; None: all.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, keep: Mapping[str, int | None]) -> None:
        self._loop = loop
        self._events: Broadcast[bytes] = Broadcast(keep, _missed)
        self._changed = asyncio.Event()  # a new one after each change, so that it wakes all viewers once

    def publish(self, event: str, data: Any, *, keep_as: str | None = None) -> None:
        """Send an event to all viewers; never waits.

        Args:
            event: its type.
            data: any JSON value.
            keep_as: the key of `keep` that it counts for, if not its type.
        """
        self._events.send(keep_as or event, message(event, data))

    def close(self) -> None:
        """Mark the end: viewers get the queued messages, then their connections end."""
        self._events.end()

    async def follow(self) -> AsyncIterator[bytes]:
        """Iterate over the messages of one viewer, until the channel closes or the viewer disconnects."""
        with self._events.subscribe(capacity=MAX_QUEUED, wake=self._wake) as viewer:
            yield b"retry: 2000\n\n"
            while not viewer.over:
                changed = self._changed  # before the queue is looked at: what comes in between is not missed
                written = viewer.get(0)
                if written is not None:
                    yield written
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"

    def _wake(self) -> None:
        """Wake all viewers, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_viewers)

    def _wake_viewers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _missed(count: int) -> bytes:
    return message("lost", {"type": "lost", "count": count})


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
