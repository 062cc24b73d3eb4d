"""The reference scorer's time grid: the 5 s to come in 32 bins of 160 ms (6.25 a second)."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS, OBSERVED_MS
from ballcast.core.clips import Prediction

GRID_STEP = 4  # frames a bin
GRID_FPS = FPS / GRID_STEP
GRID_BINS = 32

Milliseconds = TypeVar("Milliseconds", int, NDArray[np.int64])


def grid_bin(position_ms: Milliseconds) -> Milliseconds:
    """Bin of a predicted time in whole ms, a number or an array: 30 000 is bin 0, 35 000 still bin 31.

    In whole numbers. The reference never reads a submission file, its predictions start as bins; this gives back the
    bin that a time was written for. Labels have their own rule, `label_bin`.
    """
    return (position_ms - OBSERVED_MS) * FPS // (1000 * GRID_STEP)


def label_bin(position_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bins of labels' times in ms, with the rounding of the reference: `int(int(position) / 1000 * 25 / 4 - 750 / 4)`.

    IEEE doubles, in the reference's order of operations: 34 160, 34 480 and 34 800 ms fall one bin early. Times before
    30 000 get a negative bin, where `int` would give 0: they are no labels to anticipate.
    """
    observed_frames = OBSERVED_MS // 1000 * FPS
    return np.floor(position_ms / 1000 * FPS / GRID_STEP - observed_frames / GRID_STEP).astype(np.int64)


def merge_bins(predictions: Iterable[Prediction]) -> list[Prediction]:
    """One prediction per 160 ms bin, in order of time: the maximum of each class, at the surest one's time.

    The reference scorer keeps only the last of several in a bin.
    """
    bins: dict[int, list[Prediction]] = {}
    for prediction in predictions:
        bins.setdefault(grid_bin(prediction.position_ms), []).append(prediction)
    merged = []
    for _, entries in sorted(bins.items()):
        surest = max(entries, key=lambda p: p.confidence)
        vectors = zip(*(p.vector for p in entries), strict=True)
        merged.append(Prediction.from_scores(surest.position_ms, [max(scores) for scores in vectors]))
    return merged


def merge_arrays(
    clip: NDArray[np.int64], position_ms: NDArray[np.int64], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """`merge_bins` of predictions as arrays, of which clip (P,), when (P,), class vectors (P, C); by clip and time."""
    if not len(clip):
        return clip, position_ms, scores
    key = clip * GRID_BINS + grid_bin(position_ms)
    order = np.lexsort((-scores.max(1), key))  # of a bin, the surest first
    first = np.flatnonzero(np.append(True, np.diff(key[order]) > 0))
    surest = order[first]
    return clip[surest], position_ms[surest], np.maximum.reduceat(scores[order], first)


def geometric_ranks(count: int, levels: int) -> NDArray[np.int64]:
    """At most `levels` ranks of 1 … count, in order: 1, 2, 3, …, then each a few per cent beyond the one before.

    Where the scorer's thresholds are best spent: it looks at the best few predictions and at every tenth of the recall.
    """
    return np.unique(np.round(np.geomspace(1, count, levels)).astype(np.int64)) if count else np.zeros(0, np.int64)
