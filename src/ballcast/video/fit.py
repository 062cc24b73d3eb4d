"""Pictures brought to the size that a network was trained on.

A network that saw players 20 pixels high has never seen one of 60. So a picture is scaled, its proportions kept, until
it just fits into the size of training: 1280×720 becomes the 398×224 of SN-BAA's small videos, and one that was cropped
to another shape keeps its scale. Sizes within 5 % of it stay as they are: scaling would only blur them.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from av.video.reformatter import VideoReformatter

Size = tuple[int, int]  # H, W in pixels
NEAR = 0.05  # a scale this near to 1 is left out


def fitted(size: Size, trained: Size | None) -> Size:
    """The size at which pictures of `size` are seen; None: their own, since it is not known what training saw."""
    if trained is None:
        return size
    scale = min(trained[0] / size[0], trained[1] / size[1])
    if abs(scale - 1) <= NEAR:
        return size
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def other_size(size: Size | None, trained: Size | None) -> str:
    """What to tell of features whose pictures (`size`) were not brought to the size of training; "" if nothing."""
    if size is None or trained is None or fitted(size, trained) == size:
        return ""
    theirs, known = (f"{width}×{height}" for height, width in (size, trained))
    return f"its pictures are {theirs}, those of training were {known}"


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
