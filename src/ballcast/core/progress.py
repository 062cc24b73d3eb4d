"""Progress of long work: library functions call a `ProgressCallback`, commands show it as a bar."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from ballcast.core.actions import FPS

if TYPE_CHECKING:
    from rich.console import Console

# What stands after the count of a bar, as a rich template.
FRAMES = "frames, {task.fields[rate]:.0f} a second,"
REAL_TIME = "frames, {task.fields[times]:.1f} × real time,"
MATCHES = "matches,"


class ProgressCallback(Protocol):
    """Takes how many steps are done and how many there are; None: not known."""

    def __call__(self, done: int, total: int | None, /) -> None: ...


ProgressBar = Callable[[], AbstractContextManager[ProgressCallback]]  # opens a bar


def no_progress(done: int, total: int | None, /) -> None:
    """Show nothing: the default of a `ProgressCallback`."""


@contextmanager
def no_bar() -> Iterator[ProgressCallback]:
    """Show nothing: the default of a `ProgressBar`."""
    yield no_progress


@contextmanager
def progress_bar(
    console: "Console", label: str = "", *, unit: str = "", total: int | None = None
) -> Iterator[ProgressCallback]:
    """Show a bar with the time left; nothing if not in a terminal.

    Args:
        console: where to draw.
        label: before the bar.
        unit: `FRAMES`, `REAL_TIME` or `MATCHES`: the bar has a count and stays when it is full. By default it is
            only a bar, and disappears.
        total: number of steps, if the work itself does not report it.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn(label)] if label else []
    columns.append(BarColumn())
    if unit:
        columns += [MofNCompleteColumn(), TextColumn(unit)]
    columns.append(TimeRemainingColumn())
    if unit:
        columns.append(TextColumn("left"))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=not unit) as bar:
        task = bar.add_task("", total=total, rate=0.0, times=0.0)

        def advance(done: int, total: int | None, /) -> None:
            rate = bar.tasks[task].speed or 0.0
            bar.update(task, completed=done, total=total, rate=rate, times=rate / FPS)

        yield advance
