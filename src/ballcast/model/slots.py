"""The slots every model predicts, and the heads that give them: objectness, class and time (equations 2 to 4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ballcast.model.postprocess import SlotArrays


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


class Heads(nn.Module):
    """Slots z (B, K, d) → `Slots`, through three independent linear heads.

    `offset`: the time as logits over `bins`; as logits over them for each class, (B, K, C, bins); or as one number: the
    sigmoid of its head ("scalar"), or the head itself in units of a bin ("linear"), which may leave the horizon.

    `joint`: the ablation with one softmax over C classes and background. Its background logit g and class logits l
    give the objectness logit logsumexp(l) - g. Then sigmoid(objectness) = 1 - p_background, and p_obj · p_cls is the
    joint softmax, so that all that follows (matching, loss, emission) need not know of it: BCE of the objectness with
    pos_weight 1, plus CE of the class where there is one, is exactly the cross-entropy of the C + 1 softmax.
    """

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        bins: int,
        offset: Literal["bins", "class bins", "scalar", "linear"] = "bins",
        joint: bool = False,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.kind = offset
        self.joint = joint
        self.objectness = nn.Linear(dim, 1)  # when joint: the background logit
        self.classes = nn.Linear(dim, classes)
        self.offset = nn.Linear(dim, {"bins": bins, "class bins": classes * bins}.get(offset, 1))

    def forward(self, z: Tensor, presence: Tensor | None = None) -> Slots:
        """`presence` (B, N, C) passes through into the slots."""
        # In full precision even under autocast: bf16 logits would tie bins and scores, and cost nothing to avoid.
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.classes.weight.dtype)
            classes = self.classes(z)
            objectness = self.objectness(z).squeeze(-1)
            if self.joint:
                objectness = classes.logsumexp(dim=-1) - objectness
            offsets = self.offset(z)
            if self.kind == "scalar":
                offsets = torch.sigmoid(offsets.squeeze(-1))
            elif self.kind == "linear":
                offsets = offsets.squeeze(-1) / self.bins
            elif self.kind == "class bins":
                offsets = offsets.unflatten(-1, (-1, self.bins))
        return Slots(objectness, classes, offsets, self.bins, presence)
