"""The slots every model predicts, and the heads that compute them: objectness, class and time (equations 2 to 4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ballcast.core.anticipator_config import ModelConfig
from ballcast.model.postprocess import SlotArrays, SlotForm, offset_form


@dataclass
class Slots:
    """K slots per sample, as logits. B samples, C classes, N snippets of the last window.

    - `objectness` (B, K): logits of p_obj, the probability that the slot holds an action.
    - `classes` (B, K, C): logits of p_cls, a softmax over the actions.
    - `offsets`: the time, by `form`: logits (B, K, bins) or (B, K, C, bins), or fractions of the horizon (B, K).
    - `bins`: B of the paper, the number of bins of the horizon, whichever form `offsets` has.
    - `presence` (B, N, C): logits of the actions in the last window; (B, N, C + 1) of a segmentation, background last;
      None without the auxiliary head.
    - `earlier`: the slots of the L − 1 earlier decoder layers, (B (L − 1), …) sample by sample, in training with a
      loss on every layer; else None.
    - `form`: what the slots are, see `SlotForm`.
    """

    objectness: Tensor
    classes: Tensor
    offsets: Tensor
    bins: int
    presence: Tensor | None = None
    earlier: "Slots | None" = None
    form: SlotForm = "bins"

    def bin(self) -> Tensor:
        """(B, K) or, of "class bins", (B, K, C) int64: b_k, the most likely bin, or the bin a fraction falls into."""
        if self.form == "fraction":
            return (self.offsets * self.bins).long().clamp(0, self.bins - 1)
        return self.offsets.argmax(dim=-1)

    def arrays(self) -> SlotArrays:
        """Copy to float32 numpy arrays, for post-processing; without `presence` and `earlier`."""
        objectness, classes, offsets = (
            part.detach().float().cpu().numpy() for part in (self.objectness, self.classes, self.offsets)
        )
        return SlotArrays(objectness, classes, offsets, self.bins, self.form)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Slots":
        """The same slots with `change` applied to every tensor: `slots.map(lambda x: torch.cat([x, x]))`."""
        presence = None if self.presence is None else change(self.presence)
        earlier = None if self.earlier is None else self.earlier.map(change)
        parts = change(self.objectness), change(self.classes), change(self.offsets)
        return Slots(*parts, self.bins, presence, earlier, self.form)


_PARTS = ("objectness", "classes", "offsets", "presence", "earlier")


def _flatten(slots: Slots) -> tuple[list[Any], Any]:
    names = [name for name in _PARTS if getattr(slots, name) is not None]
    return [getattr(slots, name) for name in names], (slots.bins, names, slots.form)


def _unflatten(parts: Any, context: Any) -> Slots:
    bins, names, form = context
    return Slots(bins=bins, form=form, **dict(zip(names, parts, strict=True)))


# Makes torch.compile, torch.export and tree_map treat slots as a tuple of tensors.
pytree.register_pytree_node(Slots, _flatten, _unflatten, serialized_type_name="ballcast.model.slots.Slots")


class Heads(nn.Module):
    """Three independent linear heads: z (B, K, d) → `Slots`.

    Equation 2: p_obj = sigmoid(w_obj · z). Equation 3: p_cls = softmax(W_cls z). Equation 4: p_off = softmax(W_off z).
    `Slots` holds the logits.

    Args:
        dim, classes, bins: d, C and the number of bins.
        offset: the time as logits over the bins ("bins"); the same for each class ("class bins"); or one number, the
            sigmoid of its head ("scalar") or the head itself in units of a bin ("linear"), which may leave the horizon.
        joint: the ablation with one softmax over C classes and background. The background logit g and class logits l
            give the objectness logit logsumexp(l) - g. Then sigmoid(objectness) = 1 - p_background and p_obj · p_cls
            is the joint softmax, so matching, loss and post-processing need no other case: BCE of the objectness with
            pos_weight 1, plus CE of the class of matched slots, is exactly the cross-entropy of the C + 1 softmax.
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

    @classmethod
    def from_config(cls, config: ModelConfig, dim: int, *, joint: bool = False) -> "Heads":
        """Build the heads of a model with tokens of width `dim`."""
        return cls(dim=dim, classes=config.classes, bins=config.bins, offset=config.offset, joint=joint)

    def forward(self, z: Tensor, presence: Tensor | None = None) -> Slots:
        """z (B, K, d) → `Slots`; `presence` (B, N, C) is passed through."""
        # In full precision even under autocast: in bf16 different bins and scores would round to equal logits.
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.classes.weight.dtype)
            classes = self.classes(z)  # (B, K, C), equation 3
            objectness = self.objectness(z).squeeze(-1)  # (B, K), equation 2
            if self.joint:
                objectness = classes.logsumexp(dim=-1) - objectness
            offsets = self.offset(z)  # (B, K, bins), equation 4
            if self.kind == "scalar":
                offsets = torch.sigmoid(offsets.squeeze(-1))
            elif self.kind == "linear":
                offsets = offsets.squeeze(-1) / self.bins
            elif self.kind == "class bins":
                offsets = offsets.unflatten(-1, (-1, self.bins))  # (B, K, C, bins)
        return Slots(objectness, classes, offsets, self.bins, presence, form=offset_form(self.kind))
