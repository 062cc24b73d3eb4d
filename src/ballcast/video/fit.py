"""Pictures brought to the size that a network was trained on.

A network that saw players 20 pixels high has never seen one of 60. So a picture is scaled, its proportions kept, until
it just fits into the size of training: 1280×720 becomes the 398×224 of SN-BAA's small videos, and one that was cropped
to another shape keeps its scale. Sizes within 5 % of it stay as they are: scaling would only blur them.
"""

import re
import warnings
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core.backbone import MAX_SIDE, is_size
from ballcast.core.errors import BallcastWarning, InputError

if TYPE_CHECKING:
    from av.video.reformatter import VideoReformatter

Size = tuple[int, int]  # H, W in pixels
NEAR = 0.05  # a scale this near to 1 is left out


def choose_size(asked: str | None, trained: Size | None, name: str) -> Size | None:
    """H, W into which pictures are fitted before a network sees them; None: they keep their own size.

    The one place where this is decided: `extract`, `predict`, `live` and `serve` all ask here, before any work.

    asked: "trained" (None is the same), "own", or a width and height such as "1280x720".
    trained: H, W of the pictures that `name`, a model or a backbone, was trained on; None: unknown, which is warned of.
    """
    if asked == "own":
        return None
    if asked not in (None, "trained"):
        found = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", asked)
        size = (int(found.group(2)), int(found.group(1))) if found else (0, 0)
        if not is_size(size):
            raise InputError(
                f"--size {asked!r}: give trained, own, or a width and a height up to {MAX_SIDE}, such as 1280x720"
            )
        return size
    if trained is None:
        warnings.warn(
            f"{name}: does not say at which size it saw pictures in training, so they are seen at their own; "
            "give --size, such as --size 1280x720, if you know it, or --size own",
            BallcastWarning,
            stacklevel=3,
        )
    return trained


def show_size(size: Size | None) -> str:
    """ "1280×720" for (720, 1280)."""
    return "their own size" if size is None else f"{size[1]}×{size[0]}"


def fitted(size: Size, trained: Size | None) -> Size:
    """The size at which pictures of `size` are seen; None: their own, since it is not known what training saw."""
    if trained is None:
        return size
    scale = min(trained[0] / size[0], trained[1] / size[1])
    if abs(scale - 1) <= NEAR:
        return size
    seen = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    # 398×224 is 16:9 only up to rounding: a side that is one pixel short of 1280×720 is made whole.
    return trained if all(t - s <= 1 for s, t in zip(seen, trained, strict=True)) else seen


def other_size(size: Size | None, trained: Size | None) -> str:
    """What to tell of features whose pictures (`size`) were not brought to the size of training; "" if nothing."""
    if size is None or trained is None or fitted(size, trained) == size:
        return ""
    return f"its pictures are {show_size(size)}, those of training were {show_size(trained)}"


class Fit:
    """Scales the frames of a stream; trained: H, W of the pictures in training, None to leave them all as they are."""

    def __init__(self, trained: Size | None) -> None:
        self.trained = trained
        self._scaler: VideoReformatter | None = None

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        """A frame (H, W) uint8 → the frame as it is seen, (H', W') uint8; itself where nothing is to be done."""
        if self.trained is None or frame.ndim != 2 or frame.dtype != np.uint8:  # what is no picture is told further on
            return frame
        height, width = fitted((frame.shape[0], frame.shape[1]), self.trained)
        if (height, width) == frame.shape:
            return frame
        import av  # frames of the right size need no PyAV
        from av.video.reformatter import Interpolation, VideoReformatter

        self._scaler = self._scaler or VideoReformatter()
        grey = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="gray")
        how = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT  # the same on any processor
        return self._scaler.reformat(grey, width, height, interpolation=how).to_ndarray()
