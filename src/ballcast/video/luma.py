"""From a decoded frame to its pixels, upright, and at the size a network was trained on.

Pixels are the luma, (H, W) uint8, or for networks that see colour I420: (3H/2, W) uint8, the luma plane and after it
the planes U and V of half its height and width, as PyAV lays out yuv420p. H and W of I420 are even.
"""

import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ballcast.core.backbone_config import MAX_SIDE, is_size
from ballcast.core.errors import BallcastWarning, InputError

if TYPE_CHECKING:
    from fractions import Fraction

    import av
    from av.video.reformatter import VideoReformatter


Turn = Callable[[np.ndarray], np.ndarray]

_ONE = 1 << 16  # display matrices are 16.16 fixed point
# How a frame (rows, columns) is laid out for display, by its matrix (a, b, c, d): x' = a x + c y, y' = b x + d y.
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
    """The frame's luma, (H, W) uint8, upright, C-contiguous, a copy."""
    name = frame.format.name
    bits = _luma_bits(name)
    if bits == 8:
        y = plane(frame)
    elif bits:
        deep = plane(frame, dtype=np.dtype("<u2"))
        y = np.minimum((deep + (1 << (bits - 9))) >> (bits - 8), 255).astype(np.uint8)
    elif name == "p010le":  # what NVDEC gives for 10-bit video: the ten bits at the top of sixteen
        y = (np.minimum(plane(frame, dtype=np.dtype("<u2")), 0xFF7F) + 0x80 >> 8).astype(np.uint8)
    else:
        y = plane(frame.reformat(format="yuv444p", dst_color_range="MPEG"))
    upright = turn(y)
    copy = np.empty(upright.shape, np.uint8)  # a copy: the decoder still predicts from its own
    np.copyto(copy, upright)  # unlike `np.array`, this lets other threads run meanwhile
    return copy


@cache  # asked at every frame
def _luma_bits(name: str) -> int:
    """Bits of a pixel format's first plane, if that is the luma, 8 bits or the low bits of sixteen; else 0."""
    import av

    kind = av.VideoFormat(name)
    bits = kind.components[0].bits if kind.components else 0
    if name == "gray" or (kind.is_planar and name.startswith(("yuv", "nv")) and bits == 8):
        return 8
    return bits if name.startswith(("yuv", "gray")) and name.endswith("le") and 8 < bits < 16 else 0


