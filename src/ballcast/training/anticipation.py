"""Training of an anticipator on stored features: windows of 30 s → the actions of the next 5 s."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.errors import InputError
from ballcast.data.samples.batches import Plan, Samples, TrainingBatch, plan_epoch
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import class_weights
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.training.checkpoint import Progress
from ballcast.training.data import TrainingData, check_stitching, describe_samples, open_training_data
from ballcast.training.ema import Ema
from ballcast.training.evaluation import evaluate
from ballcast.training.loop import RunContext
from ballcast.training.models import build_anticipator
from ballcast.training.optimizer import build_optimizer, learning_rate
from ballcast.training.progress import Log, ignore
from ballcast.training.run_folder import EPOCH_COLUMNS, STEP_COLUMNS
from ballcast.training.step import TrainStep, anticipation_losses
from ballcast.training.switches import mode


class AnticipationTask:
    """The `loop.Task` that trains an anticipator on stored features.

    Args:
        recipe: of the run.
        context: where the run is.
        data: windows to train on and to validate on; None: those of the stores that the recipe names.
        log: called with a line about the samples.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = EPOCH_COLUMNS

    def __init__(
        self, recipe: Recipe, context: RunContext, data: TrainingData | None = None, log: Log = ignore
    ) -> None:
        data = data or open_training_data(recipe)
        if recipe.data.mirror and not data.train.mirrored:
            raise InputError("data.mirror is for event feeds; features of a video cannot be mirrored, so set it to 0")
        device, ranks = context.device, context.ranks
        self.recipe = recipe
        self.context = context
        self.samples_per_step = recipe.train.batch
        self.patience = recipe.train.patience

        self.samples = Samples(data.train, device, recipe.data.device)
        self.valid = Samples(data.valid, device, recipe.data.device) if data.valid is not None else None
        weights = class_weights(torch.from_numpy(data.train.class_counts()), recipe.loss.class_weight)
        if ranks.writes:
            log(describe_samples(data.train, weights))
            check_stitching(data.train, weights, recipe.data)

        self.model = build_anticipator(recipe, data, weights).to(device)
        self.learner = self.model
        self.ema = Ema(self.model, recipe.train.ema) if recipe.train.ema else None
        recorded = device.type == "cuda" and recipe.train.graph and ranks.count == 1
        self.optimizer: torch.optim.Optimizer = build_optimizer(self.model, recipe.train, recorded=recorded)

        criterion = Criterion(config=recipe.loss, model=recipe.model, class_weights=weights).to(device)
        half = device.type == "cuda" and recipe.train.precision == "bf16"
        reduce = ranks.normalisers if ranks.count > 1 else None
        wrapped = ranks.wrap(self.model)
        compute_losses = anticipation_losses
        if device.type == "cuda" and recipe.train.compile:
            compute_losses = torch.compile(anticipation_losses, dynamic=False)

        def losses_of(batch: TrainingBatch) -> Losses:
            return compute_losses(wrapped, criterion, batch, half=half, reduce=reduce)

        self.step = TrainStep(losses_of, self.optimizer, clip=recipe.train.clip, ema=self.ema, recorded=recorded)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.model.metadata

    @cached_property
    def steps_per_epoch(self) -> int:
        return len(self.plan(0))

    @property
    def validates(self) -> bool:
        return self.valid is not None

    def plan(self, epoch: int) -> Plan:
        """The samples of each step of an epoch that are this process's."""
        recipe = self.recipe
        plan = plan_epoch(
            self.samples.windows.classes,
            recipe.data,
            batch=recipe.train.batch,
            windows=recipe.model.windows,
            seed=recipe.train.seed,
            epoch=epoch,
        )
        return plan.slice(self.context.ranks.rank, self.context.ranks.count)

    def prepare(self, step: int) -> None:
        """Nothing is left to prepare."""

    def training(self) -> AbstractContextManager[None]:
        return mode(self.model, training=True)

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        plan = self.plan(epoch)
        samples = self.samples
        chosen = torch.from_numpy(plan.first).to(samples.plan_device)  # (steps, B)
        if plan.mixed:
            partners = torch.from_numpy(plan.second).to(samples.plan_device)
            chosen = torch.cat([chosen, partners], dim=1)  # (steps, 2B)
        shares = torch.from_numpy(plan.share).to(samples.device)
        absents = torch.from_numpy(plan.absent).to(samples.device)
        for i, batch in enumerate(samples.stream(chosen[first:].unbind()), start=first):
            yield TrainingBatch(
                batch.features,
                batch.present,
                batch.classes,
                batch.position_ms,
                batch.presence,
                shares[i],
                absents[i],
            )

    def learning_rate(self, step: int) -> float:
        return learning_rate(step, self.steps_per_epoch, self.recipe.train)

    def evaluate(self, epoch: int) -> Score | None:
        if self.valid is None:
            return None
        return evaluate(self.model, self.valid, self.recipe.emission, ranks=self.context.ranks)

    def curves(self, score: Score) -> dict[str, float]:
        return dict(zip((*TOLERANCES, "avg"), [*score.at.values(), score.avg], strict=True))

    def save(self, name: str) -> None:
        self.model.save_pretrained(self.context.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        plan = self.plan(epoch)
        members = sorted({*plan.first[step].tolist(), *plan.second[step].tolist()})
        names = ", ".join(self.samples.windows.names[m % len(self.samples)] for m in members)
        return f"the batch was {names}; look at these features, or lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Nothing is left to do."""
