"""Whole runs: they learn, they cannot learn from noise, they stop when they must, and they survive."""

import csv
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from synthetic import SMALL, make_clips, make_features, make_game, make_split, write_store

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import trained_size
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.events import Clip
from ballcast.inference.baselines import ClassPrior
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.training.distributed import Ranks
from ballcast.training.evaluation import evaluate, predict, score_of
from ballcast.training.loop import NotFinite, Trainer, open_run
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import build_task, train
from ballcast.training.switches import mode

CPU = torch.device("cpu")


def recipe(folder: Path, *overrides: str) -> Recipe:
    base = ["train.epochs=2", "train.batch=8", "train.warmup_epochs=1", f"data.features={folder}"]
    return load(Recipe, Path("paper"), [*SMALL, *base, *overrides])


def trainer(made: Recipe, folder: Path) -> Trainer[Any]:
    context = open_run(made, folder, CPU, Ranks())
    return Trainer(build_task(made, context), made, context)


def column(folder: Path, name: str, file: str = "steps.csv") -> list[str]:
    with (folder / file).open() as lines:
        return [row[name] for row in csv.DictReader(lines)]


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    make_game(tmp_path / "features" / "train", 100, seed=1)
    make_split(tmp_path / "features" / "valid", 12, seed=2)
    return tmp_path / "features"


