"""The recipe of a backbone: what `ballcast pretrain` trains it on, and how. `configs/pretrain.yaml` is one."""

from dataclasses import dataclass, field, replace
from typing import Literal

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import require, within


@dataclass(frozen=True)
class GamesConfig:
    """Which games there are, and which of them are trained on."""

    sources: tuple[str, ...] = ("data",)  # folders of SN-BAA, SN-BAS or simulated matches
    train: tuple[str, ...] = ("train",)  # splits or names of games, * and ? stand for anything
    valid: tuple[str, ...] = ("valid",)  # scored each epoch, never trained on
    test: tuple[str, ...] = ()  # scored once, at the end; never trained on
    device: Literal["auto", "gpu", "memory", "disk"] = "auto"  # where the frames live while training
    workers: int = 0  # threads that decode; 0: one a core

    def __post_init__(self) -> None:
        require(bool(self.sources), "sources must name at least one folder")
        require(bool(self.train), "train must name at least one split or game")
        within(self, 0, 1024, "workers")


@dataclass(frozen=True)
class ClipsConfig:
    """Which clips of the games are seen, and what each should say.

    Clips come in runs: `run` clips that begin 6 frames apart share stacks, so a run costs run + 4 stacks, not 5 · run.
    """

    batch: int = 32  # runs a step
    run: int = 4  # clips a run
    near: float = 0.6  # share of the runs drawn around an action; the others are drawn from everywhere
    near_ms: int = 800  # the middle of a run is at most so far from its action
    balance: float = 0.5  # an action of a class with n actions is drawn ∝ n^−balance; 0: all alike
    reach_ms: int = 300  # a clip's target is an action at most so far from its middle
    shape: Literal["flat", "cosine"] = "flat"  # of the target: 1 all over the reach, or falling to its edges

    def __post_init__(self) -> None:
        within(self, 1, 2**16, "batch")
        within(self, 1, 1024, "run")
        within(self, 0, 1, "near")
        within(self, 0, 10**6, "near_ms")
        within(self, 0, 10, "balance")
        within(self, 1, 10**5, "reach_ms")


@dataclass(frozen=True)
class AugmentConfig:
    """Changes to the pictures that leave the actions as they are; each run is changed as a whole."""

    flip: float = 0.5  # chance of left for right
    shift: float = 0.05  # up to this share of the height and width, to any side
    zoom: float = 0.1  # in or out by up to this factor
    brightness: float = 0.1  # added, up to this much of the range, up or down
    contrast: float = 0.2  # the distance to the mean, times 1 ± this
    blur: float = 0.2  # chance of a blur of any strength up to a box of 3 × 3
    drop: float = 0.02  # chance that a picture is lost and the one before it stands in
    mixup: float = 0.0  # Beta(a, a) of mixing pairs of runs; 0: off

    def __post_init__(self) -> None:
        within(self, 0, 1, "flip", "blur", "drop", "brightness")
        within(self, 0, 0.9, "shift", "zoom", "contrast")
        within(self, 0, 1000, "mixup")


@dataclass(frozen=True)
class SpotTrainConfig:
    """The optimisation: AdamW, one cycle of the learning rate, focal loss, a running mean of the weights."""

    start: str = "imagenet"  # "imagenet" (from scratch where it cannot be fetched), "scratch", or a backbone's folder
    epochs: int = 12
    steps: int = 250  # an epoch
    lr: float = 1e-3  # at the top of the cycle
    warmup: float = 0.15  # share of all steps on which the rate rises
    weight_decay: float = 0.05  # not on norms and biases
    clip: float = 5.0  # norm of the gradient
    focal_alpha: float = 0.4
    focal_gamma: float = 1.2
    ema: float = 0.998  # decay of the running mean of the weights, which is scored and kept
    precision: Literal["bf16", "fp32"] = "bf16"  # bf16 only on a GPU; a CPU always computes in fp32
    compile: bool = True  # on a GPU: kernels fused first, which takes a minute or two
    save_every: int = 0  # steps between savings of the full state; 0: once an epoch
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.start), "start must be imagenet, scratch, or a backbone's folder")
        within(self, 1, 10**6, "epochs", "steps")
        require(0 < self.lr <= 1000, "lr must be above 0 and at most 1000")
        within(self, 0, 1, "warmup", "focal_alpha")
        within(self, 0, 1000, "weight_decay", "focal_gamma")
        require(self.clip > 0, "clip must be positive")
        require(0 <= self.ema < 1, "ema is a decay, in [0, 1)")
        within(self, 0, 10**9, "save_every")
        within(self, 0, 2**32 - 1, "seed")


@dataclass(frozen=True)
class SpottingConfig:
    """How scores along a game become spotted actions, and how these are counted."""

    every: int = 1  # epochs between scorings; the last epoch is always scored
    flip: bool = False  # average with the mirrored pictures' scores, at twice the work
    smooth_ms: int = 0  # deviation of a Gaussian over time, before peaks are taken; 0: none
    apart_ms: int = 600  # a peak silences its class this far to either side
    tolerance_ms: int = 1000  # a peak can be an action of its class this far away
    least: int = 5  # the mean is over classes with at least so many actions

    def __post_init__(self) -> None:
        within(self, 1, 10**6, "every", "least")
        within(self, 0, 10**6, "smooth_ms", "apart_ms", "tolerance_ms")


@dataclass(frozen=True)
class PretrainConfig:
    """All of it."""

    name: str = "ballcast-spotting"  # what people call the backbone
    data: GamesConfig = field(default_factory=GamesConfig)
    clips: ClipsConfig = field(default_factory=ClipsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)  # its classes are always the ten actions
    train: SpotTrainConfig = field(default_factory=SpotTrainConfig)
    spotting: SpottingConfig = field(default_factory=SpottingConfig)

    @property
    def network(self) -> BackboneConfig:
        """The backbone to train: as many logits as there are actions."""
        return replace(self.backbone, classes=len(ACTIONS))
