"""Reports of runs and of scored files, as users get them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from synthetic import SMALL, make_clips, make_split

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.events import Prediction
from ballcast.data.labels.soccernet import write_labels
from ballcast.inference.submission import write_submission
from ballcast.training.run import train
from ballcast.workflows.run_report import report_run


def test_a_run_ends_with_a_report(tmp_path: Path, ballcast: Callable[..., Any]) -> None:
    for split, seed in (("train", 1), ("valid", 2)):
        make_split(tmp_path / "features" / split, 24, seed)
    settings = [
        *SMALL,
        f"data.features={tmp_path / 'features'}",
        "train.epochs=2",
        "train.batch=8",
        "data.stitch=false",
    ]
    done = ballcast("train", "paper", *settings, "--out", "run", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "run" / "report.html").read_text()
    assert "run/report.html" in done.stdout
    score = done.stdout.split("best validation mAP ")[1].split()[0]
    assert f">{score}</td>" in page  # the report's score is the run's
    assert "Validation mAP (%), best in epoch" in page
    assert "Training run run" in page


def test_a_run_without_validation_has_none(tmp_path: Path) -> None:
    make_split(tmp_path / "train", 16, 1)
    settings = [
        *SMALL,
        f"data.features={tmp_path}",
        "train.epochs=1",
        "train.batch=8",
        "data.stitch=false",
        "data.valid=[]",
    ]
    recipe = load(Recipe, Path("paper"), settings)
    train(recipe, tmp_path / "run", device=torch.device("cpu"))
    assert report_run(recipe, tmp_path / "run", device=torch.device("cpu")) is None


def test_eval_writes_one_also_for_odd_names_and_beside_a_damaged_video(
    tmp_path: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    clips = make_clips(6, seed=3)
    write_labels(tmp_path / "Labels-ball.json", clips)
    said = {c.name: [Prediction(e.label, e.position_ms, 0.5) for e in c.anticipation] for c in clips}
    write_submission(tmp_path / "<img src=x>.json", said)
    given = ("eval", "--labels", "Labels-ball.json", "--predictions", "<img src=x>.json")
    (tmp_path / "clip_1").mkdir()
    (tmp_path / "clip_1" / "224p.mp4").write_bytes(b"<html>log in")
    done = ballcast(*given, "--report", "report.html")
    assert done.returncode == 0, done.stderr
    assert "224p.mp4: is a web page, not a video" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "&lt;img src=x&gt;.json against Labels-ball.json" in page
    assert "<img src=x" not in page
    clean_failure(ballcast(*given, "--videos", "."), "--report")
    (tmp_path / "empty").mkdir()
    clean_failure(ballcast(*given, "--report", "r.html", "--videos", "empty"), "empty", "clip_1")
    clean_failure(ballcast(*given, "--report", "report.html/x.html"), "report.html/x.html")
