"""Sizes of the backbone and the frames it reads; the network is in `ballcast.features.backbone`.

A snippet is the sequence of frames (15 by default) that gives one feature vector; a stack is 3 of its frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from ballcast.core.checks import show
from ballcast.core.config import Record, config, setting
from ballcast.core.errors import InputError

EVENT_GRID = "event grid"  # in the name of the backbone of stores made from event feeds
MAX_SIDE = 8192  # pixels, the largest height or width that a model may claim to be trained on,
MAX_PIXELS = 4096 * 2304  # and the largest area: frames of one window already take a gigabyte
SIZE = f"a height and a width between 1 and {MAX_SIDE} pixels, at most {MAX_PIXELS} in all"

Positive = Annotated[int, Interval(ge=1, le=10_000)]


@config(frozen=True)
class BackboneConfig(Record):
    """Sizes of the network and the frames it reads; the defaults are the published 15-frame network's.

    Without 3D blocks it is a frame encoder, which the end-to-end recipes train: the 2D network with its own pooling and
    a linear layer to `projected` features, for each stack on its own. In colour, a stack's middle frame is red, green
    and blue, and the frames beside it are their luma.
    """

    encoder: str = setting("tf_efficientnetv2_b0.in1k", "timm's name of the 2D network")
    frames: Positive = setting(15, "frames per snippet")
    stack: Positive = setting(3, "frames per stack: the input channels of the 2D network")
    step: Positive = setting(2, "video frames from one frame of a snippet to the next")
    stride: Positive = setting(3, "video frames from one snippet to the next")
    channels: Positive = setting(192, "C, of the feature map of a stack")
    blocks: Annotated[int, Interval(ge=0, le=10_000)] = setting(4, "3D blocks; 0: a frame encoder")
    expansion: Positive = setting(3, "of the channels in a 3D block")
    se_ratio: Positive = setting(24, "reduction of its squeeze-and-excitation")
    projected: Positive = setting(256, "output channels per stack")
    classes: Positive = setting(2, "spotting logits")
    padding: Annotated[int, Interval(ge=1, le=256)] = setting(32, "frames are zero-padded to a multiple of this")
    dropout: Annotated[float, Interval(ge=0, le=0.99)] = setting(0.2, "before the logits, in training")
    drop_path: Annotated[float, Interval(ge=0, le=0.99)] = setting(0.2, "in the networks, in training")
    colour: bool = setting(False, "frame encoder: the middle frame of a stack in three colours instead of its luma")
    shift: Literal["none", "plain", "gated", "causal"] = setting(
        "none",
        "frame encoder: temporal shift of an eighth of the channels back and an eighth forward in every residual "
        "block from the third stage on (TSM); gated (GSF); or a quarter back only (causal); features then depend "
        "on their window",
    )

    def __post_init__(self) -> None:
        if self.blocks and (self.colour or self.shift != "none"):
            raise InputError("colour and shift are for frame encoders; set blocks=0")
        if not self.blocks and self.frames != self.stack:
            raise InputError(f"a frame encoder reads one stack at a time; set frames={self.stack}, as stack")
        if self.colour and not self.stack % 2:
            raise InputError("the middle frame of a stack is in colour; set stack and frames to an odd number")
        if self.colour and self.padding % 2:
            raise InputError("colour frames have even sides; set an even padding")
        if self.frames % self.stack:
            raise InputError(f"frames must be a multiple of stack ({self.stack})")
        if self.stacks > 1 and self.step * self.stack % self.stride:
            raise InputError("step · stack must be a multiple of stride, or snippets share no stacks")
        if self.blocks and self.channels * self.expansion < self.se_ratio:
            raise InputError("se_ratio is larger than the channels it squeezes")

    @property
    def stacks(self) -> int:
        """J, stacks per snippet."""
        return self.frames // self.stack

    @property
    def width(self) -> int:
        """D, features per snippet."""
        return self.stacks * self.projected

    @property
    def planes(self) -> int:
        """Input channels of the 2D network."""
        return self.stack + 2 if self.colour else self.stack


def padding_sides(height: int, width: int, multiple: int, *, pairs: bool = False) -> tuple[int, int, int, int]:
    """Return the zero padding (left, right, top, bottom) that makes both sides a multiple; the frame stays centred.

    pairs: pad by an even number of rows and columns on each side, as I420 needs.
    """
    rows, columns = -height % multiple, -width % multiple
    above, left = (rows // 4 * 2, columns // 4 * 2) if pairs else (rows // 2, columns // 2)
    return left, columns - left, above, rows - above


def is_size(size: Any) -> bool:
    """Return whether `size` is a height and a width in pixels, neither above MAX_SIDE, the area within MAX_PIXELS."""
    whole = len(size) == 2 and all(type(side) is int and 0 < side <= MAX_SIDE for side in size)
    return whole and size[0] * size[1] <= MAX_PIXELS


def trained_size(metadata: Mapping[str, Any], where: str = "") -> tuple[int, int] | None:
    """Return height and width of the frames that a backbone or a model was trained on, in pixels.

    Args:
        metadata: of the backbone or model; without 'picture_size', the result is None.
        where: the file to name in the error.
    """
    size = metadata.get("picture_size")
    if size is None:
        return None
    if not isinstance(size, list) or not is_size(size):
        raise InputError(f"{where}: 'metadata.picture_size' is {show(size)} instead of {SIZE}")
    return size[0], size[1]


@dataclass(frozen=True)
class BackboneIdentity(Record):
    """The network that computed the features; stores can be used together only if the hashes agree."""

    hash: str  # sha256 over weights and config
    name: str  # for display
    fold: str | None = None  # the fold that an imported spotting model held out
    note: str = ""  # a warning for users, such as a leak
    trained_on: tuple[str, ...] = ()  # its training games: "match_003", or "train/clip_1" of the split train

    @property
    def is_event_grid(self) -> bool:
        """Whether the features come from an event feed and not from a network."""
        return EVENT_GRID in self.name


@dataclass(frozen=True)
class Preprocessing(Record):
    """How frames became the network's input: counts of frames, pixels, and the arithmetic."""

    frames: int  # frames a clip takes
    step: int  # frames from one sampled frame to the next
    stack: int  # sampled frames in one input of the 2D encoder
    span: int  # frames a clip covers, first to last
    stride: int  # frames from one clip to the next
    padding: int  # the frame is zero-padded, centred, to a multiple of this
    precision: str  # fp32 or fp16
    picture_size: tuple[int, int] | None = None  # H, W that frames were fitted into first; None: left as they were
    mirrored: bool = False  # left and right exchanged

    def __post_init__(self) -> None:
        if self.picture_size is not None and not is_size(self.picture_size):
            raise InputError(f"picture_size must be {SIZE}")
