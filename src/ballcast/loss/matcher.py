"""Who answers for which event: an exact minimum-cost assignment on the device, without asking the host.

`assign` is a dynamic programme. After slot k, best[S] is the least cost at which the slots so far have taken exactly
the events of the subset S; slot k either takes nothing, or one event m of S on top of the best for S without m. With
at most 8 events there are 256 subsets, so a whole batch is a few small tensor operations of fixed shape, which
torch.compile fuses and a CUDA graph can hold. No event can be taken twice, since S would already contain it.
"""

import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.actions import MAX_EVENTS
from ballcast.loss.targets import Targets
from ballcast.model.slots import Slots


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