def i420(frame: "av.VideoFrame", turn: Turn) -> np.ndarray:
    """The frame in colour as I420, (3H/2, W) uint8, upright, C-contiguous, a copy.

    Values are of the limited range (luma 16 to 235); an odd last row or column is cut off.
    """
    full_range = frame.format.name == "yuvj420p" or frame.color_range == 2
    if frame.format.name != "yuv420p" or full_range or min(frame.height, frame.width) < 2:
        sides = {"width": max(2, frame.width), "height": max(2, frame.height)}
        frame = frame.reformat(**sides, format="yuv420p", dst_color_range="MPEG", interpolation=_how())
    height, width = even((frame.height, frame.width))
    y = turn(plane(frame)[:height, :width])
    halves = [turn(plane(frame, number)[: height // 2, : width // 2]) for number in (1, 2)]
    return np.concatenate([y.ravel(), *(half.ravel() for half in halves)]).reshape(-1, y.shape[1])


def pixels(frame: "av.VideoFrame", turn: Turn, *, colour: bool) -> np.ndarray:
    """What a network sees of the frame: `i420` or `luma`."""
    return i420(frame, turn) if colour else luma(frame, turn)


def plane(frame: "av.VideoFrame", number: int = 0, dtype: Any = np.uint8) -> np.ndarray:
    """View a plane of the frame, (h, w) of `dtype`, without the padding at the end of its lines."""
    source = frame.planes[number]
    return np.ndarray(
        (source.height, source.width), dtype, memoryview(source), strides=(source.line_size, np.dtype(dtype).itemsize)
    )


def _display_matrix(frame: "av.VideoFrame") -> np.ndarray | None:
    data: Any = frame.side_data.get("DISPLAYMATRIX")
    return None if data is None else np.frombuffer(bytes(data), np.int32)


Size = tuple[int, int]  # H, W in pixels
NEAR = 0.05  # a scale this near to 1 is left out
SQUARE = 1.02  # pixels up to 2 % wider than high, or higher than wide, count as square: encoders round so


def choose_size(requested: str | None, trained: Size | None, name: str) -> Size | None:
    """H, W into which frames are fitted before a network sees them; None: they keep their own size.

    `extract`, `predict`, `live` and `serve` all call this before any work.

    requested: "trained" (None is the same), "own", or a width and height such as "1280x720".
    trained: H, W of the frames that `name`, a model or a backbone, was trained on; None: unknown, which is warned of.
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
            f"{name}: does not record the frame size of its training, so frames keep their own size; "
            "give --size, such as --size 1280x720, if you know it, or --size own",
            BallcastWarning,
            stacklevel=3,
        )
    return trained


def show_size(size: Size | None) -> str:
    """ "1280×720" for (720, 1280)."""
    return "their own size" if size is None else f"{size[1]}×{size[0]}"


def even(size: Size) -> Size:
    """The size without an odd last row or column."""
    return max(2, size[0] - size[0] % 2), max(2, size[1] - size[1] % 2)


def array_shape(size: Size, *, colour: bool) -> Size:
    """Shape of the pixels of a frame of `size` (H, W): the same, or of I420 (3H/2, W)."""
    return (size[0] * 3 // 2, size[1]) if colour else size


def picture_shape(shape: tuple[int, ...], *, colour: bool) -> Size:
    """(H, W) of the frame whose pixels have the shape (…, H, W), or as I420 (…, 3H/2, W)."""
    return (shape[-2] * 2 // 3 if colour else shape[-2]), shape[-1]


def fitted(size: Size, trained: Size | None, *, colour: bool = False) -> Size:
    """The size at which frames of `size` are seen, in colour even.

    trained: H, W of the frames in training; None: unknown, and frames keep their own size.
    """
    if colour:
        return even(fitted(even(size), trained))
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
    """Scales the frames of a stream.

    trained: H, W of the frames in training; None: frames stay as they are. colour: frames are I420.
    """

    def __init__(self, trained: Size | None, *, colour: bool = False) -> None:
        self.trained = trained
        self.colour = colour
        self._scaler: VideoReformatter | None = None

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        """A frame (H, W) uint8, or I420 → the frame as it is seen; itself where nothing is to be done."""
        if self.trained is None or frame.ndim != 2 or frame.dtype != np.uint8:  # the encoder reports what is no frame
            return frame
        size = picture_shape(frame.shape, colour=self.colour)
        height, width = fitted(size, self.trained, colour=self.colour)
        if (height, width) == size:
            return frame
        import av  # frames of the right size need no PyAV
        from av.video.reformatter import VideoReformatter

        self._scaler = self._scaler or VideoReformatter()
        source = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="yuv420p" if self.colour else "gray")
        return self._scaler.reformat(source, width, height, interpolation=_how()).to_ndarray()


class SquarePixels:
    """Stretches frames whose pixels are not square, such as PAL's, along the side that is too short.

    ratio: width of a pixel by its height, as the file has it; None or 0: unknown, taken as 1.
    """

    def __init__(self, ratio: "Fraction | None") -> None:
        wide = float(ratio or 1)
        self._ratio = wide if SQUARE < max(wide, 1 / wide) < 4 else 1.0  # beyond is an error of the file
        self._scaler: VideoReformatter | None = None

    def __call__(self, frame: "av.VideoFrame") -> "av.VideoFrame":
        """The frame with square pixels; itself where nothing is to be done."""
        if self._ratio == 1:
            return frame
        from av.video.reformatter import VideoReformatter

        self._scaler = self._scaler or VideoReformatter()
        width = 2 * round(frame.width * max(self._ratio, 1.0) / 2)
        height = 2 * round(frame.height * max(1 / self._ratio, 1.0) / 2)
        return self._scaler.reformat(frame, width, height, interpolation=_how())


def _how() -> int:
    """How FFmpeg scales: the same on any processor."""
    from av.video.reformatter import Interpolation

    return Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
