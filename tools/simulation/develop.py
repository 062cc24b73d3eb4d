"""Develop what the engine renders into pictures of a film: size, exposure, sharpness, noise, graphics."""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS
from tools.simulation.look import Exposure, Look
from tools.simulation.score_graphics import ScoreGraphics

HEIGHT, WIDTH = 224, 398  # of a film
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue
GRASS_ROWS = slice(60, 200)  # of a picture, mostly grass: what exposure is set by
SHOULDER = 0.7  # brightness from which colours are compressed, instead of clipped at 1
GAMMA_PIVOT = 0.45  # brightness that gamma leaves as it is
NOISE_SHAPE = (4, 300, 500, 1)  # four patterns, of which each picture takes a piece

Picture = NDArray[np.uint8]
Values = NDArray[np.float32]


class Developer:
    """Develops the pictures of one match, in order of time: the first sets the exposure of all.

    Args:
        look: of the match.
        font: a TrueType font for the graphics.
    """

    def __init__(self, look: Look, font: Path) -> None:
        self._exposure = look.exposure
        self._rng = np.random.default_rng(look.graphics.seed)
        self._noise = self._rng.normal(0, 1, NOISE_SHAPE).astype(np.float32) * np.float32(look.exposure.noise)
        self._graphics = ScoreGraphics(look, font, (HEIGHT, WIDTH), self._rng)
        y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
        self._vignette = (1 - look.exposure.vignette * ((x * x + y * y) / 2)).astype(np.float32)[..., None]
        self._curves: Values | None = None

    def develop(self, rendered: Picture, frame: int) -> Picture:
        """Develop a picture.

        Args:
            rendered: (336, 600, 3) uint8 RGB, from the engine.
            frame: its position in the match, 25 a second; of the clock.

        Returns:
            (224, 398, 3) uint8 RGB.
        """
        exposure = self._exposure
        small = scale_down(rendered)  # (224, 398, 3)
        if self._curves is None:
            self._curves = tone_curves(small, exposure)
        picture = np.stack([self._curves[c][small[..., c]] for c in range(3)], axis=-1)
        if exposure.saturation != 1:
            luma = (picture @ LUMA)[..., None]
            picture = luma + (picture - luma) * np.float32(exposure.saturation)
        if exposure.blur > 0.15:
            picture = blur(picture, exposure.blur)
        if exposure.sharpen > 0:
            picture += (picture - blur(picture, 1.0)) * np.float32(exposure.sharpen)
        picture *= self._vignette
        if exposure.noise > 0.3:
            picture += self._noise_piece()
        colours, opacity = self._graphics.at(frame // FPS)
        picture = picture * (1 - opacity) + colours * opacity
        return picture.clip(0, 255).astype(np.uint8)

    def _noise_piece(self) -> Values:
        patterns, height, width, _ = NOISE_SHAPE
        pattern = self._rng.integers(patterns)
        y, x = self._rng.integers(height - HEIGHT), self._rng.integers(width - WIDTH)
        return self._noise[pattern, y : y + HEIGHT, x : x + WIDTH]


def tone_curves(picture: Picture, exposure: Exposure) -> Values:
    """(3, 256): what each value of red, green and blue becomes, so that the grass of `picture` has the wanted level."""
    grass = float(np.median(picture[GRASS_ROWS].astype(np.float32) @ LUMA))
    gain = exposure.level / max(grass, 5)
    curves = []
    for balance in (exposure.red, 1.0, exposure.blue):
        values = np.arange(256) / 255 * balance * gain
        room = 1 - SHOULDER
        values = np.where(values > SHOULDER, SHOULDER + room * (1 - np.exp((SHOULDER - values) / room)), values)
        values = values**exposure.gamma * GAMMA_PIVOT ** (1 - exposure.gamma)
        curves.append((values * 255).clip(0, 255))
    return np.array(curves, np.float32)


def scale_down(rendered: Picture) -> Picture:
    """Scale a picture to the size of a film by averaging areas; a column of the film at either side is cut.

    Equal to OpenCV's INTER_AREA to the last bit: columns first, then rows, in float32.
    """
    margin = round(rendered.shape[0] / HEIGHT)
    cut = rendered[:, margin:-margin].astype(np.float32)
    height, width, channels = cut.shape
    flat = cut.reshape(height, -1)
    columns, shares = _area_weights(width, WIDTH)
    taps = (columns[..., None] * channels + np.arange(channels)).reshape(-1, WIDTH * channels)
    narrow = np.zeros((height, WIDTH * channels), np.float32)
    for tap, share in zip(taps, shares, strict=True):
        narrow += flat.take(tap, axis=1) * share.repeat(channels)
    small = np.zeros((HEIGHT, WIDTH * channels), np.float32)
    for rows, share in zip(*_area_weights(height, HEIGHT), strict=True):
        small += narrow[rows] * share[:, None]
    return np.rint(small).astype(np.uint8).reshape(HEIGHT, WIDTH, channels)


@cache
def _area_weights(source: int, target: int) -> tuple[NDArray[np.intp], Values]:
    """For each of `target` pixels the source pixels that it covers and the shares of them: two arrays (n, target)."""
    scale = source / target
    starts = np.arange(target) * scale
    first = np.floor(starts + 1e-6).astype(np.intp)
    taps = first + np.arange(int(np.ceil(scale)) + 1)[:, None]  # (n, target)
    covered = np.minimum(starts + scale, taps + 1) - np.maximum(starts, taps)
    weights = (np.where(covered > 1e-3, covered, 0) / scale).astype(np.float32)  # slivers are left out, as in OpenCV
    return taps.clip(max=source - 1), weights


def blur(picture: Values, sigma: float) -> Values:
    """Gaussian blur of (H, W, C), mirrored at the edges."""
    kernel = _gaussian(sigma)
    for axis in (0, 1):
        picture = _convolve(picture, kernel, axis)
    return picture


@cache
def _gaussian(sigma: float) -> Values:
    """Half of a normalised kernel: its middle, and what is at either side of it."""
    reach = (round(sigma * 8 + 1) | 1) // 2
    values = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return (values / values.sum())[reach:].astype(np.float32)


def _convolve(picture: Values, kernel: Values, axis: int) -> Values:
    reach = len(kernel) - 1
    pads = [(reach, reach) if at == axis else (0, 0) for at in range(3)]
    padded = np.moveaxis(np.pad(picture, pads, mode="reflect"), axis, 0)
    size = picture.shape[axis]
    total = padded[reach : reach + size] * kernel[0]
    for away in range(1, reach + 1):
        total += (padded[reach - away : reach - away + size] + padded[reach + away : reach + away + size]) * kernel[
            away
        ]
    return np.moveaxis(total, 0, axis)
