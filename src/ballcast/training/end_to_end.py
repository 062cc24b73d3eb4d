"""Training end to end: from the frames of games to slots, the encoder and the anticipator together.

Each sample is the windows of 5 s before any frame of a game; the spotting loss is on every observed stack,
the anticipation loss on what comes. Frames are decoded once (`FrameCache`); a step gathers them, changes them on the
device, and never waits for the host.

run/best, run/last                     the anticipator, as of any run; it names its backbone by hash
run/best_backbone, run/last_backbone   the frame encoder it was trained with, for `extract` and `predict`
run/report.json                        scores of the best model on the test games
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from ballcast.core.util import ProgressCallback
from ballcast.data.labels.games import choose_games, count_actions
from ballcast.data.labels.label_sets import LabelSet, choose_label_sets
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.frames import FrameCache, open_frames
from ballcast.data.samples.game_samples import GameSampler, spotting_targets
from ballcast.features.frame_network import to_channels_last
from ballcast.features.stack_index import snippet_count
from ballcast.loss.criterion import Criterion
from ballcast.loss.matcher import class_weights
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.training.augment import draw_augmentation
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.engine import Ranks, mode
from ballcast.training.learner import (
    EndToEndStep,
    SampleBatch,
    allow_tf32,
    build_learner,
    load_learner,
    use_triton,
)
from ballcast.training.run_folder import EPOCH_COLUMNS, STEP_COLUMNS
from ballcast.training.steps import build_optimizer, learning_rate, set_learning_rate
from ballcast.training.window_eval import GameCache, score_clips, score_spotting

REPORT = "report.json"


@dataclass(frozen=True)
class EndToEndData:
    """The frames, or features, of the games to train on, to validate on and to test on; None: there are none.

    `others`: further label sets, for the spotting loss only; their games come last in `train`.
    """

    train: GameCache
    valid: GameCache | None
    test: GameCache | None = None
    others: tuple[LabelSet, ...] = ()


def open_end_to_end_data(
    recipe: Recipe,
    device: torch.device,
    log: Callable[[str], None] = lambda line: None,
    decoded: ProgressCallback = lambda done, total: None,
) -> EndToEndData:
    """Decode the games of a recipe; `decoded` is called with frames done and in all."""
    games, others = choose_games(recipe.games), tuple(choose_label_sets(recipe.games))
    games["train"] += [game for label_set in others for game in label_set.games]

    def cache(split: str) -> FrameCache | None:
        if not games[split]:
            return None
        colour, once = recipe.encoder.network.colour, recipe.encoder.features and split != "test"
        config = replace(recipe.games, device="disk") if once else recipe.games  # read once, and not kept
        return open_frames(games[split], config, device, title=split, log=log, progress=decoded, colour=colour)

    train = cache("train")
    assert train is not None  # `choose_games` refuses an empty one
    return EndToEndData(train, cache("valid"), cache("test"), others)


class EndToEndTask:
    """The `run.Task` that trains an encoder and an anticipator from the frames of games.

    Args:
        recipe: of the run.
        folder: the run's folder.
        device: where to compute.
        ranks: this process among those of the run.
        data: the games' frames; None: decoded here.
        resumed: whether the weights are to be loaded from a saved state.
        log: called with lines for people.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = (*EPOCH_COLUMNS, "spotting_ap")

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        device: torch.device,
        ranks: Ranks,
        data: EndToEndData | None,
        *,
        resumed: bool,
        log: Callable[[str], None],
    ) -> None:
        _check(recipe)
        self.recipe, self.folder, self.device, self.ranks = recipe, folder, device, ranks
        self.log = log if ranks.writes else lambda line: None
        self.data = data or open_end_to_end_data(recipe, device, self.log)
        cache, games, sets = self.data.train, self.data.train.games, self.data.others
        self.learner = build_learner(
            recipe, games, folder, cache.size, resumed=resumed, classes=[len(s.labels) for s in sets]
        ).to(device)
        once, stride, windows = bool(recipe.encoder.features), recipe.encoder.network.stride, recipe.model.windows
        self.sampler = GameSampler(
            games, cache.first, cache.length, windows=windows, config=recipe.data, grid=stride if once else 1
        )
        self._offsets = self.learner.stack_offsets if once else self.learner.frame_offsets  # of what is seen
        if once:
            every, mirrored = stride if windows == 1 else math.gcd(stride, WINDOW_FRAMES), recipe.augment.flip > 0
            self.data = self._computed(every, mirrored=mirrored)
        if device.type == "cuda":
            to_channels_last(self.learner.backbone)
            if not recipe.train.compile and not once:
                use_triton(self.learner.backbone.encoder)
        counts = torch.tensor([*count_actions(games).values()])
        weights = class_weights(counts, recipe.loss.class_weight)
        criterion = Criterion(config=recipe.loss, model=recipe.model, class_weights=weights).to(device)
        self.metadata["class_weights"], self.metadata["samples"] = weights.tolist(), len(self.sampler)
        self.optimizer: torch.optim.Optimizer = build_optimizer(
            self.learner, recipe.train, slower=self.learner.backbone, factor=recipe.encoder.lr_factor
        )
        self.ema = Ema(self.learner, recipe.train.ema) if recipe.train.ema else None
        self.samples_per_step, self.patience = recipe.train.batch, recipe.train.patience
        self.step = EndToEndStep(
            learner=self.learner,
            wrapped=ranks.wrap(self.learner),
            criterion=criterion,
            optimizer=self.optimizer,
            ema=self.ema,
            recipe=recipe,
            reduce=ranks.mean if ranks.count > 1 else None,
        )
        self._source = np.zeros(len(games), np.int64)  # the label set of each game, 0 for the ten actions
        self._source[len(games) - sum(len(s.games) for s in sets) :] = np.repeat(
            np.arange(1, len(sets) + 1), [len(s.games) for s in sets]
        )
        events = [[(e.position_ms, e.action) for e in game.events] for game in games]
        self._targets = [self._table(events, len(ACTIONS))]
        for number, label_set in enumerate(sets, start=1):
            actions = iter(label_set.actions)
            own = [next(actions).tolist() if source == number else [] for source in self._source]
            self._targets.append(self._table(own, len(label_set.labels)))

    def _table(self, events: Sequence[Sequence[tuple[int, int]]], classes: int) -> Tensor:
        """The spotting target of every frame of the cache, (frames, C), from (position in ms, class) for each game."""
        cache = self.data.train
        table = spotting_targets(events, cache.length, self.recipe.loss.auxiliary_sigma_ms, classes)
        return torch.from_numpy(_spread(table, cache)).to(self.device)

    def _computed(self, every: int, *, mirrored: bool) -> EndToEndData:
        """Compute what the encoder gives, of the training games every so many frames, of the others everywhere.

        `mirrored`: of the training games also what it gives of mirrored frames.
        """
        data, recipe, ranks = self.data, self.recipe, self.ranks

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

        valid = computed(data.valid, "valid", 1) if data.valid else None
        return replace(data, train=computed(data.train, "train", every, mirrored=mirrored), valid=valid)

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
        if not step and self.ranks.writes:
            self.metadata["epoch"] = 0
            self.save("last")

    def train_epoch(self, epoch: int, first: int) -> Iterator[tuple[float, Tensor]]:
        recipe, total, batch = self.recipe, self.steps_per_epoch, self.recipe.train.batch
        rank, size = self.ranks.rank, batch // self.ranks.count
        drawn = self.sampler.draw(np.random.default_rng([recipe.train.seed, epoch]))  # the same in every process
        own = np.arange(total * batch).reshape(total, batch)[:, rank * size : (rank + 1) * size].ravel()
        mine = drawn[own % len(drawn)]
        offsets = self._offsets  # (W · F,) frames, or (W · N,) stacks, from the first frame seen
        rng = np.random.default_rng([recipe.train.seed, epoch, 1 + rank])
        changes = draw_augmentation(recipe.augment, total, size, len(offsets), rng)
        frames = (mine.frame[:, None] - self.learner.span + offsets).reshape(total, size, -1)  # (steps, B, …)
        if isinstance(self.data.train, FeatureCache):
            frames += self.data.train.total * (changes.turn.numpy() < 0)[..., None]  # those of mirrored frames
        changes = changes.to(self.device)
        middles = mine.frame[:, None] - WINDOW_FRAMES + self.learner.middles  # (S, N)
        classes, position_ms, middles_of = (
            torch.from_numpy(array).to(self.device).unflatten(0, (total, size))
            for array in (mine.classes, mine.position_ms, middles)
        )
        source = torch.from_numpy(self._source[mine.game]).to(self.device).unflatten(0, (total, size))

        def steps() -> Iterator[tuple[float, Tensor]]:
            with mode(self.learner, training=True), allow_tf32(self.device):
                if not recipe.encoder.learns:
                    self.learner.backbone.eval()
                for i, seen in enumerate(self.data.train.stream(frames[first:]), start=first):
                    rate = learning_rate(epoch * total + i, total, recipe.train)
                    set_learning_rate(self.optimizer, rate)
                    presence = [table[middles_of[i]] for table in self._targets]
                    sample = SampleBatch(seen, classes[i], position_ms[i], presence, source[i])
                    yield rate, self.step(sample, changes[i])

        return steps()

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
        backbone.save_pretrained(self.folder / f"{name}_backbone")
        model.metadata["backbone"] = {**to_dict(backbone.identity), "folder": f"../{name}_backbone"}
        model.save_pretrained(self.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        return "lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Score the best model on the test games, and write report.json."""
        if self.data.test is None or not self.ranks.writes:
            return
        learner = load_learner(self.folder / "best").to(self.device)
        report = {
            "epoch": learner.anticipator.metadata["epoch"],
            "steps": progress.step,
            "seconds": seconds,
            "test": [game.name for game in self.data.test.games],
            "anticipation": score_clips(learner, self.data.test, self.recipe.emission).as_dict(),
            "spotting": score_spotting(learner, self.data.test).as_dict(),
        }
        write_json(self.folder / REPORT, report, indent=1)
        self.log(f"{self.folder / REPORT}: scores of the best model on the test games")


def _spread(table: np.ndarray, cache: GameCache) -> np.ndarray:
    """A table of the frames of some games (`FrameCache.subset`) → one of all frames of the cache, by their numbers."""
    if len(table) == cache.total:
        return table
    whole, done = np.zeros((cache.total, table.shape[1]), table.dtype), 0
    for first, count in zip(cache.first.tolist(), cache.length.tolist(), strict=True):
        whole[first : first + count] = table[done : done + count]
        done += count
    return whole


def _check(recipe: Recipe) -> None:
    network, model = recipe.encoder.network, recipe.model
    for key, own in (("clips", snippet_count(network)), ("width", network.width)):
        if getattr(model, key) != own:
            raise InputError(f"the encoder gives {own} {key} a window; set model.{key}={own}")
    if recipe.data.mixup:
        raise InputError("data.mixup is of training on stores; end to end, set augment.mixup instead, and data.mixup=0")
    apart = network.stride * FRAME_MS
    if model.kind == "faantra" and model.faantra.clip_ms != apart:
        raise InputError(f"the encoder's stacks are {apart} ms apart; set model.faantra.clip_ms={apart}")
