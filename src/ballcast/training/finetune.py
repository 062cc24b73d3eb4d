"""Training end to end: the anticipation loss also trains the last part of the backbone.

Each sample's latest windows are pixels, its earlier ones features. The features are extracted again with the current
backbone before every epoch, and those of the validation clips before every evaluation: the score is that of the two
saved models, the anticipator on features which the saved backbone extracts.

run/best, run/last                     the anticipator, as of any run; it names its backbone by hash
run/best_backbone, run/last_backbone   the backbone it was trained with, for `extract` and `predict`
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import to_dict
from ballcast.core.errors import InputError
from ballcast.data.samples.batches import Batch, Samples
from ballcast.data.samples.window_pixels import PixelBatch, PixelSamples, WindowPixels
from ballcast.data.samples.windows import WindowSet
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.finetune import FinetuneEncoder
from ballcast.features.imagenet import began_with, describe_games
from ballcast.metrics.average_precision import Score
from ballcast.model.anticipator import Anticipator
from ballcast.training.checkpoint import Progress
from ballcast.training.engine import AnticipationTask, Ranks
from ballcast.training.splits import TrainingData
from ballcast.training.steps import build_anticipator, build_optimizer
from ballcast.video.luma import other_size, show_size


class FinetuneTask:
    """The `run.Task` that trains the backbone's last part together with the anticipator.

    Args:
        recipe: of the run.
        folder: the run's folder.
        device: where to compute.
        ranks: must be a single process.
        data: windows, and the videos that they are of.
        log: called with a line about the samples.
    """

    step_columns: tuple[str, ...] = AnticipationTask.step_columns
    epoch_columns: tuple[str, ...] = AnticipationTask.epoch_columns

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        device: torch.device,
        ranks: Ranks,
        data: TrainingData,
        log: Callable[[str], None],
    ) -> None:
        self.recipe, self.folder, self.device = recipe, folder, device
        _check_recipe(recipe, ranks, data)
        self.backbone = _open_backbone(recipe, device, data)
        where = recipe.data.device
        self.train_pixels = WindowPixels(data.train, data.train_sources, device, where)
        _check_frame_size(recipe, self.train_pixels.bank.size, data)
        self.backbone.metadata["picture_size"] = list(self.train_pixels.bank.size)
        samples, valid, self.valid_pixels = self._samples(data.train), None, None
        if data.valid is not None:
            self.valid_pixels = WindowPixels(data.valid, data.valid_sources, device, where)
            valid = Samples(data.valid, device, where)
        self.model, criterion = build_anticipator(recipe, data, device, log=log)
        _load_weights(self.model, recipe.finetune.anticipator)
        config, half = recipe.finetune, device.type == "cuda" and recipe.train.precision == "bf16"
        self.encoder = FinetuneEncoder(
            self.backbone, stages=config.stages, at_once=config.at_once, recompute=config.recompute, half=half
        )
        self.learner: nn.Module = nn.ModuleDict({"anticipator": self.model, "backbone": self.backbone})
        self.optimizer: torch.optim.Optimizer = build_optimizer(
            self.learner, recipe.train, slower=self.backbone, factor=config.lr_factor
        )
        # Not graphed: its batches are too large to be kept for a graph, and its kernels not worth one.
        self.anticipation = AnticipationTask(
            recipe,
            folder,
            ranks,
            model=self.model,
            criterion=criterion,
            samples=samples,
            valid=valid,
            learner=self.learner,
            optimizer=self.optimizer,
            encode=self._encode,
        )
        self.ema = self.anticipation.ema
        self.samples_per_step, self.patience = self.anticipation.samples_per_step, self.anticipation.patience

    @property
    def metadata(self) -> dict[str, Any]:
        return self.model.metadata

    @property
    def steps_per_epoch(self) -> int:
        return self.anticipation.steps_per_epoch

    @property
    def validates(self) -> bool:
        return self.anticipation.validates

    def prepare(self, step: int) -> None:
        """Nothing is left to prepare."""

    def train_epoch(self, epoch: int, first: int) -> Iterator[tuple[float, Tensor]]:
        """The first epoch has the stores' features; any other, also when resumed, those of the backbone as it is."""
        if epoch and self.recipe.finetune.refresh:
            self.anticipation.samples = self._samples(self._extract(self.train_pixels))
        return self.anticipation.train_epoch(epoch, first)

    def evaluate(self, epoch: int) -> Score | None:
        """Score the anticipator on features of the backbone as it is."""
        if self.valid_pixels is not None:
            windows = self._extract(self.valid_pixels)
            self.anticipation.valid = Samples(windows, self.device, self.recipe.data.device)
        return self.anticipation.evaluate(epoch)

    def curves(self, score: Score) -> dict[str, float]:
        return self.anticipation.curves(score)

    def save(self, name: str) -> None:
        """Write the backbone first: an anticipator never names one that is not there."""
        self.backbone.metadata["epoch"] = self.model.metadata["epoch"]
        self.backbone.save_pretrained(self.folder / f"{name}_backbone")
        self.model.metadata["backbone"] = {**to_dict(self.backbone.identity), "folder": f"../{name}_backbone"}
        self.anticipation.save(name)

    def explain(self, epoch: int, step: int) -> str:
        return self.anticipation.explain(epoch, step)

    def finish(self, progress: Progress, seconds: float) -> None:
        """Nothing is left to do."""

    def _samples(self, windows: WindowSet) -> PixelSamples:
        where = self.recipe.data.device
        return PixelSamples(windows, self.train_pixels, self.recipe.finetune.windows, self.device, where)

    def _extract(self, pixels: WindowPixels) -> WindowSet:
        engine = BatchEncoder(self.backbone, device=self.device, compiled=False)
        return pixels.rows(engine.clips)

    def _encode(self, batch: Batch) -> Batch:
        """Compute the latest windows' features from their pixels, with gradients."""
        assert isinstance(batch, PixelBatch)
        n, latest = batch.pixels.shape[:2]
        live = self.encoder(batch.pixels.flatten(0, 1)).unflatten(0, (n, latest))  # (n, V, N, D)
        stored = batch.features[:, : batch.features.shape[1] - latest]
        features = torch.cat([stored.to(live.dtype), live], 1)  # (n, W, N, D)
        return Batch(features, batch.present, batch.classes, batch.position_ms, batch.presence)


