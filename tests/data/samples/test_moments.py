"""Moments of games: what comes after them, where they are drawn from, and the spotting targets of frames."""

import numpy as np
import pytest

from ballcast.core.anticipator_config import DataConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.data.labels.games import Game
from ballcast.data.samples.moments import MomentSampler, official_moments, spotting_targets

GAME = Game("a", "train", (), (Event("PASS", 9000), Event("SHOT", 11_000), Event("OUT", 16_999)))


def test_the_actions_of_a_moment_are_those_of_the_next_five_seconds() -> None:
    """By hand: at frame 250 (10 s) the shot is 1 s away and the out 6.999 s; at frame 300 (12 s) the out is 4.999 s."""
    sampler = MomentSampler([GAME], np.array([0]), np.array([1000]), windows=1, config=DataConfig(boost={}))
    at = sampler._label(np.array([250, 300, 225]), np.zeros(3, np.int64))
    assert at.classes[:, 0].tolist() == [6, 7, 0]  # shot, out, pass (at exactly 9 s, the moment itself)
    assert at.position_ms[:, 0].tolist() == [31_000, 34_999, 30_000]
    assert (at.classes[:2, 1:] == -1).all()
    assert at.classes[2, 1] == 6


def test_moments_are_drawn_from_every_part_and_have_their_windows() -> None:
    config = DataConfig(boost={}, every_ms=2000)
    sampler = MomentSampler([GAME, GAME], np.array([0, 1000]), np.array([1000, 700]), windows=2, config=config)
    drawn = sampler.draw(np.random.default_rng(0))
    again = sampler.draw(np.random.default_rng(0))
    assert (drawn.frame == again.frame).all()
    assert len(drawn) == len(sampler) == (875 - 250) // 50 + 1 + (575 - 250) // 50 + 1
    first = drawn.frame[drawn.game == 0]
    assert first.min() >= 250
    assert first.max() <= 875
    assert sorted(set((first - 250) // 50)) == list(range(13))  # one of every two seconds
    assert (drawn.frame[drawn.game == 1] >= 1250).all()
    assert (drawn.frame[drawn.game == 1] <= 1575).all()


def test_a_game_that_is_too_short_is_one_sentence() -> None:
    with pytest.raises(InputError, match="shorter than 5 s to see and 5 s to anticipate"):
        MomentSampler([GAME], np.array([0]), np.array([200]), windows=1, config=DataConfig())


def test_official_moments_are_every_five_seconds_from_thirty_on() -> None:
    ends, clips = official_moments([GAME], np.array([100]), np.array([1000]))
    assert ends.tolist() == [850, 975]
    assert [clip.name for clip in clips] == ["a+0", "a+5000"]


def test_spotting_targets_are_a_gaussian_around_each_action() -> None:
    table = spotting_targets([[(400, 2)], [(0, 0)]], np.array([20, 5]), sigma_ms=80, classes=3)
    assert table.shape == (25, 3)
    assert table[10, 2] == 1
    assert table[12, 2] == pytest.approx(np.exp(-0.5))  # 80 ms away
    assert table[20, 0] == 1  # the first frame of the second game
    assert not table[:, 1].any()
