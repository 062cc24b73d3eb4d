"""Slots as plain arrays of chances on the scorer's grid, and what several of them, or several models, say together.

The intensity of a class in a bin is the number of its actions expected there: the sum over slots of p_obj · p_cls ·
p_bin. Slots of different models do not correspond to each other; their intensities do, so a mean of these is how models
are averaged. numpy only: whoever has the arrays, from an exported model for example, needs no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import HORIZON_MS
from ballcast.core.grid import GRID_BINS, GRID_FPS
from ballcast.model.slot_arrays import Answered, Floats, softmax

CHUNK = 2048  # samples at a time: the product over slots, classes and bins is large
BIN_MS = round(1000 / GRID_FPS)


@dataclass(frozen=True)
class Chances:
    """n samples of K slots, C classes.

    - `objectness` (n, K): logits of p_obj, as the network gives them.
    - `classes` (n, K, C): p_cls.
    - `times` (n, K, 1, 32): the chance of each of the scorer's bins; (n, K, C, 32) where every class has its own.
    """

    objectness: Floats
    classes: Floats
    times: Floats

    def __len__(self) -> int:
        return len(self.objectness)

    def __getitem__(self, chosen: slice | NDArray[np.bool_]) -> "Chances":
        """Some of the samples."""
        return Chances(self.objectness[chosen], self.classes[chosen], self.times[chosen])

    @classmethod
    def of(cls, slots: Answered) -> "Chances":
        given = slots.arrays()
        if given.scalar:
            at = (given.offsets * HORIZON_MS / BIN_MS).astype(np.int64).clip(0, GRID_BINS - 1)  # (n, K)
            times = np.eye(GRID_BINS, dtype=np.float32)[at] * given.within()[..., None]
        else:
            times = softmax(given.offsets) @ _overlap(given.bins)
        return cls(given.objectness, softmax(given.classes), times if times.ndim == 4 else times[:, :, None])

    @classmethod
    def join(cls, parts: "Sequence[Chances]") -> "Chances":
        """The samples of all parts, one after the other."""
        names = ("objectness", "classes", "times")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def intensity(self, inflation: Sequence[float]) -> Floats:
        """(C, n, 32): how many actions of each class are expected in each bin.

        `inflation` (C,): how many times too high the odds p_obj : (1 − p_obj) are, for the sake of each class.
        """
        result = np.empty((self.classes.shape[-1], len(self), GRID_BINS), np.float32)
        excess = np.log(np.asarray(inflation, np.float32))
        for begin in range(0, len(self), CHUNK):
            part = slice(begin, begin + CHUNK)
            odds = self.objectness[part, :, None] - excess  # (n, K, C) logits
            chance = self.classes[part] / (1 + np.exp(-odds.clip(-60, 60)))  # (n, K, C)
            if self.times.shape[2] == 1:
                together = np.matmul(chance.transpose(0, 2, 1), self.times[part, :, 0])  # (n, C, 32)
            else:
                together = np.einsum("nkc,nkcb->ncb", chance, self.times[part])
            result[:, part] = together.transpose(1, 0, 2)
        return result


def mean_intensity(answers: Sequence[Chances], inflation: Sequence[float]) -> Floats:
    """(C, n, 32): the mean of several models' intensities for the same samples."""
    total = answers[0].intensity(inflation)
    for other in answers[1:]:
        total += other.intensity(inflation)
    return total / np.float32(len(answers))


def _overlap(bins: int) -> Floats:
    """(bins, 32): which share of each of a model's bins lies in each of the scorer's; the scorer's last is short."""
    own = np.arange(bins + 1) * HORIZON_MS / bins
    grid = np.append(np.arange(GRID_BINS) * BIN_MS, HORIZON_MS)
    common = np.minimum(own[1:, None], grid[None, 1:]) - np.maximum(own[:-1, None], grid[None, :-1])
    return (common.clip(0) * bins / HORIZON_MS).astype(np.float32)
