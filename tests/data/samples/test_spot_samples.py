"""Event feeds as broadcasts are labelled, and a spotter's faults."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feeds import event, feed

from ballcast.core.actions import ACTIONS
from ballcast.core.spots import HIGH_PASS, OUT
from ballcast.data.samples.feed_samples import FeedEvents, Match
from ballcast.data.samples.spot_samples import (
    GOOD,
    LEAST,
    POOR,
    Faults,
    as_broadcast,
    as_spots,
    broadcast_match,
    came_within,
    merge_classes,
    with_faults,
)

PASS, DRIVE, BLOCK, TACKLE = 0, 1, 8, 9
SIMPLE, TOUCH, ACCELERATION = (
    ("Pass", "Simple pass"),
    ("Others on the ball", "Touch"),
    ("Others on the ball", "Acceleration"),
)
DEFENDING = ("Duel", "Ground defending duel")
AHEAD = ((50, 50), (60, 50))  # 10.5 m: under way for 0.875 s


def labels(rows: list[dict[str, Any]], tmp_path: Path) -> list[tuple[int, int, int]]:
    """Time, action and player of what a broadcast's labels would be; players by number of their row."""
    (half,) = (half for _, half in feed(rows, tmp_path).periods())
    made = as_broadcast(half)
    assert (np.diff(made.t_ms) >= 0).all()
    return list(zip(made.t_ms.tolist(), made.action.tolist(), made.player.tolist(), strict=True))


def row(
    seconds: float, player: int, kind: tuple[str, str], team: int = 10, tags: Any = (), at: Any = AHEAD
) -> dict[str, Any]:
    return event(seconds, team, kind, tags, at) | {"playerId": player}


def test_a_player_who_keeps_the_ball_drives_from_when_it_arrives(tmp_path: Path) -> None:
    rows = [row(10, 1, SIMPLE), row(13, 2, SIMPLE), row(14, 3, SIMPLE)]
    assert labels(rows, tmp_path) == [(10_000, PASS, 0), (10_875, DRIVE, 1), (13_000, PASS, 1), (14_000, PASS, 2)]


def test_drives_of_the_feed_become_one(tmp_path: Path) -> None:
    rows = [row(10, 1, SIMPLE), row(12, 2, TOUCH), row(13, 2, ACCELERATION), row(15, 2, SIMPLE)]
    assert labels(rows, tmp_path) == [(10_000, PASS, 0), (10_875, DRIVE, 1), (15_000, PASS, 1)]


def test_a_restart_is_no_reception(tmp_path: Path) -> None:
    rows = [row(10, 1, SIMPLE), row(15, 2, ("Free Kick", "Corner")), row(30, 1, SIMPLE), row(45, 2, SIMPLE)]
    assert [action for _, action, _ in labels(rows, tmp_path)] == [PASS, ACTIONS.index("CROSS"), PASS, PASS]


def test_a_block_follows_what_it_stops_and_a_tackle_wins_the_ball(tmp_path: Path) -> None:
    blocked = [row(10, 1, SIMPLE), row(10.4, 2, TOUCH, team=11, tags=(1401,))]
    assert [action for _, action, _ in labels(blocked, tmp_path)] == [PASS, BLOCK]
    late = [row(10, 1, SIMPLE), row(14, 2, TOUCH, team=11, tags=(1401,))]
    assert BLOCK not in [action for _, action, _ in labels(late, tmp_path)]
    won = [row(10, 1, SIMPLE), row(11, 2, DEFENDING, team=11, tags=(703,)), row(12, 3, SIMPLE, team=11)]
    assert TACKLE in [action for _, action, _ in labels(won, tmp_path)]
    lost = [*won[:2], row(12, 3, SIMPLE)]
    assert TACKLE not in [action for _, action, _ in labels(lost, tmp_path)]


@pytest.fixture(scope="module")
def match(tmp_path_factory: pytest.TempPathFactory) -> Any:
    kinds = (SIMPLE, SIMPLE, SIMPLE, ("Pass", "High pass"), ("Interruption", "Ball out of the field"), ("Shot", "Shot"))
    rng = np.random.default_rng(0)
    rows = [row(2 + 1.5 * i, int(rng.integers(1, 9)), kinds[rng.integers(6)], 10 + i % 2) for i in range(1500)]
    return broadcast_match(feed(rows, tmp_path_factory.mktemp("feed")))


def test_merged_classes(match: Any) -> None:
    merged = merge_classes(match)
    before, after = (np.bincount(f.action, minlength=10) for f in (match, merged))
    assert before[HIGH_PASS] > 0
    assert before[OUT] > 0
    assert after[HIGH_PASS] == after[OUT] == 0
    assert after[PASS] == before[PASS] + before[HIGH_PASS]


@pytest.mark.parametrize("faults", [GOOD, POOR])
def test_a_spotter_with_faults(match: Any, faults: Faults) -> None:
    truth = as_spots([match])
    seen, happened = with_faults(truth, faults, np.random.default_rng(0))
    assert (np.diff(happened) >= 0).all()
    assert seen.confidence.min() >= LEAST
    assert np.abs(seen.position_ms - happened).max() < 8 * faults.jitter_ms
    real = np.isin(happened, truth.position_ms)
    missed = 1 - np.isin(truth.position_ms[truth.action == PASS], happened).mean()
    assert missed == pytest.approx(faults.missed, abs=0.06)
    assert (~real).sum() / len(truth) == pytest.approx(faults.invented + faults.doubled, rel=0.3)
    assert seen.confidence[real].mean() > seen.confidence[~real].mean() + 0.1


def test_no_faults_change_nothing(match: Any) -> None:
    none = Faults(0, 0, 0, 0, 0, 0, (500.0, 0.01), (1.0, 1.0))
    truth = as_spots([match])
    seen, happened = with_faults(truth, none, np.random.default_rng(0))
    np.testing.assert_array_equal(happened, truth.position_ms)
    for name in ("position_ms", "action", "team", "player"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(truth, name))


def test_what_comes_within_each_second(tmp_path: Path) -> None:
    rows = [row(1, 1, SIMPLE), row(12.5, 1, SIMPLE), row(14.2, 1, ("Shot", "Shot")), row(60, 1, SIMPLE)]
    events = FeedEvents.from_matches([Match(feed(rows, tmp_path))], torch.device("cpu"))
    came = came_within(events, torch.tensor([10_000, 12_500, 20_000]))
    assert came[:, PASS].tolist() == [[0, 0, 1, 1, 1], [1] * 5, [0] * 5]
    assert came[:, ACTIONS.index("SHOT")].tolist() == [[0, 0, 0, 0, 1], [0, 1, 1, 1, 1], [0] * 5]
    assert came[:, DRIVE].sum() == 0
