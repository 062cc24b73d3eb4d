"""The recipe of a model: data, network, losses, training and emission. The defaults are the paper's.

`configs/*.yaml` are recipes; the `config.json` of a trained model contains the one that it was trained with.
"""

from dataclasses import field, replace
from typing import Annotated, Literal

from annotated_types import Interval

from ballcast.core.actions import ACTIONS, FRAME_MS, MAX_EVENTS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import (
    Amount,
    BelowOne,
    Count,
    Layers,
    Rate,
    Record,
    Rounds,
    SaveEvery,
    Seed,
    Share,
    Size,
    Weight,
    config,
    require,
    setting,
)
from ballcast.core.events import action_index
from ballcast.core.pretrain_config import AugmentConfig, GamesConfig


@config(frozen=True)
class DataConfig(Record):
    """Training windows: where they come from and how they are sampled."""

    features: str = setting("features", "folder with one feature store per split")
    labels: str = setting("", "folder with <split>/Labels-ball.json; empty: the labels beside the features")
    train: tuple[str, ...] = setting(("train",), "splits to train on")
    valid: tuple[str, ...] = setting(("valid",), "splits to score each epoch")
    stitch: bool = setting(True, "join the overlapping clips of a game, then cut windows again")
    every_ms: int = setting(1000, "from one training window to the next in a stitched game")
    stitch_tolerance_ms: Annotated[int, Interval(ge=0, le=1000)] = setting(
        FRAME_MS, "how far apart two clips may date an event"
    )
    drop_windows: Share = setting(0.0, "probability that a sample loses its early windows; 0.1 for videos under 30 s")
    mixup: Amount = setting(0.4, "Beta(a, a) of feature MixUp; 0: off")
    mirror: Share = setting(0.0, "event feeds: probability that a sample is mirrored, left for right")
    boost: dict[str, float] = setting(
        lambda: {
            "PLAYER SUCCESSFUL TACKLE": 40.0,
            "SHOT": 15.0,
            "BALL PLAYER BLOCK": 15.0,
            "CROSS": 4.0,
            "THROW IN": 4.0,
        },
        "factor on the sampling weight of a clip with this action; {}: every clip once",
    )
    boost_rule: Literal["max", "sum", "product"] = setting("max", "how the factors of several events in a clip combine")
    device: Literal["auto", "gpu", "memory", "disk"] = setting("auto", "where the features are kept during training")

    def __post_init__(self) -> None:
        require(bool(self.train), "train must name at least one split")
        for name in ("train", "valid"):
            splits = getattr(self, name)
            require(len(set(splits)) == len(splits), f"{name} names a split twice")
        require(
            self.every_ms > 0 and self.every_ms % FRAME_MS == 0,
            f"every_ms must be a multiple of a frame, {FRAME_MS} ms",
        )
        for label, factor in self.boost.items():
            action_index(label)
            require(0 < factor <= 1e6, f"boost of {label} must be above 0 and at most a million")


@config(frozen=True)
class HierarchyConfig(Record):
    """The paper's model: a local encoder for each window, a GRU over all windows, slots decoded from its memory."""

    dim: Size = setting(256, "d")
    encoder_layers: Layers = 2
    encoder_heads: Size = 8
    encoder_ffn: Size = 1024
    drop_path: BelowOne = setting(0.1, "on each residual branch of the local encoder")
    steps: Count = setting(8, "S, summary vectors per window")
    gru_layers: Annotated[int, Interval(ge=1, le=64)] = 1
    window_weight: Literal["input", "memory", "none"] = setting("input", "where alpha_w acts: before the GRU, or on H")
    window_gamma: Annotated[float, Interval(ge=-1000, le=1000)] = setting(2.0, "gamma_w at the start")
    queries: Literal["conditioned", "static"] = setting("conditioned", "q_k = e_k + W_ctx mean(h), or e_k")
    decoder_layers: Layers = 4
    decoder_heads: Size = 8
    decoder_ffn: Size = 1024
    dropout: BelowOne = setting(0.1, "in the decoder")
    decoder_norm: Literal["pre", "post"] = setting(
        "pre", "LayerNorm before each branch of the decoder, or after the sum"
    )
    heads: Literal["decoupled", "joint"] = setting("decoupled", "objectness beside the classes, or a C + 1 softmax")
    every_layer: bool = setting(False, "in training, every decoder layer predicts slots, each with a loss")

    def __post_init__(self) -> None:
        require(self.dim % self.encoder_heads == 0, "dim must be a multiple of encoder_heads")
        require(self.dim % self.decoder_heads == 0, "dim must be a multiple of decoder_heads")


