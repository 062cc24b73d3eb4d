"""What of a request's body nobody has read when it is refused.

A connection that is closed while its client still sends is reset, and what was said last may be lost with it: the
sentence why. So some of the rest is read first, and thrown away.
"""

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive


class Rest:
    """A request's `receive`, which knows whether the body has been read to its end (`over`)."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.over = receive, False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.over = not message.get("more_body", False)  # the end of the body, or that the client went
        return message

    async def discard(self, seconds: float, most: int) -> None:
        """Read on to the end, but no longer than that, and not more bytes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.over and most > 0:
                    most -= len((await self()).get("body", b""))
