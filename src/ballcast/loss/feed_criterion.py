"""The loss of the event transformer: kind, time and zone of each slot, expected actions, and the teachers' outputs.

B samples, K slots, C actions, Z zones. Every term is a mean over all slots, so the mean over several processes is that
of the joined batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.events import GRID_BINS
from ballcast.core.feed_config import FeedLossConfig
from ballcast.data.samples.feed_samples import FeedTargets
from ballcast.model.event_transformer import TEAMS, C, EventSlots

ZONES_WEIGHT = 0.1  # of the teachers' zones


class FeedLosses(NamedTuple):
    """Scalars in float32: the unweighted terms, and `total`, which is minimised."""

    total: Tensor
    kinds: Tensor
    times: Tensor
    zones: Tensor
    counts: Tensor
    distilled: Tensor


def feed_criterion(slots: EventSlots, targets: FeedTargets, config: FeedLossConfig, rates: Tensor) -> FeedLosses:
    """The losses against the labels.

    Args:
        slots: outputs of the network.
        targets: what came.
        config: weights.
        rates: (C,) mean number of each action in 5 s; rare actions count for more in `counts`.
    """
    real = targets.classes >= 0  # (B, K)
    kind = torch.where(real, 1 + targets.team * C + targets.classes, 0)
    log_kinds = slots.kinds.float().log_softmax(-1)  # (B, K, 1 + 2C)
    log_times = slots.times.float().log_softmax(-1)  # (B, K, C, 32)
    kinds = functional.nll_loss(log_kinds.flatten(0, 1), kind.flatten(), reduction="sum")

    chosen = targets.classes.clamp(min=0)[..., None, None].expand(-1, -1, 1, GRID_BINS)
    of_action = log_times.gather(2, chosen).squeeze(2)  # (B, K, 32)
    distance = torch.arange(GRID_BINS, device=of_action.device) - targets.bins[..., None]
    soft = torch.exp(-0.5 * (distance / config.sigma) ** 2)
    soft = soft / soft.sum(-1, keepdim=True)
    times = -((soft * of_action).sum(-1) * real).sum()

    zone = targets.zones.clamp(min=0).flatten()
    zones = functional.cross_entropy(slots.zones.float().flatten(0, 1), zone, reduction="none")
    zones = (zones * (targets.zones >= 0).flatten()).sum()

    # Actions of each class in each bin as a Poisson process, whose intensity is the sum over the slots.
    expected = log_kinds.exp()[..., 1:].unflatten(-1, (TEAMS, C)).sum(-2)  # (B, K, C)
    intensity = (expected[..., None] * log_times.exp()).sum(1)  # (B, C, 32)
    misfit = intensity - targets.counts * (intensity + 1e-6).log()
    counts = (misfit.sum(-1) * (rates.mean() / rates).sqrt()).sum()

    number = kind.numel()
    kinds, times, zones, counts = kinds / number, times / number, zones / number, counts / number
    total = kinds + times + config.zones * zones + config.counts * counts
    return FeedLosses(total, kinds, times, zones, counts, torch.zeros_like(total))


def distillation(slots: EventSlots, teachers: Sequence[EventSlots]) -> Tensor:
    """Cross-entropy against the mean of the teachers, a scalar; times weigh as much as their class is expected."""
    kinds = [teacher.kinds.float().softmax(-1) for teacher in teachers]
    mean = torch.stack(kinds).mean(0)  # (B, K, 1 + 2C)
    total = -(mean * slots.kinds.float().log_softmax(-1)).sum()
    expected = [k[..., 1:].unflatten(-1, (TEAMS, C)).sum(-2)[..., None] for k in kinds]  # (B, K, C, 1)
    times = [e * teacher.times.float().softmax(-1) for e, teacher in zip(expected, teachers, strict=True)]
    joint = torch.stack(times).mean(0)  # (B, K, C, 32)
    total = total - (joint * slots.times.float().log_softmax(-1)).sum()
    zones = torch.stack([teacher.zones[:, 0].float().softmax(-1) for teacher in teachers]).mean(0)  # (B, Z)
    total = total - ZONES_WEIGHT * (zones * slots.zones[:, 0].float().log_softmax(-1)).sum()
    return total / mean[..., 0].numel()


def with_distillation(losses: FeedLosses, distilled: Tensor, weight: float) -> FeedLosses:
    """The losses, of which the teachers' outputs are the share `weight` and the labels the rest."""
    return losses._replace(total=(1 - weight) * losses.total + weight * distilled, distilled=distilled)
