"""Pre-training: train a backbone to spot ball actions in labelled games. The run's folder is like that of `train`:

run/config.yaml        the recipe             run/best/     the backbone that spots best on the held-out games
run/environment.json   versions, git, seed    run/last/     the newest one
run/steps.csv          the loss of each step  run/state.safetensors   everything needed to resume
run/epochs.csv         scores of each epoch   run/report.json, run/tensorboard/
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.actions import ACTIONS
from ballcast.core.config import to_dict
from ballcast.core.files import write_json
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.util import ProgressCallback
from ballcast.data.labels.games import choose_games, count_actions
from ballcast.data.samples.frames import FrameCache, open_frames
from ballcast.data.samples.snippets import SnippetSampler, frame_targets
from ballcast.features.backbone import Backbone, read_about
from ballcast.features.frame_network import to_channels_last
from ballcast.features.imagenet import describe_games, start_backbone
from ballcast.metrics.spotting import SpottingScore
from ballcast.training.augment import draw_augmentation
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.engine import Ranks, mode
from ballcast.training.progress import Estimate, ProgressUpdate
from ballcast.training.run import Log, Show, Trainer, ignore, open_run
from ballcast.training.spotting_eval import score_chance, score_games
from ballcast.training.steps import SpotStep, build_optimizer, one_cycle, set_learning_rate

STEP_COLUMNS = ("step", "epoch", "lr", "loss")
EPOCH_COLUMNS = ("epoch", "seconds", "loss", "mean_ap", "mean_area")
REPORT = "report.json"


class PretrainTask:
    """The `run.Task` that trains a backbone to spot actions; `fit` runs it.

    Args:
        config: the recipe.
        folder: the run's folder; an unfinished run of the same recipe there is resumed.
        device: where to compute.
        show: called with the progress after some steps and after each epoch.
        log: called with lines for people: where the frames are, how long it will take.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = EPOCH_COLUMNS
    patience = 0

    def __init__(
        self,
        config: PretrainRecipe,
        folder: Path,
        *,
        device: torch.device,
        show: Show = ignore,
        log: Log = ignore,
    ) -> None:
        self.config, self.folder, self.device, self.log = config, folder, device, log
        self.cache: FrameCache | None = None
        self.held_out: FrameCache | None = None
        self.steps_per_epoch, self.samples_per_step = config.train.steps, config.clips.batch * config.clips.run
        context = open_run(config, folder, device, Ranks())
        self.games = choose_games(config.data)
        self.backbone = self._start_backbone(resumed=context.resumed)
        self.learner: nn.Module = self.backbone
        self.optimizer: torch.optim.Optimizer = build_optimizer(self.backbone, config.train)
        self.ema = Ema(self.backbone, config.train.ema) if config.train.ema else None
        self.step = SpotStep(backbone=self.backbone, optimizer=self.optimizer, ema=self.ema, config=config.train)
        self.trainer: Trainer[PretrainTask] = Trainer(self, config, context, self._show_with(show))

    def _start_backbone(self, *, resumed: bool) -> Backbone:
        """The backbone before its first step; of a resumed run, the weights are still to be loaded."""
        config = self.config
        torch.manual_seed(config.train.seed)
        if resumed:  # where the weights started is in the metadata saved before
            backbone = Backbone(config.network, name=config.name)
            backbone.metadata = read_about(self.folder / "last").get("metadata", {})  # its weights may be half replaced
        else:
            backbone = start_backbone(config)
        backbone.to(self.device)
        if self.device.type == "cuda":
            to_channels_last(backbone.encoder)
        backbone.metadata |= {
            "trained_on": [game.name for game in self.games["train"]],
            "actions": list(ACTIONS),
            "seed": config.train.seed,
            "ballcast": __version__,
        }
        backbone.note = f"learned spotting on {describe_games(backbone.metadata['trained_on'])}"
        return backbone

    def _show_with(self, show: Show) -> Show:
        """`show`, and lines with the time left and with each epoch's scores."""
        estimate = Estimate(self.config.train.epochs * self.config.train.steps, self.log)

        def show_all(update: ProgressUpdate) -> None:
            show(update)
            if not update.ended:
                estimate(update.epoch * update.steps + update.step)
            elif isinstance(update.score, SpottingScore):
                self.log(f"  {update.score.summary()}")

        return show_all

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        return self.trainer.progress

    def fit(self) -> Progress:
        """Train to the last epoch; returns how far the run is, and its best score."""
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, self.device.type == "cuda"
        try:
            return self.trainer.fit()
        finally:
            torch.backends.cudnn.benchmark = before

    @property
    def metadata(self) -> dict[str, Any]:
        return self.backbone.metadata

    @property
    def validates(self) -> bool:
        return self.held_out is not None

    def prepare(self, step: int) -> None:
        """Decode the games, and before the first step write the backbone, so that a resumed run finds its metadata."""
        self.load_frames()
        if not step:
            self.save("last")

    def load_frames(self, decoded: ProgressCallback = lambda done, total: None) -> None:
        """Decode the games unless that is done or not needed; `decoded` is called with frames done and in all."""
        if self.cache is not None or self.progress.finished:
            return
        self.cache = self._open_frames("train", decoded)
        self.held_out = self._open_frames("valid", decoded) if self.games["valid"] else None
        self.backbone.metadata["picture_size"] = list(self.cache.size)  # other videos are resized to it
        games, clips, cache = self.games["train"], self.config.clips, self.cache
        self.sampler = SnippetSampler(games, cache.first, cache.length, network=self.config.network, config=clips)
        # On the device, so that a step never waits for the host.
        self.targets = torch.from_numpy(frame_targets(games, cache.length, clips)).to(self.device)

    def _open_frames(self, split: str, decoded: ProgressCallback = lambda done, total: None) -> FrameCache:
        games, data = self.games[split], self.config.data
        return open_frames(games, data, self.device, title=split, log=self.log, progress=decoded)

    def train_epoch(self, epoch: int, first: int) -> Iterator[tuple[float, Tensor]]:
        config, total = self.config.train, self.config.train.steps
        rng = np.random.default_rng([config.seed, epoch])
        begins = self.sampler.draw(total, rng)  # (steps, B)
        pictures = len(self.sampler.frame_offsets)
        changes = draw_augmentation(self.config.augment, total, self.config.clips.batch, pictures, rng).to(self.device)
        frames = begins[..., None] + self.sampler.frame_offsets  # (steps, B, P)
        middles = torch.from_numpy(begins[..., None] + self.sampler.middles).to(self.device)  # (steps, B, n)

        def steps() -> Iterator[tuple[float, Tensor]]:
            assert self.cache is not None
            with mode(self.backbone, training=True):
                for i, batch in enumerate(self.cache.stream(frames[first:]), start=first):
                    step = epoch * total + i
                    rate = one_cycle(step, config.epochs * total, top=config.lr, warmup=config.warmup)
                    set_learning_rate(self.optimizer, rate)
                    yield rate, self.step(batch, changes[i], self.targets[middles[i]]).view(1)

        return steps()

    def evaluate(self, epoch: int) -> SpottingScore | None:
        """Score the backbone on the held-out games every so many epochs, and after the last one."""
        last = epoch + 1 == self.config.train.epochs
        if self.held_out is None or not (last or (epoch + 1) % self.config.spotting.every == 0):
            return None
        return score_games(self.backbone, self.held_out, self.config.spotting, self.device)

    def curves(self, score: SpottingScore) -> dict[str, float]:
        by_class = {ACTIONS[c]: float(score.ap[c]) for c in range(len(ACTIONS)) if score.events[c]}
        return {"mean_ap": score.avg, "mean_area": score.mean_area, **by_class}

    def save(self, name: str) -> None:
        self.backbone.save_pretrained(self.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        return "lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Score the best backbone on the test games too, and write report.json."""
        best = Backbone.from_pretrained(self.folder / "best").to(self.device)
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
            report["valid_chance"] = score_chance(best.config, self.held_out, self.config.spotting).as_dict()
        if self.games["test"]:
            cache = self._open_frames("test")
            score = score_games(best, cache, self.config.spotting, self.device)
            chance = score_chance(best.config, cache, self.config.spotting)
            report |= {"test": score.as_dict(), "test_chance": chance.as_dict()}
            self.log(f"test: spotting {score.summary()}")
            self.log(f"test: random scores would get {chance.summary()}")
        write_json(self.folder / REPORT, {**report, "config": to_dict(self.config)}, indent=1)
