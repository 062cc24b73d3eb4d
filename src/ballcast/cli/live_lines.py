"""The JSON lines of `ballcast live`: a record a line, in a file or on stdout."""

import json
import os
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ballcast.core.errors import InputError
from ballcast.core.files import watching_space
from ballcast.inference.live_records import LAST, Record, State, Status

_NO_FRAME: frozenset[State] = frozenset({"opening", "waiting", *LAST})  # what is told before the first frame
_KEPT = 64  # of the records before the first frame: a source may be waited for all night


class Lines:
    """A file of JSON lines; enter it, then `write` records.

    It is opened, and what it held is gone, only when the source has given a frame: a mistyped address does not cost an
    earlier recording. What was told before that is then written first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._before: deque[Record] = deque(maxlen=_KEPT)

    def write(self, record: Record) -> None:
        self._before.append(record)
        if self._file is None:
            if isinstance(record, Status) and record.state in _NO_FRAME:
                return
            try:
                self._file = self._path.open("w", encoding="utf-8")
            except OSError as error:
                raise InputError(f"{self._path}: cannot be written: {error.strerror}") from None
        with watching_space(self._path):
            while self._before:
                self._file.write(_line(self._before.popleft()))
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with suppress(OSError):  # every line was flushed, or has failed to be and was told
                self._file.close()


def write_to_stdout(record: Record) -> None:
    try:
        sys.stdout.write(_line(record))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_stdout()
        raise InputError(f"stdout: cannot be written: {error.strerror}") from None


def forget_stdout() -> None:
    """Nobody takes our output any more: the rest of it goes nowhere, or Python complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), allow_nan=False) + "\n"
