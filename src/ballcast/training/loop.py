"""The training loop, the same for every kind of training, in a folder that a killed run is resumed from.

run/config.yaml        the recipe            run/best/     the model with the best validation score
run/environment.json   versions, git, seed   run/last/     the newest model
run/steps.csv          losses of each step   run/state.safetensors   everything needed to resume
run/epochs.csv         scores of each epoch  run/tensorboard/

`Trainer` is the loop, `step.TrainStep` a step. What is trained is a `Task`: `AnticipationTask`, `EndToEndTask`,
`PretrainTask` or `FeedTask`, each in a file of its name.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ballcast.core.anticipator_config import Recipe
from ballcast.core.errors import BallcastError
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.files import sweep
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.util import keep_freed_memory
from ballcast.training import checkpoint
from ballcast.training.checkpoint import Progress
from ballcast.training.distributed import Ranks
from ballcast.training.ema import Ema
from ballcast.training.optimizer import set_learning_rate
from ballcast.training.progress import ProgressUpdate, Show, ignore
from ballcast.training.run_folder import RunLog, check_folder, extends_training, run_lock, write_run_config
from ballcast.training.step import TrainStep

AnyRecipe = Recipe | PretrainRecipe | FeedRecipe
READ_EVERY = 25  # steps between two reads of the losses from a GPU; each read makes the host wait


class NotFinite(BallcastError):
    """A loss became NaN or infinite."""


@dataclass(frozen=True)
class RunContext:
    """Where a run is: its folder, device and process, and whether the folder holds a run of this recipe already."""

    folder: Path
    device: torch.device
    ranks: Ranks = field(default_factory=Ranks)
    resumed: bool = False  # from a saved state
    extended: bool = False  # resumed with more epochs than it was started with


def open_run(recipe: AnyRecipe, folder: Path, device: torch.device, ranks: Ranks) -> RunContext:
    """Check that a run of this recipe can be written to, or resumed from, `folder`; an InputError if not."""
    if ranks.writes:
        check_folder(folder)
    resumed = (folder / checkpoint.FILE_NAME).exists()
    extended = resumed and extends_training(recipe, folder)
    return RunContext(folder, device, ranks, resumed, extended)


class Task(Protocol):
    """What a `Trainer` trains.

    Attributes:
        learner: everything that the optimizer changes and the state holds.
        optimizer: of the learner.
        ema: the moving average of the learner's weights, which is evaluated and saved; None: no averaging.
        step: changes the weights by a batch.
        step_columns: of steps.csv: step, epoch, lr, then a name for each loss.
        epoch_columns: of epochs.csv: epoch, seconds, the same losses, then names of scores.
        samples_per_step: samples of a step in all processes, for the speed that is shown.
        patience: stop after this many epochs without a better score; 0: never.
        metadata: of the saved model; the loop adds the epoch and its validation score.
        steps_per_epoch: steps of an epoch.
        validates: whether there is anything to validate on; if not, the newest model is the best.
    """

    optimizer: torch.optim.Optimizer
    ema: Ema | None
    step: TrainStep[Any]
    step_columns: tuple[str, ...]
    epoch_columns: tuple[str, ...]
    samples_per_step: int
    patience: int

    @property
    def learner(self) -> nn.Module: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def validates(self) -> bool: ...

    def prepare(self, step: int) -> None:
        """Get ready for step number `step` of the run, in the locked folder."""

    def training(self) -> AbstractContextManager[None]:
        """Train mode, and the switches that the steps need, within the block."""

    def batches(self, epoch: int, first: int) -> Iterator[Any]:
        """The batches of an epoch from step `first` on."""

    def learning_rate(self, step: int) -> float:
        """The rate of step number `step` of the run."""

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


def train_one_epoch(task: Task, epoch: int, first: int = 0) -> Iterator[tuple[float, Tensor]]:
    """Train for an epoch, or for the rest of it from step `first` on.

    Yields:
        After each step its learning rate and losses (n,), which may still be under way on the device.
    """
    begin = epoch * task.steps_per_epoch + first
    with task.training(), closing(task.batches(epoch, first)) as batches:  # type: ignore[type-var]
        for number, batch in enumerate(batches, start=begin):
            rate = task.learning_rate(number)
            set_learning_rate(task.optimizer, rate)
            yield rate, task.step(batch)


def read_losses(
    steps: Iterator[tuple[float, Tensor]], count: int, device: torch.device
) -> Iterator[tuple[list[float], Tensor]]:
    """Read the losses of `count` steps, several steps at a time on a GPU.

    Yields:
        The learning rates of the steps since the last read, and their losses (steps, n) on the CPU.
    """
    every = READ_EVERY if device.type == "cuda" else 1
    rates: list[float] = []
    unread: list[Tensor] = []
    for done, (rate, losses) in enumerate(steps, start=1):
        rates.append(rate)
        unread.append(losses)
        if len(unread) == every or done == count:
            yield rates, torch.stack(unread).cpu()
            rates, unread = [], []


T = TypeVar("T", bound=Task)


class Trainer(Generic[T]):
    """Trains a task into a run's folder, or resumes it there.

    Args:
        task: what to train.
        recipe: of the run.
        context: where the run is, see `open_run`.
        show: called with the progress after some steps and after each epoch.

    Attributes:
        progress: how far the run is.
    """

    def __init__(self, task: T, recipe: AnyRecipe, context: RunContext, show: Show = ignore) -> None:
        self.task = task
        self.recipe = recipe
        self.context = context
        self.show = show
        self.progress = Progress()
        if context.resumed:
            state = context.folder / checkpoint.FILE_NAME
            self.progress = checkpoint.load_state(state, task.learner, task.optimizer, task.ema)
        if context.extended:
            self.progress.finished = False
        rank = context.ranks.rank
        if rank:  # only rank 0's random state is saved; other ranks get a seed from the step and their rank
            torch.manual_seed(recipe.train.seed + 1_000_003 * self.progress.step + rank)

    def fit(self) -> Progress:
        """Train to the last epoch.

        Returns:
            How far the run is, and its best score.
        """
        with run_lock(self.context.folder) if self.context.ranks.writes else nullcontext():
            if self.context.ranks.writes:
                sweep(self.context.folder)
            if not self.progress.finished:
                self._train()
        return self.progress

    def _train(self) -> None:
        task, progress, context = self.task, self.progress, self.context
        self.per_epoch = task.steps_per_epoch
        if context.device.type == "cpu":
            keep_freed_memory()
        if context.ranks.writes and (context.extended or not context.resumed):
            write_run_config(context.folder, self.recipe, context.device, context.ranks.count)
        task.prepare(progress.step)
        self.run_log = RunLog(
            context.folder,
            progress,
            steps=task.step_columns,
            epochs=task.epoch_columns,
            per_epoch=self.per_epoch,
            writes=context.ranks.writes,
        )
        with closing(self.run_log):
            for epoch in range(progress.step // self.per_epoch, self.recipe.train.epochs):
                self._train_epoch(epoch, first=progress.step - epoch * self.per_epoch)
                if task.patience and task.validates and epoch + 1 - progress.best_epoch >= task.patience:
                    break
            task.finish(progress, self.run_log.seconds)
            progress.finished = True
            self._save_state()

    def _train_epoch(self, epoch: int, first: int) -> None:
        """Train from step `first` to the end of the epoch, validate, and save the model and the state."""
        task, total = self.task, self.per_epoch
        began = last = time.perf_counter()
        done = first
        with closing(train_one_epoch(task, epoch, first)) as steps:  # type: ignore[type-var]
            for rates, losses in read_losses(steps, total - first, self.context.device):
                now = time.perf_counter()
                self._require_finite(losses, epoch, done)
                done += len(rates)
                speed = len(rates) * task.samples_per_step / max(now - last, 1e-9)
                last = now
                self._log_steps(epoch, done, rates, losses, speed)
        seconds = time.perf_counter() - began
        with task.ema.swapped() if task.ema is not None else nullcontext():  # what is scored is what is saved
            score = task.evaluate(epoch)
            better = self._save_model(epoch, score)
        curves = task.curves(score) if score else {}
        names = task.epoch_columns[2 + len(task.step_columns[3:]) :]  # after epoch, seconds and losses: the scores
        mean = self.run_log.add_epoch(epoch, seconds, [curves.get(name, float("nan")) for name in names], curves)
        self._save_state()
        speed = total * task.samples_per_step / max(seconds, 1e-9)
        self.show(ProgressUpdate(epoch, total, total, self.run_log.rate, mean, speed, score, better, ended=True))

    def _require_finite(self, losses: Tensor, epoch: int, first: int) -> None:
        """Raise NotFinite unless all losses (steps, n), of step `first` and those after it, are finite."""
        bad = (~losses.isfinite().all(dim=1)).nonzero()
        if len(bad):
            step = first + int(bad[0])
            loss = losses[int(bad[0]), 0].item()
            raise NotFinite(
                f"epoch {epoch + 1} step {step + 1}: the loss is {loss}; {self.task.explain(epoch, step)}; "
                "the last saved state is from before"
            )

    def _log_steps(self, epoch: int, done: int, rates: list[float], losses: Tensor, speed: float) -> None:
        """Log and show steps; save the state if that is due."""
        ranks = self.context.ranks
        every = self.recipe.train.save_every
        progress = self.progress
        if ranks.count > 1:
            losses = ranks.mean(losses.to(self.context.device)).cpu()
        named = self.run_log.add_steps(epoch, rates, losses.tolist())
        self.show(ProgressUpdate(epoch, done, self.per_epoch, rates[-1], named, speed))
        # `add_steps` has advanced the step; save if a multiple of `save_every` is among the steps just read.
        if every and progress.step % every < len(rates) and done < self.per_epoch:
            self._save_state()

    def _save_model(self, epoch: int, score: Any) -> bool:
        """Write the model as run/last, and as run/best if it is the best so far; returns whether it is."""
        task, progress = self.task, self.progress
        better = bool(score.avg > progress.best if score else not task.validates)
        if better:
            progress.best = score.avg if score else -1.0
            progress.best_epoch = epoch + 1
        task.metadata["epoch"] = epoch + 1
        task.metadata.pop("validation", None)
        if score:
            task.metadata["validation"] = score.as_dict()
        if self.context.ranks.writes:
            if better:
                task.save("best")
            task.save("last")
        return better

    def _save_state(self) -> None:
        self.run_log.save(self.task.learner, self.task.optimizer, self.task.ema)
