"""Output of `ballcast live`: a view in the terminal, or JSON lines. Imported only when the command runs."""

import json
import os
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, SHORT_NAMES
from ballcast.core.errors import InputError
from ballcast.core.files import watching_space
from ballcast.core.palette import DARK
from ballcast.live.status import LAST, LiveForecast, Record, State, Status

_NO_FRAME: frozenset[State] = frozenset({"opening", "reconnecting", "waiting", *LAST})  # before the first frame
_KEPT = 64  # records kept from before the first frame: waiting for a source may take all night


class JsonLines:
    """A file of JSON lines; enter it, then `write` records.

    The file is opened, and its old content lost, only at the first frame: a mistyped address does not cost an earlier
    recording. Records from before the first frame are then written first.
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
            with suppress(OSError):  # every line was flushed, or its failure was reported
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
    """Discard the rest of the output: its reader is gone, and Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), allow_nan=False) + "\n"


ROWS = 6
BAR = 30
_STYLES = {"running": "green", "ended": "dim", "stopped": "dim", "error": "red", "opening": "dim"}


class LiveView:
    """A view of the coming actions, redrawn with each forecast; enter it, then `show` records."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._made: LiveForecast | None = None
        self._status: Status | None = None

    def show(self, record: Record) -> None:
        if isinstance(record, LiveForecast):
            self._made = record
        elif isinstance(record, Status):
            self._status = record
        self._live.update(self.render(), refresh=True)

    def render(self) -> RenderableType:
        return Group(self._actions(), self._line())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def _actions(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "right", "right", "left", "right"):
            table.add_column(justify=justify)
        coming = self._made.forecast if self._made is not None else None
        listed = sorted(coming.predictions, key=lambda p: -p.confidence)[:ROWS] if coming is not None else []
        for p in sorted(listed, key=lambda p: p.position_ms):
            assert coming is not None
            action = ACTION_INDEX[p.label]
            ahead = p.position_ms - coming.at_ms
            hue = DARK.actions[action]
            place = min(BAR - 1, BAR * ahead // HORIZON_MS)
            axis = Text().append("·" * place, "dim").append("●", hue).append("·" * (BAR - 1 - place), "dim")
            within = f"{100 * coming.within_5s[action]:.0f} % within 5 s" if coming.within_5s else ""
            table.add_row(
                Text(SHORT_NAMES[action], hue),
                f"in {ahead / 1000:.1f} s",
                f"{100 * p.confidence:.0f} %",
                axis,
                Text(within, "dim"),
            )
        for _ in range(ROWS - len(listed)):
            table.add_row("", "", "", "", "")
        return table

    def _line(self) -> Text:
        if self._status is None:
            return Text("")
        at_ms = self._made.forecast.at_ms if self._made is not None else self._status.at_ms
        clock = f"{at_ms // 60_000:02d}:{at_ms // 1000 % 60:02d}"
        text = Text(f"{clock}  ").append(self._status.message, _STYLES.get(self._status.state, "yellow"))
        if self._made is not None:
            text.append(f"   {self._made.latency_ms:.0f} ms after the last frame", "dim")
        return text
