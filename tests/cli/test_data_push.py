"""`ballcast data push` as a user runs it, and the pushed id where a folder stands."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hub_server import Hub
from synthetic import SMALL, make_split
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.cli.data import push_folder
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.embedded import BACKBONE, MODEL, SAMPLES
from ballcast.core.errors import InputError
from ballcast.model.anticipator import Anticipator

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def env(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {**hub.env, "HF_HOME": str(tmp_path / "hf")}


def test_a_model_goes_up_as_it_is(hub: Hub, env: dict[str, str], ballcast: Run) -> None:
    done = ballcast("data", "push", MODEL, "me/model", "--backbone", "me/backbone", "--public", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{hub.url}/me/model: uploaded, public\n"
    assert done.stderr == ""  # no bars when nobody looks
    assert hub.private == {"me/model": False}
    for name in ("config.json", "model.safetensors"):  # half precision stays half precision
        assert hub.files[f"me/model/{name}"] == (MODEL / name).read_bytes()
    card = hub.files["me/model/README.md"].decode()
    assert "ballcast predict match.mp4 --model me/model --backbone me/backbone" in card


def test_so_does_a_backbone(on_hub: Hub) -> None:
    address = push_folder(BACKBONE, "me/backbone", private=True, licence=None, backbone=None)
    assert address == f"{on_hub.url}/me/backbone"
    for name in ("config.json", "model.safetensors"):
        assert on_hub.files[f"me/backbone/{name}"] == (BACKBONE / name).read_bytes()
    assert "license: apache-2.0" in on_hub.files["me/backbone/README.md"].decode()


def test_features_go_up_and_are_trained_on_by_their_id(
    hub: Hub, env: dict[str, str], ballcast: Run, tmp_path: Path
) -> None:
    stores = {split: make_split(tmp_path / "made" / split, 6, seed=i) for i, split in enumerate(("train", "valid"))}
    done = ballcast("data", "push", "made", "me/features", "--licence", "apache-2.0", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{hub.url}/datasets/me/features: uploaded, private\n"
    assert "license: apache-2.0" in hub.files["datasets/me/features/README.md"].decode()
    for split, store in stores.items():
        for name in ("shard-00000.safetensors", "manifest.json", "Labels-ball.json"):
            assert hub.files[f"datasets/me/features/{split}/{name}"] == (store.path / name).read_bytes()
    settings = (*SMALL, "train.epochs=1", "train.batch=2", "train.warmup_epochs=0", "data.stitch=false")
    settings += ("--out", "run", "--device", "cpu")
    done = ballcast("train", "paper", "data.features=me/features", *settings, env=env)
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "run" / "best" / "config.json").read_text())["metadata"]
    assert (about["trained_on"], about["validated_on"], about["seed"]) == (["train"], ["valid"], 0)
    assert about["backbone"]["name"] == "made up"


def test_a_model_is_tuned_by_its_id(on_hub: Hub, tmp_path: Path) -> None:
    Anticipator(load(Recipe, None, SMALL).model).push_to_hub("me/model")
    tune = ["tune", "me/model", "--features", str(make_split(tmp_path / "valid", 6, seed=0).path), "--device", "cpu"]
    homeless = CliRunner().invoke(app, tune)
    assert isinstance(homeless.exception, InputError)
    assert "me/model: no such folder" in str(homeless.exception)
    assert "hub, the file to write with --out" in str(homeless.exception)
    done = CliRunner().invoke(app, [*tune, "--out", str(tmp_path / "calibration.json")])
    assert done.exit_code == 0, done.exception
    assert "in folds it was not fitted on" in done.output


def test_what_cannot_be_pushed_is_one_sentence_before_anything_is_sent(on_hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "best" / "config.json").write_text("{}")
    shard = make_split(tmp_path / "cut", 2, seed=0).path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    for folder, words in [
        ("nowhere", "nowhere: no such folder"),
        ("empty", "empty: contains no model, no backbone and no features"),
        ("run", "run: is a run folder; give its model"),
        ("run/best", r"config\.json: not a ballcast model"),
        ("cut", r"shard-00000\.safetensors: has"),
    ]:
        with pytest.raises(InputError, match=words):
            push_folder(tmp_path / folder, "me/x", private=True, licence=None, backbone=None)
    assert on_hub.asked == []


def test_a_wrong_token_is_one_sentence(hub: Hub, env: dict[str, str], ballcast: Run, clean_failure: Run) -> None:
    wrong = {**env, "HF_TOKEN": "hf_wrong"}
    clean_failure(ballcast("data", "push", SAMPLES / "features", "me/x", env=wrong), "me/x", "hf auth login")
    assert hub.files == {}
