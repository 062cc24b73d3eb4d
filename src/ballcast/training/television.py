"""Augmentation that makes films of a game look like television: one sample of frames in colour at a time.

Where the camera looks wanders, colours are moved towards a broadcast's, and what coding, editing and other people's
screens do to frames is done: blur, sharpening, noise, JPEG, repeated frames, shade, banners, cuts. Each effect is
drawn for the whole sample, from a generator of the host, so that a seed gives the same frames on any device.

Frames are (F, 3, H, W) float32 in [0, 255].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColourStyle:
    """Mean and deviation of red, green and blue of a broadcast, (3,) each, in [0, 255]."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]


# Wide shots of the pitch: by day and at night, in sun, rain and haze, of good and of poor cameras. Not measured on any
# one broadcast: drawn around grass that is 40 to 70 per cent green.
STYLES = tuple(
    ColourStyle(mean, deviation)
    for mean, deviation in (
        ((92, 112, 62), (38, 36, 34)),
        ((104, 126, 84), (46, 42, 44)),
        ((78, 98, 66), (34, 32, 32)),
        ((118, 136, 96), (52, 46, 50)),
        ((86, 104, 78), (44, 42, 44)),
        ((110, 122, 74), (40, 36, 40)),
        ((70, 96, 58), (36, 38, 34)),
        ((96, 120, 92), (50, 46, 52)),
        ((128, 140, 108), (44, 40, 46)),
        ((84, 110, 50), (42, 40, 36)),
    )
)

# JPEG's table of luma at quality 50, ITU-T T.81, annex K.
_Q50 = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)


