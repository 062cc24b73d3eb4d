"""Which clips are drawn, and what they should say."""

import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.core.pretrain_config import ClipsConfig
from ballcast.data.labels.games import Game
from ballcast.data.samples.snippets import SnippetSampler, frame_targets

NETWORK = BackboneConfig()
GAMES = [
    Game("a", "", (), tuple(Event("PASS", t) for t in range(2000, 38_000, 2000))),
    Game("b", "", (), (Event("SHOT", 10_000),)),
]
FIRST, LENGTH = np.array([0, 1000]), np.array([1000, 500])


def sampler(**how: float) -> SnippetSampler:
    config = ClipsConfig(**{"batch": 16, "run": 3, **how})  # type: ignore[arg-type]
    return SnippetSampler(GAMES, FIRST, LENGTH, network=NETWORK, config=config)


def test_targets_reach_300_ms() -> None:
    table = frame_targets(GAMES, LENGTH, ClipsConfig())
    assert table.shape == (1500, len(ACTIONS))
    assert np.flatnonzero(table[:90, 0]).tolist() == list(range(43, 58))  # 2000 ms is frame 50: 280 ms to either side
    assert table[1000:, 0].sum() == 0
    assert np.flatnonzero(table[:, ACTIONS.index("SHOT")]).tolist() == list(range(1243, 1258))
    soft = frame_targets(GAMES, LENGTH, ClipsConfig(shape="cosine"))[:90, 0]
    assert soft[50] == 1.0
    assert soft[43:50].tolist() == sorted(soft[43:50].tolist())
    assert 0 < soft[43] < 0.05


def test_runs_stay_in_their_game_and_come_back_the_same() -> None:
    drawn = sampler(near=0.5, near_ms=60_000)
    begins = drawn.draw(200, np.random.default_rng(3))
    assert np.array_equal(begins, drawn.draw(200, np.random.default_rng(3)))
    ends = begins + drawn.frame_offsets[-1]
    game = np.searchsorted(FIRST, begins, side="right")
    assert (ends < (FIRST + LENGTH)[game - 1]).all()
    assert begins.min() == 0
    assert ends.max() == 1499


def test_a_run_reads_what_its_clips_need() -> None:
    drawn = sampler()
    assert drawn.frame_offsets.tolist() == list(range(0, 42, 2))  # 7 stacks of 3 for 3 clips of 5
    assert drawn.middles.tolist() == [14, 20, 26]


def test_around_actions_and_rare_classes_more_often() -> None:
    begins = sampler(near=1.0, near_ms=200, balance=0.0).draw(400, np.random.default_rng(0))
    middle = begins + 20
    frames = np.array([t // 40 for t in range(2000, 38_000, 2000)] + [1250])
    assert np.abs(middle[..., None] - frames).min(-1).max() <= 5
    share = (begins >= 1000).mean()
    assert share == pytest.approx(1 / 19, abs=0.02)
    balanced = sampler(near=1.0, balance=1.0).draw(400, np.random.default_rng(0))
    assert (balanced >= 1000).mean() == pytest.approx(0.5, abs=0.03)
    anywhere = sampler(near=0.0).draw(400, np.random.default_rng(0))
    assert (anywhere >= 1000).mean() == pytest.approx(1 / 3, abs=0.03)


def test_what_cannot_be_drawn_from_is_told() -> None:
    with pytest.raises(InputError, match="b: is shorter than a run of"):
        sampler(run=100)
    with pytest.raises(InputError, match="no labelled actions"):
        SnippetSampler([Game("c", "", (), ())], FIRST[:1], LENGTH[:1], network=NETWORK, config=ClipsConfig())


def test_every_run_is_drawn_by_itself() -> None:
    """Neither the steps of an epoch nor the runs of a step repeat each other's draws."""
    for how in ({"near": 0.0}, {"near": 1.0, "near_ms": 2000}, {"near": 0.5}):
        begins = sampler(**how).draw(100, np.random.default_rng(0))
        assert len(np.unique(begins, axis=0)) == 100
        assert len(np.unique(begins, axis=1).T) == 16
    around = sampler(near=1.0, near_ms=0, balance=0.0).draw(400, np.random.default_rng(0))
    assert len(np.unique(around[:, 0])) > 10  # of the 19 actions, in every column
    apart = sampler(near=1.0, near_ms=1000, balance=1.0).draw(400, np.random.default_rng(0)) + 20 - 1250
    own = np.abs(apart) <= 25  # runs around the only action of the second game, its balance a half
    assert len({tuple(apart[step][own[step]]) for step in range(400)}) > 390
    mixed = sampler(near=0.5, near_ms=0, balance=0.0).draw(400, np.random.default_rng(0)) + 20
    exact = np.isin(mixed, [t // 40 for t in range(2000, 38_000, 2000)] + [1250])
    assert len(np.unique(exact, axis=0)) > 300  # which runs are around an action differs between the steps


def test_a_game_of_a_single_run_is_read_from_its_first_frame() -> None:
    span = int(sampler().frame_offsets[-1]) + 1
    first, length = np.array([0, 500]), np.array([span, span])
    config = ClipsConfig(batch=16, run=3, near=0.0)
    games = [Game(name, "", (), (Event("PASS", 0),)) for name in "ab"]
    begins = SnippetSampler(games, first, length, network=NETWORK, config=config).draw(20, np.random.default_rng(0))
    assert set(begins.ravel().tolist()) == {0, 500}
