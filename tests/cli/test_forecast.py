"""`ballcast forecast`: files of spots become timelines, tables, pages and submissions; faults are one sentence."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, assert_clean_failure

from ballcast.core.actions import ACTIONS

LABELS = [label for label in ACTIONS if label != "OUT"]


def spots_csv(path: Path, seconds: int = 60) -> Path:
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, seconds, seconds // 2))
    rows = [f"{t:.2f},{LABELS[rng.integers(9)]},{rng.uniform(0.2, 1):.2f}" for t in times]
    path.write_text("\n".join(["time,label,confidence", *rows, f"{seconds},GOAL,0.9"]))
    return path


def test_one_video(ballcast: Cli, tmp_path: Path) -> None:
    spots_csv(tmp_path / "match.csv")
    wanted = ("--osl", "osl.json", "--csv", "p.csv", "--table", "t.csv", "--html", "page.html")
    done = ballcast("forecast", "match.csv", *wanted)
    assert done.returncode == 0, done.stderr
    assert "match.csv: 30 spots: " in done.stdout
    assert "left out, none of the ten actions: 1 GOAL" in done.stdout
    assert "out: not among the spotter's classes, so not forecast" in done.stdout
    tree = json.loads((tmp_path / "match.anticipation.json").read_text())
    assert (tree["spots"], tree["not_forecast"], tree["every_ms"]) == ("match.csv", ["OUT"], 1000)
    made = tree["anticipations"]
    assert made[5]["within_5s"]["out"] is None
    assert 0 < made[5]["within_5s"]["pass"] < 1
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [int(row["at_ms"]) for row in rows] == [one["at_ms"] for one in made]
    page = (tmp_path / "page.html").read_text()
    assert "calibrated on such feeds, not on broadcasts" in page
    assert "Not forecast, since the spotter does not have them: out." in page
    osl = json.loads((tmp_path / "osl.json").read_text())
    assert len(osl["data"][0]["events"]) == sum(len(one["predictions"]) for one in made)


def test_several_videos_have_a_folder(ballcast: Cli, tmp_path: Path) -> None:
    rows = [[frame, frame % 2, 9, 1 + frame % 8, 0.9] for frame in range(0, 1000, 45)]
    (tmp_path / "val.json").write_text(json.dumps({"events": {"g_H1": rows, "g_H2": rows}}))
    done = ballcast("forecast", "val.json", "--html", "pages", "--every", 5)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "val-anticipation").iterdir()) == [
        "g_H1.anticipation.json",
        "g_H2.anticipation.json",
    ]
    assert sorted(p.name for p in (tmp_path / "pages").iterdir()) == ["g_H1.html", "g_H2.html"]
    assert_clean_failure(ballcast("forecast", "val.json", "--html", "page.html"), "page.html", "give a folder")
    assert_clean_failure(ballcast("forecast", "val.json", "--video", "a.mp4", "--html", "p"), "val.json", "2 videos")


def clip(number: int, *times: int) -> dict[str, Any]:
    events = [{"label": "PASS", "position_ms": ms, "confidence": 0.8} for ms in times]
    return {"id": f"clip_{number}", "events": events}


def test_a_submission(ballcast: Cli, tmp_path: Path) -> None:
    (tmp_path / "spots.json").write_text(json.dumps({"data": [clip(2, 1000, 29_000), clip(1, 15_000)]}))
    for number in (1, 2, 10):
        (tmp_path / "challenge" / f"clip_{number}").mkdir(parents=True)
    done = ballcast("forecast", "spots.json", "--submission", "results_anticipation.zip", "--labels", "challenge")
    assert done.returncode == 0, done.stderr
    assert "results_anticipation.zip: 3 clips" in done.stdout
    assert not (tmp_path / "spots-anticipation").exists()
    checked = ballcast("submit", "results_anticipation.zip", "--labels", "challenge")
    assert checked.returncode == 0, (checked.stdout, checked.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.csv",), ("none.csv", "no such file")),
        (("broken.csv",), ("broken.csv", "line 2", "'soon'", "write seconds")),
        (("match.csv", "--overlay", "o.mp4"), ("--overlay needs the video",)),
        (("match.csv", "--video", "v.mp4"), ("--video is for --overlay or --html",)),
        (("match.csv", "--labels", "challenge"), ("--labels goes with --submission",)),
        (("match.csv", "--submission", "r.zip", "--table", "t.csv"), ("--table goes with forecasts along videos",)),
        (("match.csv", "--submission", "r.zip"), ("match", "a submission is for clips of which 30 s are seen")),
        (("match.csv", "--table", "match.csv"), ("match.csv",)),
        (("match.csv", "--table", "tables"), ("tables: is no name of a file", "end it in .csv")),
        (("match.csv", "--model", "events"), ("feed_model", "does not read spots")),
        (("match.csv", "--every", "0"), ("--every",)),
    ],
)
def test_faults_are_one_sentence(ballcast: Cli, tmp_path: Path, arguments: Any, words: Any) -> None:
    spots_csv(tmp_path / "match.csv")
    (tmp_path / "broken.csv").write_text("time,label\nsoon,PASS\n")
    done = ballcast("forecast", *arguments)
    if "--every" in arguments:  # a fault of the command line itself
        assert done.returncode == 2
        assert "--every" in done.stderr
        return
    assert_clean_failure(done, *words)


def test_help_teaches_the_formats(ballcast: Cli) -> None:
    shown = ballcast("forecast", "--help").stdout
    for word in ("results_spotting.json", "Labels-ball.json", "FOOTPASS", "OpenSportsLib", "time,label,confidence"):
        assert word in shown


def test_live_a_forecast_after_each_line(ballcast: Cli) -> None:
    done = ballcast("forecast", "-", stdin="1.0,PASS,0.9\nsoon,PASS\n2.5,DRIVE,0.8\n2.9,GOAL,1\n4.0\n")
    assert done.returncode == 0, done.stderr
    made = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["at_ms"], one["last"]) for one in made] == [(1001, "pass"), (2501, "drive"), (4000, "drive")]
    assert "line 2: " in done.stderr
    assert "left out" in done.stderr
