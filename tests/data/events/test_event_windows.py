"""Windows of many matches: in memory and from a store the same, and training takes either."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from feeds import feed, made_up

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.data.events.event_grid import WIDTH, WINDOWS, build_grid, window_ends
from ballcast.data.events.event_windows import IDENTITIES, build_windows, read_store, write_store
from ballcast.data.events.feed import Feed
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import Failure, FeatureStore
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.model.anticipator import Anticipator
from ballcast.training.data import TrainingData
from ballcast.training.run import train

CPU = torch.device("cpu")


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
    assert fast.predict_all(held.last, held.since_ms) == [markov.predict(clip) for clip in clips]
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
