"""Training end to end: from the frames of games to slots, the encoder and the anticipator together.

Each sample is the windows of 5 s before any frame of a game; the spotting loss is on every observed stack,
the anticipation loss on what comes. Frames are decoded once (`FrameCache`); a step gathers them, changes them on the
device, and never waits for the host.

run/best, run/last                     the anticipator, as in any run; it names its backbone by hash
run/best_backbone, run/last_backbone   the frame encoder it was trained with, for `extract` and `predict`
run/report.json                        scores of the best model on the test games
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import ACTIONS, FRAME_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.core.progress import ProgressBar, no_bar
from ballcast.data.labels.games import count_actions
from ballcast.data.labels.label_sets import LabelSet
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.game_samples import GameSampler, spotting_targets
from ballcast.features.frame_network import to_channels_last
from ballcast.features.stack_index import snippet_count
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import class_weights
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.model.end_to_end import load_end_to_end
from ballcast.training.augment import draw_augmentation
from ballcast.training.checkpoint import Progress
from ballcast.training.data import EndToEndData, GameCache, open_end_to_end_data
from ballcast.training.ema import Ema
from ballcast.training.evaluation import score_clips, score_spotting
from ballcast.training.loop import RunContext
from ballcast.training.models import build_end_to_end
from ballcast.training.optimizer import build_optimizer, learning_rate
from ballcast.training.progress import Log, ignore
from ballcast.training.run_folder import EPOCH_COLUMNS, STEP_COLUMNS
from ballcast.training.step import FrameBatch, TrainStep, end_to_end_losses
from ballcast.training.switches import allow_tf32, mode, use_triton

REPORT = "report.json"


class EndToEndTask:
    """The `loop.Task` that trains an encoder and an anticipator from the frames of games.

    Args:
        recipe: of the run.
        context: where the run is.
        data: the games' frames; None: those that the recipe names, decoded here.
        log: called with lines for people.
        bar: opens the progress bar of decoding.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = (*EPOCH_COLUMNS, "spotting_ap")

    def __init__(
        self,
        recipe: Recipe,
        context: RunContext,
        data: EndToEndData | None = None,
        log: Log = ignore,
        bar: ProgressBar = no_bar,
    ) -> None:
        check_sizes(recipe)
        device, ranks = context.device, context.ranks
        self.recipe = recipe
        self.context = context
        self.log = log if ranks.writes else ignore
        self.data = data = data or open_end_to_end_data(recipe, device, self.log, bar)
        self.samples_per_step = recipe.train.batch
        self.patience = recipe.train.patience

        games = data.train.games
        label_sets = data.others
        self.learner = build_end_to_end(
            recipe,
            games,
            context.folder,
            data.train.size,
            resumed=context.resumed,
            classes=[len(label_set.labels) for label_set in label_sets],
        ).to(device)
        read_once = bool(recipe.encoder.features)
        stride = recipe.encoder.network.stride
        windows = recipe.model.windows
        self.sampler = GameSampler(
            games,
            data.train.first,
            data.train.length,
            windows=windows,
            config=recipe.data,
            grid=stride if read_once else 1,
        )
        # What a sample reads: stacks whose features are computed once, or frames; from the first frame seen.
        self._offsets = self.learner.stack_offsets if read_once else self.learner.frame_offsets
        if read_once:
            every = stride if windows == 1 else math.gcd(stride, WINDOW_FRAMES)
            self.data = self._computed(every, mirrored=recipe.augment.flip > 0)
        if device.type == "cuda":
            to_channels_last(self.learner.backbone)
            if not recipe.train.compile and not read_once:
                use_triton(self.learner.backbone.encoder)

        weights = class_weights(torch.tensor([*count_actions(games).values()]), recipe.loss.class_weight)
        self.metadata["class_weights"] = weights.tolist()
        self.metadata["samples"] = len(self.sampler)
        self.optimizer: torch.optim.Optimizer = build_optimizer(
            self.learner, recipe.train, slower=self.learner.backbone, factor=recipe.encoder.lr_factor
        )
        self.ema = Ema(self.learner, recipe.train.ema) if recipe.train.ema else None

        criterion = Criterion(config=recipe.loss, model=recipe.model, class_weights=weights).to(device)
        half = device.type == "cuda" and recipe.train.precision == "bf16"
        reduce = ranks.normalisers if ranks.count > 1 else None
        wrapped = ranks.wrap(self.learner)
        compute_losses = end_to_end_losses
        if device.type == "cuda" and recipe.train.compile:
            compute_losses = torch.compile(end_to_end_losses, dynamic=False)

        def losses_of(batch: FrameBatch) -> Losses:
            return compute_losses(wrapped, criterion, batch, recipe, half=half, reduce=reduce)

        self.step = TrainStep(losses_of, self.optimizer, clip=recipe.train.clip, ema=self.ema)
        self._source = _sources(len(games), label_sets)
        self._targets = self._spotting_targets()

    def _spotting_targets(self) -> list[Tensor]:
        """The spotting targets of each label set, the ten actions first: (frames, classes) each."""
        events = [[(e.position_ms, e.action) for e in game.events] for game in self.data.train.games]
        targets = [self._table(events, len(ACTIONS))]
        for number, label_set in enumerate(self.data.others, start=1):
            actions = iter(label_set.actions)
            of_set = [next(actions).tolist() if source == number else [] for source in self._source]
            targets.append(self._table(of_set, len(label_set.labels)))
        return targets

    def _table(self, events: Sequence[Sequence[tuple[int, int]]], classes: int) -> Tensor:
        """The spotting target of every frame of the cache, (frames, C), from (position in ms, class) for each game."""
        cache = self.data.train
        table = spotting_targets(events, cache.length, self.recipe.loss.auxiliary_sigma_ms, classes)
        return torch.from_numpy(_spread(table, cache)).to(self.context.device)

    def _computed(self, every: int, *, mirrored: bool) -> EndToEndData:
        """Compute the encoder's features: of the training games every `every` frames, of the others at every frame.

        `mirrored`: of the training games also the features of mirrored frames.
        """
        recipe = self.recipe
        ranks = self.context.ranks

        def computed(frames: GameCache, title: str, every: int, *, mirrored: bool = False) -> FeatureCache:
            assert isinstance(frames, FrameCache)
            return FeatureCache(
                frames,
                self.learner.backbone,
                Path(recipe.encoder.features),
                every=every,
                mirrored=mirrored,
                compiled=recipe.train.compile,
                begin=len(frames.games) * ranks.rank // ranks.count,
                title=title,
                log=self.log,
            )

        valid = computed(self.data.valid, "valid", 1) if self.data.valid else None
        return replace(self.data, train=computed(self.data.train, "train", every, mirrored=mirrored), valid=valid)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.learner.anticipator.metadata

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.sampler) // self.recipe.train.batch)

    @property
    def validates(self) -> bool:
        return self.data.valid is not None

    def prepare(self, step: int) -> None:
        """Before the first step, write the models, so that a resumed run finds their metadata."""
        if not step and self.context.ranks.writes:
            self.metadata["epoch"] = 0
            self.save("last")

    @contextmanager
    def training(self) -> Iterator[None]:
        with mode(self.learner, training=True), allow_tf32(self.context.device):
            if not self.recipe.encoder.learns:
                self.learner.backbone.eval()
            yield

    def batches(self, epoch: int, first: int) -> Iterator[FrameBatch]:
        recipe = self.recipe
        device = self.context.device
        ranks = self.context.ranks
        steps = self.steps_per_epoch
        batch = recipe.train.batch
        size = batch // ranks.count  # samples of a step that are this process's
        drawn = self.sampler.draw(np.random.default_rng([recipe.train.seed, epoch]))  # the same in every process
        order = np.arange(steps * batch).reshape(steps, batch)
        mine = drawn[order[:, ranks.rank * size : (ranks.rank + 1) * size].ravel() % len(drawn)]  # (steps · size,)

        rng = np.random.default_rng([recipe.train.seed, epoch, 1 + ranks.rank])
        augmentation = draw_augmentation(recipe.augment, steps, size, len(self._offsets), rng)
        read = (mine.frame[:, None] - self.learner.span + self._offsets).reshape(steps, size, -1)
        if isinstance(self.data.train, FeatureCache):
            read += self.data.train.total * (augmentation.turn.numpy() < 0)[..., None]  # those of mirrored frames
        augmentation = augmentation.to(device)

        def by_step(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device).unflatten(0, (steps, size))

        classes = by_step(mine.classes)  # (steps, size, 8)
        position_ms = by_step(mine.position_ms)
        middles = by_step(mine.frame[:, None] - WINDOW_FRAMES + self.learner.middles)  # (steps, size, N)
        source = by_step(self._source[mine.game])
        for i, seen in enumerate(self.data.train.stream(read[first:]), start=first):
            presence = [table[middles[i]] for table in self._targets]
            yield FrameBatch(seen, classes[i], position_ms[i], presence, source[i], augmentation[i])

    def learning_rate(self, step: int) -> float:
        return learning_rate(step, self.steps_per_epoch, self.recipe.train)

    def evaluate(self, epoch: int) -> Score | None:
        """The official score on the clips of the validation games; the spotting score is kept for `curves`."""
        if self.data.valid is None:
            return None
        self._spotting = score_spotting(self.learner, self.data.valid).avg
        return score_clips(self.learner, self.data.valid, self.recipe.emission)

    def curves(self, score: Score) -> dict[str, float]:
        named = dict(zip((*TOLERANCES, "avg"), [*score.at.values(), score.avg], strict=True))
        return {**named, "spotting_ap": self._spotting}

    def save(self, name: str) -> None:
        """Write the encoder first: an anticipator never names one that is not there."""
        backbone, model = self.learner.backbone, self.learner.anticipator
        backbone.metadata["epoch"] = model.metadata["epoch"]
        backbone.save_pretrained(self.context.folder / f"{name}_backbone")
        model.metadata["backbone"] = {**to_dict(backbone.identity), "folder": f"../{name}_backbone"}
        model.save_pretrained(self.context.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        return "lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Score the best model on the test games, and write report.json."""
        if self.data.test is None or not self.context.ranks.writes:
            return
        path = self.context.folder / REPORT
        learner = load_end_to_end(self.context.folder / "best").to(self.context.device)
        report = {
            "epoch": learner.anticipator.metadata["epoch"],
            "steps": progress.step,
            "seconds": seconds,
            "test": [game.name for game in self.data.test.games],
            "anticipation": score_clips(learner, self.data.test, self.recipe.emission).as_dict(),
            "spotting": score_spotting(learner, self.data.test).as_dict(),
        }
        write_json(path, report, indent=1)
        self.log(f"{path}: scores of the best model on the test games")


def _sources(games: int, label_sets: Sequence[LabelSet]) -> np.ndarray:
    """(games,) int64: the label set of each game, 0 for the ten actions; games of further label sets come last."""
    counts = [len(label_set.games) for label_set in label_sets]
    return np.repeat(np.arange(len(counts) + 1), [games - sum(counts), *counts])


def _spread(table: np.ndarray, cache: GameCache) -> np.ndarray:
    """A table of the frames of some games (`FrameCache.subset`) → one of all frames of the cache, by their numbers."""
    if len(table) == cache.total:
        return table
    whole = np.zeros((cache.total, table.shape[1]), table.dtype)
    done = 0
    for first, count in zip(cache.first.tolist(), cache.length.tolist(), strict=True):
        whole[first : first + count] = table[done : done + count]
        done += count
    return whole


def check_sizes(recipe: Recipe) -> None:
    """Raise an InputError unless the sections of the recipe fit each other, before videos are decoded."""
    network = recipe.encoder.network
    model = recipe.model
    for key, count in (("clips", snippet_count(network)), ("width", network.width)):
        if getattr(model, key) != count:
            raise InputError(f"the encoder gives {count} {key} a window; set model.{key}={count}")
    if recipe.data.mixup:
        raise InputError("data.mixup is of training on stores; end to end, set augment.mixup instead, and data.mixup=0")
    apart = network.stride * FRAME_MS
    if model.kind == "faantra" and model.faantra.clip_ms != apart:
        raise InputError(f"the encoder's stacks are {apart} ms apart; set model.faantra.clip_ms={apart}")
