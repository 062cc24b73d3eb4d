"""Slots as numpy arrays: what a model answered, off its device; how slots are read, without torch.

A network of torch gives `Slots`, whose `arrays()` is this; an exported one gives it at once. All that turns logits into
chances and times is here and in `emit`, once for both.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Answered(Protocol):
    """Slots in any form."""

    def arrays(self) -> "SlotArrays": ...


@dataclass(frozen=True)
class SlotArrays:
    """K slots a sample, as logits in float32; axes and meaning as in `Slots`.

    - `objectness` (B, K), `classes` (B, K, C).
    - `offsets` (B, K, bins), (B, K, C, bins), or (B, K) fractions of the horizon; `bins` as in `Slots`.
    """

    objectness: Floats
    classes: Floats
    offsets: Floats
    bins: int

    def arrays(self) -> "SlotArrays":
        return self

    def first(self, count: int) -> "SlotArrays":
        """The first so many samples."""
        return SlotArrays(self.objectness[:count], self.classes[:count], self.offsets[:count], self.bins)

    @property
    def scalar(self) -> bool:
        """Whether the time is one number a slot instead of a distribution over bins."""
        return self.offsets.ndim == 2

    def position(self, run: int = 1) -> Floats:
        """(B, K) or (B, K, C): when, as a fraction of the horizon: the scalar, or the middle of the likeliest `run`
        of bins.

        `run` 1 is the paper's (b_k + 0.5) / bins. A longer run reads a broad hump better than its highest bin does.
        """
        if self.scalar:
            return self.offsets
        if run == 1:
            return (self.offsets.argmax(-1).astype(np.float32) + np.float32(0.5)) / np.float32(self.bins)
        run = min(run, self.bins)
        mass = np.lib.stride_tricks.sliding_window_view(softmax(self.offsets), run, axis=-1).mean(-1)
        return (mass.argmax(-1).astype(np.float32) + np.float32(run / 2)) / np.float32(self.bins)

    def within(self) -> NDArray[np.bool_]:
        """(B, K): whether the slot's time lies in the horizon; only one that is a number may not."""
        if not self.scalar:
            return np.ones(self.objectness.shape, np.bool_)
        return (self.offsets >= 0) & (self.offsets <= 1)

    def chance(self) -> Floats:
        """(B, K): p_obj, that the slot holds an action at all."""
        return sigmoid(self.objectness)

    def scores(self) -> Floats:
        """(B, K, C): p_obj · p_cls, the chance that the slot is an action of this class."""
        return self.chance()[..., None] * softmax(self.classes)

    def honest(self, pos_weight: float) -> "SlotArrays":
        """The same slots with the objectness a loss of this `pos_weight` inflated put right: p → p / (p + w(1 − p)).

        On the logit that is a shift by log w, exact also where p is nearly 0 or 1.
        """
        return replace(self, objectness=self.objectness - np.float32(log(pos_weight)))


def sigmoid(logits: Floats) -> Floats:
    return 1 / (1 + np.exp(-logits.clip(-80, 80)))  # beyond that a float32 knows no difference, but overflows


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
