"""The grid against a plain reading of the benchmark's rules, and that nothing of the future shows in it.

Then windows of many matches: in memory and from a store the same, and training takes either.
"""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feeds import KINDS, OUTCOMES, event, feed, made_up

from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.event_schema import OTHER
from ballcast.data.events.event_grid import (
    ANY,
    END,
    FLAGS,
    IDENTITIES,
    KIND,
    OUTCOME,
    PLAYER,
    RICH_WIDTH,
    SINCE,
    START,
    TEAM,
    WIDTH,
    WINDOWS,
    build_grid,
    build_windows,
    compute_targets,
    read_store,
    window_ends,
    write_store,
)
from ballcast.data.events.feed import DUEL_MS, Feed
from ballcast.data.events.wyscout import read_table
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import Failure, FeatureStore
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.model.anticipator import Anticipator
from ballcast.training.data import TrainingData
from ballcast.training.run import train
from benchmarks.events import markov_predictions

CPU = torch.device("cpu")
OUT = ACTION_INDEX["OUT"]


def plain_view(half: Feed, T: int) -> np.ndarray:
    """(6, 33, 39) of one window in the rich grid, event by event; the first 18 are the plain one's."""
    grid = np.zeros((198, RICH_WIDTH))
    grid[:, START] = grid[:, END] = 0.5
    past = [i for i in range(len(half)) if half.t_ms[i] < T]
    past.sort(key=lambda i: (half.t_ms[i], -half.known[i], half.team[i], *half.start[i][::-1]))
    if not past:
        grid[:, SINCE] = 3
        return grid.reshape(6, 33, RICH_WIDTH)
    last = past[-1]
    unfinished = {last}
    for later, earlier in zip(past[:0:-1], past[-2::-1], strict=True):
        gap = half.t_ms[later] - half.t_ms[earlier]
        duel = half.duel[later] == half.duel[earlier] != 0 and half.team[later] != half.team[earlier]
        if not (gap == 0 or (duel and gap <= DUEL_MS) or half.action[later] == OUT):
            break
        unfinished.add(earlier)
    for i in past:
        since_begin = half.t_ms[i] - (T - 30_000)
        if since_begin < 0:
            continue
        step = grid[int(since_begin * 198 // 30_000)]
        step[half.known[i] if i in unfinished else half.action[i]] += 1
        same = half.team[i] == half.team[last]
        start = half.start[i]
        end = start if i in unfinished else half.end[i]
        step[TEAM] = 1 if same else -1
        step[START] = (start if same else 100 - start) / 100
        step[END] = (end if same else 100 - end) / 100
        step[ANY] = 1
        if half.kind[i]:
            step[KIND.start + half.kind[i] - 1] += 1
        step[OUTCOME] = 0 if i in unfinished else half.outcome[i]
        step[PLAYER] = half.player[i] == half.player[last] != -1
    grid[:, SINCE] = min((T - half.t_ms[last]) / 5000, 3)
    return grid.reshape(6, 33, RICH_WIDTH)


def plain_events(half: Feed, T: int) -> list[tuple[int, int]]:
    coming: list[tuple[int, int]] = []
    seen = set()
    for t, action in zip(half.t_ms.tolist(), half.action.tolist(), strict=True):
        key = (action, (t - T) * 25 // 4000)
        if T <= t < T + 5000 and action != OTHER and key not in seen:
            seen.add(key)
            coming.append((action, t - T + 30_000))
    return coming[:8]


@pytest.mark.parametrize("seed", range(3))
def test_the_grid_is_what_the_rules_say(tmp_path: Path, seed: int) -> None:
    half = feed(made_up(150, seed), tmp_path)
    at = np.concatenate([window_ends(half, 700), half.t_ms[::7], half.t_ms[::11] + 1, [0, 5]])
    got, coming = build_grid(half, at, detail="rich"), compute_targets(half, at)
    np.testing.assert_array_equal(build_grid(half, at), got[..., :WIDTH])
    for s, T in enumerate(at.tolist()):
        np.testing.assert_array_equal(got[s], plain_view(half, T).astype(np.float16), err_msg=str(T))
        events = [(c, p) for c, p in zip(coming.classes[s], coming.position_ms[s], strict=True) if c >= 0]
        assert events == plain_events(half, T)


def test_real_matches_read_the_same(shared: Path) -> None:
    feeds = read_table(shared / "data/events/wyscout_leagues.parquet")
    for number in (3, 1200):
        for _, half in feeds[number].periods():
            at = window_ends(half, 11_000)[::9]
            got, coming = build_grid(half, at, detail="rich"), compute_targets(half, at)
            for s, T in enumerate(at.tolist()):
                np.testing.assert_array_equal(got[s], plain_view(half, T).astype(np.float16))
                events = [(c, p) for c, p in zip(coming.classes[s], coming.position_ms[s], strict=True) if c >= 0]
                assert events == plain_events(half, T)


def test_windows_run_from_30_s_to_5_s_before_the_last_event(tmp_path: Path) -> None:
    half = feed([event(s, 10, KINDS[0]) for s in (1.0, 58.0)], tmp_path)
    assert window_ends(half, 7000).tolist() == [30_000, 37_000, 44_000, 51_000]
    assert len(window_ends(half.take([0]), 7000)) == 0
    assert window_ends(half, 1000)[-1] == 52_000  # the last event is more than 5 s later
    assert window_ends(half, 1)[-1] == 52_999


def views(rows: list[dict[str, Any]], T: int, folder: Path) -> np.ndarray:
    return build_grid(feed(rows, folder), np.array([T]), detail="rich")[0]


def altered(rows: list[dict[str, Any]], T: int, how: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows with the future, or the ends of what is not over at T, changed."""
    rows = deepcopy(rows)
    future = [r for r in rows if round(r["eventSec"] * 1000) >= T]
    past = [r for r in rows if round(r["eventSec"] * 1000) < T]
    if how == "deleted":
        return past
    if how == "replaced":
        for r in future:
            r["eventName"], r["subEventName"] = KINDS[rng.integers(len(KINDS))]
            r["teamId"] = int(rng.choice([q["teamId"] for q in rows]))
            r["positions"] = [{"x": int(rng.integers(101)), "y": int(rng.integers(101))} for _ in range(2)]
            r["tags"] = [{"id": int(tag)} for tag in rng.choice(OUTCOMES, 2)]
            r["eventSec"] += float(rng.random())
            r["playerId"] = int(rng.integers(9))
        return rows
    newest = max(r["eventSec"] for r in past)
    for r in past:
        if r["eventSec"] == newest:
            r["positions"] = [r["positions"][0], {"x": int(rng.integers(101)), "y": int(rng.integers(101))}]
            kept = [tag for tag in r["tags"] if tag["id"] == 1401]
            r["tags"] = kept + [{"id": int(tag)} for tag in rng.choice(OUTCOMES, rng.integers(0, 3), replace=False)]
    return rows


@pytest.mark.parametrize("how", ["deleted", "replaced", "how the last one ended"])
@pytest.mark.parametrize("match", ["made up", "2499719", "2565548"])
def test_nothing_after_t_shows(tmp_path: Path, request: pytest.FixtureRequest, match: str, how: str) -> None:
    if match == "made up":
        rows = made_up(300, seed=5)
    else:
        file = request.getfixturevalue("shared") / f"data/events/raw/{match}.json"
        rows = [r for r in json.loads(file.read_text())["events"] if r["matchPeriod"] == "1H"][:400]
    rng = np.random.default_rng(0)
    end = round(rows[-1]["eventSec"] * 1000)
    times = [round(rng.choice(rows)["eventSec"] * 1000) + int(rng.integers(0, 3)) for _ in range(20)]
    changed = 0
    for T in [*times, *rng.integers(10_000, end, 20).tolist()]:
        other = altered(rows, T, how, rng)
        if not any(round(r["eventSec"] * 1000) < T for r in rows):
            continue
        changed += other != rows
        np.testing.assert_array_equal(views(rows, T, tmp_path), views(other, T, tmp_path), err_msg=str(T))
    assert changed > 20


def test_a_test_of_leaks_that_could_not_fail_would_prove_nothing(tmp_path: Path) -> None:
    """The same changes do show once a later event has happened."""
    rows = [event(10, 10, KINDS[0]), event(12, 10, ("Duel", "Ground defending duel"), [703]), event(14, 11, KINDS[0])]
    before, after = views(rows, 13_000, tmp_path), views(rows, 15_000, tmp_path)
    tackle = ACTION_INDEX["PLAYER SUCCESSFUL TACKLE"]
    assert before[..., tackle].sum() == 0
    assert before[..., OTHER].sum() == 1
    assert after[..., tackle].sum() == 1
    moved = deepcopy(rows)
    moved[1]["positions"][1] = {"x": 1, "y": 2}
    assert (views(moved, 13_000, tmp_path) == before).all()
    assert (views(moved, 15_000, tmp_path) != after).any()


def test_the_second_row_of_a_duel_does_not_end_the_first(tmp_path: Path) -> None:
    """Both rows end where the next event starts, so that end is the future even if they are 300 ms apart."""
    attack, defence = ("Duel", "Ground attacking duel"), ("Duel", "Ground defending duel")
    rows = [event(10, 10, attack, [701], ((40, 40), (77, 66))), event(10.3, 11, defence, [703], ((60, 60), (23, 34)))]
    seen = views(rows, 11_000, tmp_path)
    assert not np.isclose(seen[..., END], [0.23, 0.34]).any()
    assert not np.isclose(seen[..., END], [0.77, 0.66]).any()
    assert seen[..., FLAGS].reshape(-1, OTHER + 1).sum(0).nonzero()[0].tolist() == [ACTION_INDEX["DRIVE"], OTHER]
    later = views([*rows, event(10.8, 11, KINDS[0])], 11_000, tmp_path)
    assert np.isclose(later[..., END], [0.23, 0.34], atol=1e-3).all(-1).any()


def test_an_out_does_not_tell_where_the_ball_comes_back(tmp_path: Path) -> None:
    out = ("Interruption", "Ball out of the field")
    rows = [
        event(10, 10, ("Duel", "Air duel"), [703], ((40, 40), (91, 12))),
        event(12, 10, out, (), ((45, 0), (100, 100))),
    ]
    assert not np.isclose(views(rows, 13_000, tmp_path)[..., END], [0.91, 0.12], atol=1e-3).all(-1).any()


def test_the_order_of_simultaneous_rows_tells_nothing(tmp_path: Path) -> None:
    rows = made_up(200, seed=9)
    backwards = rows[::-1]
    swapped = sorted(backwards, key=lambda r: r["eventSec"])
    assert swapped != rows
    for T in range(40_000, 200_000, 9_000):
        np.testing.assert_array_equal(views(rows, T, tmp_path), views(swapped, T, tmp_path))


def test_the_last_action_is_told_without_its_outcome(tmp_path: Path) -> None:
    rows = [event(10, 10, KINDS[0]), event(12, 10, ("Duel", "Air duel"), [703]), event(14, 11, ("Foul", "Foul"))]
    coming = compute_targets(feed(rows, tmp_path), np.array([5_000, 11_000, 13_000, 15_000]))
    assert coming.last.tolist() == [-1, ACTION_INDEX["PASS"], ACTION_INDEX["PASS"], ACTION_INDEX["HEADER"]]
    assert coming.since_ms[1:].tolist() == [1000, 3000, 3000]


def test_presence_marks_the_step_and_its_neighbours(tmp_path: Path) -> None:
    rows = [event(26, 10, KINDS[0]), event(29.99, 10, ("Shot", "Shot")), event(31, 10, ("Shot", "Shot"))]
    presence = compute_targets(feed(rows, tmp_path), np.array([30_000])).presence[0]
    assert presence[:, ACTION_INDEX["PASS"]].nonzero()[0].tolist() == [5, 6, 7]  # 1 s of 5 is step 6 of 33
    assert presence[:, ACTION_INDEX["SHOT"]].nonzero()[0].tolist() == [31, 32]


def test_an_event_at_t_is_to_come_and_not_present(tmp_path: Path) -> None:
    """[T − 5 s, T) is present, [T, T + 5 s) is to come."""
    shot, cross = ("Shot", "Shot"), ("Pass", "Cross")
    rows = [event(25, 10, KINDS[0]), event(30, 10, shot), event(34.999, 10, KINDS[0]), event(35, 10, cross)]
    coming = compute_targets(feed(rows, tmp_path), np.array([30_000]))
    assert coming.presence[0, :, ACTION_INDEX["PASS"]].nonzero()[0].tolist() == [0, 1]
    assert coming.presence[0].sum() == 2
    assert coming.classes[0, :3].tolist() == [ACTION_INDEX["SHOT"], ACTION_INDEX["PASS"], -1]
    assert coming.position_ms[0, :2].tolist() == [30_000, 34_999]


def test_an_unknown_place_is_the_middle_of_the_pitch(tmp_path: Path) -> None:
    rows = [event(28, 11, KINDS[0], at=()), event(29, 10, KINDS[0], at=())]
    grid = views(rows, 30_000, tmp_path)
    there = grid[..., ANY] == 1
    assert sorted(grid[there][:, TEAM].tolist()) == [-1, 1]
    assert (grid[there][:, START] == 0.5).all()
    assert (grid[there][:, END] == 0.5).all()


@pytest.mark.parametrize("seed", range(2))
def test_targets_are_what_the_rules_say(tmp_path: Path, seed: int) -> None:
    """Presence and the last action, event by event; where there is none, class −1 at 30 s, and −1 for 30 s."""
    half = feed(made_up(90, seed), tmp_path)
    at = np.concatenate([window_ends(half, 1700), half.t_ms[::9], half.t_ms[::13] + 1, [0, 1]])
    got, first_open = compute_targets(half, at, steps=20), half.unfinished()
    assert (got.position_ms[got.classes < 0] == 30_000).all()
    for s, T in enumerate(at.tolist()):
        presence = np.zeros((20, 10), np.uint8)
        for t, action in zip(half.t_ms.tolist(), half.action.tolist(), strict=True):
            if T - 5000 <= t < T and action != OTHER:
                step = (t - T + 5000) * 20 // 5000
                presence[max(step - 1, 0) : step + 2, action] = 1
        np.testing.assert_array_equal(got.presence[s], presence, err_msg=str(T))
        last, since = -1, 30_000
        for i in range(int((half.t_ms < T).sum()) - 1, -1, -1):
            newest = int((half.t_ms < T).sum()) - 1
            action = half.known[i] if i >= first_open[newest] else half.action[i]
            if action != OTHER:
                last, since = int(action), T - int(half.t_ms[i])
                break
        assert (got.last[s], got.since_ms[s]) == (last, since), T
    assert got.last.dtype == got.since_ms.dtype == np.int64


def test_the_ninth_event_to_come_is_left_out(tmp_path: Path) -> None:
    """Ten passes, half a second apart, of which 9 lie in 5 s; two in a bin of 160 ms count once, two classes twice."""
    rows = [event(30.1 + 0.5 * i, 10, KINDS[0]) for i in range(10)]
    coming = compute_targets(feed(rows, tmp_path), np.array([30_500, 30_000]))
    assert coming.position_ms[0].tolist() == [30_100 + 500 * i for i in range(8)]
    assert coming.position_ms[1].tolist() == [30_100 + 500 * i for i in range(8)]
    assert (coming.classes == 0).all()
    shot = ("Shot", "Shot")
    rows = [event(30.0, 10, KINDS[0]), event(30.05, 10, shot), event(30.159, 11, KINDS[0]), event(30.16, 10, KINDS[0])]
    coming = compute_targets(feed(rows, tmp_path), np.array([30_000]))
    assert coming.position_ms[0, :4].tolist() == [30_000, 30_050, 30_160, 30_000]
    assert coming.classes[0, :4].tolist() == [0, ACTION_INDEX["SHOT"], 0, -1]


# -------------------------------------------------------------------------------------------------- windows and stores


@pytest.fixture
def feeds(tmp_path: Path) -> list[Feed]:
    return [replace(feed(made_up(120 + 20 * seed, seed), tmp_path), match=str(100 + seed)) for seed in range(3)]


def test_a_store_gives_what_memory_gives(tmp_path: Path, feeds: list[Feed]) -> None:
    held = build_windows(feeds, 7000)
    store = write_store(tmp_path / "store", [feeds[0], Failure("9", "match 9: odd"), *feeds[1:]], 7000)
    assert store.is_event_grid
    assert [f.name for f in store.manifest.failed] == ["9"]
    read = read_store(FeatureStore.open(tmp_path / "store"))
    assert read.windows.names == held.windows.names
    assert read.windows.clips == held.windows.clips
    for name in ("index", "classes", "position_ms", "presence"):
        np.testing.assert_array_equal(getattr(read.windows, name), getattr(held.windows, name))
    np.testing.assert_array_equal(read.last, held.last)
    np.testing.assert_array_equal(read.since_ms, held.since_ms)
    every = torch.arange(len(held.windows))
    batch = Samples(read.windows, CPU, "disk").take(every)
    assert torch.equal(batch.features, Samples(held.windows, CPU, "memory").take(every).features)
    # and these are the windows of the feeds, one after the other
    first = window_ends(feeds[0], 7000)
    np.testing.assert_array_equal(batch.features[: len(first)].numpy(), build_grid(feeds[0], first))
    assert held.windows.names[1] == "100-1H+37000"


def test_joined_sets_keep_their_rows(feeds: list[Feed]) -> None:
    parts = [build_windows([f], 9000).windows for f in feeds]
    joined, whole = WindowSet.join(parts), build_windows(feeds, 9000).windows
    assert joined.names == whole.names
    every = torch.arange(len(whole))
    one, other = Samples(joined, CPU, "memory").take(every), Samples(whole, CPU, "memory").take(every)
    assert all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))


def test_a_match_too_short_is_told(tmp_path: Path, feeds: list[Feed]) -> None:
    short = replace(feeds[0].take(feeds[0].t_ms < 30_000), match="short")
    store = write_store(tmp_path / "some", [short, feeds[1]], 7000)
    assert "35 s" in store.manifest.failed[0].reason
    with pytest.raises(InputError, match="not one match"):
        write_store(tmp_path / "none", [short], 7000)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="is there already"):
        write_store(tmp_path / "some", feeds, 7000)
    with pytest.raises(InputError, match="no window"):
        build_windows([short], 7000)


def test_a_damaged_store_is_named(tmp_path: Path, feeds: list[Feed]) -> None:
    store = write_store(tmp_path / "store", feeds, 7000)
    labels = store.path / "windows.npz"
    whole = labels.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"nothing"):
        labels.write_bytes(damaged)
        with pytest.raises(InputError, match=r"windows\.npz"):
            read_store(store)


def test_training_takes_stores_and_windows_alike(tmp_path: Path, feeds: list[Feed]) -> None:
    small = ["model.hierarchy.dim=16", "model.hierarchy.encoder_heads=2", "model.hierarchy.decoder_heads=2"]
    small += ["model.hierarchy.decoder_layers=1", "model.hierarchy.encoder_layers=1", "train.batch=4", "train.epochs=1"]
    recipe = load(Recipe, Path("events"), [*small, f"data.features={tmp_path}"])
    assert recipe.model.width == WIDTH
    write_store(tmp_path / "train", feeds[:2], 7000)
    write_store(tmp_path / "valid", feeds[2:], 11_000)
    train(recipe, tmp_path / "stores", device=CPU)
    data = TrainingData(
        build_windows(feeds[:2], 7000).windows, build_windows(feeds[2:], 11_000).windows, IDENTITIES["plain"]
    )
    train(recipe, tmp_path / "windows", device=CPU, data=data)
    one, other = (Anticipator.from_pretrained(tmp_path / run / "best") for run in ("stores", "windows"))
    assert one.metadata["backbone"]["hash"] == IDENTITIES["plain"].hash
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_baselines_of_windows_are_those_of_clips(feeds: list[Feed]) -> None:
    held = build_windows(feeds, 3000)
    windows = held.windows
    from ballcast.core.events import Event

    clips = [
        replace(clip, observation=() if c < 0 else (Event(ACTIONS[c], 30_000 - int(since)),))
        for clip, c, since in zip(windows.clips, held.last, held.since_ms, strict=True)
    ]
    assert len({c.observation[0].label for c in clips if c.observation}) > 4
    prior, markov = ClassPrior(clips), Markov(clips)
    np.testing.assert_array_equal(ClassPrior.fit(windows.classes, windows.position_ms).probability, prior.probability)
    fast = Markov.fit(windows.classes, windows.position_ms, held.last, held.since_ms)
    np.testing.assert_array_equal(fast.probability, markov.probability)
    assert markov_predictions(fast, held.last, held.since_ms) == [markov.predict(clip) for clip in clips]
    assert windows.index.shape == (len(clips), WINDOWS)


def test_a_mirrored_sample_is_that_of_the_mirrored_match(tmp_path: Path) -> None:
    """Left for right: y becomes 100 − y, and x, the direction of play, stays."""
    rows = made_up(90, seed=4)
    turned = deepcopy(rows)
    for place in (place for row in turned for place in row["positions"]):
        place["y"] = 100 - place["y"]
    for detail in ("plain", "rich"):
        held, other = (build_windows([feed(r, tmp_path)], 5000, detail=detail).windows for r in (rows, turned))
        S = len(held)
        assert (held.rows[0] != other.rows[0]).any()
        mirrored = Samples(held, CPU, "memory").take(torch.arange(S, 2 * S)).features
        expected = Samples(other, CPU, "memory").take(torch.arange(S)).features
        torch.testing.assert_close(mirrored, expected, atol=1e-3, rtol=0)
