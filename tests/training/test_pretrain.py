"""Pre-training: it learns to spot, goes on after a kill as if nothing had been, and tells what it did."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from games import HEIGHT, WIDTH, make_matches

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneConfig, trained_size
from ballcast.core.config import keys, load, read_yaml
from ballcast.core.embedded import find_recipe
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.features.backbone import Backbone
from ballcast.features.imagenet import start_backbone
from ballcast.loss.criterion import focal_bce
from ballcast.training.optimizer import one_cycle
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train
from ballcast.training.step import spotting_loss

CPU = torch.device("cpu")
YAML = Path("pretrain")
SMALL = [
    *("backbone.encoder=test_efficientnet", "backbone.channels=16", "backbone.blocks=1", "backbone.projected=8"),
    *("backbone.se_ratio=4", "backbone.dropout=0", "backbone.drop_path=0"),
    *("train.start=scratch", "train.epochs=2", "train.steps=4", "clips.batch=4", "clips.run=2"),
]


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_matches(tmp_path_factory.mktemp("matches"), ("train", "valid", "test"), frames=500)


def recipe(matches: Path, *overrides: str) -> PretrainRecipe:
    return load(PretrainRecipe, YAML, [f"data.sources=[{matches}]", *SMALL, *overrides])


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a run wrote that must not depend on how often it was interrupted."""
    kept = [p for p in folder.rglob("*") if p.is_file() and "tensorboard" not in p.parts]
    timed = ("environment.json", "epochs.csv", "report.json")
    return {str(p.relative_to(folder)): p.read_bytes() for p in kept if p.name not in timed}


def test_it_learns_to_spot(matches: Path, tmp_path: Path) -> None:
    """A bright block where the class says, on a match it has not seen: far above what random scores get."""
    config = recipe(
        matches,
        *("train.epochs=4", "train.steps=40", "clips.batch=8", "train.lr=3e-3", "train.ema=0.9", "data.test=[test]"),
        *("augment.flip=0", "augment.shift=0", "augment.zoom=0", "spotting.every=4", "backbone.projected=16"),
    )
    said: list[str] = []
    updates: list[ProgressUpdate] = []
    progress = train(config, tmp_path, device=CPU, show=updates.append, log=said.append)
    assert progress.finished
    assert progress.step == 160
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["test"]["mean_ap"] > 0.9
    assert report["test"]["mean_ap"] > report["test_chance"]["mean_ap"] + 0.2
    assert report["games"] == {"train": ["match_000"], "valid": ["match_001"], "test": ["match_002"]}
    assert report["test"]["mean_over"] == ["PASS", "DRIVE"]
    assert report["valid"]["mean_ap"] == progress.best
    assert any("minutes" in text for text in said)
    assert said[0].startswith("train: 1 game, 500 frames")
    assert updates[-1].score is not None
    backbone = Backbone.load(tmp_path / "best")
    assert backbone.config.classes == len(ACTIONS)
    assert backbone.metadata["trained_on"] == ["match_000"]
    assert trained_size(backbone.metadata) == (HEIGHT, WIDTH)
    assert "match_000" in backbone.identity.note
    assert backbone.hash == report["backbone"]["hash"]


class Cut(Exception):
    """Ends a run as suddenly as a kill, but for the state on disk."""


def cut_after(steps: int) -> Callable[[ProgressUpdate], None]:
    def show(update: ProgressUpdate) -> None:
        if update.epoch * update.steps + update.step == steps:
            raise Cut

    return show


