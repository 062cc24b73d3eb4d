"""A training run: one loop for every kind of training, in a folder that a killed run is resumed from.

run/config.yaml        the recipe            run/best/     the model with the best validation score
run/environment.json   versions, git, seed   run/last/     the newest model
run/steps.csv          losses of each step   run/state.safetensors   everything needed to resume
run/epochs.csv         scores of each epoch  run/tensorboard/

`Trainer` is the loop. What it trains is a `Task`: `engine.AnticipationTask`, `end_to_end.EndToEndTask` or
`pretrain.PretrainTask`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ballcast.core.anticipator_config import Recipe
from ballcast.core.errors import InputError
from ballcast.core.files import sweep
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.util import keep_freed_memory
from ballcast.training import checkpoint
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.engine import AnticipationTask, NotFinite, Ranks, read_losses
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run_folder import RunLog, check_folder, extends_training, run_lock, write_run_config
from ballcast.training.splits import TrainingData, open_training_data

if TYPE_CHECKING:
    from ballcast.training.end_to_end import EndToEndData

Show = Callable[[ProgressUpdate], None]
Log = Callable[[str], None]


def ignore(shown: ProgressUpdate | str) -> None:
    """Show nothing: the default of `show` and `log`."""


@dataclass(frozen=True)
class RunContext:
    """Where a run is: its folder, device and process, and whether the folder holds a run of this recipe already."""

    folder: Path
    device: torch.device
    ranks: Ranks
    resumed: bool  # from a saved state
    extended: bool  # resumed with more epochs than it was started with


def open_run(config: Recipe | PretrainRecipe, folder: Path, device: torch.device, ranks: Ranks) -> RunContext:
    """Check that a run of this recipe can be written to, or resumed from, `folder`; an InputError if not."""
    if ranks.writes:
        check_folder(folder)
    resumed = (folder / checkpoint.FILE_NAME).exists()
    return RunContext(folder, device, ranks, resumed, resumed and extends_training(config, folder))


class Task(Protocol):
    """What a `Trainer` trains.

    Attributes:
        learner: everything that the optimizer changes and the state holds.
        optimizer, ema: of the learner; `ema` None: no moving average.
        metadata: of the saved model; the loop adds the epoch and its validation score.
        step_columns: of steps.csv: step, epoch, lr, then a name for each loss.
        epoch_columns: of epochs.csv: epoch, seconds, the same losses, then names of scores.
        steps_per_epoch: steps of an epoch.
        samples_per_step: samples of a step in all processes, for the speed that is shown.
        validates: whether there is anything to validate on; if not, the newest model is the best.
        patience: stop after so many epochs without a better score; 0: never.
    """

    learner: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    step_columns: tuple[str, ...]
    epoch_columns: tuple[str, ...]
    samples_per_step: int
    patience: int

    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def validates(self) -> bool: ...

    def prepare(self, step: int) -> None:
        """Get ready for step number `step` of the run, in the locked folder."""

    def train_epoch(self, epoch: int, first: int) -> Iterator[tuple[float, Tensor]]:
        """Train from step `first` of the epoch; yields each step's learning rate and losses (n,)."""

    def evaluate(self, epoch: int) -> Any:
        """Score after the epoch, with its main figure as `avg` and `as_dict()`; None: not validated."""

    def curves(self, score: Any) -> dict[str, float]:
        """The figures of a score by name, among them those of `epoch_columns`."""

    def save(self, name: str) -> None:
        """Write the model to run/`name`."""

    def explain(self, epoch: int, step: int) -> str:
        """What to look at if the loss of this step, counted from 0 in its epoch, is not finite."""

    def finish(self, progress: Progress, seconds: float) -> None:
        """Do what is left after the last epoch; `seconds` is the training time of all epochs."""


T = TypeVar("T", bound=Task)


