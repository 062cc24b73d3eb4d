"""Post-processing, from slots to predictions: the only place where logits become scores and milliseconds. No torch.

In order: slots as arrays (`SlotArrays`), their probabilities on the scorer's grid (`SlotProbabilities`), the choice of
times for each class (`select_times`), and the predictions that are emitted (`emit`, `emit_flat`). B or n samples,
K slots per sample, C classes; the horizon is the 5 s that are anticipated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.core.events import GRID_BINS, GRID_FPS, Prediction

Floats = NDArray[np.float32]

# What the slots of a network are, and so what `offsets` and `objectness` hold:
# "bins": the time of a slot as a distribution over equal bins of the horizon, logits (B, K, bins).
# "class bins": the same for each class, conditional on it, logits (B, K, C, bins).
# "fraction": the time as one number, a fraction of the horizon (B, K); outside [0, 1] a slot predicts nothing.
# "counts": as "bins", but the slots are the C classes, one each, and the expected number of actions of a class is
#     softplus(objectness) (`model.dense`); p_obj is then the probability of at least one.
SlotForm = Literal["bins", "class bins", "fraction", "counts"]
OFFSET_AXES: dict[SlotForm, int] = {"bins": 3, "class bins": 4, "fraction": 2, "counts": 3}


def slot_form(config: ModelConfig) -> SlotForm:
    """The form of a network's slots."""
    if config.kind == "dense":
        return "counts"
    return offset_form(config.offset)


def offset_form(offset: Literal["bins", "class bins", "scalar", "linear"]) -> SlotForm:
    """The form of slots whose time is computed by the head that the key `model.offset` names."""
    return "fraction" if offset == "scalar" or offset == "linear" else offset


class SlotLike(Protocol):
    """Slots as tensors (`Slots`) or as arrays (`SlotArrays`)."""

    def arrays(self) -> "SlotArrays": ...


@dataclass(frozen=True)
class SlotArrays:
    """K slots per sample, as logits in float32; axes and meaning as in `Slots`.

    - `objectness` (B, K), `classes` (B, K, C). `offsets`: the time, by the `form` of the slots. `bins`: of the horizon.
    """

    objectness: Floats
    classes: Floats
    offsets: Floats
    bins: int
    form: SlotForm = "bins"

    def __post_init__(self) -> None:
        if self.offsets.ndim != OFFSET_AXES[self.form]:
            raise ValueError(f"offsets of slots of the form {self.form!r} cannot have the shape {self.offsets.shape}")

    def __len__(self) -> int:
        return len(self.objectness)

    def __getitem__(self, chosen: slice) -> "SlotArrays":
        """Some of the samples."""
        return replace(
            self, objectness=self.objectness[chosen], classes=self.classes[chosen], offsets=self.offsets[chosen]
        )

    @classmethod
    def join(cls, parts: "Sequence[SlotArrays]") -> "SlotArrays":
        """Concatenate the samples of all parts."""
        objectness, classes, offsets = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("objectness", "classes", "offsets")
        )
        return cls(objectness, classes, offsets, parts[0].bins, parts[0].form)

    def arrays(self) -> "SlotArrays":
        return self

    def position(self, run: int = 1) -> Floats:
        """(B, K) or, of "class bins", (B, K, C): the time as a fraction of the horizon; of bins the middle of the
        most likely.

        `run`: bins to read together. 1 is the paper's (b_k + 0.5) / bins; a longer run locates a broad mode better.
        """
        if self.form == "fraction":
            return self.offsets
        if run == 1:
            return (self.offsets.argmax(-1).astype(np.float32) + np.float32(0.5)) / np.float32(self.bins)
        run = min(run, self.bins)
        mass = np.lib.stride_tricks.sliding_window_view(softmax(self.offsets), run, axis=-1).mean(-1)
        return (mass.argmax(-1).astype(np.float32) + np.float32(run / 2)) / np.float32(self.bins)

    def within(self) -> NDArray[np.bool_]:
        """(B, K) bool: whether the slot's time lies in the horizon; only a "fraction" can lie outside."""
        if self.form != "fraction":
            return np.ones(self.objectness.shape, np.bool_)
        return (self.offsets >= 0) & (self.offsets <= 1)

    def p_obj(self) -> Floats:
        """(B, K): the probability that the slot holds an action."""
        return sigmoid(self.objectness)

    def scores(self) -> Floats:
        """(B, K, C): p_obj · p_cls, the probability that the slot is an action of each class."""
        return self.p_obj()[..., None] * softmax(self.classes)

    def undo_pos_weight(self, pos_weight: float) -> "SlotArrays":
        """Undo the inflation of the objectness by a loss with weight w = `pos_weight`: p → p / (p + w(1 − p)).

        On the logit this is a shift by −log w, exact also where p is nearly 0 or 1.
        """
        return replace(self, objectness=self.objectness - np.float32(log(pos_weight)))


