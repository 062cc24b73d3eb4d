"""What an interrupted `predict` has made: JSON lines beside the file it will write, so that it can resume.

Each line ends with a tab and its CRC-32.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap
from ballcast.core.files import make_parents, watching_space

SUFFIX = ".part"
LATEST_MS = 10**9  # of a video: eleven days
Item = Forecast | Gap


class PartialTimeline:
    """The forecasts and gaps made so far; enter it, then `append`.

    target: the file that will be written. key: all that they depend on; a part with another key is discarded.

    Attributes:
        kept: from an earlier run, up to its last forecast.
        complete: whether the earlier run came to the video's end.
    """

    def __init__(self, target: Path, key: Mapping[str, Any]) -> None:
        self.path = target.with_name(target.name + SUFFIX)
        self._key = json.dumps(key, sort_keys=True)
        self._file: IO[str] | None = None
        self.kept: list[Item] = []
        self.complete = False

    def __enter__(self) -> Self:
        make_parents(self.path)
        self._read()
        with watching_space(self.path):
            self._file = self.path.open("w", encoding="utf-8")  # without what is half a line, or of another key
            self._write([self._key, *map(_line, self.kept)])
            if self.complete:
                self.finish()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with watching_space(self.path):  # a write that failed is tried again here
                self._file.close()
        if isinstance(error, InputError):  # it would come again
            self.remove()

    def append(self, items: Iterable[Item]) -> None:
        """Add what was made, on the disk as soon as this returns."""
        with watching_space(self.path):
            self._write(map(_line, items))

    def finish(self) -> None:
        """The video is at its end; only files have to be written."""
        with watching_space(self.path):
            self._write(["null"])

    def remove(self) -> None:
        """The files are written."""
        self.path.unlink(missing_ok=True)

    def _write(self, lines: Iterable[str]) -> None:
        assert self._file is not None
        self._file.writelines(f"{line}\t{_checksum(line)}\n" for line in lines)
        self._file.flush()

    def _read(self) -> None:
        try:
            whole = self.path.read_text("utf-8").split("\n")[:-1]  # what has no end was cut off
            first, *lines = map(_checked, whole)
            if first != self._key:
                return
            for line in lines:
                record = json.loads(line)
                if record is None:
                    self.complete = True
                else:
                    self.kept.append(_item(record))
        # Missing, of another key, or damaged: start from the beginning.
        except (OSError, ValueError, LookupError, TypeError, OverflowError, AttributeError, RecursionError, InputError):
            self.kept = []
            self.complete = False
        while not self.complete and self.kept and isinstance(self.kept[-1], Gap):  # will be found again
            self.kept.pop()


def _item(record: Any) -> Item:
    """What a record holds; a ValueError, or another, unless it is one that `_line` gives."""
    item: Item
    if "from" in record:
        item = gap = Gap.from_json(record)
        times = [gap.begin_ms, gap.end_ms]
        good = isinstance(gap.reason, str) and gap.kind in ("damage", "pitch")
    else:
        item = made = Forecast.from_json(record)
        times = [made.at_ms, *(p.position_ms for p in made.predictions)]
        good = all(isinstance(v, int | float) for p in made.predictions for v in (p.confidence, *p.scores))
    in_time = all(type(ms) is int and 0 <= ms < LATEST_MS for ms in times)
    if not good or not in_time or json.loads(_line(item)) != record:
        raise ValueError("not a record of a timeline")
    return item


def _checksum(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def _checked(written: str) -> str:
    """The line without its checksum; a ValueError if it was damaged."""
    line, _, checksum = written.rpartition("\t")
    if checksum != _checksum(line):
        raise ValueError("its checksum differs")
    return line


def _line(item: Item) -> str:
    return json.dumps(item.to_json(), allow_nan=False)
