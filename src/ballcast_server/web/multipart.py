"""The one file of a multipart/form-data body, as `curl -F file=@match.mp4` sends it, read as it arrives.

The parser is python-multipart's, which calls back for each piece. Here are the limits: exactly one file, few and small
fields and headers besides it; no more of the body is kept in memory than has just arrived.
"""

import logging
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import quote

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from ballcast_server.settings import RequestError

MAX_HEADERS = 8 << 10  # bytes of one header of a part; a part has at most 8
MAX_FIELDS = 16  # parts besides the file
MAX_FIELD = 16 << 10  # bytes of one of them
_BOUNDARY = re.compile(r"""boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_EXTENDED = re.compile(rb"filename\*=utf-8''([^\s;]+)", re.IGNORECASE)

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of each malformed form, which clients are told


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
        boundary = (match[1] or match[2]).encode("latin-1", errors="replace")
        self._chunks = chunks
        self._beginning = b"--" + boundary  # what the body must begin with, as far as it has not come yet
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_end": self._on_end,
            },
            max_header_size=MAX_HEADERS,
        )
        self._name: str | None = None  # of the file
        self._arrived: deque[bytes] = deque()  # parts of the file that were not taken yet
        self._ended = False
        self._fields = 0
        # Of the part that is being read:
        self._begun = False
        self._field_bytes: int | None = None  # None: it is the file
        self._header = b""
        self._value = b""
        self._disposition = b""

    async def open(self) -> str:
        """Read up to the file; returns its name, percent-encoded as X-File-Name is."""
        while self._name is None and not self._ended:
            await self._read()
        if self._name is None:
            raise RequestError(422, "there is no file in the form; send one with curl -F file=@match.mp4")
        return self._name

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._arrived:
                yield self._arrived.popleft()
            if self._ended:
                return
            await self._read()

    async def _read(self) -> None:
        """Parse the next chunk of the body."""
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            raise _malformed("it ends before its last boundary") from None
        compared = min(len(chunk), len(self._beginning))
        if chunk[:compared] != self._beginning[:compared]:  # the parser would skip blank lines before it
            raise _malformed("it does not begin with its boundary")
        self._beginning = self._beginning[compared:]
        try:
            self._parser.write(chunk)
        except MultipartParseError as error:
            if str(error).startswith("Maximum header"):
                raise _malformed("a part's headers are too long") from None
            fault = "a part's headers are malformed" if self._begun else "a boundary is followed by other bytes"
            raise _malformed(fault) from None

    # ------------------------------------------------------------------------------------------ called by the parser

    def _on_part_begin(self) -> None:
        self._begun = True
        self._field_bytes = 0
        self._header = self._value = self._disposition = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        if not self._disposition.lower().startswith(b"form-data"):
            raise _malformed("a part has no Content-Disposition: form-data")
        name = _file_name(self._disposition)
        if name is None:
            self._fields += 1
            self._check_field()
            return
        if self._name is not None:
            raise RequestError(422, "there is more than one file in the form; send one file per request")
        self._name = name
        self._field_bytes = None

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field_bytes is None:
            self._arrived.append(data[start:end])
        else:
            self._field_bytes += end - start
            self._check_field()

    def _on_end(self) -> None:
        self._ended = True

    def _check_field(self) -> None:
        if self._fields > MAX_FIELDS or (self._field_bytes or 0) > MAX_FIELD:
            raise RequestError(413, "the form has too many or too large fields besides the file")


def _file_name(disposition: bytes) -> str | None:
    """The percent-encoded name of the file in a Content-Disposition; None: the part is no file.

    Names are UTF-8, or Latin-1 of old clients; quotes in them are escaped by a backslash or as %22. The extended form,
    which the parser's library ignores, is what some clients send for other names than ASCII.
    """
    if extended := _EXTENDED.search(disposition):
        return extended[1].decode("latin-1")
    _, options = parse_options_header(disposition)
    plain = options.get(b"filename")
    if plain is None:
        return None
    with suppress(UnicodeError):
        return quote(plain.decode().replace("%22", '"'))
    return quote(plain.decode("latin-1"))


def _malformed(why: str) -> RequestError:
    return RequestError(400, f"the form cannot be read: {why}; send the file with curl -F file=@match.mp4")