def _check_recipe(recipe: Recipe, ranks: Ranks, data: TrainingData) -> None:
    if ranks.count > 1:
        raise InputError("train.backbone=finetune is one process on one GPU; start it without torchrun")
    if recipe.train.save_every:
        raise InputError("train.backbone=finetune saves its state after each epoch; set train.save_every=0")
    if data.train.mirrored:
        raise InputError("train.backbone=finetune is for videos, not for event feeds")


def _open_backbone(recipe: Recipe, device: torch.device, data: TrainingData) -> Backbone:
    """The backbone that the stored features are of, on the device, with the metadata of a fine-tuned one."""
    given = recipe.finetune.backbone
    backbone = Backbone.load(given)
    if backbone.hash != data.backbone.hash:
        raise InputError(
            f"{given}: is {backbone.name} ({backbone.hash[:12]}), but the features are of "
            f"{data.backbone.name} ({data.backbone.hash[:12]}); give that one, or extract again"
        )
    _rename(backbone, [game.name for _, games in data.train_sources for game in games], recipe.train.seed)
    backbone.to(device)
    if device.type == "cuda":
        backbone.encoder.to(memory_format=torch.channels_last)
    return backbone


def _check_frame_size(recipe: Recipe, size: tuple[int, int], data: TrainingData) -> None:
    if other_size(size, data.picture_size):
        seen = f"but the features are of pictures seen at {show_size(data.picture_size)}"
        raise InputError(
            f"{recipe.finetune.videos}: its pictures are {show_size(size)}, {seen}; fine-tuning reads videos as they "
            "are: give videos of that size, or extract with --size own"
        )


def _load_weights(model: Anticipator, given: str) -> None:
    """Start from the weights of the anticipator `given`, a folder or a name; "": from the model's own."""
    if given:
        trained = Anticipator.from_pretrained(given)
        if trained.config != model.config:
            raise InputError(f"{given}: its sizes are not those of the recipe; give the recipe it was trained with")
        model.load_state_dict(trained.state_dict())


def _rename(backbone: Backbone, games: list[str], seed: int) -> None:
    """Give the backbone the name, note and metadata of a fine-tuned one; the scores it had are no longer true."""
    note = f"fine-tuned on {describe_games(games)} from {backbone.name} ({backbone.hash[:12]})"
    kept = {key: value for key, value in backbone.metadata.items() if key == "actions"}
    own = {"task": "anticipation", "trained_on": games, "seed": seed, "ballcast": __version__}
    backbone.metadata = kept | began_with(backbone) | own
    backbone.note = f"{note}; of that one: {backbone.note}" if backbone.note else note
    backbone.name = f"{backbone.name} fine-tuned"
