"""`ballcast live` as people use it: a pipe in, JSON lines out, Ctrl-C, and things that go wrong."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from stream_server import PieceServer
from typer.testing import CliRunner

from ballcast import cli
from ballcast.cli.live_output import JsonLines, LiveView
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.status import LiveForecast, MissedRecords, Status
from tests.live.test_session import tiny
from tests.video.conftest import make_video

MODELS = [
    "--model",
    "model",
    "--backbone",
    "backbone",
    "--device",
    "cpu",
    "--size",
    "own",
    "--any-video",
    "threshold=0",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model/, backbone/, a.ts of 8 s and short.ts of 3 s."""
    folder = tmp_path_factory.mktemp("live")
    runtime = tiny().runtime
    assert isinstance(runtime, TorchRuntime)
    runtime.network.save_pretrained(folder / "model")
    runtime.encoder.backbone.save_pretrained(folder / "backbone")
    make_video(folder / "a.ts", range(200))
    make_video(folder / "short.ts", range(75))
    return folder


def begin(place: Path, *args: str, stdin: Any = subprocess.DEVNULL) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ballcast", "live", *args, *MODELS],
        cwd=place,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_stdin_gives_what_predict_gives(place: Path) -> None:
    with (place / "a.ts").open("rb") as file:
        process = begin(place, "-", "--speed", "0", stdin=file)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    told = records(out)
    runner = CliRunner()
    here = Path.cwd()
    os.chdir(place)
    try:
        done = runner.invoke(cli.app, ["predict", "a.ts", "-o", "p.json", *MODELS], catch_exceptions=False)
    finally:
        os.chdir(here)
    assert done.exit_code == 0
    expected = json.loads((place / "p.json").read_text())["anticipations"]
    got = [{key: r[key] for key in ("at_ms", "predictions")} for r in told if r["type"] == "anticipation"]
    assert got == expected
    assert len(got) == 4
    assert (told[0]["state"], told[-1]["state"]) == ("opening", "ended")


@pytest.mark.parametrize("stops", [[signal.SIGINT], [signal.SIGINT, signal.SIGTERM] * 20])
def test_ctrl_c_is_a_clean_end(place: Path, stops: list[signal.Signals]) -> None:
    """Once, or as often as one likes while it is closing and Python takes itself down."""
    process = begin(place, "a.ts", "--speed", "0.5", "--json", "-")
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    assert json.loads(lines[1])["state"] == "filling"
    for stop in stops:
        process.send_signal(stop)
        time.sleep(0.03)
    out, err = process.communicate(timeout=20)
    assert records(out)[-1]["state"] == "stopped"
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "ballcast: stopped" in err


def test_a_reader_that_goes_away_ends_it(place: Path) -> None:
    process = begin(place, "a.ts", "--speed", "1")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_a_source_that_is_killed_for_good(place: Path, clean_failure: Callable[..., None]) -> None:
    with PieceServer([(place / "a.ts").read_bytes()]) as server:
        process = begin(place, server.address, "--speed", "0", "--give-up", "1", "--json", "out.jsonl")
        out, err = process.communicate(timeout=60)
    clean_failure(
        subprocess.CompletedProcess([], process.returncode, out, err), "broke off and did not come back in 1 s"
    )
    told = records((place / "out.jsonl").read_text())
    assert [r["state"] for r in told if r["type"] == "status"][-1] == "error"
    assert sum(r["type"] == "anticipation" for r in told) >= 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nothing.mp4", "nothing.mp4: no such file"),
        ("gopher://a", "begins with one of"),
        ("a.ts --json no/where.jsonl", "no/where.jsonl: cannot be written"),
        ("a.ts treshold=1", "did you mean 'threshold'"),
        ("tcp://127.0.0.1:1 --give-up 0", "cannot be read as a video stream"),
        ("- --cluster 127.0.0.1:1", "stdin is here, not on the cluster"),
        ("short.ts --speed 0", "short.ts: is only 3.0 s long; anticipation needs a whole window of 5 s"),
        ("a.ts --json /dev/full", "/dev/full: the disk is full"),
    ],
)
def test_faults_are_one_sentence(place: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str) -> None:
    monkeypatch.chdir(place)
    result = CliRunner().invoke(cli.app, ["live", *arguments.split(), *MODELS])
    assert isinstance(result.exception, BallcastError), result.output
    assert words in str(result.exception)


def test_a_full_disk_behind_stdout(place: Path, clean_failure: Callable[..., None]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ballcast", "live", "a.ts", *MODELS],
            cwd=place,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    clean_failure(done, "stdout: cannot be written: No space left")


@pytest.mark.parametrize("source", ["nothing.mp4", "tcp://127.0.0.1:1"])
def test_a_source_that_is_not_there_costs_no_recording(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(place)
    earlier = tmp_path / "earlier.jsonl"
    earlier.write_text("an hour of football")
    result = CliRunner().invoke(cli.app, ["live", source, "--give-up", "1", "--json", str(earlier), *MODELS])
    assert isinstance(result.exception, InputError)
    assert earlier.read_text() == "an hour of football"


@pytest.mark.parametrize("way", ["named", "linked", "piped"])
def test_the_video_is_not_written_over(
    place: Path, tmp_path: Path, clean_failure: Callable[..., None], way: str
) -> None:
    content = (place / "a.ts").read_bytes()
    video, link = tmp_path / "video.ts", tmp_path / "link.ts"
    video.write_bytes(content)
    link.symlink_to(video)
    with video.open("rb") as file:
        source, to = ("-" if way == "piped" else str(video)), (link if way == "linked" else video)
        process = begin(place, source, "--json", str(to), stdin=file)
        out, err = process.communicate(timeout=60)
    done = subprocess.CompletedProcess([], process.returncode, out, err)
    clean_failure(done, f"{to}: is the file that is read; write to another one")
    assert video.read_bytes() == content


def test_a_recording_holds_all_that_was_told(tmp_path: Path) -> None:
    """Nothing is written before the first frame, and what was told by then comes first."""
    path = tmp_path / "out.jsonl"
    path.write_text("earlier")
    told = [Status(state, "", 0, 0, 1000) for state in ("opening", "waiting", "filling", "running")]
    with JsonLines(path) as lines:
        for record in told[:2]:
            lines.write(record)
            assert path.read_text() == "earlier"
        for record in told[2:]:
            lines.write(record)
            assert records(path.read_text())[-1]["state"] == record.state  # a line is there at once
    assert [r["state"] for r in records(path.read_text())] == ["opening", "waiting", "filling", "running"]


def test_garbage_on_stdin(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    reading, writing = os.pipe()
    threading.Thread(target=lambda: (os.write(writing, b"no video" * 5000), os.close(writing)), daemon=True).start()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        result = CliRunner().invoke(cli.app, ["live", "-", *MODELS])
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reading)
    assert isinstance(result.exception, InputError)
    assert "stdin: cannot be read as a video stream" in str(result.exception)


def test_the_view_shows_what_comes() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    view = LiveView(console)
    coming = (Prediction("PASS", 61_500, 0.4), Prediction("HIGH PASS", 64_900, 0.25))
    with view:
        view.show(Status("slow", "this machine is behind, so it anticipates every 2 s", 60_960, 0, 2000))
        view.show(LiveForecast(Forecast(61_000, coming), 0, 71.6, 0, 2000))
        view.show(MissedRecords(2))
        console.print(view.render())
    text = console.export_text()
    for words in ("pass", "in 0.5 s", "40 %", "high pass", "in 3.9 s", "01:01", "every 2 s", "72 ms after the last"):
        assert words in text, words
