"""Progress of a run in a terminal: a bar with losses, rate, speed and time left, and a line an epoch."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ballcast.metrics.spotting import SpottingScore


class ScoreLike(Protocol):
    """A score with one number to go by, a fraction."""

    @property
    def avg(self) -> float: ...


@dataclass(frozen=True)
class ProgressUpdate:
    """Progress of a run after some of its steps."""

    epoch: int  # counted from 0
    step: int  # steps done in this epoch
    steps: int  # steps of an epoch
    rate: float
    losses: dict[str, float]
    samples_per_s: float
    score: ScoreLike | None = None  # after an epoch with validation
    better: bool = False  # than all epochs before
    ended: bool = False  # the epoch is over


Show = Callable[[ProgressUpdate], None]
Log = Callable[[str], None]


def ignore(update: ProgressUpdate | str) -> None:
    """Show nothing: the default of `show` and `log`."""


AFTER = 25  # steps measured before the estimate is logged


class Estimate:
    """Log once how long the rest of a run takes; call it with the number of steps done.

    Time is measured from the first call on, since compiling and reading come before it.

    Args:
        total: steps of the run.
        log: called with the estimate.
    """

    def __init__(self, total: int, log: Log) -> None:
        self._total = total
        self._log = log
        self._first: tuple[int, float] | None = None  # steps done at the first look, and when that was
        self._announced = False

    def __call__(self, done: int) -> None:
        now = time.perf_counter()
        if self._first is None:
            self._first = (done, now)
        steps, seconds = done - self._first[0], now - self._first[1]
        if steps < AFTER or self._announced:
            return
        self._announced = True
        left = self._total - done
        minutes = left * seconds / steps / 60
        each = 1000 * seconds / steps
        self._log(f"{each:.0f} ms a step: {minutes:.1f} minutes for the {left} to go, without scoring")


def show_estimate(show: Show, log: Log, total: int) -> Show:
    """`show`, and lines with the time left of `total` steps and with each epoch's scores."""
    estimate = Estimate(total, log)

    def show_all(update: ProgressUpdate) -> None:
        show(update)
        if not update.ended:
            estimate(update.epoch * update.steps + update.step)
        elif isinstance(update.score, SpottingScore):
            log(f"  {update.score.summary()}")

    return show_all


class Display:
    """Context manager with a progress bar, from the first step on; without a terminal only the lines of epochs appear.

    Args:
        console: where to print.
        epochs: of the run.
        measure: name of the score.
        quiet: print nothing.
    """

    def __init__(self, console: Console, epochs: int, *, measure: str = "mAP", quiet: bool = False) -> None:
        self.console = console
        self.epochs = epochs
        self.measure = measure
        self.quiet = quiet
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, epoch="", numbers="")

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def log(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, update: ProgressUpdate) -> None:
        """Draw the bar; after an epoch, print its line."""
        if self.quiet:
            return
        self._bar.start()  # not before: the bar of decoding comes first
        name = f"{update.epoch + 1}/{self.epochs}"
        losses = update.losses
        terms = " ".join(f"{key if key == 'loss' else key[:3]} {value:.3f}" for key, value in losses.items())
        if not update.ended:
            done = update.epoch * update.steps + update.step
            self._bar.update(
                self._task,
                total=self.epochs * update.steps,
                completed=done,
                epoch=name,
                numbers=f"{terms} lr {update.rate:.1e} {update.samples_per_s:.0f} samples/s",
            )
            return
        best = " best" if update.better else ""
        valid = f" valid {self.measure} {100 * update.score.avg:.2f}{best}" if update.score else ""
        self.console.print(
            f"epoch {name}: {terms} lr {update.rate:.1e} {update.samples_per_s:.0f} samples/s{valid}", soft_wrap=True
        )
