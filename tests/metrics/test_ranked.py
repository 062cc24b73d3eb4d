"""AP by rank: by hand, and the same as the official score of scores that no threshold ties."""

import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Clip, Event, geometric_ranks
from ballcast.metrics.average_precision import score_arrays
from ballcast.metrics.ranked import ranked_ap


def test_ranks_are_dense_at_the_top() -> None:
    assert geometric_ranks(5, 190).tolist() == [1, 2, 3, 4, 5]
    assert geometric_ranks(0, 190).tolist() == []
    many = geometric_ranks(100_000, 190)
    assert many[:5].tolist() == [1, 2, 3, 4, 5]
    assert many[-1] == 100_000
    assert (np.diff(many) <= 1 + 0.08 * many[:-1]).all()


def test_by_hand() -> None:
    """Two passes in two clips; of three predictions the first and third are right: precision 1, 1/2, 2/3."""
    clips = [Clip("a", anticipation=(Event("PASS", 31_000),)), Clip("b", anticipation=(Event("PASS", 33_000),))]
    scores = np.zeros((3, 10), np.float32)
    scores[:, 0] = 0.0030, 0.0020, 0.0010  # all within one of the official thresholds
    clip, position_ms = np.array([0, 0, 1]), np.array([31_000, 31_160, 33_000])
    groups = np.array([[True, True], [True, False], [False, True]])
    found = ranked_ap(clips, clip, position_ms, scores, groups, levels=190)
    assert found[:, 0] == pytest.approx([(6 * 1 + 5 * 2 / 3) / 11, 1, 1])  # recall 1/2 at precision 1, then 2/3
    assert found[:, 1:].max() == 0


def test_the_same_as_the_official_score_where_nothing_ties() -> None:
    rng = np.random.default_rng(0)
    clips = [
        Clip(f"c{i}", anticipation=tuple(Event(ACTIONS[rng.integers(10)], 30_080 + 160 * int(b)) for b in some))
        for i, some in enumerate(rng.choice(31, (12, 3), replace=True))
    ]
    clip = np.repeat(np.arange(12), 4)
    position_ms = 30_080 + 160 * np.concatenate([rng.choice(31, 4, replace=False) for _ in range(12)])
    # Every class has 48 scores; each on a threshold of its own.
    places = np.stack([rng.permutation(48) for _ in range(10)], axis=1)
    scores = (places * 4 / 199 + 0.01).astype(np.float32)
    official = score_arrays(clips, clip, position_ms, scores).ap.mean(0)
    ours = ranked_ap(clips, clip, position_ms, scores, np.ones((1, 12), bool), levels=5000)[0]
    assert official.max() > 0
    assert ours == pytest.approx(official)


def test_of_equals_the_first_clip_comes_first() -> None:
    """Twenty clips of one score each: ten with a pass, then ten without, so that precision is 1 up to full recall."""
    clips = [Clip(f"c{i}", anticipation=(Event("PASS", 31_000),) if i < 10 else ()) for i in range(20)]
    scores = np.zeros((20, 10), np.float32)
    scores[:, 0] = 0.5
    found = ranked_ap(clips, np.arange(20), np.full(20, 31_000), scores, np.ones((1, 20), bool), levels=190)
    assert found[0, 0] == 1
    assert found.shape == (1, 10)