def sigmoid(logits: Floats) -> Floats:
    """Elementwise, in float32."""
    return 1 / (1 + np.exp(-logits.clip(-80, 80)))  # beyond ±80 float32 gives the same values, but overflows


def softplus(logits: Floats) -> Floats:
    """log(1 + eˣ), elementwise, in float32."""
    return np.logaddexp(logits, np.float32(0))


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


CHUNK = 2048  # samples at a time: the product over slots, classes and bins is large
BIN_MS = round(1000 / GRID_FPS)  # of the scorer's 32 bins


@dataclass(frozen=True)
class SlotProbabilities:
    """Slots of n samples with the time as a distribution over the scorer's bins.

    - `objectness` (n, K): logits of p_obj, as the network outputs them.
    - `classes` (n, K, C): p_cls.
    - `times` (n, K, 1, 32): the probability of each bin; (n, K, C, 32) where every class has its own time.
    - `counts`: whether the form of the slots is "counts".
    """

    objectness: Floats
    classes: Floats
    times: Floats
    counts: bool = False

    def __len__(self) -> int:
        return len(self.objectness)

    def __getitem__(self, chosen: slice | NDArray[np.bool_]) -> "SlotProbabilities":
        """Some of the samples, by slice or mask (n,)."""
        return SlotProbabilities(self.objectness[chosen], self.classes[chosen], self.times[chosen], self.counts)

    @classmethod
    def from_slots(cls, slots: SlotLike) -> "SlotProbabilities":
        """Softmax of the logits, and times on the scorer's grid."""
        given = slots.arrays()
        if given.form == "fraction":
            at = (given.offsets * HORIZON_MS / BIN_MS).astype(np.int64).clip(0, GRID_BINS - 1)  # (n, K)
            times = np.eye(GRID_BINS, dtype=np.float32)[at] * given.within()[..., None]
        else:
            times = softmax(given.offsets) @ _overlap(given.bins)
        times = times if given.form == "class bins" else times[:, :, None]
        return cls(given.objectness, softmax(given.classes), times, given.form == "counts")

    @classmethod
    def join(cls, parts: "Sequence[SlotProbabilities]") -> "SlotProbabilities":
        """Concatenate the samples of all parts."""
        objectness, classes, times = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("objectness", "classes", "times")
        )
        return cls(objectness, classes, times, parts[0].counts)

    def intensity(self, inflation: Sequence[float]) -> Floats:
        """(C, n, 32): the expected number of actions of each class in each bin.

        `inflation` (C,): factor by which the odds p_obj : (1 − p_obj) are too high, for each class.
        """
        result = np.empty((self.classes.shape[-1], len(self), GRID_BINS), np.float32)
        excess = np.log(np.asarray(inflation, np.float32))
        for begin in range(0, len(self), CHUNK):
            part = slice(begin, begin + CHUNK)
            odds = self.objectness[part, :, None] - excess  # (n, K, C) logits
            if self.counts:
                probability = self.classes[part] * softplus(odds)  # (n, K, C) expected numbers
            else:
                probability = self.classes[part] / (1 + np.exp(-odds.clip(-60, 60)))  # (n, K, C)
            if self.times.shape[2] == 1:
                expected = np.matmul(probability.transpose(0, 2, 1), self.times[part, :, 0])  # (n, C, 32)
            else:
                expected = np.einsum("nkc,nkcb->ncb", probability, self.times[part])
            result[:, part] = expected.transpose(1, 0, 2)
        return result


def mean_intensity(outputs: Sequence[SlotProbabilities], inflation: Sequence[float]) -> Floats:
    """(C, n, 32): the mean of several models' intensities for the same samples."""
    total = outputs[0].intensity(inflation)
    for other in outputs[1:]:
        total += other.intensity(inflation)
    return total / np.float32(len(outputs))


def _overlap(bins: int) -> Floats:
    """(bins, 32): the share of each of a model's bins that lies in each of the scorer's, the last of which is short."""
    edges = np.arange(bins + 1) * HORIZON_MS / bins
    grid = np.append(np.arange(GRID_BINS) * BIN_MS, HORIZON_MS)
    common = np.minimum(edges[1:, None], grid[None, 1:]) - np.maximum(edges[:-1, None], grid[None, :-1])
    return (common.clip(0) * bins / HORIZON_MS).astype(np.float32)


