"""The loss: objectness of every slot, class and time of the matched ones, and the actions of the last window."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import LossConfig, ModelConfig
from ballcast.loss.matcher import Targets, assign, assign_in_order, gaussian_targets, matching_cost, segments, widen
from ballcast.model.slots import Slots

Reduce = Callable[[Tensor], Tensor]


class Losses(NamedTuple):
    """Scalars in float32: the terms as they are, and their sum weighted by the config."""

    total: Tensor
    objectness: Tensor
    classes: Tensor
    offset: Tensor
    auxiliary: Tensor


class Criterion(nn.Module):
    """`Slots` and `Targets` → `Losses`. Fixed shapes, nothing asked of the host, float32 throughout.

    `class_weights` (C,) is w_c of the matching (see `targets.class_weights`); None counts every class as 1.
    """

    class_weights: Tensor
    pos_weight: Tensor
    ce_weights: Tensor  # (C + 1,), the background's last

    def __init__(self, *, config: LossConfig, model: ModelConfig, class_weights: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.slots = model.slots
        if class_weights is None:
            class_weights = torch.ones(model.classes)
        self.register_buffer("class_weights", class_weights.float())
        self.register_buffer("pos_weight", torch.tensor(config.pos_weight))
        weights = [config.ce_weights.get(label, 1.0) for label in ACTIONS]
        self.register_buffer("ce_weights", torch.tensor([*weights, config.background_weight]), persistent=False)

    @torch.no_grad()
    def match(self, slots: Slots, targets: Targets) -> Tensor:
        """(B, K) int64: which event each slot answers for, -1 for none."""
        if self.config.matching == "ordered":
            return assign_in_order(targets.times, targets.events, self.slots)
        weights = self.class_weights if self.config.reweight else None
        return assign(matching_cost(slots, targets, weights, self.config.offset_cost), targets.events)

    def forward(
        self,
        slots: Slots,
        targets: Targets,
        weight: Tensor | None = None,
        *,
        reduce: Reduce | None = None,
        matching: Tensor | None = None,
    ) -> Losses:
        """All terms are means weighted by `weight` (B,), how much each sample counts (MixUp; None: all 1).

        Objectness is averaged over all slots, class and time over what `config.pair_norm` names; a class's mean is
        also weighted by `config.ce_weights`. `reduce` maps the four normalisers, stacked as (4,): the weighted numbers
        of samples, of pairs, of pairs by class weight, and of what the auxiliary loss is divided by. Averaged over
        ranks there, the gradients DDP averages are those of the whole batch. `matching` (B, K) replaces the one
        computed here.
        """
        config = self.config
        pair = self.match(slots, targets) if matching is None else matching
        matched = (pair >= 0).float()  # (B, K)
        event = pair.clamp(min=0)
        if weight is None:
            weight = torch.ones_like(matched[:, 0])
        actions = targets.classes.gather(1, event).clamp(min=0)  # (B, K)
        of_class = matched * self.ce_weights[actions]  # (B, K)
        of_sample = weight.unsqueeze(1)

        logits = slots.objectness.float()
        bce = functional.binary_cross_entropy_with_logits(logits, matched, pos_weight=self.pos_weight, reduction="none")
        ce = functional.cross_entropy(
            slots.classes.float().transpose(1, 2), actions, reduction="none", label_smoothing=config.label_smoothing
        )
        classes = (ce * of_class * of_sample).sum()
        offset = (self._offset_loss(slots, targets, event) * matched * of_sample).sum()
        auxiliary, cells = self._auxiliary(slots, targets, weight)

        normalisers = torch.stack([weight.sum(), (matched * of_sample).sum(), (of_class * of_sample).sum(), cells])
        if reduce is not None:
            normalisers = reduce(normalisers)
        samples, pairs, weighted_pairs, cells = normalisers.clamp(min=1e-6).unbind()
        if config.pair_norm != "pairs":
            pairs = weighted_pairs = samples * (self.slots if config.pair_norm == "slots" else 1)
        objectness = (bce.mean(dim=1) * weight).sum() / samples
        classes, offset, auxiliary = classes / weighted_pairs, offset / pairs, auxiliary / cells
        total = (
            config.objectness * objectness
            + config.classes * classes
            + config.offset * offset
            + config.auxiliary * auxiliary
        )
        if slots.earlier is not None:
            total = total + self._earlier(slots.earlier, targets, weight, reduce)
        return Losses(total, objectness, classes, offset, auxiliary)

    def _auxiliary(self, slots: Slots, targets: Targets, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The auxiliary loss summed over the batch, and what it is divided by; `weight` (B,).

        C columns are presences, each a yes or no of its own; C + 1 are a segmentation, one of them at each clip.
        """
        config, presence = self.config, targets.presence
        if slots.presence is None or presence is None:
            return weight.new_zeros(()), weight.sum()
        if slots.presence.shape[-1] > presence.shape[-1]:
            truth = segments(presence, config.auxiliary_beside)  # (B, N)
            ce = functional.cross_entropy(slots.presence.float().transpose(1, 2), truth, reduction="none")
            counts = self.ce_weights[truth] * weight.unsqueeze(1)
            return (ce * counts).sum(), counts.sum()
        there = widen(presence, config.auxiliary_beside)
        focal = focal_bce(slots.presence, there, gamma=config.focal_gamma, alpha=config.focal_alpha)
        if config.auxiliary_norm == "cells":
            return (focal.mean(dim=(1, 2)) * weight).sum(), weight.sum()
        positives = (there > 0).sum(dim=(1, 2)) * weight
        return (focal.sum(dim=(1, 2)) * weight).sum(), positives.sum().clamp(min=1)

    def _earlier(self, slots: Slots, targets: Targets, weight: Tensor, reduce: Reduce | None) -> Tensor:
        """The earlier layers' losses, each matched on its own, summed over the layers."""
        layers = len(slots.objectness) // len(weight)
        again = Targets(*(t.repeat_interleave(layers, dim=0) for t in (targets.classes, targets.bins, targets.times)))
        # Normalisers are sums over samples, of which there are now `layers` times as many.
        return layers * self(slots, again, weight.repeat_interleave(layers), reduce=reduce).total

    def _offset_loss(self, slots: Slots, targets: Targets, event: Tensor) -> Tensor:
        """(B, K): CE of the bins against the Gaussian around b*, or `scalar_loss` of a number; `event` (B, K)."""
        if slots.scalar:
            given, truth = slots.offsets.float(), targets.times.gather(1, event)
            if self.config.scalar_loss == "exponential":
                return (given.exp() - truth.exp()).square()
            return (given - truth).abs()
        soft = gaussian_targets(targets.bins.gather(1, event), slots.bins, self.config.sigma)  # (B, K, bins)
        offsets = slots.offsets.float()
        if offsets.ndim == 4:  # the distribution of the event's own class
            action = targets.classes.gather(1, event).clamp(min=0)[:, :, None, None]  # (B, K, 1, 1)
            offsets = offsets.gather(2, action.expand(-1, -1, -1, slots.bins)).squeeze(2)  # (B, K, bins)
        return -(soft * torch.log_softmax(offsets, dim=-1)).sum(dim=-1)


def focal_bce(logits: Tensor, target: Tensor, *, gamma: float, alpha: float) -> Tensor:
    """Binary cross-entropy, easy places turned down by (1 - p_true)^gamma, positives weighted alpha : 1 - alpha.

    Same shape as `logits`, float32; `target` holds 0 and 1.
    """
    logits, target = logits.float(), target.float()
    bce = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_wrong = torch.sigmoid(torch.where(target > 0.5, -logits, logits))
    return torch.where(target > 0.5, alpha, 1 - alpha) * p_wrong.pow(gamma) * bce
