"""What every model answers with: K slots, each perhaps an action of the next 5 seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ballcast.model.slot_arrays import SlotArrays


@dataclass
class Slots:
    """K slots a sample, as logits. B samples, C classes, N clips of the last window.

    - `objectness` (B, K): logit of p_obj, that the slot holds an action at all.
    - `classes` (B, K, C): logits of p_cls, a softmax over the actions.
    - `offsets`: when. (B, K, bins) logits over equal bins of the horizon; (B, K, C, bins), were it an action of that
      class; or (B, K) numbers, fractions of the horizon: outside [0, 1] the slot says nothing.
    - `bins`: B of the paper, how many bins the horizon is cut into, whichever form `offsets` has.
    - `presence` (B, N, C): logits of the actions in the last window; (B, N, C + 1) of a segmentation, background last;
      or None without the auxiliary head.
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

    def arrays(self) -> SlotArrays:
        """The same as numpy arrays in float32, for whoever reads what was said; `presence` and `earlier` stay here."""
        objectness, classes, offsets = (
            part.detach().float().cpu().numpy() for part in (self.objectness, self.classes, self.offsets)
        )
        return SlotArrays(objectness, classes, offsets, self.bins)

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
