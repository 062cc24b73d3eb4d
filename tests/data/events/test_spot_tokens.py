"""Tokens of spots: who compared with whom, what is hidden, and nothing of what is still to come."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.event_schema import PAD
from ballcast.core.spots import (
    ACTION,
    AGE,
    CONFIDENCE,
    DETAILS,
    OTHER,
    PLAYER,
    PLAYER_BEFORE,
    SAME,
    TEAM,
    UNKNOWN,
    Spots,
    without_details,
)
from ballcast.data.events.spot_tokens import tokens_before

ALL = np.ones((1, len(DETAILS)), bool)


def spots(*rows: tuple[int, int, float, int, int]) -> Spots:
    """Rows of time, action, confidence, team, player."""
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0)] * 5
    ms, action, sure, team, player = columns
    ints = (np.asarray(column, np.int64) for column in (ms, action, team, player))
    t, a, who, number = ints
    return Spots(t, a, np.asarray(sure, np.float32), who, number)


THREE = spots((1000, 1, 0.5, 0, 7), (2000, 0, 0.75, 0, 7), (2500, 6, 0.25, 1, 9))


def test_teams_and_players_are_compared() -> None:
    codes, values = tokens_before(THREE, np.array([3000]), ALL, tokens=4)
    assert codes[0, :, ACTION].tolist() == [PAD, 1, 0, 6]
    assert codes[0, :, TEAM].tolist() == [UNKNOWN, OTHER, OTHER, SAME]
    assert codes[0, :, PLAYER].tolist() == [UNKNOWN, OTHER, OTHER, SAME]
    assert codes[0, :, PLAYER_BEFORE].tolist() == [UNKNOWN, UNKNOWN, SAME, OTHER]
    np.testing.assert_allclose(values[0, 1:, AGE], [2.0, 1.0, 0.5])
    np.testing.assert_allclose(values[0, :, CONFIDENCE], [0, 0.5, 0.75, 0.25])


def test_hidden_details_look_like_missing_ones() -> None:
    flags = ALL.copy()
    flags[:, 2:] = False
    hidden = tokens_before(THREE, np.array([3000]), flags, tokens=4)
    nobody = np.full(3, -1)
    poor = replace(THREE, team=nobody, player=nobody, confidence=np.ones(3, np.float32))
    for one, other in zip(hidden, tokens_before(poor, np.array([3000]), ALL, tokens=4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_spot_is_seen_once_it_happened_whatever_its_time() -> None:
    known = np.array([1000, 2000, 2600])
    codes, _ = tokens_before(THREE, np.array([2550, 2601]), np.repeat(ALL, 2, 0), tokens=3, known_ms=known)
    assert codes[:, -1, ACTION].tolist() == [0, 6]


def test_without_spots_there_is_padding() -> None:
    for empty in (spots(), THREE):
        codes, values = tokens_before(empty, np.array([500]), ALL, tokens=2)
        assert (codes[..., ACTION] == PAD).all()
        assert values[0].tolist() == [[30.0, 0.0]] * 2


def test_spotters_without_high_passes_and_outs() -> None:
    merged = without_details(spots((0, 3, 1.0, 0, 1), (1, 7, 1.0, 0, 1), (2, 1, 1.0, 0, 1)))
    assert merged.action.tolist() == [0, 1]
    assert not {"HIGH PASS", "OUT"} & merged.details
    assert merged.forecast.tolist() == [i not in (3, 7) for i in range(10)]


ROW = st.tuples(
    st.integers(0, 60_000), st.integers(0, 9), st.floats(0, 1, width=32), st.integers(-1, 1), st.integers(-1, 5)
)


@given(st.lists(ROW, max_size=40), st.integers(0, 60_000))
def test_what_comes_later_changes_nothing(rows: list[tuple[int, int, float, int, int]], at: int) -> None:
    rows = sorted(rows)
    whole = tokens_before(spots(*rows), np.array([at]), ALL)
    past = tokens_before(spots(*(row for row in rows if row[0] < at)), np.array([at]), ALL)
    for one, other in zip(whole, past, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(whole[1]).all()
    assert (np.diff(whole[1][0, :, AGE]) <= 0).all()
