"""From a decoded picture to its luma: (H, W) uint8, upright.

The Y plane is kept exactly as coded, in the range it was coded in (16–235 in nearly every broadcast), because that is
what the published backbone was trained on; "gray" in FFmpeg would stretch it to 0–255. Deeper video is rounded
to 8 bits in the same range, and pictures without a luma plane (RGB, packed YUV) are converted to the broadcast range.
"""

from collections.abc import Callable
from typing import Any

import av
import numpy as np

from ballcast.core.errors import InputError

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


def turn_of(frame: av.VideoFrame, name: str) -> Turn:
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


def luma(frame: av.VideoFrame, turn: Turn) -> np.ndarray:
    """The frame's luma, (H, W) uint8, upright, C-contiguous, in memory of its own."""
    kind = frame.format
    bits = kind.components[0].bits if kind.components else 0
    if kind.name == "gray" or (kind.is_planar and kind.name.startswith(("yuv", "nv")) and bits == 8):
        y = _plane(frame, np.uint8)
    elif kind.name.startswith(("yuv", "gray")) and kind.name.endswith("le") and 8 < bits < 16:
        deep = _plane(frame, np.dtype("<u2"))
        y = np.minimum((deep + (1 << (bits - 9))) >> (bits - 8), 255).astype(np.uint8)
    elif kind.name == "p010le":  # what NVDEC gives for 10-bit video: the ten bits at the top of sixteen
        y = (np.minimum(_plane(frame, np.dtype("<u2")), 0xFF7F) + 0x80 >> 8).astype(np.uint8)
    else:
        y = _plane(frame.reformat(format="yuv444p", dst_color_range="MPEG"), np.uint8)
    upright = turn(y)
    return np.array(upright, order="C")  # a copy: the decoder still predicts from its own


def _plane(frame: av.VideoFrame, dtype: Any) -> np.ndarray:
    """The first plane, (H, W), without the padding at the end of its lines."""
    plane = frame.planes[0]
    width = np.dtype(dtype).itemsize
    lines = np.frombuffer(memoryview(plane), dtype).reshape(-1, plane.line_size // width)
    return lines[: frame.height, : frame.width]


def _display_matrix(frame: av.VideoFrame) -> np.ndarray | None:
    data: Any = frame.side_data.get("DISPLAYMATRIX")
    return None if data is None else np.frombuffer(bytes(data), np.int32)
