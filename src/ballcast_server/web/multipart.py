"""The one file of a multipart/form-data body, as `curl -F file=@match.mp4` sends it, read as it arrives.

Only what clients send is accepted: parts with a Content-Disposition, one of them a file. Headers and other fields are
bounded and skipped; nothing but a few KiB of the body is ever kept in memory.
"""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import quote

from ballcast_server.web.settings import RequestError

MAX_HEADERS = 8 << 10  # bytes of one part's headers
MAX_FIELDS = 16  # parts besides the file
MAX_FIELD = 16 << 10  # bytes of one of them
_BOUNDARY = re.compile(r"""boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(rb'filename="((?:[^"\\\r\n]|\\.)*)"', re.IGNORECASE)
_EXTENDED = re.compile(rb"filename\*=utf-8''([^\s;]+)", re.IGNORECASE)


class MultipartFile:
    """The file of a multipart body: `await open()`, then iterate over its parts to the end of the body.

    Args:
        chunks: the body.
        content_type: of the request.

    Raises:
        RequestError: 400 if the body is not well formed, 422 if it does not hold exactly one file.
    """

    def __init__(self, chunks: AsyncIterator[bytes], content_type: str) -> None:
        match = _BOUNDARY.search(content_type)
        if match is None:
            raise _malformed("its Content-Type has no boundary")
        self._chunks = chunks
        self._mark = b"\r\n--" + (match[1] or match[2]).encode("latin-1", errors="replace")
        self._buffer = bytearray(b"\r\n")  # so that the first boundary is like the others
        self._fields = 0

    async def open(self) -> str:
        """Read up to the file; returns its name, percent-encoded as X-File-Name is."""
        async for _ in self._data():  # nothing may stand before the first boundary
            raise _malformed("it does not begin with its boundary")
        name = await self._next_file()
        if name is None:
            raise RequestError(422, "there is no file in the form; send one with curl -F file=@match.mp4")
        return name

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._data():
            yield part
        if await self._next_file() is not None:
            raise RequestError(422, "there is more than one file in the form; send each with a request of its own")

    async def _next_file(self) -> str | None:
        """Skip fields until the next part that is a file; None: the body has ended."""
        while True:
            end = await self._until(b"\r\n", 64)
            if end.startswith(b"--"):
                return None
            if end.strip(b" \t"):
                raise _malformed("a boundary is followed by other bytes")
            self._buffer[:0] = b"\r\n"  # so that a part without headers ends them too
            headers = await self._until(b"\r\n\r\n", MAX_HEADERS)
            if b"form-data" not in headers.lower():
                raise _malformed("a part has no Content-Disposition: form-data")
            extended, plain = _EXTENDED.search(headers), _NAME.search(headers)
            if extended is not None:
                return extended[1].decode("latin-1")
            if plain is not None:
                return quote(_text(plain[1]))
            self._fields += 1
            size = 0
            async for part in self._data():
                size += len(part)
                if size > MAX_FIELD or self._fields > MAX_FIELDS:
                    raise RequestError(413, "the form has too many or too large fields besides the file")

    async def _data(self) -> AsyncIterator[bytes]:
        """The bytes up to the next boundary."""
        while (at := self._buffer.find(self._mark)) < 0:
            ready = len(self._buffer) - len(self._mark) + 1  # a boundary may have begun after these
            if ready > 0:
                yield bytes(self._buffer[:ready])
                del self._buffer[:ready]
            await self._more()
        if at:
            yield bytes(self._buffer[:at])
        del self._buffer[: at + len(self._mark)]

    async def _until(self, end: bytes, most: int) -> bytes:
        """The bytes before `end`, which is skipped; at most `most`."""
        while (at := self._buffer.find(end, 0, most + len(end))) < 0:
            if self._buffer.startswith(b"--") and end == b"\r\n":  # the last boundary needs no line end
                return b"--"
            if len(self._buffer) > most:
                raise _malformed("a part's headers are too long")
            await self._more()
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return found

    async def _more(self) -> None:
        try:
            self._buffer += await anext(self._chunks)
        except StopAsyncIteration:
            raise _malformed("it ends before its last boundary") from None


def _text(raw: bytes) -> str:
    """A quoted file name: UTF-8, or Latin-1 of old clients; quotes escaped by a backslash or as %22."""
    name = re.sub(rb"\\(.)", rb"\1", raw)
    with suppress(UnicodeError):
        return name.decode().replace("%22", '"')
    return name.decode("latin-1")


def _malformed(why: str) -> RequestError:
    return RequestError(400, f"the form cannot be read: {why}; send the file with curl -F file=@match.mp4")
