"""The backbone's sizes and the frames it reads, as one config; the network itself is `ballcast.features.backbone`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ballcast.core.config import within
from ballcast.core.errors import InputError
from ballcast.core.files import show

EVENT_GRID = "event grid"  # in the name of what turns event feeds into features
MAX_SIDE = 8192  # pixels of a picture's side that a model may claim to know: others are brought to that size


@dataclass(frozen=True)
class BackboneConfig:
    """Sizes of the network and the frames it reads; the defaults are the published 15-frame network's."""

    encoder: str = "tf_efficientnetv2_b0.in1k"  # timm's name of the 2D network
    frames: int = 15  # pictures a clip
    stack: int = 3  # pictures a stack: the 2D network's input channels
    step: int = 2  # frames from one picture to the next
    stride: int = 3  # frames from one clip to the next
    channels: int = 192  # C, of a stack's map
    blocks: int = 4  # 3D blocks
    expansion: int = 3  # in a 3D block
    se_ratio: int = 24  # squeeze of its gate
    projected: int = 256  # channels a stack at the end
    classes: int = 2  # spotting logits
    padding: int = 32  # the picture is zero-padded to a multiple of this
    dropout: float = 0.2  # before the logits, in training
    drop_path: float = 0.2  # in the networks, in training

    def __post_init__(self) -> None:
        within(self, 1, 10_000, *(f.name for f in dataclasses.fields(self) if f.type is int))
        within(self, 0, 0.99, "dropout", "drop_path")
        if self.frames % self.stack:
            raise InputError(f"frames must be a multiple of stack ({self.stack})")
        if self.step * self.stack % self.stride:
            raise InputError("step · stack must be a multiple of stride, or clips share no stacks")
        if self.channels * self.expansion < self.se_ratio:
            raise InputError("se_ratio is larger than the channels it squeezes")

    @property
    def stacks(self) -> int:
        """J, stacks a clip."""
        return self.frames // self.stack

    @property
    def width(self) -> int:
        """D, features a clip."""
        return self.stacks * self.projected


def padding_sides(height: int, width: int, multiple: int) -> tuple[int, int, int, int]:
    """Zeros to add left, right, above and below a picture: it stays in the middle, an odd row or column goes after."""
    rows, columns = -height % multiple, -width % multiple
    return columns // 2, columns - columns // 2, rows // 2, rows - rows // 2


def is_size(size: Any) -> bool:
    """Whether it is a height and a width in pixels, neither above MAX_SIDE."""
    return len(size) == 2 and all(type(side) is int and 0 < side <= MAX_SIDE for side in size)


def trained_size(metadata: Mapping[str, Any], where: str = "") -> tuple[int, int] | None:
    """H, W of the pictures that a backbone or a model was trained on; None: its metadata does not say.

    where: names its file in the error.
    """
    size = metadata.get("picture_size")
    if size is None:
        return None
    if not isinstance(size, list) or not is_size(size):
        raise InputError(f"{where}: 'metadata.picture_size' is {show(size)} instead of a height and a width in pixels")
    return size[0], size[1]


@dataclass(frozen=True)
class BackboneIdentity:
    """Which network computed the features; two stores fit together only if the hashes are the same."""

    hash: str  # sha256 over weights and config
    name: str  # for people
    fold: str | None = None  # the fold an imported spotting model held out, if it is one
    note: str = ""  # what its user should know, such as a leak
    trained_on: tuple[str, ...] = ()  # the games it learned from: "match_003", or "train/clip_1" of the split train

    @property
    def is_event_grid(self) -> bool:
        """Whether it stands for no network: the features are of an event feed, not of pixels."""
        return EVENT_GRID in self.name


@dataclass(frozen=True)
class Preprocessing:
    """How frames became the network's input: counts of frames, pixels, and the arithmetic."""

    frames: int  # frames a clip takes
    step: int  # frames from one sampled frame to the next
    stack: int  # sampled frames in one input of the 2D encoder
    span: int  # frames a clip covers, first to last
    stride: int  # frames from one clip to the next
    padding: int  # the picture is zero-padded, centred, to a multiple of this
    precision: str  # fp32 or fp16
    picture_size: tuple[int, int] | None = None  # H, W that pictures were fitted into first; None: left as they were

    def __post_init__(self) -> None:
        if self.picture_size is not None and not is_size(self.picture_size):
            raise InputError(f"picture_size must be a height and a width between 1 and {MAX_SIDE} pixels")
