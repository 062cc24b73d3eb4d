"""What a run shows in a terminal: a bar with losses, rate, speed and time left, and a line an epoch."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ballcast.training.moment import Moment


class Display:
    """Context manager; `show` takes the run's moments. Off a terminal only the epochs' lines appear.

    `measure`: what the moments' score is called.
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
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, moment: Moment) -> None:
        if self.quiet:
            return
        name, losses = f"{moment.epoch + 1}/{self.epochs}", moment.losses
        terms = " ".join(f"{key if key == 'loss' else key[:3]} {value:.3f}" for key, value in losses.items())
        if not moment.ended:
            done = moment.epoch * moment.steps + moment.step
            self._bar.update(
                self._task,
                total=self.epochs * moment.steps,
                completed=done,
                epoch=name,
                numbers=f"{terms} lr {moment.rate:.1e} {moment.samples_per_s:.0f} samples/s",
            )
            return
        best = " best" if moment.better else ""
        valid = f" valid {self.measure} {100 * moment.score.avg:.2f}{best}" if moment.score else ""
        self.console.print(
            f"epoch {name}: {terms} lr {moment.rate:.1e} {moment.samples_per_s:.0f} samples/s{valid}", soft_wrap=True
        )
