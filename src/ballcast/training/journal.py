"""What a run writes down of its steps and epochs, and the state it goes on from: saved together, so that they agree."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ballcast.training.checkpoint import FILE_NAME, Progress, save_state
from ballcast.training.ema import Ema
from ballcast.training.log import Curves, Table


class Journal:
    """steps.csv, epochs.csv, curves and the state in a run's folder; a resumed run drops what came after its state.

    Args:
        folder: the run's.
        progress: how far the run is; its steps are counted here.
        steps: columns of steps.csv: step, epoch, lr, then a loss each. epochs: of epochs.csv: epoch, seconds, the same
            losses, then scores.
        per_epoch: steps of an epoch.
        writes: False in the processes of a run that leave that to another.
    """

    def __init__(
        self,
        folder: Path,
        progress: Progress,
        *,
        steps: Sequence[str],
        epochs: Sequence[str],
        per_epoch: int,
        writes: bool = True,
    ) -> None:
        self._folder, self._progress, self._writes = folder, progress, writes
        self._losses = tuple(steps[3:])
        self._steps = Table(folder / "steps.csv", steps, keep_through=progress.step - 1)
        self._epochs = Table(folder / "epochs.csv", epochs, keep_through=progress.step // per_epoch)
        self._curves = Curves(folder / "tensorboard" if writes else None, first_step=progress.step)

    @property
    def rate(self) -> float:
        """The last step's learning rate."""
        return float(self._steps.rows[-1][2])

    @property
    def seconds(self) -> float:
        """Of all epochs together."""
        return sum(float(row[1]) for row in self._epochs.rows)

    def add_steps(self, epoch: int, rates: Sequence[float], losses: Sequence[Sequence[float]]) -> dict[str, float]:
        """The next steps, of the epoch counted from 0: each one's learning rate and losses. Gives the last losses."""
        for rate, row in zip(rates, losses, strict=True):
            self._steps.add(self._progress.step, epoch + 1, rate, *row)
            self._progress.step += 1
        named = dict(zip(self._losses, losses[-1], strict=True))
        curves = {f"train/{name}": loss for name, loss in named.items()} | {"train/lr": rates[-1]}
        self._curves.add(curves, self._progress.step)
        return named

    def add_epoch(
        self, epoch: int, seconds: float, scores: Sequence[float], curves: Mapping[str, float]
    ) -> dict[str, float]:
        """The epoch that is over: its scores for the table, and those for the curves. Gives its mean losses."""
        rows = [[float(loss) for loss in row[3:]] for row in self._steps.rows if int(row[1]) == epoch + 1]
        mean = np.mean(rows, axis=0).tolist()
        self._epochs.add(epoch + 1, seconds, *mean, *scores)
        self._curves.add({f"valid/{name}": score for name, score in curves.items()}, self._progress.step)
        return dict(zip(self._losses, mean, strict=True))

    def save(self, learner: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        """Logs first, state last: a kill in between leaves logs that are longer than the state, and these are cut."""
        if self._writes:
            self._steps.write()
            self._epochs.write()
            save_state(self._folder / FILE_NAME, learner, optimizer, self._progress, ema)

    def close(self) -> None:
        self._curves.close()
