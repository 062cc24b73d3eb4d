"""Clips out of a game's store are what extracting the clips gives."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_import import cut_clips, import_npy
from ballcast.features.store_writer import StoreWriter
from tests.video.conftest import make_video


def game(folder: Path, windows: int, every: int = 125) -> FeatureStore:
    folder.mkdir()
    writer = StoreWriter(folder, Header(BackboneIdentity("h", "n"), 2, 3, every))
    block = np.arange(windows * 6, dtype=np.float16).reshape(windows, 2, 3)
    writer.add("match", block, source="match.mp4", size=7, mtime_ns=8, resolution=(4, 5))
    return writer.finish()


def test_clip_i_has_the_windows_from_i_on(tmp_path: Path) -> None:
    store = game(tmp_path / "game", 8)
    clips = cut_clips(store, tmp_path / "clips", {"match": ["clip_1", "clip_2", "clip_3"]})
    assert clips.names == ("clip_1", "clip_2", "clip_3")
    for i, name in enumerate(clips.names):
        assert np.array_equal(clips.windows(name), store.windows("match")[i : i + 6])
        assert clips.starts(name) == (0, 125, 250, 375, 500, 625)
    assert clips.identity == store.identity
    assert clips.entry("clip_2").source == "match.mp4"


def test_too_short_or_too_dense_a_game(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="7 windows of 5 s, too few for 3 clips"):
        cut_clips(game(tmp_path / "short", 7), tmp_path / "a", {"match": ["clip_1", "clip_2", "clip_3"]})
    with pytest.raises(InputError, match="every 25 frames"):
        cut_clips(game(tmp_path / "dense", 40, every=25), tmp_path / "b", {"match": ["clip_1"]})


def test_as_extraction_of_the_clip_itself(tmp_path: Path, backbone: Backbone) -> None:
    whole = make_video(tmp_path / "match.mp4", range(875), size=(32, 64), codec_options={"g": "125", "bf": "0"})
    (tmp_path / "split" / "clip_1").mkdir(parents=True)
    (tmp_path / "split" / "clip_1" / "224p.mp4").symlink_to(whole)
    games = extract(whole, tmp_path / "games", backbone, device="cpu", workers=1).store
    clips = cut_clips(games, tmp_path / "cut", {"match": ["clip_1", "clip_2"]})
    expected = extract(tmp_path / "split", tmp_path / "extracted", backbone, device="cpu", workers=1).store
    assert np.allclose(clips.windows("clip_1"), expected.windows("clip_1"), atol=2e-3)


def features(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((6, 5, 7)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """clip_1.npy to clip_12.npy."""
    folder = tmp_path / "npy"
    folder.mkdir()
    for i in range(12):
        np.save(folder / f"clip_{i + 1}.npy", features(i))
    return folder


def test_import(tmp_path: Path, folder: Path) -> None:
    np.save(folder / "clip_3.npy", features(2).reshape(30, 7).astype(np.float64))  # windows one after the other
    (folder / "Labels-ball.json").write_text("{}")
    store = import_npy(folder, tmp_path / "store", name="mine", snippets=5)
    assert store.names == tuple(f"clip_{i + 1}" for i in range(12))
    assert (store.snippets, store.width, store.window_starts) == (5, 7, (0, 125, 250, 375, 500, 625))
    for i, name in enumerate(store.names):
        np.testing.assert_array_equal(store.windows(name), features(i).astype(np.float16))
    assert store.labels is not None
    again = import_npy(folder, tmp_path / "again", name="mine", snippets=5)
    again.check_same_backbone(store)
    with pytest.raises(InputError, match="two backbones"):
        import_npy(folder, tmp_path / "other", name="theirs", snippets=5).check_same_backbone(store)


def break_nan(folder: Path) -> None:
    broken = features(1)
    broken[4, 0, 0] = np.nan
    np.save(folder / "clip_2.npy", broken)


def break_code(folder: Path) -> None:
    np.save(folder / "clip_2.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


def break_header(shape: str) -> Callable[[Path], None]:
    """clip_2.npy with a header that says `shape`, and 64 bytes of numbers."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}".ljust(117).encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    return lambda folder: (folder / "clip_2.npy").write_bytes(content) and None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (break_nan, r"clip_2\.npy: window 4 holds NaN"),
        (break_code, r"clip_2\.npy: is not a \.npy file of numbers"),
        (lambda f: np.save(f / "clip_2.npy", features(1)[..., :6]), r"clip_2\.npy: windows of \(5, 6\)"),
        (lambda f: np.save(f / "clip_2.npy", features(1)[0, :3]), r"clip_2\.npy: 3 rows are not a whole number"),
        (lambda f: np.save(f / "clip_2.npy", features(1)[None]), r"clip_2\.npy: has shape \(1, 6, 5, 7\)"),
        (lambda f: np.save(f / "clip_2.npy", np.ones((6, 5, 7), int)), r"clip_2\.npy: holds int64"),
        (lambda f: np.save(f / "clip_2.npy", features(1) * 1e6), r"clip_2\.npy: numbers beyond"),
        (lambda f: (f / "clip_2.npy").write_bytes(b"PK\x03\x04" + bytes(100)), r"clip_2\.npy: is not"),
        (break_header("(6, 5, "), r"clip_2\.npy: is not"),
        (break_header("(6, 5, 7]}"), r"clip_2\.npy: is not"),
        (break_header("(900000000000, 33, 1280)}"), r"clip_2\.npy: is not"),
        (break_header(f"({10**30}, 5, 7)}}"), r"clip_2\.npy: is not"),
        (break_header("(-6, 5, 7)}"), r"clip_2\.npy: is not"),
        (lambda f: np.save(f / "clip_2.npy", np.ones((5, 0), np.float32)), r"clip_2\.npy: has shape \(1, 5, 0\)"),
        (lambda f: (f / "clip_2.npy").write_bytes(b""), r"clip_2\.npy: is not"),
        (lambda f: (f / "clip_2.npy").unlink(), r"clip_2\.npy missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, folder: Path, spoil: object, message: str) -> None:
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        import_npy(folder, tmp_path / "store", name="mine", snippets=5)
    assert not (tmp_path / "store").exists()


def test_clips_that_must_be_there(tmp_path: Path, folder: Path) -> None:
    expected = [f"clip_{i + 1}" for i in range(14)]
    with pytest.raises(InputError, match=r"clip_13\.npy and 1 more missing"):
        import_npy(folder, tmp_path / "store", name="mine", snippets=5, expected=expected)


def test_folders(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        import_npy(tmp_path / "nowhere", tmp_path / "store", name="mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.npy files"):
        import_npy(tmp_path / "empty", tmp_path / "store", name="mine")
    import_npy(folder, tmp_path / "empty", name="mine", snippets=5)  # an empty folder may be given
    assert len(FeatureStore.open(tmp_path / "empty")) == 12
    with pytest.raises(InputError, match="is there already"):
        import_npy(folder, tmp_path / "empty", name="mine", snippets=5)
