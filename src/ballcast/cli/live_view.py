"""What a terminal shows of a live session: the actions to come, how sure, how soon, and how the session fares."""

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, SHORT_NAMES
from ballcast.core.palette import DARK
from ballcast.inference.live_records import Made, Record, Status

ROWS, BAR = 6, 30
_STYLES = {"running": "green", "ended": "dim", "stopped": "dim", "error": "red", "opening": "dim"}


class LiveView:
    """A calm picture that changes with each anticipation; enter it, then `show` records."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._made: Made | None = None
        self._status: Status | None = None

    def show(self, record: Record) -> None:
        if isinstance(record, Made):
            self._made = record
        elif isinstance(record, Status):
            self._status = record
        self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        return Group(self._actions(), self._line())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def _actions(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "right", "right", "left"):
            table.add_column(justify=justify)
        coming = self._made.anticipation if self._made is not None else None
        listed = sorted(coming.predictions, key=lambda p: -p.confidence)[:ROWS] if coming is not None else []
        for p in sorted(listed, key=lambda p: p.position_ms):
            assert coming is not None
            action, ahead = ACTION_INDEX[p.label], p.position_ms - coming.at_ms
            hue, place = DARK.actions[action], min(BAR - 1, BAR * ahead // HORIZON_MS)
            axis = Text().append("·" * place, "dim").append("●", hue).append("·" * (BAR - 1 - place), "dim")
            table.add_row(
                Text(SHORT_NAMES[action], hue), f"in {ahead / 1000:.1f} s", f"{100 * p.confidence:.0f} %", axis
            )
        for _ in range(ROWS - len(listed)):
            table.add_row("", "", "", "")
        return table

    def _line(self) -> Text:
        if self._status is None:
            return Text("")
        at_ms = self._made.anticipation.at_ms if self._made is not None else self._status.at_ms
        clock = f"{at_ms // 60_000:02d}:{at_ms // 1000 % 60:02d}"
        text = Text(f"{clock}  ").append(self._status.message, _STYLES.get(self._status.state, "yellow"))
        if self._made is not None:
            text.append(f"   {self._made.latency_ms:.0f} ms after the last frame", "dim")
        return text
