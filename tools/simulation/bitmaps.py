"""Replace the pictures of the game's data, which are BMP files of 24 or 32 bits a pixel."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ballcast.core.errors import InputError


def read_bitmap(path: Path) -> NDArray[np.uint8]:
    """(H, W, 3) or (H, W, 4) uint8."""
    with Image.open(path) as image:
        pixels = np.array(image)
        return pixels if pixels.ndim == 3 else np.array(image.convert("RGB"))


def write_bitmap(path: Path, pixels: NDArray[np.uint8], template: Path) -> None:
    """Write a bitmap with the header of `template`: size and bits a pixel stay, which the game relies on.

    A file with 32 bits keeps the template's alpha if `pixels` has none; one with 24 bits has no alpha.
    """
    content = template.read_bytes()
    start = int.from_bytes(content[10:14], "little")
    width, height = (int.from_bytes(content[at : at + 4], "little", signed=True) for at in (18, 22))
    bits = int.from_bytes(content[28:30], "little")
    if pixels.shape[:2] != (height, width) or bits not in (24, 32):
        raise InputError(
            f"{template}: a bitmap of {width}×{height} pixels and {bits} bits cannot be replaced by one of "
            f"{pixels.shape[1]}×{pixels.shape[0]}; build the engine again"
        )
    upwards = pixels[::-1]  # the bottom row comes first
    if bits == 24:
        rows = np.zeros((height, (3 * width + 3) // 4 * 4), np.uint8)  # each row fills whole words
        rows[:, : 3 * width] = upwards[..., 2::-1].reshape(height, -1)  # blue, green, red
    else:
        if pixels.shape[2] == 3:
            upwards = np.dstack([upwards, _alpha(template)[::-1]])
        rows = upwards[..., [2, 1, 0, 3]]
    path.unlink(missing_ok=True)  # it may be a link to the template
    path.write_bytes(content[:start] + rows.tobytes())


def _alpha(path: Path) -> NDArray[np.uint8]:
    pixels = read_bitmap(path)
    return pixels[..., 3] if pixels.shape[2] == 4 else np.full(pixels.shape[:2], 255, np.uint8)