def test_it_overfits_sixteen_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ten actions, at most 4 events a clip: mAP above 0.95 on what it was trained on. It keeps freed memory."""
    kept: list[bool] = []
    monkeypatch.setattr("ballcast.training.loop.keep_freed_memory", lambda: kept.append(True))
    for split in ("train", "valid"):
        make_split(tmp_path / split, 16, seed=0)
    made = recipe(
        tmp_path,
        *("train.epochs=26", "train.batch=16", "train.lr=2e-3", "train.weight_decay=0", "train.warmup_epochs=1"),
        *("data.mixup=0", "data.drop_windows=0", "data.boost={}", "train.restart_epochs=25"),
        *("model.hierarchy.dropout=0", "model.hierarchy.drop_path=0", "model.hierarchy.dim=64"),
    )
    # Twenty passes an epoch: the clips again and again, so that little time goes into saving.
    clips = make_clips(16, seed=0)
    many = [replace(c, name=f"{c.name}_{i}") for i in range(20) for c in clips]
    write_store(tmp_path / "train", many, np.tile(make_features(clips, seed=0), (20, 1, 1, 1)))
    assert {e.action for c in clips for e in c.anticipation} == set(range(10))
    assert max(len(c.anticipation) for c in clips) == 4
    progress = train(made, tmp_path / "run", device=CPU)
    assert progress.best > 0.95
    assert kept == [True]


def test_shuffled_labels_teach_nothing(tmp_path: Path) -> None:
    """Trained on labels dealt out at random, it is no better on held-out clips than the class prior."""
    clips = make_clips(96, seed=0)
    dealt = list(np.random.default_rng(0).permutation(len(clips)))
    shuffled = [Clip(c.name, clips[i].observation, clips[i].anticipation) for c, i in zip(clips, dealt, strict=True)]
    write_store(tmp_path / "train", shuffled, make_features(clips, seed=0))
    held_out = make_clips(96, seed=1)
    write_store(tmp_path / "valid", held_out, make_features(held_out, seed=1))
    made = recipe(tmp_path, "train.epochs=8", "train.lr=1e-3", "data.boost={}", "emit.threshold=0.05")
    run = trainer(made, tmp_path / "run")
    run.fit()
    assert run.task.valid is not None
    prior = ClassPrior(shuffled)
    by_prior = score(held_out, {c.name: prior.predict(c) for c in held_out}).avg
    assert evaluate(run.task.model, run.task.valid, made.emit).avg < by_prior + 0.02


def test_a_run_folder_holds_everything(splits: Path, tmp_path: Path) -> None:
    updates: list[ProgressUpdate] = []
    made = recipe(splits)
    progress = train(made, tmp_path / "run", device=CPU, show=updates.append)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {
        *(
            "config.yaml",
            "environment.json",
            "steps.csv",
            "epochs.csv",
            "best",
            "last",
            "state.safetensors",
            "tensorboard",
        )
    }
    assert load(Recipe, tmp_path / "run" / "config.yaml") == made
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert {"torch", "seed", "git", "command"} <= environment.keys()
    assert [int(s) for s in column(tmp_path / "run", "step")] == list(range(progress.step))
    terms = np.array(
        [[float(v) for v in column(tmp_path / "run", t)] for t in ("objectness", "classes", "offset", "auxiliary")]
    )
    total = [float(v) for v in column(tmp_path / "run", "total")]
    assert terms[0] + terms[1] + terms[2] + 0.5 * terms[3] == pytest.approx(total, rel=1e-5)
    assert updates[-1].score is not None
    assert updates[-1].score.avg == pytest.approx(float(column(tmp_path / "run", "avg", "epochs.csv")[-1]))
    model = Anticipator.from_pretrained(tmp_path / "run" / "best")
    assert model.metadata["validation"]["avg"] == progress.best
    assert model.metadata["backbone"]["hash"] == "made up"
    assert trained_size(model.metadata) == (224, 398)
    assert len(model.metadata["class_weights"]) == 10
    again = train(made, tmp_path / "run", device=CPU)  # finished: nothing to do
    assert again == progress


def test_training_without_validation_for_the_challenge(splits: Path, tmp_path: Path) -> None:
    made = recipe(splits, "data.train=[train, valid]", "data.valid=[]")
    train(made, tmp_path / "run", device=CPU)
    model = Anticipator.from_pretrained(tmp_path / "run" / "best")
    assert model.metadata["trained_on"] == ["train", "valid"]


def test_a_split_is_trained_on_or_validated_on(splits: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"valid is trained on and validated on.*data\.valid=\[\]"):
        train(recipe(splits, "data.train=[train, valid]"), tmp_path / "run", device=CPU)


def test_several_splits_are_validated_on_together(splits: Path, tmp_path: Path) -> None:
    make_split(splits / "test", 9, seed=4)
    run = trainer(recipe(splits, "data.valid=[valid, test]"), tmp_path / "run")
    assert run.task.valid is not None
    assert len(predict(run.task.model, run.task.valid, run.task.recipe.emit)) == 12 + 9


def test_windows_that_cannot_be_cut_are_told(tmp_path: Path, ballcast: Any) -> None:
    make_game(tmp_path / "train", 100, seed=1, every=125)
    make_split(tmp_path / "valid", 4, seed=2)
    overrides = [*SMALL, "train.epochs=1", "train.batch=8", f"data.features={tmp_path}"]
    done = ballcast("train", "paper", *overrides)
    assert done.returncode == 0
    assert "ballcast: note: 52 of 66 training windows are left out" in done.stderr
    assert "--every 25" in done.stderr


def test_early_stopping(splits: Path, tmp_path: Path) -> None:
    made = recipe(splits, "train.epochs=30", "train.patience=2", "train.lr=1e-9", "emit.threshold=0.99")
    train(made, tmp_path / "run", device=CPU)
    assert len(column(tmp_path / "run", "epoch", "epochs.csv")) == 3  # the first is the best, then two without better


def test_modes_are_left_as_they_were(splits: Path, tmp_path: Path) -> None:
    run = trainer(recipe(splits), tmp_path / "run")
    assert run.task.valid is not None
    seen = []
    run.task.model.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    for before in (True, False):
        run.task.model.train(before)
        evaluate(run.task.model, run.task.valid, run.task.recipe.emit)
        assert run.task.model.training is before
        assert all(m.training is before for m in run.task.model.modules())
    assert set(seen) == {False}
    seen.clear()
    run.task.model.eval()
    run.fit()
    assert not run.task.model.training
    assert seen.count(True) == run.progress.step  # every training step ran in train mode, after evaluations too
    with pytest.raises(ZeroDivisionError), mode(run.task.model, training=True):
        1 / 0  # noqa: B018
    assert not run.task.model.training


def test_a_non_finite_loss_stops_the_run_and_names_the_batch(splits: Path, tmp_path: Path) -> None:
    run = trainer(recipe(splits), tmp_path / "run")
    with torch.no_grad():
        next(run.task.model.parameters())[0] = float("nan")
    with pytest.raises(NotFinite, match=r"epoch 1 step 1: the loss is nan; the batch was clip_\d+"):
        run.fit()


def test_the_running_mean_is_what_is_scored_and_kept(splits: Path, tmp_path: Path) -> None:
    run = trainer(recipe(splits, "train.ema=0.8"), tmp_path / "run")
    run.fit()
    kept = Anticipator.from_pretrained(tmp_path / "run" / "last")
    own = run.task.model.state_dict()
    assert any(not torch.equal(value, own[key]) for key, value in kept.state_dict().items())
    assert run.task.ema is not None
    assert run.task.valid is not None
    with run.task.ema.swapped():
        assert all(torch.equal(value, run.task.model.state_dict()[key]) for key, value in kept.state_dict().items())
        mean = evaluate(run.task.model, run.task.valid, run.task.recipe.emit)
    assert float(column(tmp_path / "run", "avg", "epochs.csv")[-1]) == pytest.approx(mean.avg)


def test_scores_from_arrays_are_those_of_the_predictions(splits: Path, tmp_path: Path) -> None:
    for extra in ((), ("model.offset=class bins", "emit.run=3"), ("emit.mode=class", "emit.threshold=0.02")):
        made = trainer(recipe(splits, *extra), tmp_path / f"run{len(extra)}")
        assert made.task.valid is not None
        told = score_of(made.task.valid, predict(made.task.model, made.task.valid, made.task.recipe.emit))
        np.testing.assert_array_equal(evaluate(made.task.model, made.task.valid, made.task.recipe.emit).ap, told.ap)


def test_features_of_a_video_are_not_mirrored(splits: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.mirror"):
        train(recipe(splits, "data.mirror=0.5"), tmp_path / "run", device=CPU)


# -- kills ---------------------------------------------------------------------------------------------------------


def start_training(features: Path, run: Path, *extra: str) -> "subprocess.Popen[bytes]":
    overrides = [*SMALL, "train.epochs=6", "train.batch=8", "train.save_every=3", f"data.features={features}", *extra]
    overrides += ["train.ema=0.9", "model.hierarchy.every_layer=true"]  # both have state or randomness of their own
    command = [sys.executable, "-m", "ballcast", "train", "paper", *overrides, "--out", run]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_killed_at_random_moments_the_curve_goes_on_bit_for_bit(splits: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert start_training(splits, whole).wait(120) == 0
    kills, rng = 0, random.Random(0)
    broken = tmp_path / "broken"
    for _ in range(5):
        process = start_training(splits, broken)
        before = (broken / "steps.csv").stat().st_mtime_ns if (broken / "steps.csv").exists() else 0
        while process.poll() is None:  # wait until it has saved something new, then a random moment more
            log = broken / "steps.csv"
            if log.exists() and log.stat().st_mtime_ns != before:
                time.sleep(rng.uniform(0, 0.4))
                break
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        for path in broken.rglob("*.csv"):
            assert path.read_text().endswith("\n")
        if (broken / "best" / "config.json").exists() and (broken / "best" / "model.safetensors").exists():
            Anticipator.from_pretrained(broken / "best")
    assert start_training(splits, broken).wait(120) == 0
    assert kills >= 2
    assert (broken / "steps.csv").read_bytes() == (whole / "steps.csv").read_bytes()
    for file in ("best/model.safetensors", "last/model.safetensors", "state.safetensors"):
        assert (broken / file).read_bytes() == (whole / file).read_bytes(), file


# -- what does not fit ---------------------------------------------------------------------------------------------


def spoil(name: str) -> Callable[[Path], tuple[list[str], str]]:
    def wrong_width(features: Path) -> tuple[list[str], str]:
        return ["model.width=1280"], "add model.width=24"

    def wrong_clips(features: Path) -> tuple[list[str], str]:
        return ["model.clips=33"], "add model.clips=5"

    def missing_clip(features: Path) -> tuple[list[str], str]:
        labels = json.loads((features / "valid" / "Labels-ball.json").read_text())
        labels["videos"].append({**labels["videos"][0], "path": "clip_77/224p.mp4"})
        (features / "valid" / "Labels-ball.json").write_text(json.dumps(labels))
        return [], "no features of clip_77"

    def another_backbone(features: Path) -> tuple[list[str], str]:
        clips = make_clips(6, seed=0)
        write_store(features / "valid", clips, make_features(clips, seed=0), backbone="another")
        return [], "two backbones do not mix"

    def damaged(features: Path) -> tuple[list[str], str]:
        path = features / "train" / "shard-00000.safetensors"
        raw = bytearray(path.read_bytes())
        raw[-2] ^= 1
        path.write_bytes(bytes(raw))
        return [], "its checksum differs"

    def no_store(features: Path) -> tuple[list[str], str]:
        return ["data.train=[trian]"], "no feature store here"

    def no_labels(features: Path) -> tuple[list[str], str]:
        (features / "train" / "Labels-ball.json").unlink()
        return [], "data.labels=DIR"

    def no_gpu(features: Path) -> tuple[list[str], str]:
        return ["data.device=gpu"], "needs a GPU"

    return locals()[name]


@pytest.mark.parametrize(
    "fault",
    [
        *("wrong_width", "wrong_clips", "missing_clip", "another_backbone", "damaged", "no_store", "no_labels"),
        "no_gpu",
    ],
)
def test_what_does_not_fit_is_one_sentence(splits: Path, tmp_path: Path, fault: str) -> None:
    overrides, words = spoil(fault)(splits)
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        train(recipe(splits, *overrides), tmp_path / "run", device=CPU)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_only_with_its_own_recipe_and_state(splits: Path, tmp_path: Path) -> None:
    train(recipe(splits), tmp_path / "run", device=CPU)
    with pytest.raises(InputError, match=r"was started with train\.lr=0\.00015, now it is 0\.001"):
        train(recipe(splits, "train.lr=1e-3"), tmp_path / "run", device=CPU)
    with pytest.raises(InputError, match=r"data\.boost\.PLAYER SUCCESSFUL TACKLE=40\.0, now it is None"):
        train(recipe(splits, "data.boost={}"), tmp_path / "run", device=CPU)
    before = len(column(tmp_path / "run", "step"))
    train(recipe(splits, "train.epochs=3"), tmp_path / "run", device=CPU)  # more epochs are welcome
    assert len(column(tmp_path / "run", "step")) == before * 3 // 2
    assert load(Recipe, tmp_path / "run" / "config.yaml").train.epochs == 3
    state = tmp_path / "run" / "state.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="its checksum differs"):
        train(recipe(splits, "train.epochs=3"), tmp_path / "run", device=CPU)
    save_file({"x": torch.zeros(1)}, state)
    with pytest.raises(InputError, match="is no saved state"):
        train(recipe(splits, "train.epochs=3"), tmp_path / "run", device=CPU)


def test_the_command_line_trains_predicts_and_scores(splits: Path, tmp_path: Path, ballcast: Any) -> None:
    sizes = ("model.clips=", "model.width=")  # taken from the store
    own = [text for text in SMALL if not text.startswith(sizes)]
    assert len(own) == len(SMALL) - 2
    done = ballcast(
        "train", "paper", *own, "train.epochs=1", "train.batch=8", f"data.features={splits}", "--out", "run"
    )
    assert done.returncode == 0, done.stderr
    assert "best validation mAP" in done.stdout
    done = ballcast("predict", "--features", splits / "valid", "--model", "run/best", "threshold=0.0", "-o", "p.zip")
    assert done.returncode == 0, done.stderr
    assert "12 clips" in done.stdout
    labels = splits / "valid" / "Labels-ball.json"
    done = ballcast("eval", "--labels", labels, "--predictions", "p.zip")
    assert done.returncode == 0, done.stderr
    assert ballcast("submit", "--check", "p.zip", "--labels", labels).returncode == 0


def test_predict_refuses_what_does_not_fit(
    splits: Path, tmp_path: Path, ballcast: Any, clean_failure: Callable[..., None]
) -> None:
    train(recipe(splits, "train.epochs=1"), tmp_path / "run", device=CPU)
    clips = make_clips(6, seed=0)
    write_store(tmp_path / "other", clips, make_features(clips, seed=0), backbone="another")
    clean_failure(ballcast("predict", "--features", tmp_path / "other", "--model", "run/best"), "another", "made up")
    write_store(tmp_path / "wide", clips, np.zeros((6, 6, 5, 7), np.float16))
    clean_failure(ballcast("predict", "--features", tmp_path / "wide", "--model", "run/best"), "5 snippets × 7")
    clean_failure(
        ballcast("predict", "--features", splits / "valid", "--model", "run/best", "treshold=0"), "did you mean"
    )
    clean_failure(ballcast("predict", "--features", splits / "valid", "--model", "run/none"), "run/none")
