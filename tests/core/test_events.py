"""Predictions that share a bin, as objects and as arrays."""

import numpy as np
import pytest

from ballcast.core.events import Prediction, grid_bin, merge_arrays, merge_bins


@pytest.mark.parametrize("seed", range(5))
def test_arrays_merge_as_objects_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clip = rng.integers(0, 4, 60)
    position_ms = rng.integers(30_000, 32_000, 60)  # 13 bins: most hold several
    scores = rng.random((60, 10)).astype(np.float32)
    made = merge_arrays(clip, position_ms, scores)
    rows = []
    for c in range(4):
        own = [Prediction.from_scores(int(position_ms[i]), scores[i].tolist()) for i in np.flatnonzero(clip == c)]
        rows += [(c, p.position_ms, p.scores) for p in merge_bins(own)]
    assert [(int(c), int(t), tuple(v.tolist())) for c, t, v in zip(*made, strict=True)] == rows


def test_nothing_merges_to_nothing() -> None:
    clip, position_ms, scores = merge_arrays(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 10), "f4"))
    assert len(clip) == len(position_ms) == len(scores) == 0


def test_the_grid_ends_with_the_horizon() -> None:
    assert [grid_bin(t) for t in (30_000, 30_159, 30_160, 34_959, 34_960, 35_000)] == [0, 0, 1, 30, 31, 31]
