"""The loss: objectness of every slot, class and time of the matched ones, and the actions of the last window."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.recipe import LossConfig, ModelConfig
from ballcast.loss.matcher import assign, assign_in_order, matching_cost
from ballcast.loss.targets import Targets, gaussian_targets
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

    def __init__(self, *, config: LossConfig, model: ModelConfig, class_weights: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.slots = model.slots
        if class_weights is None:
            class_weights = torch.ones(model.classes)
        self.register_buffer("class_weights", class_weights.float())
        self.register_buffer("pos_weight", torch.tensor(config.pos_weight))

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

        Objectness is averaged over a sample's slots, auxiliary over its clips and classes, class and time over all
        pairs. `reduce` maps the two normalisers, stacked as (2,): the sum of the weights and the weighted number of
        pairs. Averaged over ranks there, the gradients DDP averages are those of the whole batch. `matching` (B, K)
        replaces the one computed here.
        """
        config = self.config
        pair = self.match(slots, targets) if matching is None else matching
        matched = (pair >= 0).float()  # (B, K)
        event = pair.clamp(min=0)
        if weight is None:
            weight = torch.ones_like(matched[:, 0])
        pairs = targets.events.sum(dim=1).clamp(max=self.slots)  # known from the targets, whatever the matching
        normalisers = torch.stack([weight.sum(), (weight * pairs).sum()])
        if reduce is not None:
            normalisers = reduce(normalisers)
        samples, pair_count = normalisers.clamp(min=1e-6).unbind()
        pair_weight = matched * weight.unsqueeze(1) / pair_count  # (B, K)

        logits = slots.objectness.float()
        bce = functional.binary_cross_entropy_with_logits(logits, matched, pos_weight=self.pos_weight, reduction="none")
        objectness = (bce.mean(dim=1) * weight).sum() / samples

        actions = targets.classes.gather(1, event).clamp(min=0)  # (B, K)
        ce = functional.cross_entropy(
            slots.classes.float().transpose(1, 2), actions, reduction="none", label_smoothing=config.label_smoothing
        )
        classes = (ce * pair_weight).sum()
        offset = (self._offset_loss(slots, targets, event) * pair_weight).sum()

        auxiliary = objectness.new_zeros(())
        if slots.presence is not None and targets.presence is not None:
            focal = focal_bce(slots.presence, targets.presence, gamma=config.focal_gamma, alpha=config.focal_alpha)
            auxiliary = (focal.mean(dim=(1, 2)) * weight).sum() / samples

        total = (
            config.objectness * objectness
            + config.classes * classes
            + config.offset * offset
            + config.auxiliary * auxiliary
        )
        if slots.earlier is not None:
            total = total + self._earlier(slots.earlier, targets, weight, reduce)
        return Losses(total, objectness, classes, offset, auxiliary)

    def _earlier(self, slots: Slots, targets: Targets, weight: Tensor, reduce: Reduce | None) -> Tensor:
        """The earlier layers' losses, each matched on its own, summed over the layers."""
        layers = len(slots.objectness) // len(weight)
        again = Targets(*(t.repeat_interleave(layers, dim=0) for t in (targets.classes, targets.bins, targets.times)))
        # Normalisers are sums over samples, of which there are now `layers` times as many.
        return layers * self(slots, again, weight.repeat_interleave(layers), reduce=reduce).total

    def _offset_loss(self, slots: Slots, targets: Targets, event: Tensor) -> Tensor:
        """(B, K): CE of the bins against the Gaussian around b*, or |t - t*| for a scalar; `event` (B, K) indices."""
        if slots.scalar:
            return (slots.offsets.float() - targets.times.gather(1, event)).abs()
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