@config(frozen=True)
class FaantraConfig(Record):
    """The baseline: a FUTR-style encoder-decoder on the last seconds only."""

    dim: Size = 512
    heads: Size = 8
    encoder_layers: Layers = 2
    decoder_layers: Layers = 2
    ffn: Size = 2048
    dropout: BelowOne = 0.1
    encoder_reach_ms: Annotated[int, Interval(ge=0, le=2**16)] = setting(
        1120, "reach of the encoder's self-attention to either side"
    )
    clip_ms: Size = setting(120, "from the start of one snippet to the next")
    decoder_reach: Annotated[int, Interval(ge=0, le=2**16)] = setting(9, "the same of the decoder, in queries")

    def __post_init__(self) -> None:
        require(self.dim % self.heads == 0, "dim must be a multiple of heads")


@config(frozen=True)
class DenseConfig(Record):
    """A GRU both ways over each window, and the expected number of actions of each class in each bin of the horizon."""

    dim: Size = setting(256, "d")
    gru_layers: Annotated[int, Interval(ge=1, le=64)] = 2
    decoder_layers: Layers = 2
    heads: Size = 8
    ffn: Size = 1024
    dropout: BelowOne = 0.1

    def __post_init__(self) -> None:
        require(self.dim % self.heads == 0, "dim must be a multiple of heads")
        require(self.dim % 2 == 0, "dim must be even: half of it for each direction of the GRU")


@config(frozen=True)
class ModelConfig(Record):
    """The network, the shape of its input features and of its output slots."""

    kind: Literal["hierarchy", "faantra", "dense"] = "hierarchy"
    windows: Count = setting(6, "W")
    clips: Count = setting(33, "N_c, snippets per window")
    width: Size = setting(1280, "D, features per snippet")
    slots: Annotated[int, Interval(ge=1, le=MAX_EVENTS)] = setting(4, "K")
    bins: Count = setting(32, "B, over the next 5 s")
    offset: Literal["bins", "class bins", "scalar", "linear"] = setting(
        "bins", "the time as a distribution, one distribution per class, the sigmoid of a number, or the number itself"
    )
    auxiliary: bool = setting(True, "also predict the actions of the last observed window")
    hierarchy: HierarchyConfig = field(default_factory=HierarchyConfig)
    faantra: FaantraConfig = field(default_factory=FaantraConfig)
    dense: DenseConfig = field(default_factory=DenseConfig)

    @property
    def classes(self) -> int:
        """C, the number of actions."""
        return len(ACTIONS)


@config(frozen=True)
class LossConfig(Record):
    """Matching and losses."""

    matching: Literal["hungarian", "ordered"] = setting("hungarian", "ordered: events to slots in order of time")
    offset_cost: Weight = setting(2.0, "mu")
    reweight: bool = setting(True, "divide the cost by the class weight w_c")
    class_weight: Literal["inverse_sqrt", "inverse"] = setting(
        "inverse_sqrt", "w_c from the count of a class, scaled to mean 1"
    )
    objectness: Weight = setting(1.0, "weights of the terms")
    classes: Weight = 1.0
    offset: Weight = 1.0
    auxiliary: Weight = 0.5
    pos_weight: Annotated[float, Interval(gt=0, le=10**6)] = setting(4.0, "of a matched slot's objectness")
    label_smoothing: BelowOne = 0.1
    average: Literal["samples", "batch"] = setting(
        "samples",
        "a batch's loss is the mean of its samples' losses; batch: each term is summed over the batch, then divided",
    )
    pair_norm: Literal["pairs", "samples", "slots"] = setting(
        "pairs", "losses of class and time are summed over the matched slots and divided by these; slots: all slots"
    )
    sigma: float = setting(1.5, "of the Gaussian over bins; 0: one-hot")
    scalar_loss: Literal["absolute", "exponential"] = setting(
        "absolute", "offset as one number: |t - t*|, or (e^t - e^t*)^2"
    )
    ce_weights: dict[str, float] = setting(dict, "weight of an action in cross-entropies; 1 if not given")
    background_weight: Weight = setting(1.0, "weight of the background in FAANTRA's auxiliary head")
    auxiliary_norm: Literal["positives", "cells"] = setting("positives", "the focal loss is divided by these")
    auxiliary_beside: Count = setting(1, "an action marks the nearest token and this many to either side")
    auxiliary_sigma_ms: Annotated[int, Interval(ge=1, le=10**5)] = setting(
        80, "end to end: of a Gaussian around each action instead"
    )
    focal_gamma: Weight = setting(2.0, "of the auxiliary loss")
    focal_alpha: Share = 0.25

    def __post_init__(self) -> None:
        for label, weight in self.ce_weights.items():
            action_index(label)
            require(0 < weight <= 1e6, f"ce_weights of {label} must be above 0 and at most a million")
        require(self.sigma == 0 or 0.01 <= self.sigma <= 1000, "sigma must be 0 or between 0.01 and 1000")


