"""Each rule on a few seconds of play made by hand. Positions are steps of 40 ms."""

import pytest
from tools_simulation.story import Story

from tools.simulation.actions import find_actions
from tools.simulation.states import CORNER, GOAL_KICK, THROW_IN

HOME, AWAY = 0, 1
KICK_OFF = 1


def told(story: Story) -> list[tuple[int, str, str]]:
    """(step, label, team) of what is found."""
    return [(e.position_ms // 40, e.label, e.team) for e in find_actions(story.states())]


def labels(story: Story) -> list[str]:
    return [label for _, label, _ in told(story)]


def test_a_run_with_the_ball_and_a_pass() -> None:
    story = Story().held(HOME, 5, 30, (5, 0)).free(20, (12, 0)).held(HOME, 7, 10)
    assert told(story) == [(3, "DRIVE", "home"), (29, "PASS", "home")]


def test_who_stands_with_the_ball_or_has_it_briefly_does_not_drive() -> None:
    assert labels(Story().held(HOME, 5, 40)) == []
    assert labels(Story().held(HOME, 5, 14, (9, 0))) == []


def test_a_one_two() -> None:
    story = Story().held(HOME, 5, 10).free(20, (12, 0)).held(HOME, 7, 8).free(20, (-12, 0)).held(HOME, 5, 10)
    assert told(story) == [(9, "PASS", "home"), (37, "PASS", "home")]


def test_who_gets_the_ball_back_at_once_has_dribbled() -> None:
    story = Story().held(HOME, 5, 10).free(12, (7, 0)).held(HOME, 5, 10)
    assert told(story) == [(3, "DRIVE", "home")]
    assert labels(Story().held(HOME, 5, 10).free(13, (7, 0)).held(HOME, 5, 10)) == ["PASS"]


def test_a_ball_that_is_left_is_no_pass() -> None:
    assert labels(Story().held(HOME, 5, 10).free(20, (3.9, 0)).held(HOME, 7, 10)) == []


@pytest.mark.parametrize(("kept", "found"), [(20, ["PLAYER SUCCESSFUL TACKLE"]), (7, [])])
def test_a_tackle_is_won_by_who_keeps_the_ball(kept: int, found: list[str]) -> None:
    story = Story().held(HOME, 5, 20).held(AWAY, 3, kept)
    assert labels(story) == found
    assert told(story) == [(20, label, "away") for label in found]  # and what was taken was not passed


def test_what_is_free_for_a_moment_is_taken_and_what_is_free_for_longer_is_passed() -> None:
    def goes_over(steps: int) -> list[str]:
        return labels(Story().held(HOME, 5, 20).free(steps, (8, 0)).held(AWAY, 3, 20))

    assert goes_over(2) == ["PLAYER SUCCESSFUL TACKLE"]
    assert goes_over(3) == ["PASS"]


def test_one_duel_is_one_tackle() -> None:
    story = Story().held(HOME, 5, 20).held(AWAY, 3, 9).held(HOME, 5, 20)
    assert told(story) == [(20, "PLAYER SUCCESSFUL TACKLE", "away")]


def test_an_opponent_who_gets_a_pass_has_not_tackled() -> None:
    assert labels(Story().held(HOME, 5, 20).free(15, (12, 0)).held(AWAY, 3, 14)) == ["PASS"]


def test_a_touch_high_up_is_a_header() -> None:
    story = Story().held(HOME, 4, 10).free(40, (15, 0), 2.0).touched(AWAY, 6).free(20, (-10, 2), 1.5).held(AWAY, 2, 9)
    assert told(story) == [(9, "HIGH PASS", "home"), (49, "HEADER", "away")]


@pytest.mark.parametrize(
    ("team", "after", "found"), [(AWAY, 10, ["BALL PLAYER BLOCK"]), (AWAY, 30, []), (HOME, 10, [])]
)
def test_a_block_is_an_opponents_touch_right_after_a_kick(team: int, after: int, found: list[str]) -> None:
    story = Story().held(HOME, 4, 10).free(after, (15, 0)).touched(team, 6).free(20, (-5, 8)).held(HOME, 2, 9)
    assert labels(story) == ["PASS", *found]
    assert told(story)[1:] == [(9 + after, label, "away") for label in found]


def test_a_touch_that_is_fast_enough_can_be_blocked_itself() -> None:
    def second_touch(speed: float) -> list[str]:
        story = Story().held(HOME, 4, 10).free(30, (15, 0)).touched(AWAY, 6).free(10, (-speed, 0)).touched(HOME, 8)
        return labels(story.free(20, (-speed, 9)).held(HOME, 2, 9))

    assert second_touch(12) == ["PASS", "BALL PLAYER BLOCK"]
    assert second_touch(6) == ["PASS"]


@pytest.mark.parametrize("side", [1, -1])
def test_a_shot_goes_fast_towards_the_goal(side: int) -> None:
    team, name = (HOME, "home") if side == 1 else (AWAY, "away")

    def kick(x: float, vx: float, vy: float = 0.0) -> list[tuple[int, str, str]]:
        return told(Story((side * x, 3.0)).held(team, 9, 10).free(15, (side * vx, vy)).held(1 - team, 0, 9))

    assert kick(38, 22) == [(9, "SHOT", name)]
    assert kick(30, 22) == [(9, "PASS", name)]  # from too far
    assert kick(38, 17) == [(9, "PASS", name)]  # too slow
    assert kick(38, 20, 10) == [(9, "PASS", name)]  # past the goal: y = 3 + 10 / 20 · 16.4
    assert kick(38, 2, 25) == [(9, "PASS", name)]  # across
    assert kick(-38, -22) == [(9, "PASS", name)]  # at the own end


@pytest.mark.parametrize("height", [0.1, 3.0])
def test_a_cross_comes_in_from_the_wing(height: float) -> None:
    def kick(x: float, y: float, vy: float) -> list[str]:
        return labels(Story((x, y)).held(HOME, 9, 10).free(40, (2, vy), height).held(HOME, 8, 9))

    other = "HIGH PASS" if height > 1.7 else "PASS"
    assert kick(40, 28, -14) == kick(40, -28, 14) == ["CROSS"]
    assert kick(25, 28, -14) == [other]  # from too far
    assert kick(40, 12, -10) == [other]  # from the middle
    assert kick(40, 28, -4.5) == [other]  # stays on the wing


def test_a_ball_out_and_the_throw_in_after_it() -> None:
    story = Story((0, 20)).held(HOME, 5, 10).free(25, (3, 15)).held(AWAY, 2, 6, mode=THROW_IN, cut=100)
    story.free(20, (0, -12)).held(AWAY, 4, 9)
    assert told(story) == [(9, "PASS", "home"), (34, "OUT", "home"), (41, "THROW IN", "away")]


@pytest.mark.parametrize(
    ("mode", "found"), [(GOAL_KICK, ["PASS", "OUT"]), (CORNER, ["PASS", "OUT"]), (KICK_OFF, ["PASS"])]
)
def test_restarts_by_foot_are_no_actions_but_can_be_blocked(mode: int, found: list[str]) -> None:
    story = Story().held(HOME, 5, 10).free(25, (12, 0)).held(AWAY, 2, 20, (5, 0), mode=mode, cut=25)
    story.free(10, (-15, 0)).touched(HOME, 3).free(20, (8, 8)).held(HOME, 4, 9)
    assert labels(story) == [*found, "BALL PLAYER BLOCK"]


def test_nothing_reaches_across_a_cut() -> None:
    """A tackle, a kick and a player's spell each end with the scene."""
    assert labels(Story().held(HOME, 5, 20).held(AWAY, 3, 20, cut=25)) == []
    assert labels(Story().held(HOME, 5, 20).free(1, (15, 0)).free(30, (15, 0), cut=25).held(HOME, 7, 9)) == []
    assert labels(Story().held(HOME, 5, 10, (5, 0)).held(HOME, 5, 10, (5, 0), cut=25)) == []
    assert labels(Story().held(HOME, 5, 10, (5, 0)).held(HOME, 5, 10, (5, 0))) == ["DRIVE"]


def test_the_posts_touch_nothing() -> None:
    def save(x: float) -> list[str]:
        story = Story((x - 10, 0)).held(HOME, 9, 10).free(10, (25, 0)).touched(AWAY, 0).free(20, (-6, 6))
        return labels(story.held(AWAY, 1, 9))

    assert save(45) == ["SHOT", "BALL PLAYER BLOCK"]
    assert save(54.2) == ["SHOT"]


def test_a_match_of_a_moment_has_no_actions() -> None:
    for steps in (1, 2, 3, 4):
        assert labels(Story().free(steps, (1, 0))) == []
        assert labels(Story().held(HOME, 5, steps)) == []
