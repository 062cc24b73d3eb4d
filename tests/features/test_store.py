"""The feature store: what is written is what is read, and what does not fit is told in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import ENTRIES_PER_SHARD, StoreWriter

CLIPS, WIDTH = 3, 4


def header(name: str = "test", **changes: int) -> Header:
    return Header(BackboneIdentity(hash=name * 16, name=name), clips=CLIPS, width=WIDTH, **changes)


def features(seed: int, windows: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((windows, CLIPS, WIDTH)).astype(np.float16)


def write(folder: Path, counts: list[int], name: str = "test") -> FeatureStore:
    """A store with an entry of so many windows for each of `counts`."""
    writer = StoreWriter(folder, header(name))
    for i, windows in enumerate(counts):
        writer.add(f"clip_{i + 1}", features(i, windows), source=f"clip_{i + 1}/224p.mp4", size=7, mtime_ns=8)
    return writer.finish()


def test_reads_back_what_was_written(tmp_path: Path) -> None:
    count = ENTRIES_PER_SHARD + 3
    write(tmp_path, [6] * count)
    store = FeatureStore.open(tmp_path)
    assert store.names == tuple(f"clip_{i + 1}" for i in range(count))
    assert (len(store), store.snippets, store.width, store.identity) == (count, CLIPS, WIDTH, "test" * 16)
    assert store.window_starts == (0, 125, 250, 375, 500, 625)
    assert [rows.shape for rows in store.rows] == [(ENTRIES_PER_SHARD, 6, CLIPS, WIDTH), (3, 6, CLIPS, WIDTH)]
    for i, name in enumerate(store.names):
        np.testing.assert_array_equal(store.windows(name), features(i))
    assert isinstance(store.rows[0], np.memmap)
    store.check_finite()


def test_videos_of_different_lengths(tmp_path: Path) -> None:
    store = write(tmp_path, [6, 6, 2, 9, 6])
    assert [rows.shape[:2] for rows in store.rows] == [(2, 6), (1, 2), (1, 9), (1, 6)]
    assert store.window_starts == tuple(range(0, 9 * 125, 125))
    assert store.starts("clip_3") == (0, 125)
    np.testing.assert_array_equal(store.windows("clip_4"), features(3, 9))


def test_a_second_write_replaces_the_first(tmp_path: Path) -> None:
    write(tmp_path, [6, 2, 3])
    assert len(write(tmp_path, [6]).rows) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "shard-00000.safetensors"]


def test_the_bytes_depend_on_nothing_but_the_entries(tmp_path: Path) -> None:
    write(tmp_path / "a", [6, 6, 2])
    write(tmp_path / "b", [6, 6, 2])
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no feature store here"):
        FeatureStore.open(tmp_path / "nowhere")
    (tmp_path / "parts").mkdir()
    with pytest.raises(InputError, match="not finished"):
        FeatureStore.open(tmp_path)


def test_unknown_entry(tmp_path: Path) -> None:
    store = write(tmp_path, [6])
    assert "clip_1" in store
    assert "clip_9" not in store
    with pytest.raises(InputError, match="no features of 'clip_9'"):
        store.windows("clip_9")


@pytest.mark.parametrize("keep", [0, 5, 40, -1, -100])
def test_truncated_shard(tmp_path: Path, keep: int) -> None:
    write(tmp_path, [6, 6])
    shard = tmp_path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: (has|is cut off)"):
        FeatureStore.open(tmp_path)


def test_missing_shard(tmp_path: Path) -> None:
    write(tmp_path, [6, 2])
    (tmp_path / "shard-00001.safetensors").unlink()
    with pytest.raises(InputError, match=r"shard-00001.*not there"):
        FeatureStore.open(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 99, "format version 99"),
        (("format",), "other", "not the manifest of a feature store"),
        (("header", "clips"), 5, "the manifest says F16 of"),
        (("header", "width"), "wide", "'header.width' must be a whole number"),
        (("header", "depth"), 5, "unknown key 'header.depth'"),
        (("entries",), [], "the entries do not fit the shards"),
        (("entries",), "none", "'entries' must be a list"),
        (("entries", 1, "name"), "clip_1", "two entries have the same name"),
        (("entries", 1, "index"), 7, "the entries do not fit the shards"),
        (("entries", 1, "size"), "7", "entry 1: 'size' must be a whole number"),
        (("shards", 0, "file"), "../../secret", "is not a shard's name"),
        (("window_starts",), [0], "window_starts must be"),
        (("shards", 0, "windows"), 2**62, "window_starts must be"),
        (("shards", 0, "entries"), 2**62, "the entries do not fit the shards"),
    ],
)
def test_manifest_that_does_not_fit(tmp_path: Path, path: tuple, value: object, message: str) -> None:
    write(tmp_path, [6, 6])
    file = tmp_path / "manifest.json"
    tree = json.loads(file.read_text())
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    file.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=message):
        FeatureStore.open(tmp_path)


def test_not_json(tmp_path: Path) -> None:
    write(tmp_path, [6])
    (tmp_path / "manifest.json").write_text('{"format": ')
    with pytest.raises(InputError, match="ends too early"):
        FeatureStore.open(tmp_path)


def test_two_backbones_do_not_mix(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", [6], "a"), write(tmp_path / "two", [6], "b")
    one.check_same_backbone(one)
    with pytest.raises(InputError, match=r"two backbones do not mix.*one.*two"):
        one.check_same_backbone(two)
    with pytest.raises(InputError, match="holds features of the backbone a"):
        header("a").check_same(header("b"), tmp_path)
    with pytest.raises(InputError, match="was made with every 125, not 25"):
        header().check_same(header(every=25), tmp_path)


def test_bad_features_are_refused(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, header())
    about = {"source": "x", "size": 1, "mtime_ns": 1}
    broken = features(0)
    broken[2, 1, 0] = np.nan
    with pytest.raises(InputError, match="clip_1: the features hold NaN"):
        writer.add("clip_1", broken, **about)
    with pytest.raises(InputError, match=r"shape \(6, 2, 4\), expected \(windows, 3, 4\)"):
        writer.add("clip_1", features(0)[:, :2], **about)
    with pytest.raises(InputError, match="type float32"):
        writer.add("clip_1", features(0).astype(np.float32), **about)
    with pytest.raises(InputError, match="nothing to store"):
        writer.finish()


def test_check_finite_names_the_entry(tmp_path: Path) -> None:
    write(tmp_path, [6, 6])
    shard = tmp_path / "shard-00000.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-2:] = np.float16(np.inf).tobytes()
    shard.write_bytes(raw)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["shards"][0]["sha256"] = ""  # as in stores of older versions
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="features of clip_2 are not all finite"):
        FeatureStore.open(tmp_path).check_finite()


def test_a_flipped_bit_in_a_shard_is_noticed(tmp_path: Path) -> None:
    store = write(tmp_path, [6, 6])
    shard = tmp_path / store.manifest.shards[0].file
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1  # still a finite number
    shard.write_bytes(raw)
    damaged = FeatureStore.open(tmp_path)  # opening reads no features
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: its checksum differs.* delete the store"):
        damaged.windows(damaged.names[0])
    with pytest.raises(InputError, match="its checksum differs"):
        damaged.rows  # noqa: B018
