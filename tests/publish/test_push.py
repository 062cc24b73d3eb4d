"""Backbones and feature stores on the hub: they come back the same, with cards that describe them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hub_server import Hub
from huggingface_hub import DatasetCard, ModelCard

from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.store import FeatureStore, Header, push_stores
from ballcast.features.store_writer import StoreWriter
from ballcast.publish.cards import backbone_card

MADE_BY = BackboneIdentity("cd" * 32, "spotter", note="a note", trained_on=("a",))


def store_at(folder: Path, names: str = "ab", *, windows: int = 2, made_by: BackboneIdentity = MADE_BY) -> FeatureStore:
    rng, writer = np.random.default_rng(len(names)), StoreWriter(folder, Header(made_by, 3, 5))
    for i, name in enumerate(names):
        shape = (windows + i, 3, 5)  # another length: another shard
        writer.add(name, rng.normal(size=shape).astype(np.float16), source=f"{name}.mp4", size=1, mtime_ns=2)
    return writer.finish()


def test_a_backbone_comes_back_the_same(backbone: Backbone, on_hub: Hub) -> None:
    backbone.push_to_hub("me/backbone", licence="mit")
    assert sorted(on_hub.of("me/backbone")) == ["README.md", "config.json", "model.safetensors"]
    again = Backbone.load("me/backbone")
    assert again.hash == backbone.hash
    assert all(torch.equal(again.state_dict()[key], value) for key, value in backbone.state_dict().items())
    assert ModelCard(on_hub.files["me/backbone/README.md"].decode()).data.get("license") == "mit"


def test_a_backbones_card_has_what_pre_training_recorded(backbone: Backbone) -> None:
    scores = {"mean_ap": 0.4, "least_events": 5, "per_class": {"PASS": {"ap": 0.5, "events": 58}}}
    about = {"start": "scratch", "trained_on": ["match_001"], "seed": 3, "epoch": 9, "validation": scores}
    trained = Backbone(backbone.config, name="mine", metadata=about)
    text = backbone_card("me/b", trained, licence="mit")
    for words in (
        "Initial weights: scratch",
        "Trained on: `match_001`",
        "Seed: 3; kept: epoch 9",
        "| PASS | 58 | 50.00 |",
    ):
        assert words in text, words
    assert "learned from `match_001`: scores on these are too good" in text
    assert ModelCard(text).data.get("eval_results")[0].metric_value == 40.0
    plain = backbone_card("me/b", backbone, licence="mit")
    assert "None are recorded" in plain
    assert "Trained on: not recorded" in plain


def test_stores_come_back_the_same(tmp_path: Path, on_hub: Hub) -> None:
    stores = [store_at(tmp_path / "features" / split, names) for split, names in (("train", "abc"), ("valid", "d"))]
    (tmp_path / "features" / "train" / "Labels-ball.json").write_text("{}")
    (tmp_path / "features" / "train" / "notes.txt").write_text("mine")
    stores = [FeatureStore.open(store.path) for store in stores]
    assert push_stores(stores, "me/features") == f"{on_hub.url}/datasets/me/features"
    assert on_hub.private == {"datasets/me/features": True}
    assert "train/notes.txt" not in on_hub.of("datasets/me/features")
    for store in stores:
        again = FeatureStore.from_pretrained("me/features", store.path.name)
        assert again.manifest == store.manifest
        assert (again.labels is None) == (store.labels is None)
        assert all(np.array_equal(again.windows(name), store.windows(name)) for name in store.names)
        assert again.seen_in_training() == store.seen_in_training()
    text = on_hub.files["datasets/me/features/README.md"].decode()
    assert "| `train` | 3 | 9 | – | yes | 0 |" in text
    assert "has seen 1 of the 3 videos of `train`" in text
    assert "a note" in text
    assert DatasetCard(text).data.get("license") == "other"
    with pytest.raises(InputError, match="me/features: has no features of 'test' on the hub"):
        FeatureStore.from_pretrained("me/features", "test")


def test_one_more_split_leaves_the_others_and_a_new_one_replaces_its_old_shards(tmp_path: Path, on_hub: Hub) -> None:
    store_at(tmp_path / "train", "abc").push_to_hub("me/features")
    store_at(tmp_path / "valid", "d").push_to_hub("me/features")
    store_at(tmp_path / "new" / "train", "a").push_to_hub("me/features")
    files = set(on_hub.of("datasets/me/features"))
    assert {name for name in files if "shard" in name} == {f"{s}/shard-00000.safetensors" for s in ("train", "valid")}
    assert FeatureStore.from_pretrained("me/features", "train").names == ("a",)
    assert FeatureStore.from_pretrained("me/features", "valid").names == ("d",)


def test_stores_of_two_backbones_do_not_mix(tmp_path: Path, on_hub: Hub) -> None:
    other = store_at(tmp_path / "valid", made_by=BackboneIdentity("ef" * 32, "other"))
    with pytest.raises(InputError, match="two backbones do not mix"):
        push_stores([store_at(tmp_path / "train"), other], "me/features")
    assert on_hub.asked == []


def test_from_a_folder_it_is_the_store_of_the_split(tmp_path: Path) -> None:
    store_at(tmp_path / "train")
    assert FeatureStore.from_pretrained(tmp_path, "train").names == ("a", "b")
    with pytest.raises(InputError, match=r"valid: no feature store here; make one with `ballcast extract`"):
        FeatureStore.from_pretrained(tmp_path, "valid")
    with pytest.raises(InputError, match=r"^nowhere/train: no feature store here"):
        FeatureStore.from_pretrained("nowhere", "train")
