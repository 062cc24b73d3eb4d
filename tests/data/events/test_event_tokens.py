"""Event tokens: what the rules of the grid say, nothing after T, and the same from numpy and torch."""

from pathlib import Path

import numpy as np
import pytest
from feeds import event, feed, made_up

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.event_schema import (
    ACTION,
    AGE,
    DETAILS,
    END_X,
    END_Y,
    ENDED,
    GROUPS,
    KIND,
    KINDS,
    OTHER,
    OUTCOME,
    PAD,
    RENAMED,
    SAME_PLAYER,
    SAME_TEAM,
    TOKENS,
    X,
    Y,
)
from ballcast.data.events.event_tokens import EventTable, build_table, detail_flags, hide, tokens_before
from ballcast.data.events.feed import Feed
from tests.data.events.test_event_grid import altered


def plain_tokens(half: Feed, T: int) -> list[tuple[object, ...]]:
    """The tokens by the rules, one event after the other."""
    half = half.take(np.lexsort((*half.start.T, half.team, -half.known, half.t_ms)))
    past = [i for i in range(len(half)) if half.t_ms[i] < T]
    if not past:
        return []
    last, first_open = past[-1], half.unfinished()[past[-1]]
    tokens = []
    for i in [i for i in past if half.t_ms[i] >= T - 30_000][-TOKENS:]:
        over = i < first_open
        same = half.team[i] == half.team[last]
        start, end = half.start[i], half.end[i] if over else half.start[i]
        places = [float(v) / 100 if same else 1 - float(v) / 100 for v in (*start, *end)]
        tokens.append(
            (
                int(half.action[i] if over else half.known[i]),
                int(half.kind[i]),
                int(half.outcome[i] if over else 0) + 1,
                int(same),
                int(half.player[i] == half.player[last] != -1),
                int(over),
                [round(p, 4) for p in places],
                round((T - int(half.t_ms[i])) / 1000, 3),
            )
        )
    return tokens


@pytest.mark.parametrize("seed", range(2))
def test_tokens_are_what_the_rules_say(tmp_path: Path, seed: int) -> None:
    half = feed(made_up(120, seed), tmp_path)
    at = np.concatenate([np.arange(500, half.t_ms.max(), 1300), half.t_ms[::5], half.t_ms[::7] + 1])
    codes, values = tokens_before(np, build_table([half]), at)
    assert codes.shape == (len(at), TOKENS, 7)
    for s, T in enumerate(at.tolist()):
        shown = codes[s, :, ACTION] != PAD
        got = [
            (
                *(int(c[i]) for i in (ACTION, KIND, OUTCOME, SAME_TEAM, SAME_PLAYER, ENDED)),
                [round(float(v[i]), 4) for i in (X, Y, END_X, END_Y)],
                round(float(v[AGE]), 3),
            )
            for c, v in zip(codes[s][shown], values[s][shown], strict=True)
        ]
        assert got == plain_tokens(half, T), T


@pytest.mark.parametrize("how", ["deleted", "replaced", "how the last one ended"])
def test_nothing_after_t_shows_in_tokens(tmp_path: Path, how: str) -> None:
    rows = made_up(200, seed=5)
    rng = np.random.default_rng(1)
    times = [round(rng.choice(rows)["eventSec"] * 1000) + int(rng.integers(0, 3)) for _ in range(12)]
    for T in [t for t in times if t > 2000]:
        before = tokens_before(np, build_table([feed(rows, tmp_path)]), np.array([T]))
        after = tokens_before(np, build_table([feed(altered(rows, T, how, rng), tmp_path)]), np.array([T]))
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(T))


def test_a_goal_is_not_an_input(tmp_path: Path) -> None:
    half = feed([*made_up(60, 3), event(61, 10, ("Shot", "Shot"), (101,))], tmp_path)
    assert half.goal.sum() >= 1
    assert "goal" not in vars(build_table([half]))


def test_torch_and_numpy_build_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    half = feed(made_up(90, 1), tmp_path)
    table, at = build_table([half, half]), np.array([31_000, 45_001, 60_000 + (1 << 32)])
    tensors = EventTable(**{name: torch.from_numpy(column) for name, column in vars(table).items()})
    available = np.random.default_rng(0).random((3, len(DETAILS))) < 0.5
    ours = tokens_before(np, table, at)
    theirs = tokens_before(torch, tensors, torch.from_numpy(at))
    poor, poor_theirs = hide(np, *ours, available), hide(torch, *theirs, torch.from_numpy(available))
    for one, other in zip((*ours, *poor), (*theirs, *poor_theirs), strict=True):
        np.testing.assert_array_equal(one, other.numpy())
    np.testing.assert_array_equal(ours[0][1], tokens_before(np, build_table([half]), at[1:2])[0][0])


def test_details_that_a_feed_lacks_are_hidden(tmp_path: Path) -> None:
    half = feed(made_up(200, 2), tmp_path)
    given = tokens_before(np, build_table([half]), np.arange(30_000, half.t_ms.max(), 500))

    def hidden(*names: str) -> tuple[np.ndarray, np.ndarray]:
        flags = detail_flags(names)
        return hide(np, *given, np.broadcast_to(flags, (len(given[0]), len(DETAILS))))

    for one, other in zip(hidden(), given, strict=True):
        np.testing.assert_array_equal(one, other)
    for name, kinds in GROUPS.items():
        left = set(hidden(name)[0][..., KIND][hidden(name)[0][..., ACTION] != PAD].tolist())
        assert not left & {KINDS.index(kind) for kind in kinds}
    for name, instead in RENAMED.items():
        action, was = hidden(name)[0][..., ACTION], given[0][..., ACTION] == ACTION_INDEX[name]
        expected = PAD if instead is None else ACTION_INDEX.get(instead, OTHER)
        assert was.any()
        assert (action[was] == expected).all()
        np.testing.assert_array_equal(action[~was], given[0][..., ACTION][~was])
    codes, values = hidden("outcome", "player", "end")
    assert (codes[..., OUTCOME] == 1).all()
    assert not codes[..., SAME_PLAYER].any()
    np.testing.assert_array_equal(values[..., END_X], values[..., X])
