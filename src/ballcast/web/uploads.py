"""Taking in a request's body: onto the disk as it comes, counted, and refused as soon as it is too much or too slow."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from ballcast.web.settings import Limits, RequestError

BATCH = 1 << 20  # bytes written at once
HEAD = 64  # bytes that are looked at first
FULL = "the server's disk is nearly full; delete videos that are no longer needed"
NAME_LENGTH = 120  # characters of a file's name that are kept


def shown_name(given: str) -> str:
    """A file's name as it is shown: percent-decoded, the last part of a path, no control characters, not too long.

    It is never a path to anything here: uploads lie under ids of our own.
    """
    text = unquote(given, errors="replace").replace("\\", "/").rsplit("/", 1)[-1]
    text = "".join(c for c in text if c.isprintable()).strip()
    return text[:NAME_LENGTH] or "video"


async def save_body(
    request: Request, path: Path, most: int, limits: Limits, *, check: Callable[[bytes], None] = lambda head: None
) -> int:
    """Write the body to `path`, in bytes; a `Refused` if it is over `most`, too slow, or the disk is nearly full.

    check: is given its first bytes, before there are many, to refuse what they give away.
    """
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdigit() else 0
    if expected > most:
        raise RequestError(413, f"the file is larger than the {_size(most)} allowed here")
    check_space(path.parent, expected, limits)
    total, waiting = 0, bytearray()
    with path.open("wb") as file:
        async for part in chunks(request, limits):
            total += len(part)
            if total > most:
                raise RequestError(413, f"the file is larger than the {_size(most)} allowed here")
            waiting += part
            if len(waiting) >= BATCH:
                if total == len(waiting):
                    check(bytes(waiting[:HEAD]))
                check_space(path.parent, len(waiting), limits)
                await run_in_threadpool(file.write, bytes(waiting))
                waiting.clear()
        if not total:
            raise RequestError(400, "the file is empty")
        if total == len(waiting):
            check(bytes(waiting[:HEAD]))
        file.write(waiting)
    return total


async def chunks(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """The body's parts as they come; a `Refused` when none comes for long, or they trickle."""
    began, total = time.monotonic(), 0
    parts = request.stream().__aiter__()
    while True:
        try:
            part = await asyncio.wait_for(anext(parts), limits.stall_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestError(408, f"nothing came for {limits.stall_s:.0f} s; send the file again") from None
        except ClientDisconnect:
            raise RequestError(400, "the connection was cut before the file was whole") from None
        total += len(part)
        spent = time.monotonic() - began
        if spent > limits.stall_s and total < limits.slow_bytes_s * spent:
            raise RequestError(408, "the file comes too slowly; send it over a better connection")
        if part:
            yield part


def check_space(folder: Path, coming: int, limits: Limits) -> None:
    """A `Refused` if so many bytes more would leave too little of the folder's disk free."""
    if shutil.disk_usage(folder).free - coming < limits.free_bytes:
        raise RequestError(507, FULL)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


class ConcurrencyLimit:
    """How many uploads run at once, of one user and of all."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()

    @contextmanager
    def enter(self, user: str) -> Iterator[None]:
        """On the event loop only."""
        if self._running[user] >= self._limits.uploads_a_user:
            raise RequestError(429, f"{self._running[user]} uploads of yours are running; wait until one is done")
        if self._running.total() >= self._limits.uploads:
            raise RequestError(503, "too many uploads at once; try again in a while")
        self._running[user] += 1
        try:
            yield
        finally:
            self._running[user] -= 1
            self._running += Counter()  # drops users who are at 0
