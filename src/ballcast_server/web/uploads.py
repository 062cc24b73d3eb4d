"""Write request bodies to disk as they arrive, with limits on size, rate and concurrency."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from ballcast_server.confined.decoder import SNIFFED
from ballcast_server.jobs.jobs import require_space
from ballcast_server.settings import Limits, RequestError
from ballcast_server.web.multipart import MultipartFile

BATCH = 1 << 20  # bytes per write
FORM_BYTES = 1 << 20  # of a form besides its file
NAME_LENGTH = 120  # characters of a file name that are kept
# What the API's schema says of a request that sends a file.
UPLOAD_SCHEMA: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {}, "multipart/form-data": {}}}
}


def shown_name(given: str) -> str:
    """Clean a file name for display: percent-decoded, last part of a path, printable, at most `NAME_LENGTH` long.

    It is never used as a path: uploads are stored under their job's id.

    Args:
        given: percent-encoded, or as a header that was sent as UTF-8 or Latin-1 and read as Latin-1.
    """
    with suppress(UnicodeError):
        given = given.encode("latin-1").decode()
    text = normalize("NFC", unquote(given, errors="replace")).replace("\\", "/").rsplit("/", 1)[-1]
    text = "".join(c for c in text if c.isprintable()).strip()
    return text[:NAME_LENGTH] or "video"


async def open_upload(request: Request, name: str, limits: Limits) -> tuple[str, AsyncIterator[bytes]]:
    """Begin to read the file of a request: its body, or the file in it if it is a form (`curl -F`).

    Args:
        request: the request.
        name: of the file if the body is it, from X-File-Name.
        limits: bounds on time.

    Returns:
        Its name for display, and its parts as they arrive.

    Raises:
        RequestError: the form is malformed, or the body does not arrive.
    """
    body = chunks(request, limits)
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return shown_name(name), body
    file = MultipartFile(body, kind)
    return shown_name(await file.open()), aiter(file)


async def save_body(
    request: Request,
    path: Path,
    most: int,
    limits: Limits,
    *,
    parts: AsyncIterator[bytes],
    check: Callable[[bytes], None] = lambda head: None,
) -> int:
    """Write the file that a request sends.

    Args:
        request: the request.
        path: of the file.
        most: largest size in bytes.
        limits: bounds on time and disk space.
        parts: of the file, as they arrive.
        check: called with the first bytes before any are written; raises RequestError to reject them.

    Returns:
        Size in bytes.

    Raises:
        RequestError: empty, too large, too slow, or the disk is nearly full.
    """
    option = " (--max-upload)" if most == limits.upload_bytes else ""
    too_large = f"the file is larger than the {_size(most)} allowed here{option}"
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdigit() else 0
    if expected > most + FORM_BYTES:
        raise RequestError(413, too_large)
    require_space(path.parent, expected, limits)
    total = 0
    buffer = bytearray()
    with open(path, "wb", opener=_private) as file:
        async for part in parts:
            total += len(part)
            if total > most:
                raise RequestError(413, too_large)
            buffer += part
            if len(buffer) >= BATCH:
                if total == len(buffer):
                    check(bytes(buffer[:SNIFFED]))
                require_space(path.parent, len(buffer), limits)
                await run_in_threadpool(file.write, bytes(buffer))
                buffer.clear()
        if not total:
            raise RequestError(400, "the file is empty")
        if total == len(buffer):
            check(bytes(buffer[:SNIFFED]))
        file.write(buffer)
    return total


def _private(path: str, flags: int) -> int:
    """Open a file that only this user can read."""
    return os.open(path, flags, 0o600)


async def chunks(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Iterate over the parts of a body; raises RequestError if they stall or are too slow."""
    began = time.monotonic()
    total = 0
    parts = request.stream().__aiter__()
    while True:
        try:
            part = await asyncio.wait_for(anext(parts), limits.stall_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestError(408, f"no data received for {limits.stall_s:.0f} s; send the file again") from None
        except ClientDisconnect:
            raise RequestError(400, "the connection was closed before the file was complete") from None
        total += len(part)
        spent = time.monotonic() - began
        if spent > limits.upload_s or (spent > limits.stall_s and total < limits.slow_bytes_s * spent):
            raise RequestError(408, "the upload is too slow; use a faster connection")
        if part:
            yield part


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"
