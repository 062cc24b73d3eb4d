"""One command from SN-BAA's folder to the paper's table: killed and run again, in part, and on what does not fit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result
from games import make_clips
from typer.testing import CliRunner

from ballcast.cli import app, main
from ballcast.core.backbone_config import BackboneConfig
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.features.backbone import Backbone
from ballcast.inference.submission import check_submission, read_submission
from ballcast.metrics.average_precision import score
from ballcast.workflows.reproduce import job, steps
from ballcast.workflows.reproduce.job import READINGS
from ballcast.workflows.reproduce.plan import clip_stacks, duration

TINY = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4, classes=10)
SMALL = [
    *("model.hierarchy.dim=16", "model.hierarchy.encoder_heads=2", "model.hierarchy.encoder_ffn=16"),
    *("model.hierarchy.decoder_layers=1", "model.hierarchy.decoder_heads=2", "model.hierarchy.decoder_ffn=16"),
    *("model.faantra.dim=16", "model.faantra.heads=2", "model.faantra.ffn=16", "train.batch=8"),
]
QUICK = ["--quick", "--seeds", "1", "--recipes", "paper,faantra", "--device", "cpu", "--workers", "1"]
Command = Callable[..., list[str]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """snbaa/224p with four clips to validate on, two in the other splits, the challenge without labels; a backbone."""
    folder = tmp_path_factory.mktemp("world")
    valid = make_clips(folder / "snbaa" / "224p" / "valid", 4, seed=0)
    for split in ("train", "test", "challenge"):
        shutil.copytree(valid, valid.with_name(split), ignore=shutil.ignore_patterns("clip_3", "clip_4"))
        write_labels(valid.with_name(split) / "Labels-ball.json", read_labels(valid)[:2])
    (folder / "snbaa" / "224p" / "challenge" / "Labels-ball.json").unlink()
    torch.manual_seed(0)
    Backbone(TINY, name="tiny").eval().save_pretrained(folder / "backbone")
    return folder


@pytest.fixture(scope="module")
def command(world: Path) -> Command:
    def words(out: Path, *extra: str) -> list[str]:
        given = [str(world / "snbaa"), *SMALL, "--backbone", str(world / "backbone")]
        return ["reproduce", *given, "--out", str(out), *QUICK, *extra]

    return words


@pytest.fixture(scope="module")
def finished(world: Path, command: Command) -> Path:
    """A reproduction that nobody disturbed."""
    out = world / "whole"
    done = run(command(out))
    assert done.exit_code == 0, done.output
    for told in ("the plan", "features", "paper-s0 … faantra-s0 (2)", "beside the paper", "4587", "17.91"):
        assert told in done.output
    return out


def run(words: list[str]) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "200", "SOCCERNET_PASSWORD": ""})


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    return sentence


def contents(out: Path) -> dict[str, bytes]:
    """All results, which must not depend on how often the work was interrupted."""
    kept = [*out.glob("features/*/*"), *out.glob("runs/*/best/*"), *out.glob("scores/*"), *out.glob("submissions/*")]
    return {str(path.relative_to(out)): path.read_bytes() for path in [*kept, out / "table.md", out / "table.json"]}


def test_killed_twice_it_goes_on_and_ends_the_same(finished: Path, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SOCCERNET_PASSWORD": ""}
    for seen in ("features/train/manifest.json", "runs/paper-s0/state.safetensors"):
        process = subprocess.Popen(
            [sys.executable, "-m", "ballcast", *command(out)], stdout=subprocess.DEVNULL, env=env
        )
        while not (out / seen).exists() and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, seen
    assert not (out / "runs" / "faantra-s0" / "best").exists()
    done = run(command(out))
    assert done.exit_code == 0, done.output
    assert "paper-s0 … faantra-s0 (2)" in done.output
    assert "train: 1500 frames" not in done.output  # these features were there already
    assert contents(out) == contents(finished)


def test_finished_work_prints_only_the_table(finished: Path, command: Command) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.suffix in (".safetensors", ".zip")}
    done = run(command(finished))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("test: mAP (%), 2 clips")
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_scores_with_a_flipped_bit_are_refused(
    finished: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = finished / "scores" / "paper-s0.json"
    raw = scores.read_bytes()
    at = raw.index(b"0.") + 2
    scores.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])  # another digit
    assert f"{scores}: its checksum differs" in refused(command(finished), capsys)
    scores.write_bytes(raw)


def test_every_row_is_the_score_of_what_is_emitted(finished: Path) -> None:
    told = json.loads((finished / "table.json").read_text())["rows"]
    assert {(row["recipe"], row["reading"], row["split"]) for row in told} == {
        (recipe, reading, split)
        for recipe in ("paper", "faantra")
        for reading in READINGS
        for split in ("valid", "test")
    }
    clips = read_labels(finished / "features" / "test")
    zips = sorted(path.name for path in (finished / "submissions").glob("*-test-*.zip"))
    assert {"paper-test-untuned.zip", "faantra-test-untuned.zip"} <= set(zips)
    for name in zips:
        recipe, _, reading = name.removesuffix(".zip").split("-")
        path = finished / "submissions" / name
        assert not check_submission(path, clips)
        for kind, read in (
            (("untuned", "vector"), ("label", "label")) if reading == "untuned" else (("tuned", "vector"),)
        ):
            (row,) = [r for r in told if (r["recipe"], r["reading"], r["split"]) == (recipe, kind, "test")]
            result = score(clips, read_submission(path), read=read)  # type: ignore[arg-type]
            assert row["mean"]["avg"] == pytest.approx(result.avg, abs=1e-9)
            assert row["interval"][0] <= row["interval"][1]
    challenge = read_labels(finished / "data" / "challenge")
    assert not check_submission(finished / "submissions" / "paper-challenge-untuned.zip", challenge)
    (low,) = [r for r in told if (r["recipe"], r["reading"], r["split"]) == ("faantra", "class-0.05", "test")]
    (high,) = [r for r in told if (r["recipe"], r["reading"], r["split"]) == ("faantra", "class-0.3", "test")]
    assert low["predictions"] > high["predictions"]


def test_one_step_at_a_time(finished: Path, command: Command, tmp_path: Path) -> None:
    """Features alone are enough for all that follows: the videos may be gone."""
    out = tmp_path / "out"
    shutil.copytree(finished / "features", out / "features")
    words = command(out, "--recipes", "paper")
    words[1] = str(tmp_path / "no videos any more")
    done = run([*words, "--only", "train"])
    assert done.exit_code == 0, done.output
    assert (out / "runs" / "paper-s0" / "best").is_dir()
    assert not (out / "scores").exists()
    done = run([*words, "--only", "score,table"])
    assert done.exit_code == 0, done.output
    assert not (out / "submissions").exists()
    scores = json.loads((out / "scores" / "paper-s0.json").read_text())
    assert scores == json.loads((finished / "scores" / "paper-s0.json").read_text())


def test_the_plan_alone_does_nothing(command: Command, tmp_path: Path) -> None:
    done = run(command(tmp_path / "out", "--plan"))
    assert done.exit_code == 0, done.output
    assert "time here" in done.output
    assert "kB" in done.output
    assert not (tmp_path / "out").exists()


def test_without_a_backbone_one_is_trained_on_the_training_games(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = [
        f"backbone.{key}={getattr(TINY, key)}" for key in ("encoder", "channels", "blocks", "projected", "se_ratio")
    ]
    monkeypatch.setattr("ballcast.workflows.reproduce.job.QUICK_PRETRAIN", (*job.QUICK_PRETRAIN, *tiny))
    words = ["reproduce", str(world / "snbaa"), *SMALL, "--out", str(tmp_path / "out"), *QUICK]
    done = run([*words, "--only", "data,backbone"])
    assert done.exit_code == 0, done.output
    backbone = Backbone.load(tmp_path / "out" / "backbone" / "best")
    assert backbone.metadata["trained_on"] == ["train/clip_1"]
    again = run([*words, "--only", "data,backbone"])
    assert again.exit_code == 0, again.output
    assert "epoch" not in again.output


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (["--only", "train,tunes"], "unknown step 'tunes'; choose from data, backbone, features, train, score"),
        (["--only", ","], "--only is empty"),
        (["--recipes", "paper,best"], "no model 'best' in the table; choose from paper, static, faantra, or see"),
        (["--only", "train"], "no features yet; run the step `features` first"),
        (["--only", "table"], "no run is scored yet; run the step `score` first"),
        (["--only", "submit"], ": not scored yet; run the step `score` first"),
        (["--resolution", "720p"], "has no 720p; it has 224p"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    extra: list[str], told: str, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(command(tmp_path / "out", *extra), capsys)


def test_data_that_is_not_there_is_one_sentence(
    world: Path, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOCCERNET_PASSWORD", raising=False)
    words = command(tmp_path / "out")
    words[1] = str(tmp_path / "nowhere")
    assert "nowhere: no such folder" in refused(words, capsys)
    (tmp_path / "else" / "videos").mkdir(parents=True)
    words[1] = str(tmp_path / "else")
    assert "holds no split of SN-BAA" in refused(words, capsys)
    shutil.copytree(world / "snbaa" / "224p" / "valid", tmp_path / "part" / "valid")
    words[1] = str(tmp_path / "part")
    assert "has no train" in refused(words, capsys)
    assert not (tmp_path / "out").exists()
    broken = tmp_path / "broken"
    shutil.copytree(world / "snbaa", broken)
    (broken / "224p" / "test" / "clip_2" / "224p.mp4").write_bytes(b"")
    words[1] = str(broken)
    assert "is empty (0 bytes)" in refused([*words, "--only", "data"], capsys)


def test_with_a_password_what_is_missing_is_fetched(
    world: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def fetch(splits: list[str], to: Path, *, password: Callable[[], str], resolution: str, log: object) -> None:
        asked.append((splits, password(), resolution))
        shutil.copytree(world / "snbaa", to, dirs_exist_ok=True)

    monkeypatch.setattr(steps, "download", fetch)
    shutil.copytree(world / "snbaa" / "224p" / "valid", tmp_path / "snbaa" / "224p" / "valid")
    words = command(tmp_path / "out", "--only", "data", "--password", "secret")
    words[1] = str(tmp_path / "snbaa")
    for _ in range(2):  # the second time all of it is there
        done = run(words)
        assert done.exit_code == 0, done.output
    assert asked == [(["train", "test", "challenge"], "secret", "224p")]


def test_the_arithmetic_of_the_plan() -> None:
    published = BackboneConfig()
    assert clip_stacks(published, 125) == 6 * 41
    assert clip_stacks(published, 25) == 698
    assert [duration(s) for s in (0.2, 89, 90, 5399, 5400)] == ["1 s", "89 s", "2 min", "90 min", "1.5 h"]
