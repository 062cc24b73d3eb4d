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
    - `offsets`: when. (B, K, bins) logits over equal bins of the horizon; (B, K, C, bins), were it an action of that
      class; or (B, K) numbers in [0, 1], fractions of the horizon.
    - `bins`: B of the paper, how many bins the horizon is cut into, whichever form `offsets` has.
    - `presence` (B, N, C): logits of the actions in the last window, or None without the auxiliary head.
    - `earlier`: what L − 1 earlier layers of the decoder would have answered, (B (L − 1), …) sample by sample, while
      training with a loss on every layer; else None.
    """

    objectness: Tensor
    classes: Tensor
    offsets: Tensor
    bins: int
    presence: Tensor | None = None
    earlier: "Slots | None" = None

    @property
    def scalar(self) -> bool:
        """Whether the time is one number a slot instead of a distribution over bins."""
        return self.offsets.ndim == 2

    def bin(self) -> Tensor:
        """(B, K) or (B, K, C) int64: b_k, the likeliest bin, or the bin the scalar falls into."""
        if self.scalar:
            return (self.offsets * self.bins).long().clamp(0, self.bins - 1)
        return self.offsets.argmax(dim=-1)

    def position(self, run: int = 1) -> Tensor:
        """(B, K) or (B, K, C) float32: when, as a fraction of the horizon: the scalar, or the middle of the likeliest
        `run` of bins.

        `run` 1 is the paper's (b_k + 0.5) / bins. A longer run reads a broad hump better than its highest bin does.
        """
        if self.scalar:
            return self.offsets.float()
        if run == 1:
            return (self.bin().float() + 0.5) / self.bins
        run = min(run, self.bins)
        chances = torch.softmax(self.offsets.float(), dim=-1)
        mass = functional.avg_pool1d(chances.flatten(0, -2), run, stride=1).unflatten(0, chances.shape[:-1])
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
        earlier = None if self.earlier is None else self.earlier.map(change)
        return Slots(change(self.objectness), change(self.classes), change(self.offsets), self.bins, presence, earlier)


_PARTS = ("objectness", "classes", "offsets", "presence", "earlier")


def _flatten(slots: Slots) -> tuple[list[Any], Any]:
    there = [name for name in _PARTS if getattr(slots, name) is not None]
    return [getattr(slots, name) for name in there], (slots.bins, there)


def _unflatten(parts: Any, context: Any) -> Slots:
    bins, there = context
    return Slots(bins=bins, **dict(zip(there, parts, strict=True)))


# So that slots pass through torch.compile, torch.export and tree_map like a tuple of tensors would.
pytree.register_pytree_node(Slots, _flatten, _unflatten, serialized_type_name="ballcast.model.slots.Slots")
