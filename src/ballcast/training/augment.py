"""Augmentation of runs of frames, a whole batch at once, on the device of the frames.

The parameters of an epoch are drawn on the host from the seed: the same on any device, and no wait in a step.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.pretrain_config import AugmentConfig
from ballcast.features.frame_network import i420_to_rgb


@dataclass(frozen=True)
class Augmentation:
    """Of B runs of P frames, or of steps × B runs; all float32 but the last two.

    - `turn` (…, B): −1 for left and right exchanged, else 1.
    - `shift` (…, B, 2): to the right and down, in half widths and half heights of the frame; before `turn`, `zoom`.
    - `zoom` (…, B): how much larger things appear.
    - `brightness`, `contrast` (…, B): what is added, and what the distance to the mean is multiplied by.
    - `blur` (…, B): 0 none, 1 the mean of 3 × 3.
    - `share` (…, B): λ of MixUp, the part of the run itself; 1 without.
    - `kept` (…, B, P) int64: which frame is shown in each place.
    - `partner` (…, B) int64: the run mixed in.
    """

    turn: Tensor
    shift: Tensor
    zoom: Tensor
    brightness: Tensor
    contrast: Tensor
    blur: Tensor
    share: Tensor
    kept: Tensor
    partner: Tensor

    def __getitem__(self, step: int) -> "Augmentation":
        return Augmentation(*(getattr(self, f.name)[step] for f in fields(self)))

    def to(self, device: torch.device) -> "Augmentation":
        return Augmentation(*(getattr(self, f.name).to(device) for f in fields(self)))


def draw_augmentation(
    config: AugmentConfig, steps: int, batch: int, frames: int, rng: np.random.Generator
) -> Augmentation:
    """Draw the augmentation of an epoch: `steps` × `batch` runs of `frames` frames."""
    shape = (steps, batch)

    def between(low: float, high: float, *more: int) -> Tensor:
        return torch.from_numpy(rng.uniform(low, high, (*shape, *more)).astype(np.float32))

    turn = torch.where(between(0, 1) < config.flip, -1.0, 1.0)
    shift = between(-2 * config.shift, 2 * config.shift, 2)
    zoom = torch.exp(between(-1, 1) * float(np.log1p(config.zoom)))
    brightness, contrast = between(-config.brightness, config.brightness), between(-config.contrast, config.contrast)
    blur = torch.where(between(0, 1) < config.blur, between(0, 1), 0.0)
    lost = rng.random((*shape, frames)) < config.drop
    lost[..., 0] = False  # nothing is there before the first
    kept = np.maximum.accumulate(np.where(lost, 0, np.arange(frames)), axis=-1)
    share = np.ones(shape, np.float32)
    partner = np.broadcast_to(np.arange(batch), shape).copy()
    if config.mixup:
        share = rng.beta(config.mixup, config.mixup, shape).astype(np.float32)
        partner = rng.permuted(partner, axis=1)
    return Augmentation(
        turn,
        shift,
        zoom,
        brightness,
        1 + contrast,
        blur,
        torch.from_numpy(share),
        torch.from_numpy(kept.astype(np.int64)),
        torch.from_numpy(partner.astype(np.int64)),
    )


def apply_augmentation(frames: Tensor, how: Augmentation, *, colour: bool = False) -> Tensor:
    """Pictures (B, P, H, W) uint8 → the changed ones, float32 in [0, 1]; I420 with `colour` → (B, 3 P, H, W)."""
    B, P = frames.shape[:2]
    shown = how.kept + P * torch.arange(B, device=frames.device)[:, None]  # (B, P)
    x = planes(frames.flatten(0, 1).index_select(0, shown.flatten()).unflatten(0, (B, P)), colour=colour)
    # Where the pixel at (x, y) of the result is taken from; what lies outside repeats the edge.
    zero = torch.zeros_like(how.zoom)
    scale = 1 / how.zoom
    across = torch.stack([how.turn * scale, zero, -how.shift[:, 0]], 1)
    down = torch.stack([zero, scale, -how.shift[:, 1]], 1)
    grid = functional.affine_grid(torch.stack([across, down], 1), list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    blurred = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    x = x.lerp_(blurred, _each(how.blur))  # in place where it can be: memory is what this takes time for
    mean = x.mean((1, 2, 3), keepdim=True)
    contrast = _each(how.contrast)
    x = x.mul_(contrast).add_(mean * (1 - contrast) + _each(how.brightness)).clamp_(0, 1)
    return mix(x, how)


def planes(frames: Tensor, *, colour: bool) -> Tensor:
    """Gray frames (B, P, H, W) uint8 → the same in [0, 1]; I420 → red, green and blue of each, (B, 3 P, H, W)."""
    return i420_to_rgb(frames).flatten(1, 2) if colour else frames.float() / 255


def mix(values: Tensor, how: Augmentation) -> Tensor:
    """Mix values of each run, (B, …), with those of its MixUp partner."""
    return torch.lerp(values[how.partner], values, how.share.view(-1, *[1] * (values.ndim - 1)))


def _each(value: Tensor) -> Tensor:
    return value[:, None, None, None]
