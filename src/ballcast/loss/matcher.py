"""Targets of a batch, and the matching of slots with events: an exact assignment, computed on the device."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.actions import HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.model.slots import Slots


@dataclass
class Targets:
    """At most M events per sample (the data keep the first 8), in any order, padded with class -1.

    - `classes` (B, M) int64: the action, or -1.
    - `bins` (B, M) int64: b*, the bin of the horizon that the event lies in.
    - `times` (B, M) float32: the time as a fraction of the horizon, in [0, 1).
    - `presence` (B, N, C): 1 at the snippet of the last window nearest to an action of the class, and at the two beside
      it; None without the auxiliary loss.
    """

    classes: Tensor
    bins: Tensor
    times: Tensor
    presence: Tensor | None = None

    @classmethod
    def from_ms(cls, classes: Tensor, position_ms: Tensor, bins: int, presence: Tensor | None = None) -> "Targets":
        """Build targets from positions; b* = floor((ms - 30 000) / 5000 · bins), clamped to the grid.

        Args:
            classes: (B, M) actions, -1 for none.
            position_ms: (B, M) whole ms from the clip's start.
            bins: number of bins of the horizon.
            presence: (B, N, C) or None.
        """
        since = (position_ms.long() - OBSERVED_MS).clamp(0, HORIZON_MS - 1)
        return cls(classes.long(), since * bins // HORIZON_MS, since.float() / HORIZON_MS, presence)

    @property
    def events(self) -> Tensor:
        """(B, M) bool: where there is an event."""
        return self.classes >= 0


def gaussian_targets(bins: Tensor, count: int, sigma: float) -> Tensor:
    """Equation 6: bins b* (...) int64 → (..., count) float32, exp(-(b - b*)² / 2σ²) normalised; σ 0: one-hot."""
    distance = torch.arange(count, device=bins.device) - bins.unsqueeze(-1)
    if sigma == 0:
        return (distance == 0).float()
    return torch.softmax(-0.5 * (distance / sigma).square(), dim=-1)


def widen(presence: Tensor, beside: int) -> Tensor:
    """Mark `beside` snippets on either side of an action, instead of one, in presence (B, N, C): max pooling."""
    if beside == 1:
        return presence
    columns = presence.float().transpose(1, 2)  # (B, C, N)
    return functional.max_pool1d(columns, 2 * beside - 1, stride=1, padding=beside - 1).transpose(1, 2)


def segments(presence: Tensor, beside: int) -> Tensor:
    """Presence (B, N, C), as in `widen` → segmentation (B, N) int64: the action at each snippet, C for background.

    Of several actions at a snippet the last in time counts; if they have the same snippet, that of highest index.
    """
    C = presence.shape[-1]
    reach = torch.arange(2 * beside - 1, device=presence.device)  # the snippets around, in order of time
    around = functional.pad(presence.float().transpose(1, 2), (beside - 1, beside - 1)).unfold(2, 2 * beside - 1, 1)
    order = (around * (C * reach + C)).amax(dim=-1)  # (B, C, N): 0 if not there, higher the later
    latest, action = (order + (order > 0) * torch.arange(C, device=order.device).unsqueeze(1)).max(dim=1)  # (B, N)
    return torch.where(latest > 0, action, C)


def class_weights(counts: Tensor, formula: Literal["inverse_sqrt", "inverse"] = "inverse_sqrt") -> Tensor:
    """Class weights w_c of the matching: 1 / sqrt(count) or 1 / count, scaled to mean 1.

    Args:
        counts: (C,) events of each class in training; 0 is treated as 1.
        formula: which of the two.

    Returns:
        (C,) float32.
    """
    clamped = counts.double().clamp(min=1)
    weights = clamped.rsqrt() if formula == "inverse_sqrt" else clamped.reciprocal()
    return (weights / weights.mean()).float()


def matching_cost(slots: Slots, targets: Targets, class_weights: Tensor | None, mu: float) -> Tensor:
    """Equation 5: the cost (-log p_cls[c_m] + mu · |b_k - b*_m| / bins) / w_c of slot k and event m.

    Args:
        slots, targets: of B samples.
        class_weights: (C,) w_c; None: no reweighting.
        mu: weight of the time.

    Returns:
        (B, K, M) float32; undefined where there is no event.
    """
    log_p = torch.log_softmax(slots.classes.float(), dim=-1)  # (B, K, C)
    actions = targets.classes.clamp(min=0)  # (B, M)
    of_class = actions.unsqueeze(1).expand(-1, log_p.shape[1], -1)  # (B, K, M)
    wrong_class = -log_p.gather(-1, of_class)  # (B, K, M)
    bins = slots.bin()
    bins = bins.gather(-1, of_class) if slots.form == "class bins" else bins.unsqueeze(-1)  # of the event's class
    wrong_time = (bins - targets.bins.unsqueeze(1)).abs() / slots.bins
    cost = wrong_class + mu * wrong_time
    return cost if class_weights is None else cost / class_weights[actions].unsqueeze(1)


def assign(cost: Tensor, events: Tensor) -> Tensor:
    """Assign events to slots with the least total cost, by dynamic programming over subsets of events.

    Exactly min(K, number of events) pairs are made. Ties are broken deterministically. No host synchronisation, unlike
    scipy's Hungarian algorithm.

    Args:
        cost: (B, K, M) finite; M at most 8.
        events: (B, M) bool, where there is an event.

    Returns:
        (B, K) int64: the slot's event, or -1.
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

    # The cheapest of the subsets that hold real events only, and as many as can be paired.
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
    """Assign the k-th event in order of time to slot k; events at the same time keep their order.

    Args:
        times: (B, M) as in `Targets`.
        events: (B, M) bool, where there is an event.
        slots: K; later events are left out.

    Returns:
        (B, K) int64: the slot's event, or -1.
    """
    order = torch.where(events, times, torch.inf).argsort(dim=1, stable=True)[:, :slots]  # (B, min(K, M))
    real = torch.arange(order.shape[1], device=order.device) < events.sum(dim=1, keepdim=True)
    order = torch.where(real, order, -1)
    return functional.pad(order, (0, slots - order.shape[1]), value=-1)
