"""Training end to end: the anticipation loss goes on through the last part of the backbone.

Each sample's latest windows are seen as pixels, its earlier ones as features. These are computed anew with the backbone
as it is before every epoch, and those of the validation clips before every scoring: the score is what the two saved
models reach, the backbone on its own and the anticipator on the features that it extracts.

run/best, run/last                     the anticipator, as of any run; it names its backbone by hash
run/best_backbone, run/last_backbone   the backbone it was trained with, for `extract` and `predict`
"""

import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.config import to_dict
from ballcast.core.errors import InputError
from ballcast.data.samples.batches import Batch, Samples
from ballcast.data.samples.window_pixels import PixelBatch, PixelSamples, WindowPixels
from ballcast.data.samples.windows import WindowSet
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.finetune import FinetuneEncoder
from ballcast.features.imagenet import began_with, describe_games
from ballcast.loss.criterion import Criterion
from ballcast.model.anticipator import Anticipator
from ballcast.training.run import Run
from ballcast.training.splits import TrainingData
from ballcast.training.steps import TrainStep, build_optimizer
from ballcast.video.luma import other_size, show_size


class FinetuneStep(TrainStep):
    """A step whose batches carry pixels: the latest windows' features are computed here, with gradients."""

    tuned: FinetuneEncoder

    def _work(self, batch: Batch, share: Tensor, absent: Tensor) -> Tensor:
        assert isinstance(batch, PixelBatch)
        n, latest = batch.pixels.shape[:2]
        live = self.tuned(batch.pixels.flatten(0, 1)).unflatten(0, (n, latest))  # (n, V, N, D)
        stored = batch.features[:, : batch.features.shape[1] - latest]
        features = torch.cat([stored.to(live.dtype), live], 1)  # (n, W, N, D)
        return super()._work(
            Batch(features, batch.present, batch.classes, batch.position_ms, batch.presence), share, absent
        )


class FinetuneRun(Run):
    """A run that trains the backbone's last part together with the anticipator."""

    def _open(self, training_data: TrainingData) -> None:
        recipe, config = self.recipe, self.recipe.finetune
        if self.ranks.count > 1:
            raise InputError("train.backbone=finetune is one process on one GPU; start it without torchrun")
        if recipe.train.save_every:
            raise InputError("train.backbone=finetune saves its state after each epoch; set train.save_every=0")
        if training_data.train.mirrored:
            raise InputError("train.backbone=finetune is for videos, not for event feeds")
        self.backbone = Backbone.load(config.backbone)
        if self.backbone.hash != training_data.backbone.hash:
            raise InputError(
                f"{config.backbone}: is {self.backbone.name} ({self.backbone.hash[:12]}), but the features are of "
                f"{training_data.backbone.name} ({training_data.backbone.hash[:12]}); give that one, or extract again"
            )
        games = [game.name for _, games in training_data.train_sources for game in games]
        _rename(self.backbone, games, recipe.train.seed)
        self.backbone.to(self.device)
        if self.device.type == "cuda":
            self.backbone.encoder.to(memory_format=torch.channels_last)
        where = recipe.data.device
        self.train_pixels = WindowPixels(training_data.train, training_data.train_sources, self.device, where)
        size = self.train_pixels.bank.size
        if other_size(size, training_data.picture_size):
            seen = f"but the features are of pictures seen at {show_size(training_data.picture_size)}"
            raise InputError(
                f"{config.videos}: its pictures are {show_size(size)}, {seen}; fine-tuning reads videos as they are: "
                "give videos of that size, or extract with --size own"
            )
        self.backbone.metadata["picture_size"] = list(size)
        self._use(training_data.train)
        self.valid, self.valid_pixels = None, None
        if training_data.valid is not None:
            self.valid_pixels = WindowPixels(training_data.valid, training_data.valid_sources, self.device, where)
            self.valid = Samples(training_data.valid, self.device, where)

    def _use(self, windows: WindowSet) -> None:
        where = self.recipe.data.device
        self.samples = PixelSamples(windows, self.train_pixels, self.recipe.finetune.windows, self.device, where)

    def _anticipator(self) -> Anticipator:
        fresh = super()._anticipator()
        given = self.recipe.finetune.anticipator
        if given:
            trained = Anticipator.from_pretrained(given)
            if trained.config != fresh.config:
                raise InputError(f"{given}: its sizes are not those of the recipe; give the recipe it was trained with")
            fresh.load_state_dict(trained.state_dict())
        return fresh

    def _learner(self) -> nn.Module:
        config, half = self.recipe.finetune, self.device.type == "cuda" and self.recipe.train.precision == "bf16"
        self.tuned = FinetuneEncoder(
            self.backbone, stages=config.stages, at_once=config.at_once, recompute=config.recompute, half=half
        )
        self.graphed = False  # its batches are too large to be kept for a graph, and its kernels not worth one
        return nn.ModuleDict({"anticipator": self.model, "backbone": self.backbone})

    def _optimizer(self) -> torch.optim.Optimizer:
        factor = self.recipe.finetune.lr_factor
        return build_optimizer(self.learner, self.recipe.train, slower=self.backbone, factor=factor)

    def _step(self, criterion: Criterion) -> TrainStep:
        step = FinetuneStep(
            model=self.model,
            criterion=criterion,
            optimizer=self.optimizer,
            config=self.recipe.train,
            bins=self.recipe.model.bins,
            graphed=False,
            ema=self.ema,
        )
        step.tuned = self.tuned
        return step

    def _before_epoch(self, epoch: int) -> None:
        """The first epoch has the stores' own features; any other, also after a cut, those of the backbone as it is."""
        if epoch and self.recipe.finetune.refresh:
            self._use(self._computed(self.train_pixels))

    def _before_scoring(self) -> None:
        if self.valid_pixels is not None:
            self.valid = Samples(self._computed(self.valid_pixels), self.device, self.recipe.data.device)

    def _computed(self, pixels: WindowPixels) -> WindowSet:
        engine = BatchEncoder(self.backbone, device=self.device, compiled=False)
        return pixels.rows(engine.clips)

    def _write(self, name: str) -> None:
        """The backbone first: an anticipator never names one that is not there."""
        self.backbone.metadata["epoch"] = self.model.metadata["epoch"]
        self.backbone.save_pretrained(self.folder / f"{name}_backbone")
        told = to_dict(self.backbone.identity)
        self.model.metadata["backbone"] = {**told, "folder": f"../{name}_backbone"}
        super()._write(name)


def _rename(backbone: Backbone, games: list[str], seed: int) -> None:
    """A name, a note and metadata of its own for what these games make of a backbone, whose own scores hold no more."""
    note = f"fine-tuned on {describe_games(games)} from {backbone.name} ({backbone.hash[:12]})"
    kept = {key: value for key, value in backbone.metadata.items() if key == "actions"}
    own = {"task": "anticipation", "trained_on": games, "seed": seed, "ballcast": __version__}
    backbone.metadata = kept | began_with(backbone) | own
    backbone.note = f"{note}; of that one: {backbone.note}" if backbone.note else note
    backbone.name = f"{backbone.name} fine-tuned"
