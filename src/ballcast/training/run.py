"""Start the training of a recipe, or resume it: the task that the recipe asks for, in the training loop."""

from pathlib import Path

import torch

from ballcast.core.errors import InputError
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.progress import ProgressBar, no_bar
from ballcast.training.anticipation import AnticipationTask
from ballcast.training.checkpoint import Progress
from ballcast.training.data import EndToEndData, FeedData, TrainingData
from ballcast.training.distributed import Ranks
from ballcast.training.end_to_end import EndToEndTask
from ballcast.training.feed import FeedTask
from ballcast.training.loop import AnyRecipe, RunContext, Trainer, open_run
from ballcast.training.pretrain import PretrainTask
from ballcast.training.progress import Log, Show, ignore, show_estimate

AnyTask = AnticipationTask | EndToEndTask | FeedTask | PretrainTask
AnyData = TrainingData | EndToEndData | FeedData


def train(
    recipe: AnyRecipe,
    folder: Path,
    *,
    device: torch.device,
    ranks: Ranks | None = None,
    data: AnyData | None = None,
    show: Show = ignore,
    log: Log = ignore,
    bar: ProgressBar = no_bar,
) -> Progress:
    """Train by a recipe, or resume a killed run of the same recipe.

    Args:
        recipe: what to train, on what and how.
        folder: the run's folder.
        device: where to compute.
        ranks: this process among those of the run; None: it is the only one.
        data: replaces the windows of the stores, the frames of the games, or the feeds that the recipe names.
        show: called with the progress after some steps and after each epoch.
        log: called with lines about the data, before the first step and after the last.
        bar: opens the progress bar of decoding.

    Returns:
        How far the run is, and its best score.
    """
    context = open_run(recipe, folder, device, ranks or Ranks())
    task = build_task(recipe, context, data, log, bar)
    if isinstance(recipe, PretrainRecipe):
        show = show_estimate(show, log, recipe.train.epochs * recipe.train.steps)
    return Trainer(task, recipe, context, show).fit()


def build_task(
    recipe: AnyRecipe,
    context: RunContext,
    data: AnyData | None = None,
    log: Log = ignore,
    bar: ProgressBar = no_bar,
) -> AnyTask:
    """The task of a recipe; arguments as in `train`."""
    if isinstance(recipe, PretrainRecipe):
        return PretrainTask(recipe, context, log, bar)
    if recipe.train.batch % context.ranks.count:
        raise InputError(f"train.batch={recipe.train.batch} does not divide among {context.ranks.count} processes")
    if isinstance(recipe, FeedRecipe):
        assert data is None or isinstance(data, FeedData)
        return FeedTask(recipe, context, data, log)
    if recipe.train.backbone == "end_to_end":
        assert data is None or isinstance(data, EndToEndData)
        return EndToEndTask(recipe, context, data, log, bar)
    assert data is None or isinstance(data, TrainingData)
    return AnticipationTask(recipe, context, data, log)
