"""Post-processing: slots become predictions; only here do logits turn into milliseconds and scores. numpy only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.events import GRID_BINS, GRID_FPS, Prediction

Floats = NDArray[np.float32]


class SlotLike(Protocol):
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

    def undo_pos_weight(self, pos_weight: float) -> "SlotArrays":
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


CHUNK = 2048  # samples at a time: the product over slots, classes and bins is large
BIN_MS = round(1000 / GRID_FPS)


@dataclass(frozen=True)
class SlotProbabilities:
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

    def __getitem__(self, chosen: slice | NDArray[np.bool_]) -> "SlotProbabilities":
        """Some of the samples."""
        return SlotProbabilities(self.objectness[chosen], self.classes[chosen], self.times[chosen])

    @classmethod
    def of(cls, slots: SlotLike) -> "SlotProbabilities":
        given = slots.arrays()
        if given.scalar:
            at = (given.offsets * HORIZON_MS / BIN_MS).astype(np.int64).clip(0, GRID_BINS - 1)  # (n, K)
            times = np.eye(GRID_BINS, dtype=np.float32)[at] * given.within()[..., None]
        else:
            times = softmax(given.offsets) @ _overlap(given.bins)
        return cls(given.objectness, softmax(given.classes), times if times.ndim == 4 else times[:, :, None])

    @classmethod
    def join(cls, parts: "Sequence[SlotProbabilities]") -> "SlotProbabilities":
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


def mean_intensity(outputs: Sequence[SlotProbabilities], inflation: Sequence[float]) -> Floats:
    """(C, n, 32): the mean of several models' intensities for the same samples."""
    total = outputs[0].intensity(inflation)
    for other in outputs[1:]:
        total += other.intensity(inflation)
    return total / np.float32(len(outputs))


def _overlap(bins: int) -> Floats:
    """(bins, 32): which share of each of a model's bins lies in each of the scorer's; the scorer's last is short."""
    own = np.arange(bins + 1) * HORIZON_MS / bins
    grid = np.append(np.arange(GRID_BINS) * BIN_MS, HORIZON_MS)
    common = np.minimum(own[1:, None], grid[None, 1:]) - np.maximum(own[:-1, None], grid[None, :-1])
    return (common.clip(0) * bins / HORIZON_MS).astype(np.float32)


