"""Training of the event transformer on event feeds: the last events → the actions of the next 5 s.

Each step draws times anywhere in the matches, and builds tokens and targets on the device.

run/best, run/last   a model for `ballcast predict --events FILE --model run/best`, with probabilities calibrated on the
                     validation matches
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ballcast import __version__
from ballcast.core.feed_config import FeedRecipe
from ballcast.data.samples.feed_samples import FeedBatch, plan_feed_epoch
from ballcast.inference.calibration import fit_calibration
from ballcast.inference.event_model import neutral_calibration
from ballcast.loss.feed_criterion import FeedLosses
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.model.event_transformer import save_event_transformer
from ballcast.training.checkpoint import Progress
from ballcast.training.data import FeedData, open_feed_data
from ballcast.training.ema import Ema
from ballcast.training.evaluation import predict_feed_windows, score_feed_windows
from ballcast.training.loop import RunContext
from ballcast.training.models import build_event_transformer, load_teachers
from ballcast.training.optimizer import build_optimizer, warmup_cosine
from ballcast.training.progress import Log, ignore
from ballcast.training.step import TrainStep, feed_losses
from ballcast.training.switches import allow_tf32, mode, without_cudnn_attention

STEP_COLUMNS = ("step", "epoch", "lr", *FeedLosses._fields)
EPOCH_COLUMNS = ("epoch", "seconds", *FeedLosses._fields, *TOLERANCES, "avg")


class FeedTask:
    """The `loop.Task` that trains an event transformer.

    Args:
        recipe: of the run.
        context: where the run is.
        data: the matches; None: those that the recipe names.
        log: called with lines about the matches.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = EPOCH_COLUMNS

    def __init__(
        self, recipe: FeedRecipe, context: RunContext, data: FeedData | None = None, log: Log = ignore
    ) -> None:
        device, ranks, config = context.device, context.ranks, recipe.train
        self.recipe = recipe
        self.context = context
        self.steps_per_epoch = config.steps
        self.samples_per_step = config.batch
        self.patience = config.patience
        teachers = [teacher.to(device) for teacher in load_teachers(recipe)]
        self.model = build_event_transformer(recipe).to(device)
        self.learner = self.model

        data = data or open_feed_data(recipe, device, log if ranks.writes else ignore)
        self.events = events = data.train
        self.valid = data.valid
        self.calibration = neutral_calibration()
        self.metadata: dict[str, Any] = {
            "matches": list(data.matches),
            "teachers": list(recipe.distil.teachers),
            "seed": config.seed,
            "ballcast": __version__,
        }

        recorded = device.type == "cuda" and config.graph and ranks.count == 1
        self.ema = Ema(self.model, config.ema) if config.ema else None
        self.optimizer: torch.optim.Optimizer = build_optimizer(
            self.model, config, recorded=recorded, beta2=config.beta2
        )
        half = device.type == "cuda" and config.precision == "bf16"
        wrapped = ranks.wrap(self.model)

        def losses_of(batch: FeedBatch) -> FeedLosses:
            return feed_losses(wrapped, teachers, events, batch, recipe, half=half)

        self.step = TrainStep(losses_of, self.optimizer, clip=config.clip, ema=self.ema, recorded=recorded)

    @property
    def validates(self) -> bool:
        return self.valid is not None

    def prepare(self, step: int) -> None:
        """Nothing is left to prepare."""

    @contextmanager
    def training(self) -> Iterator[None]:
        with mode(self.model, training=True), allow_tf32(self.context.device), without_cudnn_attention():
            yield

    def batches(self, epoch: int, first: int) -> Iterator[FeedBatch]:
        recipe = self.recipe
        ranks = self.context.ranks
        device = self.context.device
        plan = plan_feed_epoch(
            self.events.total,
            steps=self.steps_per_epoch,
            batch=recipe.train.batch,
            mirror=recipe.data.mirror,
            masked=recipe.mask.samples,
            hidden=recipe.mask.details,
            rng=np.random.default_rng([recipe.train.seed, epoch]),  # the same in every process
        )
        size = recipe.train.batch // ranks.count
        mine = slice(ranks.rank * size, (ranks.rank + 1) * size)
        at, mirrored, shown = (column[:, mine].to(device) for column in plan.tensors())
        for i in range(first, self.steps_per_epoch):
            yield FeedBatch(at[i], mirrored[i], shown[i])

    def learning_rate(self, step: int) -> float:
        config = self.recipe.train
        return warmup_cosine(step, config.epochs * config.steps, top=config.lr, warmup=config.warmup)

    def evaluate(self, epoch: int) -> Score | None:
        """The official score on the validation windows; the calibration fitted to them is kept for `save`."""
        if self.valid is None:
            return None
        outputs = predict_feed_windows(self.model, self.valid, ranks=self.context.ranks)
        if self.context.ranks.writes:
            self.calibration = fit_calibration(outputs.chance, self.valid.came_within())
        return score_feed_windows(outputs, self.valid)

    def curves(self, score: Score) -> dict[str, float]:
        return dict(zip((*TOLERANCES, "avg"), [*score.at.values(), score.avg], strict=True))

    def save(self, name: str) -> None:
        data = self.recipe.data
        about = {
            "calibration": np.round(self.calibration, 5).tolist(),
            "trained_on": f"{data.source}, {', '.join(data.train)}: {len(self.metadata['matches'])} matches",
            "metadata": self.metadata,
        }
        save_event_transformer(self.context.folder / name, self.model, about)

    def explain(self, epoch: int, step: int) -> str:
        return "lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Nothing is left to do."""
