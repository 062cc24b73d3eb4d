"""A backbone's training games are known to every store made with it."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from synthetic import SMALL, make_clips, make_features, make_split

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.config import load
from ballcast.core.errors import BallcastWarning
from ballcast.data.labels.soccernet import write_labels
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import StoreWriter
from ballcast.training.data import open_training_data


def store_of(folder: Path, trained_on: tuple[str, ...], names: tuple[str, ...] = ("clip_1", "clip_2")) -> FeatureStore:
    writer = StoreWriter(folder, Header(BackboneIdentity("made up", "made up", trained_on=trained_on), 5, 24))
    for name in names:
        writer.add(name, np.zeros((6, 5, 24), np.float16), source=f"{name}.mp4", size=1, mtime_ns=1)
    return writer.finish()


@pytest.mark.parametrize(
    ("trained_on", "names", "seen"),
    [
        ((), ("clip_1",), []),
        (("train/clip_1",), ("clip_1",), []),  # another split's clip of that name
        (("train/clip_1", "valid/clip_7"), ("clip_1", "clip_2"), ["clip_1", "clip_2"]),
        (("match_003",), ("match_003", "match_004"), ["match_003"]),
    ],
)
def test_what_the_backbone_has_seen(
    tmp_path: Path, trained_on: tuple[str, ...], names: tuple[str, ...], seen: list[str]
) -> None:
    store = store_of(tmp_path / "valid", trained_on, names)
    assert store.seen_in_training() == seen
    assert FeatureStore.open(tmp_path / "valid").manifest.header.backbone.trained_on == trained_on


def test_the_identity_carries_all_games_from_the_first_start_on() -> None:
    small = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4)
    backbone = Backbone(small, metadata={"trained_on": ["a"], "started_on": ["b", "a"]})
    assert backbone.identity.trained_on == ("a", "b")


def test_validating_on_what_the_backbone_learned_from_is_told(tmp_path: Path) -> None:
    make_split(tmp_path / "train", 8, seed=0)
    clips = make_clips(4, seed=1)
    recipe = load(Recipe, None, [*SMALL, f"data.features={tmp_path}", "data.stitch=false"])
    for trained_on, told in ((("valid/clip_1",), True), (("train/clip_1",), False)):
        writer = StoreWriter(
            tmp_path / "valid", Header(BackboneIdentity("made up", "mine", trained_on=trained_on), 5, 24)
        )
        for clip, features in zip(clips, make_features(clips, seed=1), strict=True):
            writer.add(clip.name, features, source=f"{clip.name}.mp4", size=1, mtime_ns=1)
        write_labels(tmp_path / "valid" / "Labels-ball.json", clips)
        writer.finish()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data = open_training_data(recipe)
        assert data.leaks == ({"valid": "4 of 4"} if told else {})  # for the model's card
        found = [str(w.message) for w in caught if issubclass(w.category, BallcastWarning)]
        assert any("mine, was trained on 4 of its 4 videos" in text for text in found) == told
