"""The three prediction heads on each slot: objectness, class and time (equations 2 to 4)."""

from typing import Literal

import torch
from torch import Tensor, nn

from ballcast.model.slots import Slots


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
