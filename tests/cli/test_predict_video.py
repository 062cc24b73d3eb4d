"""`ballcast predict VIDEO …` end to end: damage, kills, parts of videos, folders and lists, the page."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ballcast import cli
from ballcast.cli.predict_video import list_videos, parse_time
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.core.timeline_summary import summarise
from tests.cli.test_live import MODELS
from tests.live.test_session import tiny
from tests.video.conftest import make_video
from tests.video.test_damage import lose_packets


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model/, backbone/, and a.ts of 24 s, damaged in the middle."""
    folder = tmp_path_factory.mktemp("videos")
    runtime: Any = tiny().runtime
    runtime.network.save_pretrained(folder / "model")
    runtime.encoder.backbone.save_pretrained(folder / "backbone")
    lose_packets(make_video(folder / "a.ts", range(600), codec_options={"bf": "0"}), 0.5)
    (folder / "room" / "in").mkdir(parents=True)
    make_video(folder / "room" / "in" / "b.mp4", range(150))
    return folder


def predict(place: Path, *arguments: str, models: bool = True) -> Result:
    here = Path.cwd()
    os.chdir(place)
    try:
        return CliRunner().invoke(cli.app, ["predict", *arguments, *(MODELS if models else ())])
    finally:
        os.chdir(here)


def test_damage_is_a_gap_and_parts_equal_the_whole(place: Path) -> None:
    done = predict(place, "a.ts", "-o", "whole.json", "--overlay", "seen.mp4", "--html", "page.html")
    assert done.exit_code == 0, done.output
    assert "a.ts: no forecasts from 0:1" in done.output
    assert "most confident:" in done.output
    assert "the model: trained on data it does not name" in done.output
    tree = json.loads((place / "whole.json").read_text())
    (gap,) = tree["gaps"]
    assert 10 < gap["from"] < gap["to"] < 14
    times = [made["at_ms"] for made in tree["anticipations"]]
    assert all(at % 1000 == 0 and not 1000 * gap["from"] < at < 1000 * gap["to"] + 5000 for at in times)
    assert times[0] == 5000
    assert times[-1] == 24_000
    page = (place / "page.html").read_text()
    assert "a picture is damaged" in page
    assert "data:image/jpeg;base64," in page
    assert "http://" not in page.replace("http://www.w3.org", "")  # it needs nothing else

    done = predict(place, "a.ts", "-o", "part.json", "--from", "0:18", "--to", "20.5", "--overlay", "part.mp4")
    assert done.exit_code == 0, done.output
    part = json.loads((place / "part.json").read_text())["anticipations"]
    assert part == [made for made in tree["anticipations"] if 18_000 <= made["at_ms"] <= 20_500]
    strict = predict(place, "a.ts", "-o", "strict.json", "--strict")
    assert isinstance(strict.exception, InputError)
    assert "is corrupt at" in str(strict.exception)
    assert not list(place.glob("strict*"))


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(place: Path) -> None:
    assert predict(place, "a.ts", "-o", "once.json", "--every", "0.2").exit_code == 0
    command = ["predict", "a.ts", "-o", "again.json", "--every", "0.2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ballcast", *command, *MODELS],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    part, until = place / "again.json.part", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if part.exists() and part.read_bytes().count(b"\n") > 60:  # after the gap
            break
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert part.exists(), "it was over before it could be killed"
    with part.open("ab") as file:
        file.write(b'{"at_ms": 17')  # half a line
    done = predict(place, *command[1:])
    assert done.exit_code == 0, done.output
    assert "are kept from a run that was interrupted" in done.output
    assert (place / "again.json").read_bytes() == (place / "once.json").read_bytes()
    assert not part.exists()


def test_folders_lists_and_one_bad_video_among_them(place: Path) -> None:
    (place / "list.txt").write_text("room/in/b.mp4\n\n")
    done = predict(place, "room", "list.txt", "-o", "all", "--csv", "tables")
    assert done.exit_code == 0, done.output
    assert (place / "all" / "b.anticipation.json").exists()
    assert (place / "tables" / "b.csv").read_text().startswith("at_ms,")
    (place / "bad.mp4").write_bytes(b"<html>")
    done = predict(place, "room/in/b.mp4", "bad.mp4", "-o", "both")
    assert "1 of 2 videos failed, the first bad.mp4" in str(done.exception)
    assert "is a web page" in done.output
    assert (place / "both" / "b.anticipation.json").exists()
    assert "give a folder" in str(predict(place, "room/in/b.mp4", "a.ts", "-o", "x.json").exception)


def test_which_videos(tmp_path: Path) -> None:
    for name in ("clip_10.mp4", "clip_2.mkv", "notes.md"):
        (tmp_path / name).touch()
    assert [p.name for p in list_videos([str(tmp_path), str(tmp_path / "clip_2.mkv")])] == ["clip_2.mkv", "clip_10.mp4"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no videos"):
        list_videos([str(tmp_path / "empty")])


def test_times() -> None:
    assert [parse_time(text, "--from") for text in ("90", "1:30", "1:02:03.5")] == [90_000, 90_000, 3_723_500]
    for text in ("", "-1", "1:2:3:4", "soon"):
        with pytest.raises(InputError, match="is not a time"):
            parse_time(text, "--from")


def test_a_summary_of_nothing() -> None:
    assert summarise([], 1000).highlights == []


def test_a_summary_counts_what_is_expected_as_a_poisson_process() -> None:
    """Six passes a minute: at least one within 5 s with 1 − exp(−0.5); sixty forecasts, one a second."""
    within = (1 - math.exp(-0.5), *[0.0] * 9)
    made = [Forecast(1000 * i, (Prediction("PASS", 1000 * i, 0.2),), within_5s=within) for i in range(60)]
    assert summarise(made, 1000).expected == {"PASS": pytest.approx(6)}
    assert summarise([replace(f, within_5s=()) for f in made], 1000).expected == {"PASS": pytest.approx(60 * 0.2 / 5)}
