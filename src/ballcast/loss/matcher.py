"""Targets of a batch, and which slot is matched with which event: an exact assignment on the device."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.actions import HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.model.slots import Slots


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


def matching_cost(slots: Slots, targets: Targets, class_weights: Tensor | None, mu: float) -> Tensor:
    """(B, K, M) float32: (-log p_cls[c_m] + mu · |b_k - b*_m| / bins) / w_c for slot k and event m.

    `class_weights` (C,) is w_c; None: no reweighting. Where there is no event the value means nothing.
    """
    log_p = torch.log_softmax(slots.classes.float(), dim=-1)  # (B, K, C)
    actions = targets.classes.clamp(min=0)  # (B, M)
    of_class = actions.unsqueeze(1).expand(-1, log_p.shape[1], -1)  # (B, K, M)
    wrong_class = -log_p.gather(-1, of_class)  # (B, K, M)
    bins = slots.bin()
    bins = bins.gather(-1, of_class) if bins.ndim == 3 else bins.unsqueeze(-1)  # were the slot of the event's class
    wrong_time = (bins - targets.bins.unsqueeze(1)).abs() / slots.bins
    cost = wrong_class + mu * wrong_time
    return cost if class_weights is None else cost / class_weights[actions].unsqueeze(1)


def assign(cost: Tensor, events: Tensor) -> Tensor:
    """(B, K, M) finite costs, (B, M) bool where events are → (B, K) int64: the slot's event, or -1.

    Exactly min(K, number of events) pairs of least total cost. Equal totals are settled the same way every time.
    M at most 8.
    """
    B, K, M = cost.shape
    if M > MAX_EVENTS:
        raise ValueError(f"the exact assignment takes at most {MAX_EVENTS} events, not {M}")
    cost = cost.float()
    event = torch.arange(M, device=cost.device)
    subset = torch.arange(2**M, device=cost.device)
    contains = (subset[:, None] >> event) & 1 == 1  # (2^M, M)
    without = subset[:, None] ^ (1 << event)  # (2^M, M), the subset before event m joined it; read only where contained

    best = torch.where(subset == 0, 0.0, torch.inf).expand(B, -1)  # (B, 2^M), before any slot
    choices = []
    for k in range(K):
        take = best[:, without] + cost[:, k, None, :]  # (B, 2^M, M)
        least, taken = take.masked_fill(~contains, torch.inf).min(dim=-1)  # (B, 2^M)
        choices.append(torch.where(least < best, taken, M))  # M: take nothing
        best = torch.minimum(best, least)

    # Of the subsets made of real events only, and of as many as can be paired, the cheapest.
    real = ~(contains & ~events.unsqueeze(1)).any(dim=-1)  # (B, 2^M)
    full = contains.sum(dim=-1) == events.sum(dim=-1, keepdim=True).clamp(max=K)  # (B, 2^M)
    state = best.masked_fill(~(real & full), torch.inf).argmin(dim=-1, keepdim=True)  # (B, 1)

    assigned = []
    for choice in reversed(choices):
        taken = choice.gather(1, state)  # (B, 1)
        assigned.append(torch.where(taken < M, taken, -1))
        state = torch.where(taken < M, state ^ (1 << taken), state)
    return torch.cat(assigned[::-1], dim=1)


def assign_in_order(times: Tensor, events: Tensor, slots: int) -> Tensor:
    """(B, M) times, (B, M) bool → (B, K) int64: the k-th event in order of time goes to slot k; -1 when there is none.

    Events at the same time keep their order; those after the K-th are left out.
    """
    order = torch.where(events, times, torch.inf).argsort(dim=1, stable=True)[:, :slots]  # (B, min(K, M))
    real = torch.arange(order.shape[1], device=order.device) < events.sum(dim=1, keepdim=True)
    order = torch.where(real, order, -1)
    return functional.pad(order, (0, slots - order.shape[1]), value=-1)