@config(frozen=True)
class TrainConfig(Record):
    """The optimisation."""

    epochs: Rounds = setting(55, "5 of warm-up and one cosine of 50")
    batch: Size = 32
    lr: Rate = 1.5e-4
    weight_decay: Amount = setting(0.3, "not on norms, biases and embeddings")
    warmup_epochs: Annotated[int, Interval(ge=0, le=10**6)] = 5
    restart_epochs: Rounds = setting(50, "T_0")
    restart_factor: Rounds = setting(2, "T_mult")
    clip: float = setting(1.0, "norm of the gradient")
    precision: Literal["bf16", "fp32"] = setting("bf16", "bf16 only on a GPU; a CPU always computes in fp32")
    patience: Annotated[int, Interval(ge=0, le=10**6)] = setting(
        0, "stop after this many epochs without a better score; 0: never"
    )
    save_every: SaveEvery = setting(0, "steps between checkpoints of the full state; 0: once per epoch")
    seed: Seed = 0
    graph: bool = setting(True, "on one GPU: record the whole step as a CUDA graph")
    backbone: Literal["frozen", "end_to_end"] = setting(
        "frozen", "frozen: on stored features (see data); end_to_end: from the videos (see games, encoder and augment)"
    )
    ema: BelowOne = setting(
        0.0, "decay of the moving average of the weights, which is evaluated and saved; 0: no averaging"
    )
    compile: bool = setting(
        True, "on a GPU: compile first, which takes most of a minute; false is quicker for short runs"
    )

    def __post_init__(self) -> None:
        require(self.clip > 0, "clip must be positive")


FRAME_ENCODER = BackboneConfig(
    encoder="tf_efficientnet_lite0", frames=3, stack=3, step=1, stride=2, blocks=0, padding=2, drop_path=0.1
)


@config(frozen=True)
class EncoderConfig(Record):
    """The frame encoder, with train.backbone=end_to_end."""

    network: BackboneConfig = FRAME_ENCODER
    start: str = setting("imagenet", "or scratch, embedded, or a folder: of a model, or of its encoder for a new head")
    learns: bool = setting(True, "false: its weights stay as they are at the start")
    features: str = setting(
        "", "with learns=false: the folder that caches the features; of augment, flip and mixup apply"
    )
    lr_factor: Rate = setting(1.0, "its learning rate, as a share of the rest's")
    recompute: bool = setting(False, "recompute activations in the backward pass: less memory, a third more work")

    def __post_init__(self) -> None:
        require(not self.network.blocks, "network must be a frame encoder, with blocks=0")
        require(bool(self.start), "start must be imagenet, scratch, embedded, or the folder of an end-to-end model")
        once = bool(self.features)
        require(not (once and self.learns), "features are computed once for an encoder that stays: set learns=false")
        require(not once or self.network.shift == "none", "features can be computed once only without a shift")


@config(frozen=True)
class EmitConfig(Record):
    """How slots become predictions."""

    mode: Literal["slot", "class", "expected"] = setting(
        "slot",
        "slots with p_obj > tau; every class with p_obj * p_cls > tau; or expected counts over all slots, per class",
    )
    vector: Literal["full", "emitted"] = setting(
        "full", "slot, class: the class vector, or only the entry of the emitted label"
    )
    threshold: BelowOne = setting(0.3, "slot, class: tau")
    run: Count = setting(1, "slot, class: the time is the middle of the most probable run of this many bins")
    inflation: Weight = setting(0.0, "expected: divide the odds of p_obj by this; 0: by the pos_weight of the loss")
    reach_ms: Annotated[int, Interval(ge=80, le=10**6)] = setting(1280, "expected: sigma of the Gaussian around a time")

    @property
    def shown(self) -> "EmitConfig":
        """The settings for display: one prediction per slot instead of times of every class."""
        return replace(self, mode="slot") if self.mode == "expected" else self

    @property
    def unused(self) -> tuple[str, ...]:
        """The options that have no effect in this mode."""
        return ("vector", "threshold", "run") if self.mode == "expected" else ("inflation", "reach_ms")

    def of_loss(self, pos_weight: float) -> "EmitConfig":
        """Return these settings with an inflation of 0 replaced by the `pos_weight` of the loss."""
        return self if self.inflation else replace(self, inflation=pos_weight)


@config(frozen=True)
class Recipe(Record):
    """The whole recipe of a model."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    games: GamesConfig = field(default_factory=GamesConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    emit: EmitConfig = field(default_factory=EmitConfig)

    def __post_init__(self) -> None:
        if self.emit.inflation == self.loss.pos_weight:  # the same as unset; configs of older runs contain it
            object.__setattr__(self, "emit", replace(self.emit, inflation=0.0))

    @property
    def emission(self) -> EmitConfig:
        """`emit` with an unset inflation replaced by the pos_weight of the loss."""
        return self.emit.of_loss(self.loss.pos_weight)
