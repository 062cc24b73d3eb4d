"""Clips out of a game's store are what extracting the clips gives."""

from pathlib import Path

import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.cut import cut_clips
from ballcast.features.extract import extract
from ballcast.features.manifest import BackboneIdentity, Header
from ballcast.features.store import FeatureStore, StoreWriter
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
