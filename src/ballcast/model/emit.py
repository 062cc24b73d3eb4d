"""Emission: slots become predictions, the only place where logits turn into milliseconds and scores. numpy only."""

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, OBSERVED_MS
from ballcast.core.clips import Prediction
from ballcast.core.recipe import EmitConfig
from ballcast.model.chances import Chances
from ballcast.model.peaks import PEAKS, POSITIONS_MS, find_peaks
from ballcast.model.slot_arrays import Answered


def emit_arrays(
    slots: Answered, config: EmitConfig, *, pos_weight: float = 1.0
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
    scores = given.honest(pos_weight).scores()
    if config.vector == "emitted":
        scores = np.where(keep, scores, np.float32(0))
    fraction = given.position(config.run).astype(np.float64)
    fraction = np.broadcast_to(fraction if fraction.ndim == 3 else fraction[..., None], scores.shape)
    return np.rint(OBSERVED_MS + fraction * HORIZON_MS).astype(np.int64), scores, keep


def emit_flat(
    slots: Answered, config: EmitConfig, *, pos_weight: float = 1.0
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


def _expected(slots: Answered, config: EmitConfig, pos_weight: float) -> NDArray[np.float32]:
    """(B, 32, C): the scores of each class's times in the scorer's bins, 0 where nothing is said."""
    every, inflation = len(ACTIONS), config.inflation or pos_weight
    return find_peaks(Chances.of(slots).intensity([inflation] * every), [config.reach_ms] * every, PEAKS)


def _told(keep: NDArray[np.bool_], config: EmitConfig) -> NDArray[np.bool_]:
    """(B, K, C) which classes of which slots are written where each class has its own time."""
    return keep if config.vector == "emitted" else np.broadcast_to(keep.any(-1, keepdims=True), keep.shape)


def emit(slots: Answered, config: EmitConfig, *, pos_weight: float = 1.0) -> list[list[Prediction]]:
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
