"""Pre-training: train a backbone to spot ball actions in labelled games. The run's folder is like that of `train`:

run/config.yaml        the recipe             run/best/     the backbone that spots best on the held-out games
run/environment.json   versions, git, seed    run/last/     the newest one
run/steps.csv          the loss of each step  run/state.safetensors   everything needed to resume
run/epochs.csv         scores of each epoch   run/report.json, run/tensorboard/
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import ACTIONS
from ballcast.core.config import to_dict
from ballcast.core.files import write_json
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.progress import ProgressBar, no_bar
from ballcast.data.labels.games import choose_games, count_actions
from ballcast.data.samples.frames import FrameCache, open_frames
from ballcast.data.samples.snippets import SnippetSampler, frame_targets
from ballcast.features.backbone import Backbone
from ballcast.features.frame_network import to_channels_last
from ballcast.metrics.spotting import SpottingScore
from ballcast.training.augment import draw_augmentation
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.evaluation import score_chance, score_games
from ballcast.training.loop import RunContext
from ballcast.training.models import build_backbone
from ballcast.training.optimizer import build_optimizer, one_cycle
from ballcast.training.progress import Log, ignore
from ballcast.training.step import SnippetBatch, TrainStep, spotting_losses
from ballcast.training.switches import mode, search_convolutions

STEP_COLUMNS = ("step", "epoch", "lr", "loss")
EPOCH_COLUMNS = ("epoch", "seconds", "loss", "mean_ap", "mean_area")
REPORT = "report.json"


class PretrainTask:
    """The `loop.Task` that trains a backbone to spot actions.

    Args:
        recipe: of the run.
        context: where the run is.
        log: called with lines for people: where the frames are, the scores of each epoch.
        bar: opens the progress bar of decoding, before the first step.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = EPOCH_COLUMNS
    patience = 0

    def __init__(
        self, recipe: PretrainRecipe, context: RunContext, log: Log = ignore, bar: ProgressBar = no_bar
    ) -> None:
        device, config = context.device, recipe.train
        self.recipe = recipe
        self.context = context
        self.log = log
        self.bar = bar
        self.steps_per_epoch = config.steps
        self.samples_per_step = recipe.clips.batch * recipe.clips.run
        self.held_out: FrameCache | None = None

        self.games = choose_games(recipe.data)
        self.backbone = build_backbone(recipe, self.games["train"], context.folder, resumed=context.resumed).to(device)
        if device.type == "cuda":
            to_channels_last(self.backbone.encoder)
        self.learner = self.backbone
        self.optimizer: torch.optim.Optimizer = build_optimizer(self.backbone, config)
        self.ema = Ema(self.backbone, config.ema) if config.ema else None

        half = device.type == "cuda" and config.precision == "bf16"
        backbone = self.backbone

        def logits_of(frames: Tensor) -> Tensor:  # (B, P, H, W) in [0, 1] → (B, n, C)
            return backbone.classifier(backbone.dropout(backbone.runs(frames)))

        if device.type == "cuda" and config.compile:
            logits_of = torch.compile(logits_of, dynamic=False)

        def losses_of(batch: SnippetBatch) -> tuple[Tensor]:
            return spotting_losses(logits_of, batch, gamma=config.focal_gamma, alpha=config.focal_alpha, half=half)

        self.step = TrainStep(losses_of, self.optimizer, clip=config.clip, ema=self.ema)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.backbone.metadata

    @property
    def validates(self) -> bool:
        return self.held_out is not None

    def prepare(self, step: int) -> None:
        """Decode the games, and before the first step write the backbone, so that a resumed run finds its metadata."""
        games = self.games["train"]
        clips = self.recipe.clips
        self.cache = self._open_frames("train", self.bar)
        self.held_out = self._open_frames("valid", self.bar) if self.games["valid"] else None
        self.backbone.metadata["picture_size"] = list(self.cache.size)  # other videos are resized to it
        self.sampler = SnippetSampler(
            games, self.cache.first, self.cache.length, network=self.recipe.network, config=clips
        )
        # On the device, so that a step never waits for the host.
        self.targets = torch.from_numpy(frame_targets(games, self.cache.length, clips)).to(self.context.device)
        if not step:
            self.save("last")

    def _open_frames(self, split: str, bar: ProgressBar = no_bar) -> FrameCache:
        with bar() as decoded:
            return open_frames(
                self.games[split],
                self.recipe.data,
                self.context.device,
                title=split,
                log=self.log,
                progress=decoded,
            )

    @contextmanager
    def training(self) -> Iterator[None]:
        with mode(self.backbone, training=True), search_convolutions(self.context.device):
            yield

    def batches(self, epoch: int, first: int) -> Iterator[SnippetBatch]:
        recipe = self.recipe
        device = self.context.device
        steps = self.steps_per_epoch
        rng = np.random.default_rng([recipe.train.seed, epoch])
        begins = self.sampler.draw(steps, rng)  # (steps, B)
        offsets = self.sampler.frame_offsets  # (P,)
        augmentation = draw_augmentation(recipe.augment, steps, recipe.clips.batch, len(offsets), rng).to(device)
        middles = torch.from_numpy(begins[..., None] + self.sampler.middles).to(device)  # (steps, B, n)
        frames = begins[..., None] + offsets  # (steps, B, P)
        for i, batch in enumerate(self.cache.stream(frames[first:]), start=first):
            yield SnippetBatch(batch, self.targets[middles[i]], augmentation[i])

    def learning_rate(self, step: int) -> float:
        config = self.recipe.train
        return one_cycle(step, config.epochs * self.steps_per_epoch, top=config.lr, warmup=config.warmup)

    def evaluate(self, epoch: int) -> SpottingScore | None:
        """Score the backbone on the held-out games every `spotting.every` epochs, and after the last one."""
        last = epoch + 1 == self.recipe.train.epochs
        if self.held_out is None or not (last or (epoch + 1) % self.recipe.spotting.every == 0):
            return None
        return self._score(self.backbone, self.held_out)

    def _score(self, backbone: Backbone, cache: FrameCache) -> SpottingScore:
        with search_convolutions(self.context.device):
            return score_games(backbone, cache, self.recipe.spotting, self.context.device)

    def curves(self, score: SpottingScore) -> dict[str, float]:
        by_class = {ACTIONS[c]: float(score.ap[c]) for c in range(len(ACTIONS)) if score.events[c]}
        return {"mean_ap": score.avg, "mean_area": score.mean_area, **by_class}

    def save(self, name: str) -> None:
        self.backbone.save_pretrained(self.context.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        return "lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Score the best backbone on the test games too, and write report.json."""
        recipe = self.recipe
        best = Backbone.from_pretrained(self.context.folder / "best").to(self.context.device)
        report: dict[str, Any] = {
            "backbone": {"name": best.name, "hash": best.hash, "epoch": best.metadata["epoch"]},
            "games": {split: [game.name for game in games] for split, games in self.games.items()},
            "train_actions": count_actions(self.games["train"]),
            "steps": progress.step,
            "seconds": seconds,
        }
        if "validation" in best.metadata:
            assert self.held_out is not None
            report["valid"] = best.metadata["validation"]
            report["valid_chance"] = score_chance(best.config, self.held_out, recipe.spotting).as_dict()
        if self.games["test"]:
            cache = self._open_frames("test")
            score = self._score(best, cache)
            chance = score_chance(best.config, cache, recipe.spotting)
            report |= {"test": score.as_dict(), "test_chance": chance.as_dict()}
            self.log(f"test: spotting {score.summary()}")
            self.log(f"test: random scores would get {chance.summary()}")
        write_json(self.context.folder / REPORT, {**report, "config": to_dict(recipe)}, indent=1)