def lightly(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Mirror, crop, and change brightness and contrast."""
    H, W = frames.shape[-2:]
    if rng.random() < 0.5:
        frames = frames.flip(-1)
    zoom = rng.uniform(0.85, 1.0)
    height = int(H * zoom)
    width = int(W * zoom)
    top = int(rng.integers(0, H - height + 1))
    left = int(rng.integers(0, W - width + 1))
    frames = functional.interpolate(frames[..., top : top + height, left : left + width], (H, W), mode="bilinear")
    return _contrast(frames, rng)


def like_television(frames: Tensor, rng: np.random.Generator, styles: Sequence[ColourStyle] = STYLES) -> Tensor:
    """All effects, each with its probability."""
    frames = move_camera(frames, rng)
    frames = change_colours(frames, rng, styles)
    frames = change_detail(frames, rng)
    frames = change_time(frames, rng)
    if rng.random() < 0.4:
        frames = frames + torch.randn_like(frames) * rng.uniform(2, 14)
    frames = frames.clamp(0, 255)
    if rng.random() < 0.5:
        frames = jpeg(frames, rng.uniform(12, 70))
    frames = draw_banners(frames, rng)
    if rng.random() < 0.15:
        frames = frames.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    return frames.clamp(0, 255)


def move_camera(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Zoom, pan and tilt that wander, roll, another aspect ratio, shake, mirroring."""
    count, _, H, W = frames.shape
    zoom = math.exp(rng.uniform(math.log(0.62), math.log(1.12))) * np.exp(wander(count, 0.03, 16, rng))
    room = max(0.0, 1 - float(zoom.mean()))
    x = rng.uniform(-1, 1) * room + wander(count, 0.06, 12, rng)
    y = rng.uniform(-1, 1) * room * 0.8 + wander(count, 0.04, 12, rng)
    roll = np.deg2rad(rng.uniform(-3, 3) + wander(count, 0.4, 10, rng))
    aspect = rng.uniform(0.92, 1.08)
    if rng.random() < 0.3:
        x = x + rng.normal(size=count) * 0.004
        y = y + rng.normal(size=count) * 0.006
    side = -1.0 if rng.random() < 0.5 else 1.0
    across = np.stack([side * zoom * aspect * np.cos(roll), -side * zoom * np.sin(roll) * H / W, side * x], -1)
    down = np.stack([zoom * np.sin(roll) * W / H, zoom / aspect * np.cos(roll), y], -1)
    theta = torch.from_numpy(np.stack([across, down], 1).astype(np.float32)).to(frames.device, non_blocking=True)
    grid = functional.affine_grid(theta, [count, 3, H, W], align_corners=False)
    return functional.grid_sample(frames, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def change_colours(frames: Tensor, rng: np.random.Generator, styles: Sequence[ColourStyle]) -> Tensor:
    """Towards a broadcast's colours; saturation, white balance, contrast, gamma; uneven light and shade."""
    H, W = frames.shape[-2:]
    if styles and rng.random() < 0.6:
        style = styles[int(rng.integers(len(styles)))]
        mean, deviation = (_column(v, frames) for v in (style.mean, style.deviation))
        now = frames.mean((0, 2, 3))[:, None, None]
        spread = frames.std((0, 2, 3))[:, None, None] + 1
        frames = torch.lerp(frames, (frames - now) / spread * deviation + mean, rng.uniform(0.4, 1.0))
    if rng.random() < 0.7:
        gray = frames.mean(1, keepdim=True)
        frames = gray + (frames - gray) * rng.uniform(0.2, 1.6)
    if rng.random() < 0.5:
        frames = frames * _column(rng.uniform(0.8, 1.2, 3), frames)
    frames = _contrast(frames, rng)
    if rng.random() < 0.5:
        frames = 255 * (frames / 255).clamp(1e-4).pow(math.exp(rng.uniform(-0.4, 0.4)))
    if rng.random() < 0.4:
        x = torch.linspace(-1, 1, W, device=frames.device) * rng.uniform(-0.3, 0.3)
        y = torch.linspace(-1, 1, H, device=frames.device) * rng.uniform(-0.3, 0.3)
        frames = frames * (1 + x + y[:, None])
    if rng.random() < 0.15:
        frames = frames * _shade(H, W, rng, frames.device)
    return frames


def change_detail(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Blur, a smaller frame, sharpening."""
    H, W = frames.shape[-2:]
    if rng.random() < 0.4:
        frames = gaussian_blur(frames, rng.uniform(0.3, 1.6))
    if rng.random() < 0.35:
        small = functional.interpolate(frames, scale_factor=rng.uniform(0.4, 0.9), mode="bilinear", antialias=True)
        frames = functional.interpolate(small, (H, W), mode="bilinear")
    if rng.random() < 0.3:
        frames = frames + rng.uniform(0.3, 1.5) * (frames - gaussian_blur(frames, rng.uniform(0.6, 1.5)))
    return frames


def change_time(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Motion blur over two frames; frames that are shown twice, at random or every so often as 30 → 25 fps does."""
    count = len(frames)
    if rng.random() < 0.25:
        frames = torch.cat([frames[:1], 0.5 * (frames[1:] + frames[:-1])])
    if rng.random() < 0.25:
        shown = np.arange(count)
        if rng.random() < 0.3:
            every = int(rng.integers(4, 9))
            repeated = (np.arange(count) + int(rng.integers(every))) % every == 0
        else:
            repeated = rng.random(count) < rng.uniform(0.03, 0.3)
        for i in range(1, count):
            if repeated[i]:
                shown[i] = shown[i - 1]
        frames = frames[torch.from_numpy(shown).to(frames.device, non_blocking=True)]
    return frames


def draw_banners(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Up to three boxes with a pattern at the upper or lower edge: scores, names, advertisements."""
    H, W = frames.shape[-2:]
    for _ in range(int(rng.integers(0, 4))):
        height = min(int(rng.uniform(6, 28)), H // 2)
        width = min(int(rng.uniform(20, 160)), W // 2)
        top = int(rng.uniform(0, 30) if rng.random() < 0.5 else rng.uniform(max(H - 50, 0), H - height - 1))
        top = min(top, H - height)
        left = int(rng.uniform(0, W - width))
        letters = np.abs(rng.normal(size=(1, height // 3 + 1, width // 3 + 1))) * rng.uniform(0, 80)
        box = torch.from_numpy(letters.repeat(3, 1).repeat(3, 2)[:, :height, :width].astype(np.float32))
        box = box.to(frames.device, non_blocking=True) + _column(rng.uniform(0, 255, 3), frames)
        frames[..., top : top + height, left : left + width] = box
    return frames


def cut_in(frames: Tensor, other: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Begin with a close-up: the first frames are those of `other`, enlarged, then comes a cut.

    Returns:
        The frames, and (F,) whether a frame is the play and not the close-up.
    """
    count, _, H, W = frames.shape
    length = int(rng.integers(4, count - 12))
    zoom = rng.uniform(0.3, 0.55)
    height = int(H * zoom)
    width = int(W * zoom)
    top = int(rng.integers(0, H - height + 1))
    left = int(rng.integers(0, W - width + 1))
    near = other[:length, :, top : top + height, left : left + width]
    near = functional.interpolate(near, (H, W), mode="bilinear")
    play = torch.arange(count, device=frames.device) >= length
    return torch.cat([near, frames[length:]]), play


def wander(count: int, deviation: float, smooth: int, rng: np.random.Generator) -> Floats:
    """Draw a smooth random path of `count` steps, (count,), which forgets itself after about `smooth` steps."""
    noise = rng.normal(size=count + 6 * smooth)
    kernel = np.exp(-0.5 * (np.arange(-3 * smooth, 3 * smooth + 1) / smooth) ** 2)
    return deviation * np.convolve(noise, kernel / np.sqrt((kernel**2).sum()), "valid")


def gaussian_blur(frames: Tensor, sigma: float) -> Tensor:
    """Blur with a Gaussian of `sigma` pixels, edges reflected."""
    reach = max(1, int(2.5 * sigma))
    at = torch.arange(-reach, reach + 1, device=frames.device)
    kernel = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(frames.shape[1], 1, -1)
    channels = frames.shape[1]
    frames = functional.pad(frames, (reach, reach, 0, 0), mode="reflect")
    frames = functional.conv2d(frames, kernel[:, :, None, :], groups=channels)
    frames = functional.pad(frames, (0, 0, reach, reach), mode="reflect")
    return functional.conv2d(frames, kernel[:, :, :, None], groups=channels)


def jpeg(frames: Tensor, quality: float) -> Tensor:
    """Quantise 8×8 blocks of each colour as JPEG does its luma; quality in (0, 100]."""
    H, W = frames.shape[-2:]
    scale = (5000 / quality if quality < 50 else 200 - 2 * quality) / 100
    table = (torch.tensor(_Q50, dtype=torch.float32, device=frames.device) * scale).clamp(min=1)
    n = torch.arange(8, device=frames.device)
    basis = 0.5 * torch.cos((2 * n + 1) * n[:, None] * (math.pi / 16))  # (frequency, pixel)
    basis[0] = math.sqrt(1 / 8)
    padded = functional.pad(frames - 128, (0, -W % 8, 0, -H % 8), mode="replicate")
    blocks = padded.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)  # (…, H/8, W/8, 8, 8)
    quantised = (basis @ blocks @ basis.T / table).round() * table
    restored = (basis.T @ quantised @ basis).transpose(-3, -2).flatten(-4, -3).flatten(-2)
    return (restored[..., :H, :W] + 128).clamp(0, 255)


def _contrast(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Contrast around mid-gray, and brightness."""
    return ((frames - 127) * rng.uniform(0.6, 1.4) + 127 + rng.uniform(-30, 30)).clamp(0, 255)


def _shade(H: int, W: int, rng: np.random.Generator, device: torch.device) -> Tensor:
    """(H, W): a stand's shadow, darker on one side of a straight line."""
    angle = rng.uniform(0, 2 * math.pi)
    x = torch.linspace(-1, 1, W, device=device) * math.cos(angle)
    y = torch.linspace(-1, 1, H, device=device) * math.sin(angle)
    side = torch.sigmoid((x + y[:, None] - rng.uniform(-0.6, 0.6)) * rng.uniform(20, 80))
    return 1 - side * rng.uniform(0.25, 0.6)


def _column(values: Sequence[float] | Floats, like: Tensor) -> Tensor:
    """Three values as (3, 1, 1) on the device of `like`."""
    return torch.tensor(np.asarray(values, np.float32), device=like.device)[:, None, None]
