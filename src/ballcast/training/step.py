"""One step of training: forward, loss, backward, clipping, AdamW, moving average.

`TrainStep` is the step of every kind of training. What differs between them is the forward pass and the loss of a
batch: `anticipation_losses` on stored features, `end_to_end_losses` from frames, `spotting_losses` of a backbone,
`feed_losses` on event feeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from ballcast.core.anticipator_config import Recipe
from ballcast.core.feed_config import FeedRecipe
from ballcast.data.events.event_tokens import hide, tokens_before
from ballcast.data.samples.batches import TrainingBatch
from ballcast.data.samples.feed_samples import FeedBatch, FeedEvents, mirror, targets_after
from ballcast.features.cuda_graph import record
from ballcast.loss.criterion import Criterion, Losses, Reduce, soft_focal_bce
from ballcast.loss.feed_criterion import FeedLosses, distillation, feed_criterion, with_distillation
from ballcast.loss.matcher import Targets
from ballcast.model.event_transformer import EventSlots, EventTransformer
from ballcast.training.augment import Augmentation, apply_augmentation, mix
from ballcast.training.ema import Ema

B = TypeVar("B")


class TrainStep(Generic[B]):
    """A step: called with a batch, it changes the weights and returns the losses (n,).

    Args:
        losses_of: forward pass and loss of a batch: n scalars, of which the first is minimised.
        optimizer: of the weights that learn.
        clip: the largest norm of their gradient.
        ema: the moving average of the weights, updated by every step.
        recorded: record the first step as a CUDA graph and replay it (on one GPU, in one process). The optimizer must
            be built for it (`build_optimizer`), and batches are `batches.Tensors`.
    """

    def __init__(
        self,
        losses_of: Callable[[B], Sequence[Tensor]],
        optimizer: torch.optim.Optimizer,
        *,
        clip: float,
        ema: Ema | None = None,
        recorded: bool = False,
    ) -> None:
        self.losses_of = losses_of
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.clip = clip
        self.ema = ema
        # No reference back to the step: a cycle would keep DDP and its threads beyond the end of a training.
        self._recording: Recording[B] | None = Recording() if recorded else None

    def __call__(self, batch: B) -> Tensor:
        return self.update(batch) if self._recording is None else self._recording.update(self, batch)

    def update(self, batch: B) -> Tensor:
        """The step itself; it never waits for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.losses_of(batch)
        losses[0].backward()
        nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update()
        return torch.stack(tuple(losses)).detach()


# ---------------------------------------------------------------------------------- forward and loss, on features


def anticipation_losses(
    model: nn.Module,
    criterion: Criterion,
    batch: TrainingBatch,
    *,
    half: bool = False,
    reduce: Reduce | None = None,
    matching: Tensor | None = None,
) -> Losses:
    """The losses of B samples, or of 2B that are mixed in pairs: sample b with sample B + b.

    Args:
        model: the anticipator, or DDP around it.
        criterion: its loss.
        batch: of B or 2B samples; `share` and `absent` (B,).
        half: compute in bf16 where that is safe.
        reduce: averages the loss normalisers over the processes of a run (`Criterion.forward`).
        matching: (B or 2B, K) replaces the matching of slots and events.
    """
    features, present, share = batch.features, batch.present, batch.share
    count = len(share)
    mixed = len(features) == 2 * count
    if mixed:
        part = share.view(-1, 1, 1, 1)
        features = part * features[:count] + (1 - part) * features[count:]
        present = present[:count] & present[count:]
    present = present & (torch.arange(present.shape[1], device=present.device) >= batch.absent.unsqueeze(1))
    with torch.autocast(features.device.type, torch.bfloat16, enabled=half):
        slots = model(features, present)
    weight = None
    if mixed:  # the targets of both samples count, each by its share
        slots = slots.map(lambda t: torch.cat([t, t]))
        weight = torch.cat([share, 1 - share])
    targets = Targets.from_ms(batch.classes, batch.position_ms, slots.bins, batch.presence)
    return criterion(slots, targets, weight, reduce=reduce, matching=matching)


# -------------------------------------------------------------------------------------- forward and loss, on frames


@dataclass
class FrameBatch:
    """B samples of a step from frames.

    - `seen` (B, W · F, H, W) uint8, or I420: frames; or (B, W · N, D) float32: features.
    - `classes`, `position_ms` (B, 8): the actions to come.
    - `presence`: for each label set the spotting targets (B, N, C).
    - `source` (B,) int64: the label set of the sample, 0 for the ten actions.
    - `augmentation`: of the frames, and MixUp.
    """

    seen: Tensor
    classes: Tensor
    position_ms: Tensor
    presence: list[Tensor]
    source: Tensor
    augmentation: Augmentation


def end_to_end_losses(
    model: nn.Module,
    criterion: Criterion,
    batch: FrameBatch,
    recipe: Recipe,
    *,
    half: bool = False,
    reduce: Reduce | None = None,
) -> Losses:
    """The losses of B samples, with the spotting losses of further label sets in `auxiliary`.

    Args:
        model: an `EndToEnd`, or DDP around it.
        criterion: the loss of its anticipator.
        batch: of B samples.
        recipe: of the run.
        half: compute in bf16 where that is safe.
        reduce: averages the loss normalisers over the processes of a run (`Criterion.forward`).
    """
    augmentation = batch.augmentation
    if batch.seen.ndim > 3:
        seen = apply_augmentation(batch.seen, augmentation, colour=recipe.encoder.network.colour)
    else:
        seen = mix(batch.seen, augmentation)
    with torch.autocast(seen.device.type, torch.bfloat16, enabled=half):
        slots, logits = model(seen)
    classes, position_ms, source, presence = batch.classes, batch.position_ms, batch.source, batch.presence
    weight = torch.ones_like(augmentation.share)
    if recipe.augment.mixup:  # the targets of both samples count, each by its share
        partner = augmentation.partner
        classes, position_ms, source, *presence = (
            torch.cat([t, t[partner]]) for t in (classes, position_ms, source, *presence)
        )
        slots = slots.map(lambda t: torch.cat([t, t]))
        logits = [torch.cat([t, t]) for t in logits]
        weight = torch.cat([augmentation.share, 1 - augmentation.share])
    targets = Targets.from_ms(classes, position_ms, slots.bins, presence[0])
    losses: Losses = criterion(slots, targets, weight * (source == 0), reduce=reduce)
    for number, (predicted, truth) in enumerate(zip(logits, presence[1:], strict=True), start=1):
        spotting = criterion.spotting(predicted, truth, weight * (source == number), reduce=reduce)
        losses = losses._replace(
            total=losses.total + recipe.loss.auxiliary * spotting, auxiliary=losses.auxiliary + spotting
        )
    return losses


