"""What the slots should have said: the events of a batch as tensors, Gaussian targets over bins, class weights."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.actions import HORIZON_MS, OBSERVED_MS


@dataclass
class Targets:
    """At most M events a sample (the data keep the first 8), in any order; places without an event have class -1.

    - `classes` (B, M) int64: the action, or -1.
    - `bins` (B, M) int64: b*, the bin of the horizon the event falls into.
    - `times` (B, M) float32: when, as a fraction of the horizon in [0, 1).
    - `presence` (B, N, C): 1 at the clip of the last window that is nearest to an action of the class, and at the two
      beside it; None without the auxiliary loss.
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


def widen(presence: Tensor, beside: int) -> Tensor:
    """(B, N, C) actions at the clip nearest to each and one to either side → the same with `beside` to either side."""
    if beside == 1:
        return presence
    columns = presence.float().transpose(1, 2)  # (B, C, N)
    return functional.max_pool1d(columns, 2 * beside - 1, stride=1, padding=beside - 1).transpose(1, 2)


def segments(presence: Tensor, beside: int) -> Tensor:
    """(B, N, C) as in `widen` → (B, N) int64: the one action at each clip, C where there is none (background).

    Of several actions that reach a clip the last in time counts; where the clips cannot tell, that of highest index.
    """
    C = presence.shape[-1]
    reach = torch.arange(2 * beside - 1, device=presence.device)  # the clips that are looked at, in order of time
    around = functional.pad(presence.float().transpose(1, 2), (beside - 1, beside - 1)).unfold(2, 2 * beside - 1, 1)
    order = (around * (C * reach + C)).amax(dim=-1)  # (B, C, N): 0 if not there, higher the later
    latest, action = (order + (order > 0) * torch.arange(C, device=order.device).unsqueeze(1)).max(dim=1)  # (B, N)
    return torch.where(latest > 0, action, C)


def class_weights(counts: Tensor, formula: Literal["inverse_sqrt", "inverse"] = "inverse_sqrt") -> Tensor:
    """(C,) events of each class in training → (C,) w_c: 1 / sqrt(count) or 1 / count, scaled to mean 1.

    A class that never occurs counts as occurring once.
    """
    seen = counts.double().clamp(min=1)
    weights = seen.rsqrt() if formula == "inverse_sqrt" else seen.reciprocal()
    return (weights / weights.mean()).float()