class Trainer(Generic[T]):
    """The training loop: trains a task into a run's folder, or resumes it there.

    Args:
        task: what to train.
        config: the recipe.
        context: where the run is, see `open_run`.
        show: called with the progress after some steps and after each epoch.
    """

    def __init__(self, task: T, config: Recipe | PretrainRecipe, context: RunContext, show: Show = ignore) -> None:
        self.task, self.config, self.context, self.show = task, config, context, show
        self.progress = Progress()
        if context.resumed:
            state = context.folder / checkpoint.FILE_NAME
            self.progress = checkpoint.load_state(state, task.learner, task.optimizer, task.ema)
        if context.extended:
            self.progress.finished = False
        rank = context.ranks.rank
        if rank:  # only rank 0's random state is saved; other ranks get a seed from the step and their rank
            torch.manual_seed(config.train.seed + 1_000_003 * self.progress.step + rank)

    def fit(self) -> Progress:
        """Train to the last epoch.

        Returns:
            How far the run is, and its best score.
        """
        with run_lock(self.context.folder) if self.context.ranks.writes else nullcontext():
            return self._fit()

    def _fit(self) -> Progress:
        task, progress, context = self.task, self.progress, self.context
        writes, self.per_epoch = context.ranks.writes, task.steps_per_epoch
        if writes:
            sweep(context.folder)
        if progress.finished:
            return progress
        if context.device.type == "cpu":
            keep_freed_memory()
        if writes and (context.extended or not context.resumed):
            write_run_config(context.folder, self.config, context.device, context.ranks.count)
        task.prepare(progress.step)
        self.run_log = RunLog(
            context.folder,
            progress,
            steps=task.step_columns,
            epochs=task.epoch_columns,
            per_epoch=self.per_epoch,
            writes=writes,
        )
        try:
            for epoch in range(progress.step // self.per_epoch, self.config.train.epochs):
                self._epoch(epoch, first=progress.step - epoch * self.per_epoch)
                if task.patience and task.validates and epoch + 1 - progress.best_epoch >= task.patience:
                    break
            task.finish(progress, self.run_log.seconds)
            progress.finished = True
            self._save()
        finally:
            self.run_log.close()
        return progress

    def _epoch(self, epoch: int, first: int) -> None:
        task, total, device = self.task, self.per_epoch, self.context.device
        steps = task.train_epoch(epoch, first)
        began = last = time.perf_counter()
        done = first
        with closing(steps):  # type: ignore[type-var]
            for rates, losses in read_losses(steps, total - first, device):
                now = time.perf_counter()
                self._require_finite(losses, epoch, done)
                done += len(rates)
                speed = len(rates) * task.samples_per_step / max(now - last, 1e-9)
                last = now
                self._log_steps(epoch, done, rates, losses, speed)
        seconds = time.perf_counter() - began
        with task.ema.swapped() if task.ema is not None else nullcontext():  # what is scored is what is saved
            score = task.evaluate(epoch)
            better = self._keep(epoch, score)
        curves = task.curves(score) if score else {}
        names = task.epoch_columns[2 + len(task.step_columns[3:]) :]  # after epoch, seconds and losses: the scores
        mean = self.run_log.add_epoch(epoch, seconds, [curves.get(name, float("nan")) for name in names], curves)
        self._save()
        speed, rate = total * task.samples_per_step / max(seconds, 1e-9), self.run_log.rate
        self.show(ProgressUpdate(epoch, total, total, rate, mean, speed, score, better, ended=True))

    def _require_finite(self, losses: Tensor, epoch: int, first: int) -> None:
        """Raise NotFinite unless all losses (steps, n), of step `first` and those after it, are finite."""
        bad = (~losses.isfinite().all(dim=1)).nonzero()
        if len(bad):
            step, loss = first + int(bad[0]), losses[int(bad[0]), 0].item()
            raise NotFinite(
                f"epoch {epoch + 1} step {step + 1}: the loss is {loss}; {self.task.explain(epoch, step)}; "
                "the last saved state is from before"
            )

    def _log_steps(self, epoch: int, done: int, rates: list[float], losses: Tensor, speed: float) -> None:
        """Log and show steps; save the state if that is due."""
        ranks, every, progress = self.context.ranks, self.config.train.save_every, self.progress
        if ranks.count > 1:
            losses = ranks.mean(losses.to(self.context.device)).cpu()
        named = self.run_log.add_steps(epoch, rates, losses.tolist())
        self.show(ProgressUpdate(epoch, done, self.per_epoch, rates[-1], named, speed))
        # `add_steps` has advanced the step; save if a multiple of `save_every` is among the steps just read.
        if every and progress.step % every < len(rates) and done < self.per_epoch:
            self._save()

    def _keep(self, epoch: int, score: Any) -> bool:
        """Write the model as run/last, and as run/best if it is the best so far; returns whether it is."""
        task, progress = self.task, self.progress
        better = score.avg > progress.best if score else not task.validates
        if better:
            progress.best, progress.best_epoch = (score.avg if score else -1.0), epoch + 1
        task.metadata["epoch"] = epoch + 1
        task.metadata.pop("validation", None)
        if score:
            task.metadata["validation"] = score.as_dict()
        if self.context.ranks.writes:
            if better:
                task.save("best")
            task.save("last")
        return bool(better)

    def _save(self) -> None:
        self.run_log.save(self.task.learner, self.task.optimizer, self.task.ema)


def train(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    ranks: Ranks | None = None,
    show: Show = ignore,
    training_data: "TrainingData | EndToEndData | None" = None,
    log: Log = ignore,
) -> Progress:
    """Train an anticipator by a recipe, or resume a killed run of the same recipe.

    Args:
        recipe: what to train, on what and how.
        folder: the run's folder.
        device: where to compute.
        ranks: this process among those of the run; None: it is the only one.
        show: called with the progress after some steps and after each epoch.
        training_data: replaces the windows of the stores, or the frames of the games, that the recipe names.
        log: called with one line about the samples before the first step.

    Returns:
        How far the run is, and its best score.
    """
    return open_trainer(
        recipe, folder, device=device, ranks=ranks, show=show, training_data=training_data, log=log
    ).fit()


def open_trainer(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    ranks: Ranks | None = None,
    show: Show = ignore,
    training_data: "TrainingData | EndToEndData | None" = None,
    log: Log = ignore,
) -> "Trainer[Any]":
    """Build what `train` runs, with an `AnticipationTask` or an `EndToEndTask`; arguments as of `train`."""
    ranks = ranks or Ranks()
    context = open_run(recipe, folder, device, ranks)
    if recipe.train.batch % ranks.count:
        raise InputError(f"train.batch={recipe.train.batch} does not divide among {ranks.count} processes")
    if recipe.train.backbone == "end_to_end":
        from ballcast.training.end_to_end import EndToEndData, EndToEndTask

        frames = training_data if isinstance(training_data, EndToEndData) else None
        resumed = context.resumed
        return Trainer(
            EndToEndTask(recipe, folder, device, ranks, frames, resumed=resumed, log=log), recipe, context, show
        )
    data = training_data if isinstance(training_data, TrainingData) else open_training_data(recipe)
    if recipe.data.mirror and not data.train.mirrored:
        raise InputError("data.mirror is for event feeds; features of a video cannot be mirrored, so set it to 0")
    return Trainer(AnticipationTask.on_features(recipe, folder, device, ranks, data, log), recipe, context, show)
