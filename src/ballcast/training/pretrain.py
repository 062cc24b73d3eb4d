"""Pre-training: a backbone learns to spot ball actions in labelled games. A run's folder is like that of `train`:

run/config.yaml        the recipe             run/best/     the backbone that spots best on the held-out games
run/environment.json   versions, git, seed    run/last/     the newest one
run/steps.csv          the loss of each step  run/state.safetensors   everything needed to go on
run/epochs.csv         scores of each epoch   run/report.json, run/tensorboard/
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast import __version__
from ballcast.core.actions import ACTIONS
from ballcast.core.config import to_dict
from ballcast.core.files import sweep, write_json
from ballcast.core.pretrain_config import PretrainConfig
from ballcast.data.labels.games import choose_games, count_actions
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.frames import Progress as Decoded
from ballcast.data.samples.snippets import SnippetSampler, frame_targets
from ballcast.features.backbone import Backbone, read_about
from ballcast.features.imagenet import describe_games, start_backbone
from ballcast.metrics.spotting import SpottingScore
from ballcast.training import checkpoint
from ballcast.training.augment import draw_augmentation
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.engine import READ_EVERY, NotFinite, mode
from ballcast.training.progress import Estimate, ProgressUpdate
from ballcast.training.run_folder import RunLog, check_folder, extends_training, run_lock, write_run_config
from ballcast.training.spotting_eval import score_chance, score_games
from ballcast.training.steps import SpotStep, build_optimizer, one_cycle, set_learning_rate

STEP_COLUMNS = ("step", "epoch", "lr", "loss")
EPOCH_COLUMNS = ("epoch", "seconds", "loss", "mean_ap", "mean_area")
REPORT = "report.json"


class Pretraining:
    """The parts of a run, built from its recipe; `fit` does the work.

    Args:
        config: the recipe.
        folder: the run's folder; an unfinished run of the same recipe there goes on.
        device: where to compute.
        show: told how training goes.
        say: told sentences for people: where the frames are, how long it will take.
    """

    def __init__(
        self,
        config: PretrainConfig,
        folder: Path,
        *,
        device: torch.device,
        show: Callable[[ProgressUpdate], None] = lambda moment: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.show, self.say = show, say
        self.bank: FrameCache | None = None
        self._estimate = Estimate(config.train.epochs * config.train.steps, say)
        check_folder(folder)
        state = folder / checkpoint.FILE_NAME
        resumed = state.exists()
        longer = resumed and extends_training(config, folder)
        self.new_config = longer or not resumed
        self.games = choose_games(config.data)

        torch.manual_seed(config.train.seed)
        if resumed:  # the weights come from the state; where they started is told by what was saved before
            self.backbone = Backbone(config.network, name=config.name)
            self.backbone.metadata = read_about(folder / "last").get("metadata", {})  # its weights may be half replaced
        else:
            self.backbone = start_backbone(config)
        self.backbone.to(device)
        if device.type == "cuda":
            self.backbone.encoder.to(memory_format=torch.channels_last)
        self.backbone.metadata |= {
            "trained_on": [game.name for game in self.games["train"]],
            "actions": list(ACTIONS),
            "seed": config.train.seed,
            "ballcast": __version__,
        }
        self.backbone.note = f"learned spotting on {describe_games(self.backbone.metadata['trained_on'])}"
        self.optimizer = build_optimizer(self.backbone, config.train)
        self.ema = Ema(self.backbone, config.train.ema) if config.train.ema else None
        self.progress = Progress()
        if resumed:
            self.progress = checkpoint.load_state(state, self.backbone, self.optimizer, self.ema)
        if longer:
            self.progress.finished = False

    def fit(self) -> Progress:
        with run_lock(self.folder):
            return self._fit()

    def _fit(self) -> Progress:
        config, progress, steps = self.config, self.progress, self.config.train.steps
        sweep(self.folder)
        if progress.finished:
            return progress
        if self.new_config:
            write_run_config(self.folder, config, self.device)
        self.load_frames()
        assert self.bank is not None
        if not progress.step:
            self.backbone.save_pretrained(self.folder / "last")
        self.run_log = RunLog(self.folder, progress, steps=STEP_COLUMNS, epochs=EPOCH_COLUMNS, per_epoch=steps)
        self.step = SpotStep(backbone=self.backbone, optimizer=self.optimizer, ema=self.ema, config=config.train)
        tuned, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, self.device.type == "cuda"
        try:
            for epoch in range(progress.step // steps, config.train.epochs):
                self._epoch(epoch, first=progress.step - epoch * steps)
            self._report()
            progress.finished = True
            self._save()
        finally:
            torch.backends.cudnn.benchmark = tuned
            self.run_log.close()
        return progress

    def load_frames(self, decoded: Decoded = lambda done, total: None) -> None:
        """Decode the games, unless that is done or not needed any more; `decoded` is told frames done and in all."""
        if self.bank is not None or self.progress.finished:
            return
        self.bank = self._bank("train", decoded)
        self.held_out = self._bank("valid", decoded) if self.games["valid"] else None
        self.backbone.metadata["picture_size"] = list(self.bank.size)  # other videos are brought to it
        games, clips, bank = self.games["train"], self.config.clips, self.bank
        self.sampler = SnippetSampler(games, bank.first, bank.length, network=self.config.network, config=clips)
        # A step's targets lie where its numbers do: on the GPU, a step then never waits for the host.
        self.targets = torch.from_numpy(frame_targets(games, bank.length, clips)).to(self.device)

    def _bank(self, split: str, decoded: Decoded = lambda done, total: None) -> FrameCache:
        data = self.config.data
        began = time.perf_counter()
        bank = FrameCache(self.games[split], self.device, data.device, workers=data.workers, progress=decoded)
        place = {"gpu": "on the GPU", "memory": "in memory", "disk": "on disk, read as needed"}[bank.where]
        H, W = bank.size
        events = sum(len(game.events) for game in bank.games)
        games = f"{len(bank.games)} game{'s' * (len(bank.games) != 1)}"
        self.say(
            f"{split}: {games}, {bank.total} frames of {W}×{H}, {events} actions; {place} "
            f"after {time.perf_counter() - began:.0f} s"
        )
        return bank

    def _epoch(self, epoch: int, first: int) -> None:
        config, progress, total = self.config.train, self.progress, self.config.train.steps
        bank, rng = self.bank, np.random.default_rng([config.seed, epoch])
        assert bank is not None
        begins = self.sampler.draw(total, rng)  # (steps, B)
        pictures = len(self.sampler.frame_offsets)
        changes = draw_augmentation(self.config.augment, total, self.config.clips.batch, pictures, rng).to(self.device)
        frames = begins[..., None] + self.sampler.frame_offsets  # (steps, B, P)
        middles = torch.from_numpy(begins[..., None] + self.sampler.middles).to(self.device)  # (steps, B, n)
        every = READ_EVERY if self.device.type == "cuda" else 1
        rates: list[float] = []
        unread: list[Tensor] = []
        began = last = time.perf_counter()
        with mode(self.backbone, training=True):
            for i, batch in enumerate(bank.stream(frames[first:]), start=first):
                rates.append(one_cycle(epoch * total + i, config.epochs * total, top=config.lr, warmup=config.warmup))
                set_learning_rate(self.optimizer, rates[-1])
                unread.append(self.step(batch, changes[i], self.targets[middles[i]]))
                if len(unread) < every and i < total - 1:
                    continue
                losses = torch.stack(unread).tolist()
                now = time.perf_counter()
                speed = len(unread) * self.config.clips.batch * self.config.clips.run / max(now - last, 1e-9)
                last = now
                self._log(epoch, i + 1, rates, losses, speed)
                self._estimate(progress.step)
                due = config.save_every and progress.step % config.save_every < len(rates)
                if due and i < total - 1:
                    self._save()
                rates, unread = [], []
        self._finish_epoch(epoch, time.perf_counter() - began)

    def _log(self, epoch: int, done: int, rates: list[float], losses: list[float], speed: float) -> None:
        for loss in losses:
            if not np.isfinite(loss):
                raise NotFinite(
                    f"epoch {epoch + 1}, before step {done + 1}: the loss is {loss}; lower train.lr; "
                    "the last saved state is from before"
                )
        named = self.run_log.add_steps(epoch, rates, [[loss] for loss in losses])
        self.show(ProgressUpdate(epoch, done, self.config.train.steps, rates[-1], named, speed))

    def _finish_epoch(self, epoch: int, seconds: float) -> None:
        config = self.config
        last_epoch = epoch + 1 == config.train.epochs
        due = self.held_out is not None and (last_epoch or (epoch + 1) % config.spotting.every == 0)
        with self.ema.swapped() if self.ema is not None else nullcontext():  # what is scored is what is kept
            score, better = self._keep(epoch, due)
        told, curves = (float("nan"), float("nan")), {}
        if score:
            told, curves = (score.avg, score.mean_area), {"mean_ap": score.avg, "mean_area": score.mean_area}
            curves |= {ACTIONS[c]: float(score.ap[c]) for c in range(len(ACTIONS)) if score.events[c]}
        losses, total = self.run_log.add_epoch(epoch, seconds, told, curves), config.train.steps
        self._save()
        speed = total * config.clips.batch * config.clips.run / max(seconds, 1e-9)
        self.show(ProgressUpdate(epoch, total, total, self.run_log.rate, losses, speed, score, better, ended=True))
        if score:
            self.say(f"  {score.summary()}")

    def _keep(self, epoch: int, due: bool) -> tuple[SpottingScore | None, bool]:
        """Score the backbone if it is time, and write it, also as the best if it is; whether it is."""
        score = None
        if due:
            assert self.held_out is not None
            score = score_games(self.backbone, self.held_out, self.config.spotting, self.device)
        progress, metadata = self.progress, self.backbone.metadata
        better = score.avg > progress.best if score else self.held_out is None
        if better:
            progress.best, progress.best_epoch = (score.avg if score else -1.0), epoch + 1
        metadata["epoch"] = epoch + 1
        metadata.pop("validation", None)
        if score:
            metadata["validation"] = score.as_dict()
        self.backbone.save_pretrained(self.folder / "last")
        if better:
            self.backbone.save_pretrained(self.folder / "best")
        return score, better

    def _report(self) -> None:
        """Score the best backbone on the test games too, and write all that is known of it."""
        best = Backbone.from_pretrained(self.folder / "best").to(self.device)
        report: dict[str, Any] = {
            "backbone": {"name": best.name, "hash": best.hash, "epoch": best.metadata["epoch"]},
            "games": {split: [game.name for game in games] for split, games in self.games.items()},
            "train_actions": count_actions(self.games["train"]),
            "steps": self.progress.step,
            "seconds": self.run_log.seconds,
        }
        if "validation" in best.metadata:
            assert self.held_out is not None
            report["valid"] = best.metadata["validation"]
            report["valid_chance"] = score_chance(best.config, self.held_out, self.config.spotting).as_dict()
        if self.games["test"]:
            bank = self._bank("test")
            score = score_games(best, bank, self.config.spotting, self.device)
            chance = score_chance(best.config, bank, self.config.spotting)
            report |= {"test": score.as_dict(), "test_chance": chance.as_dict()}
            self.say(f"test: spotting {score.summary()}")
            self.say(f"test: random scores would get {chance.summary()}")
        write_json(self.folder / REPORT, {**report, "config": to_dict(self.config)}, indent=1)

    def _save(self) -> None:
        self.run_log.save(self.backbone, self.optimizer, self.ema)
