"""The recipe of an event transformer for `ballcast train`; the defaults are those of `configs/feed.yaml`."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval

from ballcast.core.actions import MAX_EVENTS, OBSERVED_MS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import (
    EXTENDS,
    LONGEST_CHAIN,
    Amount,
    BelowOne,
    Count,
    Rate,
    Record,
    Rounds,
    SaveEvery,
    Seed,
    Share,
    Size,
    Weight,
    config,
    load,
    read_yaml,
    require,
    setting,
)
from ballcast.core.embedded import find_extended, find_recipe
from ballcast.core.event_schema import TOKENS

KIND: Literal["event-transformer"] = "event-transformer"  # of recipes, and of the config.json of models
SPOT_KIND = "spot-transformer"  # of the config.json of models of spots


@config(frozen=True)
class EventTransformerConfig(Record):
    """The sizes of the network."""

    dim: Size = setting(256, "d")
    heads: Size = 8
    layers: Count = 4
    ffn: Size = 640
    dropout: BelowOne = 0.05
    tokens: Count = setting(TOKENS, "events that are read, at most")
    observed_ms: Annotated[int, Interval(ge=1000, le=3_600_000)] = setting(OBSERVED_MS, "how far back events are read")
    slots: Annotated[int, Interval(ge=1, le=MAX_EVENTS)] = setting(MAX_EVENTS, "K, the first actions to come")

    def __post_init__(self) -> None:
        require(self.dim % self.heads == 0, "dim must be a multiple of heads")


@config(frozen=True)
class SpotTransformerConfig(EventTransformerConfig):
    """The sizes of the network that reads spots; here an event is a spot."""

    dim: Size = setting(128, "d")
    heads: Size = 4
    layers: Count = 3
    ffn: Size = 320
    tokens: Count = setting(20, "spots that are read, at most")


@config(frozen=True)
class FeedDataConfig(Record):
    """The matches, and the splits for training and validation."""

    source: str = setting("matches", "a folder with a folder of feeds for each split, or the table of five leagues")
    provider: str = setting("auto", "of the feeds in folders, as in `ballcast events`; auto: as recognised")
    size: Literal["small", "full"] = setting("full", "of the table: the matches of `ballcast events --split`")
    train: tuple[str, ...] = setting(("train",), "splits to train on")
    valid: tuple[str, ...] = setting(("valid",), "splits to score each epoch")
    every_ms: Annotated[int, Interval(ge=40, le=10**6)] = setting(11_000, "from one scored window to the next")
    mirror: Share = setting(0.5, "probability that a sample is mirrored, left for right")

    def __post_init__(self) -> None:
        require(bool(self.train), "train must name at least one split")
        for name in ("train", "valid"):
            splits = getattr(self, name)
            require(len(set(splits)) == len(splits), f"{name} names a split twice")


@config(frozen=True)
class FeedMaskConfig(Record):
    """Masking: samples as a poorer feed would show them, so that the model reads feeds that lack details."""

    samples: Share = setting(0.4, "share of the samples that are masked")
    details: Share = setting(0.4, "share of the details hidden from these: kinds, outcomes, players, ends, actions")


@config(frozen=True)
class FeedDistilConfig(Record):
    """Distillation: the mean of the outputs of trained models, which see all details, as a target beside the labels."""

    teachers: tuple[str, ...] = setting((), 'folders of trained models, or "embedded"; none: no distillation')
    weight: Share = setting(0.7, "of the teachers' outputs; the labels have the rest")


@config(frozen=True)
class FeedLossConfig(Record):
    """The losses besides that of the kind of each slot."""

    sigma: Annotated[float, Interval(ge=0.01, le=1000)] = setting(1.0, "of the Gaussian over the bins of a time")
    zones: Weight = setting(0.1, "weight of the cross-entropy of the zone of each action")
    counts: Weight = setting(0.2, "weight of the Poisson loss of the expected actions of each class and bin")


@config(frozen=True)
class FeedTrainConfig(Record):
    """The optimisation: AdamW, a linear warm-up and a cosine down to a hundredth, a moving average of the weights."""

    start: str = setting("scratch", 'or "embedded", or the folder of a model of the same sizes')
    epochs: Rounds = 12
    steps: Rounds = setting(239, "per epoch")
    batch: Size = 1024
    lr: Rate = 1e-3
    warmup: Share = setting(0.04, "share of all steps with a rising learning rate")
    weight_decay: Amount = setting(0.05, "not on norms, biases and embeddings")
    beta2: BelowOne = setting(0.98, "of AdamW")
    clip: float = setting(1.0, "norm of the gradient")
    ema: BelowOne = setting(
        0.998, "decay of the moving average of the weights, which is evaluated and saved; 0: no averaging"
    )
    precision: Literal["bf16", "fp32"] = setting("bf16", "bf16 only on a GPU; a CPU always computes in fp32")
    graph: bool = setting(True, "on one GPU: record the whole step as a CUDA graph")
    patience: Annotated[int, Interval(ge=0, le=10**6)] = setting(
        0, "stop after this many epochs without a better score; 0: never"
    )
    save_every: SaveEvery = setting(0, "steps between checkpoints of the full state; 0: once per epoch")
    seed: Seed = 0

    def __post_init__(self) -> None:
        require(bool(self.start), "start must be scratch, embedded, or the folder of a model")
        require(self.clip > 0, "clip must be positive")


@config(frozen=True)
class FeedRecipe(Record):
    """The whole recipe of an event transformer."""

    kind: Literal["event-transformer"] = setting(KIND, "tells such a recipe from those of models of videos")
    data: FeedDataConfig = field(default_factory=FeedDataConfig)
    model: EventTransformerConfig = field(default_factory=EventTransformerConfig)
    loss: FeedLossConfig = field(default_factory=FeedLossConfig)
    mask: FeedMaskConfig = field(default_factory=FeedMaskConfig)
    distil: FeedDistilConfig = field(default_factory=FeedDistilConfig)
    train: FeedTrainConfig = field(default_factory=FeedTrainConfig)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe | FeedRecipe:
    """Load a recipe of `ballcast train`: of an event transformer if it, or what it extends, says so (`kind`)."""
    if _kind(find_recipe(path)) == KIND:
        return load(FeedRecipe, path, overrides)
    return load(Recipe, path, overrides)


def _kind(path: Path) -> Any:
    """The `kind` of a recipe, or of what it extends; faults of the files are found by `load`."""
    for _ in range(LONGEST_CHAIN):
        tree = read_yaml(path)
        base = tree.get(EXTENDS)
        if "kind" in tree or not isinstance(base, str):
            return tree.get("kind")
        path = find_extended(path, base)
    return None
