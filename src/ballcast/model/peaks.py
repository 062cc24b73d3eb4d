"""From expected actions to times: for each class the places where most of what is expected of it would be matched."""

from collections.abc import Sequence

import numpy as np

from ballcast.core.actions import HORIZON_MS, OBSERVED_MS
from ballcast.core.grid import GRID_BINS
from ballcast.model.chances import BIN_MS, Floats

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
