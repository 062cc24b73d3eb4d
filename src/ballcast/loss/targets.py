"""What the slots should have said: the events of a batch as tensors, Gaussian targets over bins, class weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ballcast.core.actions import HORIZON_MS, OBSERVED_MS


@dataclass
class Targets:
    """At most M events a sample (the data keep the first 8), in any order; places without an event have class -1.

    - `classes` (B, M) int64: the action, or -1.
    - `bins` (B, M) int64: b*, the bin of the horizon the event falls into.
    - `times` (B, M) float32: when, as a fraction of the horizon in [0, 1).
    - `presence` (B, N, C): 1 where a class acts at a clip of the last window; None without the auxiliary loss.
    """

    classes: Tensor
    bins: Tensor
    times: Tensor
    presence: Tensor | None = None

    @classmethod
    def from_ms(cls, classes: Tensor, position_ms: Tensor, bins: int, presence: Tensor | None = None) -> "Targets":
        """From positions (B, M) in whole ms of the clip; b* = floor((ms - 30 000) / 5000 · bins), kept on the grid."""
        since = (position_ms.long() - OBSERVED_MS).clamp(0, HORIZON_MS - 1)
        return cls(classes.long(), since * bins // HORIZON_MS, since.float() / HORIZON_MS, presence)

    @property
    def events(self) -> Tensor:
        """(B, M) bool: where there is an event."""
        return self.classes >= 0


def gaussian_targets(bins: Tensor, count: int, sigma: float) -> Tensor:
    """(...) int64 bins b* → (..., count) float32: exp(-(b - b*)² / 2σ²) over all bins, normalised; σ 0: one-hot."""
    distance = torch.arange(count, device=bins.device) - bins.unsqueeze(-1)
    if sigma == 0:
        return (distance == 0).float()
    return torch.softmax(-0.5 * (distance / sigma).square(), dim=-1)


def class_weights(counts: Tensor) -> Tensor:
    """(C,) events of each class in training → (C,) w_c: inverse square root of the count, scaled to mean 1.

    A class that never occurs counts as occurring once.
    """
    weights = counts.double().clamp(min=1).rsqrt()
    return (weights / weights.mean()).float()
