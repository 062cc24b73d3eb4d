"""Samples of games: what comes after them, where they are drawn from, and the spotting targets of frames."""

from dataclasses import replace

import numpy as np
import pytest

from ballcast.core.anticipator_config import DataConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.data.labels.games import Game
from ballcast.data.samples.game_samples import GameSampler, evaluation_clips, spotting_targets

GAME = Game("a", "train", (), (Event("PASS", 9000), Event("SHOT", 11_000), Event("OUT", 16_999)))


def test_the_actions_of_a_sample_are_those_of_the_next_five_seconds() -> None:
    """By hand: at frame 250 (10 s) the shot is 1 s away and the out 6.999 s; at frame 300 (12 s) the out is 4.999 s."""
    sampler = GameSampler([GAME], np.array([0]), np.array([1000]), windows=1, config=DataConfig(boost={}))
    at = sampler._label(np.array([250, 300, 225]), np.zeros(3, np.int64))
    assert at.classes[:, 0].tolist() == [6, 7, 0]  # shot, out, pass (at exactly 9 s, the frame itself)
    assert at.position_ms[:, 0].tolist() == [31_000, 34_999, 30_000]
    assert (at.classes[:2, 1:] == -1).all()
    assert at.classes[2, 1] == 6


def test_samples_are_drawn_from_every_part_and_have_their_windows() -> None:
    config = DataConfig(boost={}, every_ms=2000)
    sampler = GameSampler([GAME, GAME], np.array([0, 1000]), np.array([1000, 700]), windows=2, config=config)
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
        GameSampler([GAME], np.array([0]), np.array([200]), windows=1, config=DataConfig())


def test_official_clips_end_every_five_seconds_from_thirty_on() -> None:
    ends, clips = evaluation_clips([GAME], np.array([100]), np.array([1000]))
    assert ends.tolist() == [850, 975]
    assert [clip.name for clip in clips] == ["a+0", "a+5000"]


def test_spotting_targets_are_a_gaussian_around_each_action() -> None:
    table = spotting_targets([[(400, 2)], [(0, 0)]], np.array([20, 5]), sigma_ms=80, classes=3)
    assert table.shape == (25, 3)
    assert table[10, 2] == 1
    assert table[12, 2] == pytest.approx(np.exp(-0.5))  # 80 ms away
    assert table[20, 0] == 1  # the first frame of the second game
    assert not table[:, 1].any()


def test_of_several_games_the_shortest_is_named() -> None:
    games = [replace(GAME, name=name) for name in "abc"]
    first = np.array([0, 1000, 5000])
    with pytest.raises(InputError, match="b: is shorter than 10 s to see and 5 s to anticipate"):
        GameSampler(games, first, np.array([374, 100, 1000]), windows=2, config=DataConfig())
    assert len(GameSampler(games, first, np.array([375, 375, 375]), windows=2, config=DataConfig())) == 3  # one each


def test_a_sample_lies_anywhere_in_its_part() -> None:
    """Parts of 10 frames from 125 on; the last, of one frame, is where the 5 s after it end with the game."""
    sampler = GameSampler([GAME], np.array([0]), np.array([271]), windows=1, config=DataConfig(boost={}, every_ms=400))
    rng = np.random.default_rng(0)
    drawn = np.stack([np.sort(sampler.draw(rng).frame) for _ in range(300)])
    assert drawn.min(0).tolist() == [125, 135, 145]
    assert drawn.max(0).tolist() == [134, 144, 146]
    assert len({tuple(sampler.draw(rng).frame.tolist()) for _ in range(50)}) > 40


def test_rare_actions_are_drawn_more_often() -> None:
    """A shot within 5 s counts a million times: every drawn sample is before it."""
    config = DataConfig(boost={"SHOT": 1e6}, every_ms=1000)
    sampler = GameSampler([GAME], np.array([0]), np.array([1000]), windows=1, config=config)
    drawn = sampler.draw(np.random.default_rng(0))
    assert len(drawn) == len(sampler)
    assert (drawn.classes == 6).any(1).all()
    assert len(set(drawn.frame.tolist())) > 1


def test_a_sample_has_eight_actions_at_most_in_order() -> None:
    events = tuple(Event("PASS" if i % 2 else "SHOT", 10_000 + 500 * i) for i in range(12))
    late = Game("b", "train", (), tuple(replace(e, position_ms=e.position_ms + 100) for e in events))
    sampler = GameSampler(
        [replace(GAME, events=events), late],
        np.array([0, 1000]),
        np.array([1000, 1000]),
        windows=1,
        config=DataConfig(boost={}),
    )
    at = sampler._label(np.array([250, 1275, 800]), np.array([0, 1, 0]))
    assert at.classes.tolist() == [[6, 0] * 4, [6, 0] * 4, [-1] * 8]
    assert at.position_ms[0].tolist() == [30_000 + 500 * i for i in range(8)]
    assert at.position_ms[1].tolist() == [30_100 - 1000 + 500 * i for i in range(2, 10)]  # at 11 s of its own game
    assert at.position_ms[2].tolist() == [30_000] * 8
    assert at[1:].game.tolist() == [1, 0]


def test_official_clips_of_several_games() -> None:
    """750 frames seen and 125 to come: 874 frames are too short, 875 hold one clip, 1000 two. Named clips are kept."""
    named = Game("c", "train", (), GAME.events, {"clip_3": 25})
    games = [replace(GAME, name="a"), replace(GAME, name="b"), named]
    ends, clips = evaluation_clips(games, np.array([0, 2000, 4000]), np.array([874, 1000, 900]))
    assert ends.tolist() == [2750, 2875, 4775]
    assert [clip.name for clip in clips] == ["b+0", "b+5000", "clip_3"]
    assert [e.position_ms for e in clips[1].observation] == [4000, 6000, 11_999]
    assert [e.position_ms for e in clips[2].observation] == [8000, 10_000, 15_999]


def test_the_nearest_of_two_actions_is_the_target() -> None:
    """σ 40 ms, reach 5 frames: actions at 90 and 200 ms, at the ends of a game, and of another class."""
    table = spotting_targets([[(90, 1), (200, 1), (0, 0)], [(439, 0)]], np.array([8, 11]), sigma_ms=40, classes=2)
    own = np.arange(8) * 40.0
    expected = np.maximum(np.exp(-0.5 * ((own - 90) / 40) ** 2), np.exp(-0.5 * ((own - 200) / 40) ** 2))
    assert table[:8, 1] == pytest.approx(expected, abs=1e-6)
    assert table[:7, 0] == pytest.approx(np.exp(-0.5 * (own[:7] / 40) ** 2), rel=1e-5)
    assert table[7, 0] == 0  # 280 ms away: beyond 4 σ and two frames
    assert table[18, 0] == pytest.approx(np.exp(-0.5 * (39 / 40) ** 2))
    assert not table[8:13, 0].any()
    assert table[13, 0] > 0  # 5 frames before the frame of the action
    assert not table[8:, 1].any()
    assert spotting_targets([[]], np.array([3]), sigma_ms=40).shape == (3, 10)
