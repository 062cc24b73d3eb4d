"""A reproduction: the models and readings of the table, the command's options, and the place of each result.

OUT/backbone/best          the backbone, if it is pre-trained here
OUT/features/SPLIT         feature stores
OUT/runs/RECIPE-sN         training runs
OUT/scores/RECIPE-sN.json  the scores of a run's best epoch
OUT/submissions/*.zip      for the challenge's servers
OUT/table.md, table.json   the table
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.progress import ProgressBar
from ballcast.data.labels.soccernet import RESOLUTIONS, SPLITS, check
from ballcast.features.backbone import Backbone
from ballcast.features.store import FeatureStore


@dataclass(frozen=True)
class Variant:
    """A model of the table: a recipe that comes with ballcast, and key=value changes to it."""

    title: str
    config: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How a model's slots become scored predictions.

    - `emit`: changes to the model's own `EmitConfig`.
    - `read`: what the scorer reads, every entry of the class vectors or only label and confidence.
    - `tuned`: with the calibration fitted on the validation clips, where that helps.
    """

    title: str
    emit: Mapping[str, Any] = field(default_factory=dict)
    read: Literal["vector", "label"] = "vector"
    tuned: bool = False


RECIPES = {
    "paper": Variant("the paper's model", "paper"),
    "static": Variant("static queries", "paper", ("model.hierarchy.queries=static",)),
    "faantra": Variant("FAANTRA", "faantra"),
}

READINGS = {
    "untuned": Reading("untuned"),
    "label": Reading("untuned, only label and confidence", read="label"),
    "class-0.3": Reading("τ 0.3, every class", {"mode": "class", "vector": "emitted", "threshold": 0.3}),
    "class-0.05": Reading("τ 0.05, every class", {"mode": "class", "vector": "emitted", "threshold": 0.05}),
    "tuned": Reading("tuned", tuned=True),
    "tuned-label": Reading("tuned, only label and confidence", read="label", tuned=True),
}

# Published means (%) of the test server, by model and reading.
PUBLISHED_MEANS = {
    ("paper", "untuned"): 17.91,
    ("paper", "class-0.3"): 17.91,
    ("paper", "class-0.05"): 13.96,
    ("faantra", "untuned"): 18.05,
}
STATIC_GAIN = "about 0.8 points of validation mAP"

PAPER_EPOCH = 17  # the best one, as the paper gives it

# --quick: all steps on little data, to check that they work.
QUICK_CLIPS = 8  # of each split
QUICK_TRAIN = ("train.epochs=2", "train.warmup_epochs=1", "train.restart_epochs=1", "train.compile=false")
QUICK_PRETRAIN = (
    *("train.start=scratch", "train.epochs=1", "train.steps=2", "train.compile=false"),
    *("clips.batch=2", "clips.run=2"),
)
RESAMPLES, QUICK_RESAMPLES = 1000, 100  # of the clips, for the 95 % intervals


def stacks_a_step(config: PretrainRecipe) -> int:
    """Return the number of stacks that a step of pre-training encodes: neighbouring snippets of a run share theirs."""
    return config.clips.batch * (config.clips.run + config.network.stacks - 1)


LABELLED = ("train", "valid", "test")
EVERY = {"train": 25, "valid": 125, "test": 125, "challenge": 125}  # frames from one window to the next


