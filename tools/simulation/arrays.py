"""Films as arrays for training: every picture as I420 in one .npy file, which can be mapped into memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tools.simulation.develop import HEIGHT, WIDTH

PICTURE_BYTES = HEIGHT * 3 // 2 * WIDTH  # of I420: luma, then U and V with half of the rows and columns each
# Red, green and blue to Y, U and V by BT.601 in limited range, as in videos
RGB_TO_YUV = np.array(
    [[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]], np.float32
) / np.float32(255)
BLACK = np.array([16, 128, 128], np.float32)

Add = Callable[[NDArray[np.uint8], int], None]


def to_i420(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert (H, W, 3) uint8 RGB with an even height and width to I420, flat: (H · 3 / 2 · W,) uint8."""
    rgb = np.ascontiguousarray(np.moveaxis(picture, -1, 0), np.float32)  # (3, H, W)
    pairs = rgb[:, ::2] + rgb[:, 1::2]
    quarters = ((pairs[..., ::2] + pairs[..., 1::2]) / 4).astype(np.float32)  # (3, H / 2, W / 2), means of four pixels
    planes = [_plane(rgb, 0), _plane(quarters, 1), _plane(quarters, 2)]
    return np.rint(np.concatenate([plane.ravel() for plane in planes])).astype(np.uint8)


def _plane(rgb: NDArray[np.float32], channel: int) -> NDArray[np.float32]:
    """Y, U or V (H, W) of red, green and blue (3, H, W); without BLAS, whose last bits differ between machines."""
    red, green, blue = RGB_TO_YUV[channel]
    return rgb[0] * red + rgb[1] * green + rgb[2] * blue + BLACK[channel]


@contextmanager
def filming_array(path: Path, pictures: int) -> Iterator[Add]:
    """Write an array (pictures, 133 728) uint8 to `path`; yields a function that adds a picture (224, 398, 3) RGB."""
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (pictures, PICTURE_BYTES)}
        np.lib.format.write_array_header_1_0(file, header)
        written = 0

        def add(picture: NDArray[np.uint8], frame: int) -> None:
            nonlocal written
            file.write(to_i420(picture).tobytes())
            written += 1

        yield add
        if written != pictures:
            raise ValueError(f"{written} pictures instead of {pictures}")