def test_cut_anywhere_and_run_again_it_ends_with_the_same_bytes(matches: Path, tmp_path: Path) -> None:
    overrides = ["train.save_every=1", "backbone.dropout=0.3", "augment.mixup=0.3"]
    config = recipe(matches, *overrides)
    train(config, tmp_path / "whole", device=CPU)
    sources = [*SMALL, f"data.sources=[{matches}]", *overrides]
    command = [sys.executable, "-m", "ballcast", "pretrain", str(YAML), *sources, "--device", "cpu", "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "cut")], stdout=subprocess.DEVNULL)
    while not (tmp_path / "cut" / "state.safetensors").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for steps in (3, 5, 7):
        torch.rand(steps)  # whatever was drawn before in this process must not matter
        with suppress(Cut):
            train(config, tmp_path / "cut", device=CPU, show=cut_after(steps))
    train(config, tmp_path / "cut", device=CPU)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_another_recipe_is_refused_and_more_epochs_go_on(matches: Path, tmp_path: Path) -> None:
    first = recipe(matches, "train.epochs=1", "data.valid=[]")
    train(first, tmp_path, device=CPU)
    assert train(first, tmp_path, device=CPU).step == 4  # finished: nothing to do
    with pytest.raises(InputError, match=r"was started with train\.lr"):
        train(recipe(matches, "train.epochs=1", "data.valid=[]", "train.lr=1e-5"), tmp_path, device=CPU)
    longer = train(recipe(matches, "train.epochs=2", "data.valid=[]"), tmp_path, device=CPU)
    assert longer.step == 8
    assert longer.best_epoch == 2


def test_it_starts_from_another_backbone(matches: Path, tmp_path: Path) -> None:
    config = recipe(matches)
    given = Backbone(config.network, name="given", metadata={"trained_on": ["match_009"], "started_on": ["match_008"]})
    given.save_pretrained(tmp_path / "given")
    begun = start_backbone(recipe(matches, f"train.start={tmp_path / 'given'}"))
    assert begun.hash == given.hash
    assert begun.training
    assert begun.metadata == {"start": "given", "start_hash": given.hash, "started_on": ["match_009", "match_008"]}


def test_without_imagenet_it_does_not_start(matches: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(InputError, match=r"test_efficientnet cannot be fetched .*127\.0\.0\.1.*train\.start=scratch"):
        train(recipe(matches, "train.start=imagenet"), tmp_path / "run", device=CPU)


def test_a_network_without_five_scales_is_one_sentence() -> None:
    with pytest.raises(InputError, match="convnext_atto has no maps of five scales"):
        Backbone(BackboneConfig(encoder="convnext_atto"))


def test_runs_give_the_features_of_their_clips() -> None:
    torch.manual_seed(0)
    backbone = Backbone(load(PretrainRecipe, None, SMALL).network).eval()
    frames = torch.randint(0, 256, (2, 21, 32, 64), dtype=torch.uint8)  # 7 stacks: 3 clips
    with torch.no_grad():
        runs = backbone.runs(frames)
        alone = torch.stack([backbone.features(frames[:, 3 * i : 3 * i + 15]) for i in range(3)], 1)
    assert runs.shape == (2, 3, 40)
    assert torch.allclose(runs, alone, atol=1e-5)


def test_the_loss_of_targets_between_0_and_1() -> None:
    logits = torch.randn(5, 3, 10)
    hard = (torch.rand(5, 3, 10) < 0.3).float()
    expected = focal_bce(logits, hard, gamma=1.2, alpha=0.4).mean()
    assert torch.allclose(spotting_loss(logits, hard, alpha=0.4, gamma=1.2), expected)
    there, absent = (spotting_loss(logits, torch.full_like(hard, v), alpha=0.4, gamma=1.2) for v in (1.0, 0.0))
    half = spotting_loss(logits, torch.full_like(hard, 0.5), alpha=0.4, gamma=1.2)
    assert torch.allclose(half, (there + absent) / 2)


def test_one_cycle_rises_to_its_top_and_falls() -> None:
    rates = [one_cycle(i, 100, top=1e-3, warmup=0.2) for i in range(100)]
    assert max(rates) == rates[19] == pytest.approx(1e-3)
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert 0 < rates[-1] < 2e-6
    assert one_cycle(0, 10, top=1.0, warmup=0.0) == 1.0


def test_the_config_spells_the_defaults_out() -> None:
    assert load(PretrainRecipe, YAML) == PretrainRecipe()
    told = read_yaml(find_recipe(YAML))
    for section in ("data", "clips", "augment", "train", "spotting"):
        hints = {k.removeprefix(f"{section}.") for k in keys(PretrainRecipe) if k.startswith(f"{section}.")}
        assert set(told[section]) == hints, section


def test_a_wrong_folder_is_one_sentence(ballcast: Any, clean_failure: Any, tmp_path: Path) -> None:
    done = ballcast("pretrain", YAML, f"data.sources=[{tmp_path}]")
    clean_failure(done, "has no labelled games")