@dataclass(frozen=True)
class Run:
    """A training: a model of the table and a seed."""

    recipe: str
    seed: int
    folder: Path
    scores: Path  # its scores, as JSON

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass
class Reproduction:
    """The options of the command, and the places of its results.

    Args:
        data: SN-BAA's folder: its root, or that of one resolution.
        out: the folder for all results.
        console: to print on.
        device: to compute on.
        frames: gives a progress bar of frames.
        backbone: folder, hub id or published checkpoint; None: pre-train one on the training games.
        resolution: 224p or 720p; None: what is there, and of both 720p for a published checkpoint, else 224p.
        recipes: which models of `RECIPES`.
        seeds: trainings of each.
        quick: all steps on a few clips and epochs.
        overrides: key=value for every training.
        password: of the archives; None: nothing is downloaded.
        workers: of the extraction; None: as many as there are cores.
    """

    data: Path
    out: Path
    console: Console
    device: torch.device
    frames: ProgressBar
    backbone: str | None = None
    resolution: str | None = None
    recipes: tuple[str, ...] = tuple(RECIPES)
    seeds: int = 3
    quick: bool = False
    overrides: tuple[str, ...] = ()
    password: Callable[[], str] | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for name in self.recipes:
            if name not in RECIPES:
                raise InputError(
                    f"no model {name!r} in the table; choose from {', '.join(RECIPES)}, or see the commands for other "
                    f"recipes with `ballcast reproduce --list --recipes {name}`"
                )

    def log(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    @property
    def resamples(self) -> int:
        return QUICK_RESAMPLES if self.quick else RESAMPLES

    # -- the data --------------------------------------------------------------------------------------------------

    @property
    def wanted_resolution(self) -> str:
        """The resolution to download, or to use if both are there; the published backbones were trained on 720p."""
        published = self.backbone is not None and Path(self.backbone).is_file()
        return self.resolution or ("720p" if published else "224p")

    @property
    def given(self) -> Path:
        """The folder that holds the splits."""
        there = [r for r in RESOLUTIONS if (self.data / r).is_dir()]
        if self.resolution and there and self.resolution not in there:
            raise InputError(f"{self.data}: has no {self.resolution}; it has {', '.join(there)}")
        if not there:
            return self.data
        return self.data / (self.wanted_resolution if self.wanted_resolution in there else there[0])

    @property
    def videos(self) -> Path:
        """The folder of the splits that are used: with `quick`, the first clips of each."""
        return self.out / "data" if self.quick else self.given

    @property
    def splits(self) -> list[str]:
        """The splits with videos or features; the challenge is optional."""
        stores = [split for split in SPLITS if split in LABELLED or (self.features / split).is_dir()]
        return [split for split in SPLITS if split in stores or (self.given / split).is_dir()]

    def require_data(self) -> None:
        """Raise an InputError unless train, valid and test are there."""
        if missing := [split for split in LABELLED if not (self.given / split).is_dir()]:
            check(self.given)  # its message for a wrong folder is better
            raise InputError(
                f"{self.given}: has no {missing[0]}; train, valid and test are needed (see `ballcast download`), or "
                "give --password to download them"
            )

    # -- the results -----------------------------------------------------------------------------------------------

    @property
    def features(self) -> Path:
        return self.out / "features"

    @property
    def pretraining(self) -> Path:
        return self.out / "backbone"

    @cached_property
    def network(self) -> Backbone:
        """The backbone of all features."""
        if self.backbone is not None:
            return Backbone.load(self.backbone)
        if not (self.pretraining / "best").is_dir():
            raise InputError(f"{self.pretraining}: no backbone yet; give --backbone, or run the step `backbone` first")
        return Backbone.load(self.pretraining / "best")

    @property
    def pretrain_config(self) -> PretrainRecipe:
        config = load(PretrainRecipe, Path("pretrain"), QUICK_PRETRAIN if self.quick else ())
        return replace(config, data=replace(config.data, sources=(str(self.videos),)))

    def store(self, split: str) -> FeatureStore:
        if not (self.features / split).is_dir():
            raise InputError(f"{self.features / split}: no features yet; run the step `features` first")
        return FeatureStore.open(self.features / split)

    def runs(self) -> Iterator[Run]:
        """Every training, one model after the other."""
        for recipe in self.recipes:
            for seed in range(self.seeds):
                name = f"{recipe}-s{seed}"
                yield Run(recipe, seed, self.out / "runs" / name, self.out / "scores" / f"{name}.json")

    def recipe(self, run: Run, clips: int, width: int) -> Recipe:
        """Return a training's recipe; `clips`, `width`: snippets of a window, and features of a snippet."""
        variant = RECIPES[run.recipe]
        sizes = (f"model.clips={clips}", f"model.width={width}")
        changes = [*variant.overrides, *(QUICK_TRAIN if self.quick else ()), *sizes, *self.overrides]
        recipe = load(Recipe, Path(variant.config), changes)
        data = replace(recipe.data, features=str(self.features), labels="", train=("train",), valid=("valid",))
        return replace(recipe, data=data, train=replace(recipe.train, seed=run.seed))
