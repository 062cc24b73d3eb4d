"""A training run: a folder that holds all of it, and that a killed run is resumed from.

run/config.yaml        the recipe            run/best/     the model with the best validation score
run/environment.json   versions, git, seed   run/last/     the newest model
run/steps.csv          losses of each step   run/state.safetensors   everything needed to go on
run/epochs.csv         scores of each epoch  run/tensorboard/
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import sweep
from ballcast.data.samples.batches import Plan, Samples, plan_epoch
from ballcast.loss.criterion import Criterion
from ballcast.loss.matcher import class_weights
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.model.anticipator import Anticipator
from ballcast.training import checkpoint
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.engine import Ranks, evaluate, train_epoch
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run_folder import (
    STEP_COLUMNS,
    RunLog,
    check_folder,
    extends_training,
    run_lock,
    write_run_config,
)
from ballcast.training.splits import TrainingData, check_stitching, describe_samples, open_training_data
from ballcast.training.steps import TrainStep, build_optimizer

EPOCH_COLUMNS = ("epoch", "seconds", *STEP_COLUMNS[3:], *TOLERANCES, "avg")


def _silent(shown: ProgressUpdate | str) -> None:
    pass


def train(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    ranks: Ranks | None = None,
    show: Callable[[ProgressUpdate], None] = _silent,
    training_data: TrainingData | None = None,
    say: Callable[[str], None] = _silent,
) -> Progress:
    """Train by the recipe into `folder`, going on where a killed run of the same recipe stopped.

    `material` replaces the windows of the stores that the recipe names. `say` is given one line about the samples
    before the first step.
    """
    if recipe.train.backbone == "finetune":
        from ballcast.training.finetune import FinetuneRun

        return FinetuneRun(recipe, folder, device, ranks or Ranks(), show, training_data, say).fit()
    return Run(recipe, folder, device, ranks or Ranks(), show, training_data, say).fit()


class Run:
    """The parts of a run, built from its recipe."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        device: torch.device,
        ranks: Ranks,
        show: Callable[[ProgressUpdate], None],
        training_data: TrainingData | None = None,
        say: Callable[[str], None] = _silent,
    ) -> None:
        self.recipe, self.folder, self.device, self.ranks, self.show = recipe, folder, device, ranks, show
        if ranks.writes:
            check_folder(folder)
        state = folder / checkpoint.FILE_NAME
        resumed = state.exists()
        if recipe.train.batch % ranks.count:
            raise InputError(f"train.batch={recipe.train.batch} does not divide among {ranks.count} processes")
        longer = resumed and extends_training(recipe, folder)
        training_data = training_data or open_training_data(recipe)
        windows = training_data.train
        if recipe.data.mirror and not windows.mirrored:
            raise InputError("data.mirror is for event feeds; features of a video cannot be mirrored, so set it to 0")
        self._open(training_data)

        torch.manual_seed(recipe.train.seed)  # the same weights in every process
        weights = class_weights(torch.from_numpy(windows.class_counts()), recipe.loss.class_weight)
        if ranks.writes:
            say(describe_samples(windows, weights))
            check_stitching(windows, weights, recipe.data)
        self.model = self._anticipator().to(device)
        self.model.metadata = {
            "backbone": to_dict(training_data.backbone),
            "class_weights": weights.tolist(),
            "pos_weight": recipe.loss.pos_weight,  # which inflates the objectness; timelines undo it
            "trained_on": list(recipe.data.train),
            "validated_on": list(recipe.data.valid),
            "leaks": training_data.leaks,
            "samples": len(windows),
            "seed": recipe.train.seed,
            "ballcast": __version__,
        }
        if training_data.picture_size:  # other videos are brought to it
            self.model.metadata["picture_size"] = list(training_data.picture_size)
        criterion = Criterion(config=recipe.loss, model=recipe.model, class_weights=weights).to(device)
        self.graphed = device.type == "cuda" and recipe.train.graph and ranks.count == 1
        self.learner = self._learner()
        self.optimizer = self._optimizer()
        self.ema = Ema(self.learner, recipe.train.ema) if recipe.train.ema else None
        self.progress = checkpoint.load_state(state, self.learner, self.optimizer, self.ema) if resumed else Progress()
        if longer:
            self.progress.finished = False
        if ranks.rank:  # dropout differs between processes; the state holds only what the first of them draws
            torch.manual_seed(recipe.train.seed + 1_000_003 * self.progress.step + ranks.rank)
        self.new_config = longer or not resumed
        self.step = self._step(criterion)

    # What a run of another kind does otherwise; see `finetune`.

    def _open(self, training_data: TrainingData) -> None:
        """`samples` to train on, and `valid` ones to be scored by."""
        where = self.recipe.data.device
        self.samples = Samples(training_data.train, self.device, where)
        self.valid = Samples(training_data.valid, self.device, where) if training_data.valid is not None else None

    def _anticipator(self) -> Anticipator:
        return Anticipator(self.recipe.model, emit=self.recipe.emission)

    def _learner(self) -> nn.Module:
        """All that the optimizer changes and the state holds."""
        return self.model

    def _optimizer(self) -> torch.optim.Optimizer:
        return build_optimizer(self.learner, self.recipe.train, graphed=self.graphed)

    def _step(self, criterion: Criterion) -> TrainStep:
        return TrainStep(
            model=self.ranks.wrap(self.model),
            criterion=criterion,
            optimizer=self.optimizer,
            config=self.recipe.train,
            bins=self.recipe.model.bins,
            graphed=self.graphed,
            reduce=self.ranks.mean if self.ranks.count > 1 else None,
            ema=self.ema,
        )

    def _before_epoch(self, epoch: int) -> None:
        pass

    def _before_scoring(self) -> None:
        pass

    def _write(self, name: str) -> None:
        """The model as it is now, as run/`name`."""
        self.model.save_pretrained(self.folder / name)

    def fit(self) -> Progress:
        with run_lock(self.folder) if self.ranks.writes else nullcontext():
            return self._fit()

    def _fit(self) -> Progress:
        recipe, progress = self.recipe, self.progress
        per_epoch = len(self._plan(0))
        if self.ranks.writes:
            sweep(self.folder)
        if progress.finished:
            return progress
        if self.ranks.writes and self.new_config:
            write_run_config(self.folder, recipe, self.device, self.ranks.count)
        self.run_log = RunLog(
            self.folder,
            progress,
            steps=STEP_COLUMNS,
            epochs=EPOCH_COLUMNS,
            per_epoch=per_epoch,
            writes=self.ranks.writes,
        )
        try:
            for epoch in range(progress.step // per_epoch, recipe.train.epochs):
                self._epoch(epoch, first=progress.step - epoch * per_epoch)
                patience = recipe.train.patience
                if patience and self.valid is not None and epoch + 1 - progress.best_epoch >= patience:
                    break
            progress.finished = True
            self._save()
        finally:
            self.run_log.close()
        return progress

    def _plan(self, epoch: int) -> Plan:
        recipe = self.recipe
        plan = plan_epoch(
            self.samples.windows.classes,
            recipe.data,
            batch=recipe.train.batch,
            windows=recipe.model.windows,
            seed=recipe.train.seed,
            epoch=epoch,
        )
        return plan.slice(self.ranks.rank, self.ranks.count)

    def _epoch(self, epoch: int, first: int) -> None:
        plan, progress, config = self._plan(epoch), self.progress, self.recipe.train
        self._before_epoch(epoch)
        began = last = time.perf_counter()
        done = first

        def report(step: int, rates: list[float], losses: Tensor) -> None:
            nonlocal last, done
            now = time.perf_counter()
            losses = self.ranks.mean(losses.to(self.device)).cpu() if self.ranks.count > 1 else losses
            named = self.run_log.add_steps(epoch, rates, losses.tolist())
            speed = (step - done) * config.batch / max(now - last, 1e-9)
            last, done = now, step
            self.show(ProgressUpdate(epoch, step, len(plan), rates[-1], named, speed))
            if config.save_every and progress.step % config.save_every < len(rates) and step < len(plan):
                self._save()

        train_epoch(self.step, self.samples, plan, config=config, epoch=epoch, first=first, report=report)
        seconds = time.perf_counter() - began
        with self.ema.swapped() if self.ema else nullcontext():  # what is scored is what is kept
            self._before_scoring()
            result = evaluate(self.model, self.valid, self.recipe.emission, ranks=self.ranks) if self.valid else None
            better = self._keep(epoch, result)
        self._finish_epoch(epoch, plan, seconds, result, better)

    def _keep(self, epoch: int, result: Score | None) -> bool:
        """Write the model, also as the best if it is; whether it is."""
        progress = self.progress
        better = result is None or result.avg > progress.best
        if better:
            progress.best, progress.best_epoch = (result.avg if result else -1.0), epoch + 1
        self.model.metadata["epoch"] = epoch + 1
        if result:
            self.model.metadata["validation"] = result.as_dict()
        if self.ranks.writes:
            if better:
                self._write("best")
            self._write("last")
        return better

    def _finish_epoch(self, epoch: int, plan: Plan, seconds: float, result: Score | None, better: bool) -> None:
        scores = [*result.at.values(), result.avg] if result else [float("nan")] * 7
        curves = dict(zip((*TOLERANCES, "avg"), scores, strict=True)) if result else {}
        losses = self.run_log.add_epoch(epoch, seconds, scores, curves)
        self._save()
        speed, rate = len(plan) * self.recipe.train.batch / max(seconds, 1e-9), self.run_log.rate
        self.show(ProgressUpdate(epoch, len(plan), len(plan), rate, losses, speed, result, better, ended=True))

    def _save(self) -> None:
        self.run_log.save(self.learner, self.optimizer, self.ema)
