"""From a decoded picture to its luma, (H, W) uint8, upright, and at the size a network was trained on."""

import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ballcast.core.backbone_config import MAX_SIDE, is_size
from ballcast.core.errors import BallcastWarning, InputError

if TYPE_CHECKING:
    import av
    from av.video.reformatter import VideoReformatter


Turn = Callable[[np.ndarray], np.ndarray]

_ONE = 1 << 16  # display matrices are 16.16 fixed point
# How a picture (rows, columns) is laid out for display, by its matrix (a, b, c, d): x' = a x + c y, y' = b x + d y.
_TURNS: dict[tuple[int, int, int, int], Turn] = {
    (1, 0, 0, 1): lambda y: y,
    (0, 1, -1, 0): lambda y: np.rot90(y, -1),  # a quarter clockwise
    (-1, 0, 0, -1): lambda y: np.rot90(y, 2),
    (0, -1, 1, 0): lambda y: np.rot90(y, 1),
    (-1, 0, 0, 1): lambda y: y[:, ::-1],  # mirrored
    (1, 0, 0, -1): lambda y: y[::-1],
    (0, 1, 1, 0): lambda y: y.T,
    (0, -1, -1, 0): lambda y: np.rot90(y, 2).T,
}


def turn_of(frame: "av.VideoFrame", name: str) -> Turn:
    """What brings the frame's pixels upright; `name` is the video's, for the error about a slanted one."""
    matrix = _display_matrix(frame)
    if matrix is None:
        return _TURNS[1, 0, 0, 1]
    a, b, _, c, d = (int(v) for v in matrix[:5])
    whole = all(v % _ONE == 0 for v in (a, b, c, d))
    turn = _TURNS.get((a // _ONE, b // _ONE, c // _ONE, d // _ONE)) if whole else None
    if turn is None:
        angle = np.degrees(np.arctan2(b, a))
        raise InputError(
            f"{name}: is rotated by {angle:.0f}°; only quarter turns can be shown upright, so encode it again"
        )
    return turn


def luma(frame: "av.VideoFrame", turn: Turn) -> np.ndarray:
    """The frame's luma, (H, W) uint8, upright, C-contiguous, in memory of its own."""
    kind = frame.format
    bits = kind.components[0].bits if kind.components else 0
    if kind.name == "gray" or (kind.is_planar and kind.name.startswith(("yuv", "nv")) and bits == 8):
        y = plane(frame)
    elif kind.name.startswith(("yuv", "gray")) and kind.name.endswith("le") and 8 < bits < 16:
        deep = plane(frame, dtype=np.dtype("<u2"))
        y = np.minimum((deep + (1 << (bits - 9))) >> (bits - 8), 255).astype(np.uint8)
    elif kind.name == "p010le":  # what NVDEC gives for 10-bit video: the ten bits at the top of sixteen
        y = (np.minimum(plane(frame, dtype=np.dtype("<u2")), 0xFF7F) + 0x80 >> 8).astype(np.uint8)
    else:
        y = plane(frame.reformat(format="yuv444p", dst_color_range="MPEG"))
    upright = turn(y)
    return np.array(upright, order="C")  # a copy: the decoder still predicts from its own


def plane(frame: "av.VideoFrame", number: int = 0, dtype: Any = np.uint8) -> np.ndarray:
    """View a plane of the frame, (h, w) of `dtype`, without the padding at the end of its lines."""
    own = frame.planes[number]
    width = np.dtype(dtype).itemsize
    lines = np.frombuffer(memoryview(own), dtype).reshape(-1, own.line_size // width)
    return lines[: own.height, : own.width]


def _display_matrix(frame: "av.VideoFrame") -> np.ndarray | None:
    data: Any = frame.side_data.get("DISPLAYMATRIX")
    return None if data is None else np.frombuffer(bytes(data), np.int32)


Size = tuple[int, int]  # H, W in pixels
NEAR = 0.05  # a scale this near to 1 is left out


def choose_size(requested: str | None, trained: Size | None, name: str) -> Size | None:
    """H, W into which pictures are fitted before a network sees them; None: they keep their own size.

    `extract`, `predict`, `live` and `serve` all call this before any work.

    requested: "trained" (None is the same), "own", or a width and height such as "1280x720".
    trained: H, W of the pictures that `name`, a model or a backbone, was trained on; None: unknown, which is warned of.
    """
    if requested == "own":
        return None
    if requested not in (None, "trained"):
        found = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", requested)
        size = (int(found.group(2)), int(found.group(1))) if found else (0, 0)
        if not is_size(size):
            raise InputError(
                f"--size {requested!r}: give trained, own, or a width and a height up to {MAX_SIDE}, such as 1280x720"
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
    """Warning about features of frames of `size` that were not scaled to the size of training; "" if there is none."""
    if size is None or trained is None or fitted(size, trained) == size:
        return ""
    return f"its pictures are {show_size(size)}, those of training were {show_size(trained)}"


class FrameResizer:
    """Scales the frames of a stream; trained: H, W of the pictures in training, None to leave them all as they are."""

    def __init__(self, trained: Size | None) -> None:
        self.trained = trained
        self._scaler: VideoReformatter | None = None

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        """A frame (H, W) uint8 → the frame as it is seen, (H', W') uint8; itself where nothing is to be done."""
        if self.trained is None or frame.ndim != 2 or frame.dtype != np.uint8:  # the encoder reports what is no frame
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
