"""The recipe of a backbone for `ballcast pretrain`, such as `configs/pretrain.yaml`."""

from dataclasses import field, replace
from typing import Annotated, Literal

from annotated_types import Interval

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import (
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
    config,
    require,
    setting,
)

Duration = Annotated[int, Interval(ge=0, le=10**6)]  # ms


@config(frozen=True)
class GamesConfig(Record):
    """The games, and the splits for training, validation and test."""

    sources: tuple[str, ...] = setting(("data",), "folders of SN-BAA, SN-BAS or simulated matches")
    train: tuple[str, ...] = setting(("train",), "splits or names of games; * and ? are wildcards")
    valid: tuple[str, ...] = setting(("valid",), "evaluated each epoch, never trained on")
    test: tuple[str, ...] = setting((), "evaluated once, at the end; never trained on")
    lines: Annotated[int, Interval(ge=0, le=8192)] = setting(
        0, "height that frames are scaled to, their shape kept; 0: their own"
    )
    also: tuple[str, ...] = setting((), "more folders, for the spotting loss only, each with the classes of its labels")
    device: Literal["auto", "gpu", "memory", "disk"] = setting("auto", "where the frames are kept during training")
    workers: Annotated[int, Interval(ge=0, le=1024)] = setting(0, "decoding processes; 0: one per core")

    def __post_init__(self) -> None:
        require(bool(self.sources), "sources must name at least one folder")
        require(bool(self.train), "train must name at least one split or game")


@config(frozen=True)
class ClipsConfig(Record):
    """Sampling of the training snippets, and their targets.

    Snippets come in runs: `run` snippets that start 6 frames apart share stacks, so a run costs run + 4 stacks, not
    5 · run.
    """

    batch: Size = setting(32, "runs per step")
    run: Count = setting(4, "snippets per run")
    near: Share = setting(0.6, "share of the runs sampled around an action; the others are sampled from everywhere")
    near_ms: Duration = setting(800, "largest distance of the middle of such a run from its action")
    balance: Annotated[float, Interval(ge=0, le=10)] = setting(
        0.5, "sample an action of a class of n actions ∝ n^−balance"
    )
    reach_ms: Annotated[int, Interval(ge=1, le=10**5)] = setting(
        300, "from the middle of a snippet to the action it targets"
    )
    shape: Literal["flat", "cosine"] = setting("flat", "of the target: 1 within the reach, or falling towards its ends")


@config(frozen=True)
class AugmentConfig(Record):
    """Augmentation of the frames; one draw for all snippets of a run."""

    flip: Share = setting(0.5, "probability of a horizontal flip")
    shift: Annotated[float, Interval(ge=0, le=0.9)] = setting(
        0.05, "up to this share of the height and width, to any side"
    )
    zoom: Annotated[float, Interval(ge=0, le=0.9)] = setting(0.1, "in or out by up to this factor")
    brightness: Share = setting(0.1, "added, up to this much of the range, up or down")
    contrast: Annotated[float, Interval(ge=0, le=0.9)] = setting(0.2, "the distance to the mean, times 1 ± this")
    blur: Share = setting(0.2, "probability of a blur of random strength, up to a 3 × 3 box")
    drop: Share = setting(0.02, "probability that a frame is replaced by the one before it")
    mixup: Amount = setting(0.0, "Beta(a, a) of mixing pairs of runs; 0: off")


@config(frozen=True)
class PretrainTrainConfig(Record):
    """The optimisation: AdamW, one cycle of the learning rate, focal loss, a moving average of the weights."""

    start: str = setting("imagenet", "imagenet, scratch, or a backbone's folder")
    epochs: Rounds = 12
    steps: Rounds = setting(250, "per epoch")
    lr: Rate = setting(1e-3, "at the top of the cycle")
    warmup: Share = setting(0.15, "share of all steps with a rising learning rate")
    weight_decay: Amount = setting(0.05, "not on norms and biases")
    clip: float = setting(5.0, "norm of the gradient")
    focal_alpha: Share = 0.4
    focal_gamma: Amount = 1.2
    ema: BelowOne = setting(0.998, "decay of the moving average of the weights, which is evaluated and saved")
    precision: Literal["bf16", "fp32"] = setting("bf16", "bf16 only on a GPU; a CPU always computes in fp32")
    compile: bool = setting(True, "on a GPU: compile first, which takes a minute or two")
    save_every: SaveEvery = setting(0, "steps between checkpoints of the full state; 0: once per epoch")
    seed: Seed = 0

    def __post_init__(self) -> None:
        require(bool(self.start), "start must be imagenet, scratch, or a backbone's folder")
        require(self.clip > 0, "clip must be positive")


@config(frozen=True)
class SpottingConfig(Record):
    """Spotted actions from the scores along a game, and their evaluation."""

    every: Rounds = setting(1, "epochs between evaluations; the last epoch is always evaluated")
    flip: bool = setting(False, "average with the scores of flipped frames, at twice the work")
    smooth_ms: Duration = setting(0, "sigma of a Gaussian over time, before non-maximum suppression; 0: none")
    apart_ms: Duration = setting(600, "a peak suppresses its class this far to either side")
    tolerance_ms: Duration = setting(1000, "largest distance of a peak from the action it detects")
    least: Rounds = setting(5, "the mean is over classes with at least this many actions")


@config(frozen=True)
class PretrainRecipe(Record):
    """The whole recipe of a backbone."""

    name: str = setting("ballcast-spotting", "name of the backbone, for display")
    data: GamesConfig = field(default_factory=GamesConfig)
    clips: ClipsConfig = field(default_factory=ClipsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    backbone: BackboneConfig = setting(BackboneConfig(), "its classes are always the ten actions")
    train: PretrainTrainConfig = field(default_factory=PretrainTrainConfig)
    spotting: SpottingConfig = field(default_factory=SpottingConfig)

    def __post_init__(self) -> None:
        require(not self.data.also, "data.also is for end-to-end training; name the folders in data.sources")

    @property
    def network(self) -> BackboneConfig:
        """The config of the backbone to train, with one logit per action."""
        plain = not self.backbone.colour and self.backbone.shift == "none"
        require(plain, "backbone.colour and backbone.shift are for end-to-end training; leave them as they are here")
        return replace(self.backbone, classes=len(ACTIONS))