# ---------------------------------------------------------------------------- forward and loss, spotting of snippets


@dataclass
class SnippetBatch:
    """B runs of a pre-training step: frames (B, P, H, W) uint8, targets of their n snippets (B, n, C)."""

    frames: Tensor
    targets: Tensor
    augmentation: Augmentation


def spotting_losses(
    logits_of: Callable[[Tensor], Tensor], batch: SnippetBatch, *, gamma: float, alpha: float, half: bool = False
) -> tuple[Tensor]:
    """The focal loss of B runs.

    Args:
        logits_of: runs (B, P, H, W) in [0, 1] → logits (B, n, C).
        batch: of B runs.
        gamma, alpha: of the focal loss.
        half: compute in bf16 where that is safe.
    """
    frames = apply_augmentation(batch.frames, batch.augmentation)
    targets = mix(batch.targets, batch.augmentation)
    with torch.autocast(frames.device.type, torch.bfloat16, enabled=half):
        logits = logits_of(frames)
    return (spotting_loss(logits, targets, alpha=alpha, gamma=gamma),)


def spotting_loss(logits: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Focal loss of logits against targets in [0, 1], any equal shapes → their mean; between 0 and 1, in proportion."""
    return soft_focal_bce(logits, target, gamma=gamma, alpha=alpha).mean()


# ----------------------------------------------------------------------------------- forward and loss, event feeds


def feed_losses(
    model: nn.Module,
    teachers: Sequence[EventTransformer],
    events: FeedEvents,
    batch: FeedBatch,
    recipe: FeedRecipe,
    *,
    half: bool = False,
) -> FeedLosses:
    """The losses of B samples of event feeds; all is computed on the device.

    Args:
        model: an `EventTransformer`, or DDP around it.
        teachers: see all details that a feed has; none: no distillation.
        events: of the training matches.
        batch: the times of the samples, and what is done with them.
        recipe: of the run.
        half: compute in bf16 where that is safe.
    """
    config = recipe.model

    def forward(network: nn.Module, codes: Tensor, values: Tensor, available: Tensor) -> EventSlots:
        # A CUDA graph must not read weights that autocast has kept from an earlier step.
        with torch.autocast(batch.at.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            return network(codes, values, available.float())

    with torch.no_grad():
        at, period = events.locate(batch.at)
        codes, values = tokens_before(torch, events.table, at, tokens=config.tokens, observed_ms=config.observed_ms)
        targets = targets_after(events, at, config.slots)
        values, targets = mirror(values, targets, batch.mirrored)
        available = events.available[period]
        codes, values = hide(torch, codes, values, available)
        taught = [forward(teacher, codes, values, available) for teacher in teachers]
        shown = available & batch.shown
        codes, values = hide(torch, codes, values, shown)
    slots = forward(model, codes, values, shown)
    losses = feed_criterion(slots, targets, recipe.loss, events.rates)
    if taught:
        losses = with_distillation(losses, distillation(slots, taught), recipe.distil.weight)
    return losses


# ------------------------------------------------------------------------------------------------------ CUDA graph


class Recording(Generic[B]):
    """`TrainStep.update` as a CUDA graph, recorded with the first batch.

    The graph reads and writes the same memory every time: each batch is copied into that of the first.
    """

    def __init__(self) -> None:
        self._batch: B | None = None
        self._replay: Callable[[], None] = lambda: None
        self._losses: Tensor | None = None

    def update(self, step: TrainStep[B], batch: B) -> Tensor:
        """Run `step.update` on the batch by replaying it."""
        if self._batch is None:
            self._batch = self._record(step, batch)
        self._batch.copy_(batch)  # type: ignore[attr-defined]
        self._replay()
        assert self._losses is not None
        return self._losses.clone()

    def _record(self, step: TrainStep[B], batch: B) -> B:
        """Record the step on a copy of the batch, and undo what its warm-up changed."""
        ema = step.ema
        state = step.optimizer.state
        memory: B = batch.clone()  # type: ignore[attr-defined]
        weights = [p.detach().clone() for p in step.parameters]
        average = {k: v.clone() for k, v in ema.state_dict().items()} if ema is not None else {}
        moments = {p: {k: v.clone() for k, v in state[p].items()} for p in state}
        generator = torch.cuda.default_generators[step.parameters[0].device.index or 0]
        drawn = generator.get_state()
        self._replay, self._losses = record(lambda: step.update(memory))
        with torch.no_grad():
            for parameter, weight in zip(step.parameters, weights, strict=True):
                parameter.copy_(weight)
                for key, value in state[parameter].items():
                    value.copy_(moments[parameter][key]) if parameter in moments else value.zero_()
        if ema is not None:
            ema.load_state_dict(average)
        generator.set_state(drawn)
        return memory
