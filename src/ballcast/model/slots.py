"""What every model answers with: K slots, each perhaps an action of the next 5 seconds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree


@dataclass
class Slots:
    """K slots a sample, as logits. B samples, C classes, N clips of the last window.

    - `objectness` (B, K): logit of p_obj, that the slot holds an action at all.
    - `classes` (B, K, C): logits of p_cls, a softmax over the actions.
    - `offsets`: when. (B, K, bins) logits over equal bins of the horizon, or (B, K) numbers in [0, 1], fractions of it.
    - `bins`: B of the paper, how many bins the horizon is cut into, whichever form `offsets` has.
    - `presence` (B, N, C): logits of the actions in the last window, or None without the auxiliary head.
    """

    objectness: Tensor
    classes: Tensor
    offsets: Tensor
    bins: int
    presence: Tensor | None = None

    @property
    def scalar(self) -> bool:
        """Whether the time is one number a slot instead of a distribution over bins."""
        return self.offsets.ndim == 2

    def bin(self) -> Tensor:
        """(B, K) int64: b_k, the likeliest bin, or the bin the scalar falls into."""
        if self.scalar:
            return (self.offsets * self.bins).long().clamp(0, self.bins - 1)
        return self.offsets.argmax(dim=-1)

    def position(self, run: int = 1) -> Tensor:
        """(B, K) float32: when, as a fraction of the horizon; the scalar, or the middle of the likeliest `run` of bins.

        `run` 1 is the paper's (b_k + 0.5) / bins. A longer run reads a broad hump better than its highest bin does.
        """
        if self.scalar:
            return self.offsets.float()
        if run == 1:
            return (self.bin().float() + 0.5) / self.bins
        run = min(run, self.bins)
        mass = functional.avg_pool1d(torch.softmax(self.offsets.float(), dim=-1), run, stride=1)
        return (mass.argmax(dim=-1).float() + run / 2) / self.bins

    def scores(self) -> Tensor:
        """(B, K, C) float32: p_obj · p_cls, the chance that the slot is an action of this class."""
        return torch.sigmoid(self.objectness.float()).unsqueeze(-1) * torch.softmax(self.classes.float(), dim=-1)

    def honest(self, pos_weight: float) -> "Slots":
        """The same slots with the objectness a loss of this `pos_weight` inflated put right: p → p / (p + w(1 − p)).

        On the logit that is a shift by log w, exact also where p is nearly 0 or 1.
        """
        return replace(self, objectness=self.objectness.float() - log(pos_weight))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Slots":
        """The same slots with `change` applied to every tensor: `slots.map(lambda x: torch.cat([x, x]))`."""
        presence = None if self.presence is None else change(self.presence)
        return Slots(change(self.objectness), change(self.classes), change(self.offsets), self.bins, presence)


def _flatten(slots: Slots) -> tuple[list[Any], int]:
    tensors = [slots.objectness, slots.classes, slots.offsets]
    return (tensors if slots.presence is None else [*tensors, slots.presence]), slots.bins


def _unflatten(tensors: Any, bins: Any) -> Slots:
    objectness, classes, offsets, *presence = tensors
    return Slots(objectness, classes, offsets, bins, *presence)


# So that slots pass through torch.compile, torch.export and tree_map like a tuple of tensors would.
pytree.register_pytree_node(Slots, _flatten, _unflatten, serialized_type_name="ballcast.model.slots.Slots")
