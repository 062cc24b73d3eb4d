"""The loss: objectness of every slot, class and time of matched slots, and the actions of the last window."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import LossConfig, ModelConfig
from ballcast.loss.matcher import Targets, assign, assign_in_order, gaussian_targets, matching_cost, segments, widen
from ballcast.model.slots import Slots

Reduce = Callable[[Tensor, Sequence[float]], Tensor]  # sums of this process, what they are at least → normalisers
TINY = 1e-6  # what weights that are all 0 sum to


class Losses(NamedTuple):
    """Scalars in float32: the unweighted terms, and `total`, their sum weighted by the config."""

    total: Tensor
    objectness: Tensor
    classes: Tensor
    offset: Tensor
    auxiliary: Tensor


class Criterion(nn.Module):
    """`Slots` and `Targets` → `Losses`. Fixed shapes, no synchronisation with the host, float32 throughout.

    Args:
        config: the weights and variants of the terms.
        model: the model's config, for K and C.
        class_weights: (C,) w_c of the matching (`matcher.class_weights`); None: 1 for every class.
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
        """Match slots with events: (B, K) int64, the event of each slot, or -1."""
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
        """Compute the loss of a batch; all terms are weighted means over its samples.

        A sample's objectness is averaged over its slots, its class and time over what `config.pair_norm` names; the
        class term is also weighted by `config.ce_weights`. `config.average` says what the batch is the mean of.

        Args:
            slots, targets: of B samples.
            weight: (B,) weight of each sample (MixUp); None: all 1.
            reduce: maps the sums by which the terms are divided, (n,), and the n numbers that they are at least in the
                whole batch, to their means over the processes of a run; None: there is one (`at_least`). They make
                DDP's mean gradient that of the whole batch.
            matching: (B, K) as `match` returns it; None: computed here.
        """
        config = self.config
        if slots.form == "counts":
            return self._dense(slots, targets, weight, reduce)
        pair = self.match(slots, targets) if matching is None else matching
        matched = (pair >= 0).float()  # (B, K)
        event = pair.clamp(min=0)
        if weight is None:
            weight = torch.ones_like(matched[:, 0])
        actions = targets.classes.gather(1, event).clamp(min=0)  # (B, K)
        of_class = matched * self.ce_weights[actions]  # (B, K)

        logits = slots.objectness.float()
        bce = functional.binary_cross_entropy_with_logits(logits, matched, pos_weight=self.pos_weight, reduction="none")
        ce = functional.cross_entropy(
            slots.classes.float().transpose(1, 2), actions, reduction="none", label_smoothing=config.label_smoothing
        )
        classes = (ce * of_class).sum(dim=1)
        offset = (self._offset_loss(slots, targets, event) * matched).sum(dim=1)
        auxiliary, cells, fewest = self._auxiliary(slots, targets)
        pairs = matched.sum(dim=1)
        weighted_pairs = of_class.sum(dim=1)
        ones = torch.ones_like(weight)
        if config.pair_norm != "pairs":
            pairs = weighted_pairs = ones * (self.slots if config.pair_norm == "slots" else 1)
        terms = [(bce.mean(dim=1), ones, TINY), (classes, weighted_pairs, TINY), (offset, pairs, TINY)]
        objectness, classes, offset, auxiliary = self._mean([*terms, (auxiliary, cells, fewest)], weight, reduce)
        total = (
            config.objectness * objectness
            + config.classes * classes
            + config.offset * offset
            + config.auxiliary * auxiliary
        )
        if slots.earlier is not None:
            total = total + self._earlier(slots.earlier, targets, weight, reduce)
        return Losses(total, objectness, classes, offset, auxiliary)

    def spotting(self, logits: Tensor, target: Tensor, weight: Tensor, *, reduce: Reduce | None = None) -> Tensor:
        """The auxiliary loss of a further label set, a scalar: the focal loss, divided by its positives.

        Args:
            logits, target: (B, N, C), the targets in [0, 1].
            weight: (B,) weight of each sample.
            reduce: see `forward`.
        """
        focal = soft_focal_bce(logits, target, gamma=self.config.focal_gamma, alpha=self.config.focal_alpha)
        return self._mean([(focal.sum(dim=(1, 2)), target.sum(dim=(1, 2)), 1.0)], weight, reduce)[0]

    def _mean(
        self, terms: Sequence[tuple[Tensor, Tensor, float]], weight: Tensor, reduce: Reduce | None
    ) -> tuple[Tensor, ...]:
        """The terms of a batch, scalars, as `config.average` says.

        Args:
            terms: for each its sum over a sample (B,), the number it is divided by (B,), and the least of that.
            weight: (B,) weight of each sample.
            reduce: see `forward`.
        """
        sums = torch.stack([of_sample for of_sample, _, _ in terms])  # (n, B)
        counts = torch.stack([count for _, count, _ in terms])
        least = [fewest for _, _, fewest in terms]
        if self.config.average == "samples":
            sums = sums / at_least(counts, least)
            counts = torch.ones_like(counts)
            least = [TINY] * len(terms)
        return ((sums * weight).sum(dim=1) / (reduce or at_least)((counts * weight).sum(dim=1), least)).unbind()

    def _dense(self, slots: Slots, targets: Targets, weight: Tensor | None, reduce: Reduce | None) -> Losses:
        """Negative log-likelihood of a Poisson process for each class: its count, then the times of its actions.

        With λ_c = softplus(objectness) expected actions and n_c that come: λ_c − n_c log λ_c, summed over the classes,
        is `objectness`; the cross-entropy of each action's bin under its class's distribution is `offset`. Actions are
        weighted by `config.ce_weights`.
        """
        config, there = self.config, targets.events.float()  # (B, M)
        if weight is None:
            weight = torch.ones_like(there[:, 0])
        actions = targets.classes.clamp(min=0)
        number = torch.zeros_like(slots.objectness.float()).scatter_add_(1, actions, there)  # (B, C)
        logits = slots.objectness.float()
        expected = functional.softplus(logits).clamp(min=1e-6)
        of_class = self.ce_weights[:-1]
        count = ((expected - number * expected.log()) * of_class).sum(dim=1)
        soft = gaussian_targets(targets.bins, slots.bins, config.sigma)  # (B, M, bins)
        of_event = slots.offsets.float().gather(1, actions[..., None].expand(-1, -1, slots.bins))
        ce = -(soft * torch.log_softmax(of_event, dim=-1)).sum(dim=-1) * there * of_class[actions]  # (B, M)
        auxiliary, cells, fewest = self._auxiliary(slots, targets)
        ones = torch.ones_like(weight)
        pairs = there.sum(dim=1) if config.pair_norm == "pairs" else ones
        terms = [(count, ones, TINY), (ce.sum(dim=1), pairs, TINY), (auxiliary, cells, fewest)]
        objectness, offset, auxiliary = self._mean(terms, weight, reduce)
        total = config.objectness * objectness + config.offset * offset + config.auxiliary * auxiliary
        return Losses(total, objectness, torch.zeros_like(total), offset, auxiliary)

    def _auxiliary(self, slots: Slots, targets: Targets) -> tuple[Tensor, Tensor, float]:
        """The auxiliary loss summed over each sample (B,), the number it is divided by (B,), and the least of that.

        With C columns it is a binary loss for each action, with C + 1 a segmentation of the snippets.
        """
        config, presence = self.config, targets.presence
        ones = torch.ones(len(slots.objectness), device=slots.objectness.device)
        if slots.presence is None or presence is None:
            return torch.zeros_like(ones), ones, TINY
        if slots.presence.shape[-1] > presence.shape[-1]:
            soft = presence.is_floating_point()
            truth = segments(presence >= 0.5 if soft else presence, 1 if soft else config.auxiliary_beside)  # (B, N)
            ce = functional.cross_entropy(slots.presence.float().transpose(1, 2), truth, reduction="none")
            counts = self.ce_weights[truth]
            return (ce * counts).sum(dim=1), counts.sum(dim=1), TINY
        if presence.is_floating_point():  # shaped already, by `data.samples.game_samples`
            truth = presence
            focal = soft_focal_bce(slots.presence, truth, gamma=config.focal_gamma, alpha=config.focal_alpha)
        else:
            truth = widen(presence, config.auxiliary_beside)  # (B, N, C)
            focal = focal_bce(slots.presence, truth, gamma=config.focal_gamma, alpha=config.focal_alpha)
        if config.auxiliary_norm == "cells":
            return focal.mean(dim=(1, 2)), ones, TINY
        positives = truth if truth.is_floating_point() else (truth > 0).float()
        return focal.sum(dim=(1, 2)), positives.sum(dim=(1, 2)), 1.0

    def _earlier(self, slots: Slots, targets: Targets, weight: Tensor, reduce: Reduce | None) -> Tensor:
        """The losses of the earlier decoder layers, each matched separately, summed over the layers."""
        layers = len(slots.objectness) // len(weight)
        again = Targets(*(t.repeat_interleave(layers, dim=0) for t in (targets.classes, targets.bins, targets.times)))
        # Normalisers are sums over samples, of which there are now `layers` times as many.
        return layers * self(slots, again, weight.repeat_interleave(layers), reduce=reduce).total

    def _offset_loss(self, slots: Slots, targets: Targets, event: Tensor) -> Tensor:
        """(B, K): CE of the bins with Gaussian soft targets, or `scalar_loss` of a fraction; `event` (B, K)."""
        if slots.form == "fraction":
            given = slots.offsets.float()
            truth = targets.times.gather(1, event)
            if self.config.scalar_loss == "exponential":
                return (given.exp() - truth.exp()).square()
            return (given - truth).abs()
        soft = gaussian_targets(targets.bins.gather(1, event), slots.bins, self.config.sigma)  # (B, K, bins)
        offsets = slots.offsets.float()
        if slots.form == "class bins":  # (B, K, C, bins): take the distribution of the event's class
            action = targets.classes.gather(1, event).clamp(min=0)[:, :, None, None]  # (B, K, 1, 1)
            offsets = offsets.gather(2, action.expand(-1, -1, -1, slots.bins)).squeeze(2)  # (B, K, bins)
        return -(soft * torch.log_softmax(offsets, dim=-1)).sum(dim=-1)


