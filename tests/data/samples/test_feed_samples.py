"""Samples of feeds: times within the periods, targets and windows as those of the grid, a plan that repeats itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from feeds import feed, made_up

from ballcast.core.errors import InputError
from ballcast.core.event_schema import DETAILS, END_Y, ZONES, Y
from ballcast.data.events.event_grid import build_windows, compute_targets
from ballcast.data.events.event_tokens import PERIOD_MS, tokens_before
from ballcast.data.events.feed import Feed
from ballcast.data.samples.feed_samples import (
    FeedBatch,
    FeedEvents,
    FeedWindows,
    Match,
    mirror,
    plan_feed_epoch,
    targets_after,
)

CPU = torch.device("cpu")


@pytest.fixture
def feeds(tmp_path: Path) -> list[Feed]:
    return [replace(feed(made_up(120, seed), tmp_path), match=str(100 + seed)) for seed in (0, 1)]


def plan(total: int, seed: int = 0, **changes: float) -> FeedBatch:
    settings = {"mirror": 0.5, "masked": 0.5, "hidden": 0.4, **changes}
    return plan_feed_epoch(total, steps=20, batch=100, rng=np.random.default_rng(seed), **settings)


def test_targets_are_those_of_the_grid(feeds: list[Feed]) -> None:
    events = FeedEvents.from_matches([Match(match) for match in feeds], CPU)
    for number, half in enumerate(feeds):
        at = np.concatenate([np.arange(6000, half.t_ms.max() - 5000, 333), half.t_ms[half.t_ms > 6000]])
        wanted = compute_targets(half, at)
        found = targets_after(events, torch.from_numpy(at + number * PERIOD_MS), 8)
        np.testing.assert_array_equal(found.classes.numpy(), wanted.classes)
        real = wanted.classes >= 0
        bins = (wanted.position_ms - 30_000) * 25 // 4000
        np.testing.assert_array_equal(found.bins.numpy()[real], bins[real])
        np.testing.assert_array_equal(found.counts.sum((1, 2)).numpy(), real.sum(1))


def test_times_are_drawn_within_the_periods(feeds: list[Feed]) -> None:
    events = FeedEvents.from_matches([Match(match) for match in feeds], CPU)
    at, period = events.locate(plan(events.total).at.flatten())
    assert torch.equal(at // PERIOD_MS, period)
    assert set(period.tolist()) == {0, 1}
    ms = at % PERIOD_MS
    for number, half in enumerate(feeds):
        of_period = ms[period == number]
        assert 5000 <= int(of_period.min()) < int(of_period.max()) < int(half.t_ms.max()) - 5000 + 1
    edges, periods = events.locate(torch.tensor([0, events.total - 1]))
    assert (edges % PERIOD_MS).tolist() == [5000, int(feeds[1].t_ms.max()) - 5001]
    assert periods.tolist() == [0, 1]


def test_a_plan_depends_on_its_generator_alone() -> None:
    one, same, other = plan(10**6), plan(10**6), plan(10**6, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.tensors(), same.tensors(), strict=True))
    assert not torch.equal(one.at, other.at)


def test_every_step_draws_its_own_times_and_details() -> None:
    drawn = plan(10**6)
    for column in drawn.tensors():
        assert len(column.unique(dim=0)) == len(column) == 20


def test_details_are_hidden_in_the_share_asked_for() -> None:
    assert plan(1000, masked=0.0).shown.all()
    assert not plan(1000, masked=1.0, hidden=1.0).shown.any()
    shown = plan(1000).shown
    assert shown.shape == (20, 100, len(DETAILS))
    poor = ~shown.all(-1)
    assert 0.45 < float(poor.float().mean()) < 0.55  # all but none of the masked have every detail
    assert 0.37 < float((~shown[poor]).float().mean()) < 0.43
    assert 0.45 < float(plan(1000).mirrored.float().mean()) < 0.55
    assert not plan(1000, mirror=0.0).mirrored.any()


def test_a_mirrored_sample_is_that_of_the_mirrored_match(tmp_path: Path) -> None:
    rows = made_up(90, seed=4)
    turned = [{**r, "positions": [{"x": p["x"], "y": 100 - p["y"]} for p in r["positions"]]} for r in rows]
    seen, other = (FeedEvents.from_matches([Match(feed(r, tmp_path))], CPU) for r in (rows, turned))
    at = torch.arange(6_000, 80_000, 997)
    _, values = tokens_before(torch, seen.table, at)
    _, expected = tokens_before(torch, other.table, at)
    targets, wanted = targets_after(seen, at, 8), targets_after(other, at, 8)
    assert not torch.equal(values, expected)
    mirrored, opposite = mirror(values, targets, torch.ones(len(at), dtype=torch.bool))
    torch.testing.assert_close(mirrored, expected)
    # A place on the line between two zones belongs to the upper one on either side, so those in between are compared.
    across = opposite.zones % ZONES[1], wanted.zones % ZONES[1]
    known = wanted.zones >= 0
    assert torch.equal(opposite.zones >= 0, known)
    assert ((across[0] - across[1]).abs() <= 1)[known].all()
    assert (opposite.zones == wanted.zones)[known].float().mean() > 0.8
    for name in ("classes", "team", "bins", "counts"):
        assert torch.equal(getattr(opposite, name), getattr(targets, name))
    unchanged, same = mirror(values, targets, torch.zeros(len(at), dtype=torch.bool))
    assert torch.equal(unchanged, values)
    assert torch.equal(same.zones, targets.zones)
    assert (mirrored[..., (Y, END_Y)] != values[..., (Y, END_Y)]).any()


def test_windows_are_those_of_the_grid(feeds: list[Feed]) -> None:
    windows = FeedWindows.from_matches([Match(feeds[0]), Match(feeds[1], ("player", "end"))], 7000)
    grid = build_windows(feeds, 7000).windows
    assert windows.names == grid.names
    assert windows.clips == grid.clips
    first = [name.startswith("100-") for name in windows.names]
    assert windows.available[first].all()
    lacking = ~windows.available[np.logical_not(first)]
    assert [DETAILS[i] for i in np.flatnonzero(lacking.all(0))] == ["player", "end"]
    assert lacking.sum(1).tolist() == [2] * (len(windows) - sum(first))


def test_what_came_within_each_second(feeds: list[Feed]) -> None:
    windows = FeedWindows.from_matches([Match(match) for match in feeds], 3000)
    came = windows.came_within()
    assert came.any()
    assert (came[..., 1:] >= came[..., :-1]).all()
    for i, clip in enumerate(windows.clips):
        for c in range(10):
            times = [event.position_ms - 30_000 for event in clip.anticipation if event.action == c]
            assert came[i, c].tolist() == [any(t < 1000 * s for t in times) for s in (1, 2, 3, 4, 5)]


def test_matches_that_are_too_short_are_refused(feeds: list[Feed]) -> None:
    short = Match(feeds[0].take(feeds[0].t_ms < 9_000))
    with pytest.raises(InputError, match="more than 10 s to learn from"):
        FeedEvents.from_matches([short], CPU)
    with pytest.raises(InputError, match="more than 35 s to be scored on"):
        FeedWindows.from_matches([short], 7000)
    events = FeedEvents.from_matches([Match(feeds[0]), short], CPU)
    assert len(events.begins) == 1