PEAKS = 8  # times a class; more are free, since each scores below the last, and find next to nothing
# A position for each of the scorer's bins: its middle.
POSITIONS_MS = OBSERVED_MS + np.minimum(np.arange(GRID_BINS) * BIN_MS + BIN_MS // 2, HORIZON_MS - 20)


def find_peaks(intensity: Floats, reach_ms: Sequence[int], count: int) -> Floats:
    """Intensity (C, n, 32) → scores (n, 32, C): `count` times for each class, the best first, each in a bin of its own.

    The best time is where most is expected, an action at distance d counting exp(−d²/2 reach²): near enough for some of
    the scorer's tolerances if not for all. Of the m actions it gathers, one can be matched to it, with the chance
    1 − exp(−m), its score. What that one stood for is taken away before the next best time is sought.
    """
    classes, samples, bins = intensity.shape
    apart = np.abs(np.arange(bins)[:, None] - np.arange(bins)) * BIN_MS
    counts = np.exp(-0.5 * (apart / np.array(reach_ms)[:, None, None]) ** 2).astype(np.float32)  # (C, 32, 32)
    left, result = intensity.copy(), np.zeros((samples, bins, classes), np.float32)
    row = np.arange(samples)
    for c in range(classes):
        for _ in range(count):
            gathered = left[c] @ counts[c]  # (n, 32)
            gathered[result[:, :, c] > 0] = -1
            best = gathered.argmax(-1)
            mass = gathered[row, best].clip(1e-9)
            score = -np.expm1(-mass)
            result[row, best, c] = score
            left[c] *= 1 - counts[c][best] * (score / mass)[:, None]
    return result


def shift(scores: Floats, by: int) -> Floats:
    """Scores (n, 32) moved by so many bins; what would leave the horizon stays in its first or last bin."""
    if not by:
        return scores
    target = (np.arange(GRID_BINS) + by).clip(0, GRID_BINS - 1)
    moved = np.zeros_like(scores)
    for b, t in enumerate(target):
        moved[:, t] = np.maximum(moved[:, t], scores[:, b])
    return moved


def emit_arrays(
    slots: SlotLike, config: EmitConfig, *, pos_weight: float = 1.0
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Position (B, K, C) in ms from the clip's start, scores (B, K, C), and which labels are emitted, keep (B, K, C).

    `mode` slot: a slot with p_obj > tau emits its likeliest class. `mode` class: it emits every class with
    p_obj · p_cls > tau. A slot whose time lies outside the horizon emits nothing. `vector` full: the scores are
    p_obj · p_cls of every class; emitted: those of the emitted labels, and 0 elsewhere.

    `pos_weight`, the loss's, makes the scores honest chances (see `SlotArrays.honest`). tau stays a bound on what the
    network says, so the same labels are emitted with and without it.
    """
    given = slots.arrays()
    scores = given.scores()  # (B, K, C)
    if config.mode == "slot":
        likeliest = np.arange(scores.shape[-1]) == given.classes.argmax(-1)[..., None]
        keep = likeliest & (given.chance() > config.threshold)[..., None]
    else:
        keep = scores > config.threshold
    keep = keep & given.within()[..., None]
    scores = given.undo_pos_weight(pos_weight).scores()
    if config.vector == "emitted":
        scores = np.where(keep, scores, np.float32(0))
    fraction = given.position(config.run).astype(np.float64)
    fraction = np.broadcast_to(fraction if fraction.ndim == 3 else fraction[..., None], scores.shape)
    return np.rint(OBSERVED_MS + fraction * HORIZON_MS).astype(np.int64), scores, keep


def emit_flat(
    slots: SlotLike, config: EmitConfig, *, pos_weight: float = 1.0
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """All that is emitted as arrays: of which sample (P,), position in ms (P,), class vector (P, C).

    A slot that emits anything is one entry; where every class has a time of its own, one entry a class.

    `mode` expected: slots are added up to what is expected of each class in each of the scorer's bins, and for each
    class the times are taken where most of that would be matched (`find_peaks`); an entry is a bin of which anything is
    said, and its scores are the chances of a match. Its `inflation`, if it has one, stands in for `pos_weight`.
    """
    if config.mode == "expected":
        found = _expected(slots, config, pos_weight)
        b, at = np.nonzero(found.any(-1))
        return b, POSITIONS_MS[at], found[b, at]
    given = slots.arrays()
    position_ms, scores, keep = emit_arrays(given, config, pos_weight=pos_weight)
    if given.offsets.ndim < 4:
        b, k = np.nonzero(keep.any(-1))
        return b, position_ms[b, k, 0], scores[b, k]
    b, k, c = np.nonzero(_told(keep, config))
    vectors = np.zeros((len(b), scores.shape[-1]), np.float32)
    vectors[np.arange(len(b)), c] = scores[b, k, c]
    return b, position_ms[b, k, c], vectors


def _expected(slots: SlotLike, config: EmitConfig, pos_weight: float) -> NDArray[np.float32]:
    """(B, 32, C): the scores of each class's times in the scorer's bins, 0 where nothing is said."""
    every, inflation = len(ACTIONS), config.inflation or pos_weight
    return find_peaks(SlotProbabilities.of(slots).intensity([inflation] * every), [config.reach_ms] * every, PEAKS)


def _told(keep: NDArray[np.bool_], config: EmitConfig) -> NDArray[np.bool_]:
    """(B, K, C) which classes of which slots are written where each class has its own time."""
    return keep if config.vector == "emitted" else np.broadcast_to(keep.any(-1, keepdims=True), keep.shape)


def emit(slots: SlotLike, config: EmitConfig, *, pos_weight: float = 1.0) -> list[list[Prediction]]:
    """One list of predictions a sample, in order of time: one for each label each slot emits.

    Several may lie in one of the scorer's bins; merging them is the submission's business. `pos_weight` as above.
    Where every class has a time of its own, a prediction's vector holds its own label's score alone. `mode` expected:
    one prediction a bin of which anything is said, as in `emit_flat`.
    """
    given = slots.arrays()
    if config.mode == "expected":
        listed: list[list[Prediction]] = [[] for _ in range(len(given.objectness))]
        for b, at, vector in zip(*emit_flat(given, config, pos_weight=pos_weight), strict=True):
            listed[b].append(Prediction.from_scores(int(at), vector.tolist()))
        return listed
    position_ms, scores, keep = emit_arrays(given, config, pos_weight=pos_weight)
    apart = given.offsets.ndim == 4
    predictions: list[list[Prediction]] = [[] for _ in range(len(position_ms))]
    for b, k, c in np.argwhere(_told(keep, config) if apart else keep):
        told = tuple(scores[b, k].tolist())
        if apart:
            told = tuple(value if i == c else 0.0 for i, value in enumerate(told))
        predictions[b].append(Prediction(ACTIONS[c], int(position_ms[b, k, c]), told[c], told))
    for made in predictions:
        made.sort(key=lambda prediction: prediction.position_ms)  # stable: slots in their order at equal times
    return predictions