def at_least(sums: Tensor, least: Sequence[float]) -> Tensor:
    """Rows of a tensor (n, …), each clamped to its own least value."""
    return torch.stack([row.clamp(min=fewest) for row, fewest in zip(sums.unbind(), least, strict=True)])


def focal_bce(logits: Tensor, target: Tensor, *, gamma: float, alpha: float) -> Tensor:
    """Focal loss: binary cross-entropy times (1 - p_true)^gamma, positives weighted alpha, negatives 1 - alpha.

    Args:
        logits: any shape.
        target: the same shape, 0 or 1.

    Returns:
        The same shape, float32.
    """
    logits, target = logits.float(), target.float()
    bce = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_wrong = torch.sigmoid(torch.where(target > 0.5, -logits, logits))
    return torch.where(target > 0.5, alpha, 1 - alpha) * p_wrong.pow(gamma) * bce


def soft_focal_bce(logits: Tensor, target: Tensor, *, gamma: float, alpha: float) -> Tensor:
    """Focal loss of targets in [0, 1]: the losses of 1 and of 0 in proportion; shapes as in `focal_bce`."""
    there = focal_bce(logits, torch.ones_like(target), gamma=gamma, alpha=alpha)
    absent = focal_bce(logits, torch.zeros_like(target), gamma=gamma, alpha=alpha)
    return target * there + (1 - target) * absent