PEAKS = 8  # times per class; more cost no score, since each scores below the last, and gain almost nothing
# The middle of each of the scorer's bins.
POSITIONS_MS = OBSERVED_MS + np.minimum(np.arange(GRID_BINS) * BIN_MS + BIN_MS // 2, HORIZON_MS - 20)


def select_times(intensity: Floats, reach_ms: Sequence[int], count: int) -> Floats:
    """Select times for each class greedily, each in a different bin.

    The best time is where the most actions are expected, an action at distance d counting exp(−d²/2 reach²), since it
    is near enough for some of the scorer's tolerances only. Of the m actions expected there, one can be matched to the
    time, with probability 1 − exp(−m), which is its score. Its share is subtracted before the next time is selected.

    Args:
        intensity: (C, n, 32) expected actions, as in `SlotProbabilities.intensity`.
        reach_ms: (C,) for each class.
        count: times to select per class.

    Returns:
        Scores (n, 32, C), 0 in bins that are not selected.
    """
    classes, samples, bins = intensity.shape
    distance_ms = np.abs(np.arange(bins)[:, None] - np.arange(bins)) * BIN_MS
    kernel = np.exp(-0.5 * (distance_ms / np.array(reach_ms)[:, None, None]) ** 2).astype(np.float32)  # (C, 32, 32)
    left = intensity.copy()
    result = np.zeros((samples, bins, classes), np.float32)
    row = np.arange(samples)
    for c in range(classes):
        for _ in range(count):
            gathered = left[c] @ kernel[c]  # (n, 32)
            gathered[result[:, :, c] > 0] = -1
            best = gathered.argmax(-1)
            mass = gathered[row, best].clip(1e-9)
            score = -np.expm1(-mass)
            result[row, best, c] = score
            left[c] *= 1 - kernel[c][best] * (score / mass)[:, None]
    return result


# The scorer's tolerances as half widths in bins, and what a hit at each is worth: most at the narrowest, where a time
# is chosen for its own sake and not for what the wider ones would take as well.
BOXES = (3, 6, 9, 12, 15, GRID_BINS - 1)
BOX_WEIGHTS = (3, 2, 1, 1, 1, 1)
NEAR = 1e-4  # decides between times that are as good


def select_hits(intensity: Floats, count: int, weights: Sequence[float] = BOX_WEIGHTS) -> Floats:
    """Select times for each class greedily by what the scorer counts, each in a different bin.

    At a tolerance, a time is hit if an action lies within its box; of the m actions expected there that has the
    probability 1 − exp(−m), which the time takes from those selected later. The best time has the highest
    mean of these probabilities over the tolerances, which is its score; of equal times the one nearest to the actions.

    Args:
        intensity: (C, n, 32) expected actions in each bin.
        count: times to select per class.
        weights: of the six tolerances in the mean.

    Returns:
        Scores (n, 32, C), 0 in bins that are not selected.
    """
    classes, samples, bins = intensity.shape
    distance = np.abs(np.arange(bins)[:, None] - np.arange(bins))
    boxes = np.stack([distance <= width for width in BOXES]).astype(np.float32)  # (6, 32, 32)
    near = (NEAR * (1 - distance / bins)).astype(np.float32)
    share = (np.array(weights) / np.sum(weights)).astype(np.float32)[:, None, None]
    result = np.zeros((samples, bins, classes), np.float32)
    row = np.arange(samples)
    for c in range(classes):
        left = np.repeat(intensity[c][None], len(BOXES), 0)  # (6, n, 32)
        for _ in range(count):
            mass = left @ boxes  # (6, n, 32)
            hit = -np.expm1(-mass)
            score = (share * hit).sum(0)
            score[result[:, :, c] > 0] = -1
            best = (score + left[0] @ near).argmax(-1)
            result[row, best, c] = score[row, best]
            taken = hit[:, row, best] / mass[:, row, best].clip(1e-9)  # (6, n)
            left *= 1 - boxes[:, best] * taken[..., None]
    return result


def shift(scores: Floats, by: int) -> Floats:
    """Move scores (n, 32) by a number of bins; those that would leave the horizon stay in its first or last bin."""
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
    """Apply the threshold tau, and give times and scores of all slots; for the modes "slot" and "class".

    `config.mode` slot: a slot with p_obj > tau emits its most likely class. class: it emits every class with
    p_obj · p_cls > tau. A slot whose time lies outside the horizon emits nothing. `config.vector` full: the scores are
    p_obj · p_cls of every class; emitted: those of the emitted labels, and 0 elsewhere.

    Args:
        slots: of B samples.
        config: mode, tau (`threshold`), vector and `run`.
        pos_weight: of the loss; the scores become probabilities (`SlotArrays.undo_pos_weight`). tau applies to the
            network's own p_obj, so the same labels are emitted whatever `pos_weight` is.

    Returns:
        Positions (B, K, C) in ms from the clip's start, scores (B, K, C), and keep (B, K, C) bool, the emitted labels.
    """
    given = slots.arrays()
    scores = given.scores()  # (B, K, C)
    if config.mode == "slot":
        top = np.arange(scores.shape[-1]) == given.classes.argmax(-1)[..., None]
        keep = top & (given.p_obj() > config.threshold)[..., None]
    else:
        keep = scores > config.threshold
    keep = keep & given.within()[..., None]
    scores = given.undo_pos_weight(pos_weight).scores()
    if config.vector == "emitted":
        scores = np.where(keep, scores, np.float32(0))
    fraction = given.position(config.run).astype(np.float64)
    fraction = np.broadcast_to(fraction if given.form == "class bins" else fraction[..., None], scores.shape)
    return np.rint(OBSERVED_MS + fraction * HORIZON_MS).astype(np.int64), scores, keep


def emit_flat(
    slots: SlotLike, config: EmitConfig, *, pos_weight: float = 1.0
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """The predictions as flat arrays; arguments as in `emit_arrays`.

    A slot that emits anything is one entry; where every class has its own time, one entry per class.

    `config.mode` expected: for each class, `select_times` takes the times where most of the expected actions would be
    matched; an entry is a bin with any score, and its scores are probabilities of a match. `config.inflation`, if set,
    replaces `pos_weight`.

    Returns:
        The sample of each of P entries (P,), its position in ms from the clip's start (P,), class vectors (P, C).
    """
    if config.mode == "expected":
        found = _expected(slots, config, pos_weight)
        b, at = np.nonzero(found.any(-1))
        return b, POSITIONS_MS[at], found[b, at]
    given = slots.arrays()
    position_ms, scores, keep = emit_arrays(given, config, pos_weight=pos_weight)
    if given.form != "class bins":
        b, k = np.nonzero(keep.any(-1))
        return b, position_ms[b, k, 0], scores[b, k]
    b, k, c = np.nonzero(_written(keep, config))
    vectors = np.zeros((len(b), scores.shape[-1]), np.float32)
    vectors[np.arange(len(b)), c] = scores[b, k, c]
    return b, position_ms[b, k, c], vectors


def _expected(slots: SlotLike, config: EmitConfig, pos_weight: float) -> NDArray[np.float32]:
    """(B, 32, C): scores of each class in the scorer's bins, 0 where nothing is predicted."""
    every = len(ACTIONS)
    inflation = config.of_loss(pos_weight).inflation
    return select_times(
        SlotProbabilities.from_slots(slots).intensity([inflation] * every), [config.reach_ms] * every, PEAKS
    )


def _written(keep: NDArray[np.bool_], config: EmitConfig) -> NDArray[np.bool_]:
    """(B, K, C): the classes of each slot to write where each class has its own time."""
    return keep if config.vector == "emitted" else np.broadcast_to(keep.any(-1, keepdims=True), keep.shape)


def emit(slots: SlotLike, config: EmitConfig, *, pos_weight: float = 1.0) -> list[list[Prediction]]:
    """The predictions of each sample in order of time: one for each label that each slot emits; see `emit_arrays`.

    Several may lie in one of the scorer's bins; submissions merge them (`core.events.merge_bins`). Where every class
    has its own time, a prediction's vector holds only the score of its label. `config.mode` expected: one
    prediction per bin with any score, as in `emit_flat`.

    Returns:
        B lists; positions in ms from the clip's start.
    """
    given = slots.arrays()
    predictions: list[list[Prediction]] = [[] for _ in range(len(given.objectness))]
    if config.mode == "expected":
        for b, position, vector in zip(*emit_flat(given, config, pos_weight=pos_weight), strict=True):
            predictions[b].append(Prediction.from_scores(int(position), vector.tolist()))
        return predictions
    position_ms, scores, keep = emit_arrays(given, config, pos_weight=pos_weight)
    own_times = given.form == "class bins"
    for b, k, c in np.argwhere(_written(keep, config) if own_times else keep):
        vector = tuple(scores[b, k].tolist())
        if own_times:
            vector = tuple(value if i == c else 0.0 for i, value in enumerate(vector))
        predictions[b].append(Prediction(ACTIONS[c], int(position_ms[b, k, c]), vector[c], vector))
    for emitted in predictions:
        emitted.sort(key=lambda prediction: prediction.position_ms)  # stable: slots in their order at equal times
    return predictions
