"""`ballcast serve` as somebody starts it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from ballcast import cli
from ballcast.core.errors import InputError
from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from tests.features.conftest import small_backbone
from tests.server.conftest import LIMITS, running, small_model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    small_backbone().save_pretrained(folder / "backbone")
    small_model().save_pretrained(folder / "model")
    return ["--model", str(folder / "model"), "--backbone", str(folder / "backbone"), "--size", "own"]


@contextmanager
def started(folder: Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, and the lines it printed before it was ready."""
    command = [sys.executable, "-m", "ballcast", "serve", "--port", "0", "--device", "cpu", *args]
    command = command if "--host" in args or "--token" in args else [*command, "--no-token"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, [process.stdout.readline()]
        finally:
            process.kill()


def without_root(stderr: str) -> str:
    """The lines but the warning against running as root, as tests in containers do, and the note of the test that
    comes first: that its model was exported."""
    known = ("runs as root", "was exported to")
    return "".join(line for line in stderr.splitlines(True) if not any(words in line for words in known))


def address(line: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found, line
    return found[0]


def test_it_is_killed_goes_on_and_ends(tmp_path: Path, models: list[str], clip: Path) -> None:
    """Kill −9 with a job running; the same command again does it; Ctrl-C is a clean end."""
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(clip.read_bytes())
    with started(tmp_path, *models, "--videos", "videos") as (process, (line,)):
        (video,) = httpx.get(f"{address(line)}/api/videos").json()
        job = httpx.post(f"{address(line)}/api/jobs", json={"video": video["id"]}, timeout=30).json()
        process.kill()
    assert (tmp_path / "ballcast-data" / "jobs.sqlite").exists()
    with started(tmp_path, *models, "--videos", "videos") as (process, (line,)):
        until = time.monotonic() + 60
        while httpx.get(f"{address(line)}/api/jobs/{job['id']}").json()["state"] != "done":
            assert time.monotonic() < until
            time.sleep(0.1)
        assert httpx.get(address(line)).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert without_root(process.stderr.read()) == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_token_is_printed_in_the_address(tmp_path: Path, models: list[str], host: str) -> None:
    """Before: on localhost any program of the machine, of any user, could use the server."""
    with started(tmp_path, *models, "--host", host) as (process, (line,)):
        found = re.search(r":(\d+)/login#([\w-]+) ", line)
        assert found, line
        url = f"http://127.0.0.1:{found[1]}"
        assert httpx.get(f"{url}/api/jobs").status_code == 401
        assert httpx.get(f"{url}/api/jobs", headers={"Authorization": f"Bearer {found[2]}"}).json() == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_it_warns_of_running_as_root(tmp_path: Path, models: list[str]) -> None:
    with started(tmp_path, *models) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert ("the server runs as root" in process.stderr.read()) == (os.geteuid() == 0)


def test_your_own_token_is_not_printed(tmp_path: Path, models: list[str]) -> None:
    with started(tmp_path, *models, "--token", "long enough a token") as (_, (line,)):
        assert "token" not in line
        assert httpx.get(f"{address(line)}/api/jobs").status_code == 401


def test_ctrl_c_again_and_again_is_a_clean_end_too(tmp_path: Path, models: list[str]) -> None:
    with started(tmp_path, *models) as (process, _):
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            process.send_signal(signal.SIGINT)
            time.sleep(0.03)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert without_root(process.stderr.read()) == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--token", "short"], "--token must be at least 16 plain characters"),
        (["--no-token", "--token", "long enough a token"], "exclude each other"),
        (["--no-token", "--host", "0.0.0.0"], "--no-token: anyone could use the server at 0.0.0.0"),
        (["--allow-network", "10.0.0.1/8"], "--allow-network 10.0.0.1/8: 10.0.0.1/8 has host bits set; give a network"),
        (["--webhook", "http://127.0.0.1/x"], "--webhook: its host is not a public address"),
        (["--trusted-proxy", "proxy.example"], "--trusted-proxy proxy.example: 'proxy.example' does not appear to be"),
        (["--trusted-proxy", "10.0.0.1/8"], "--trusted-proxy 10.0.0.1/8: 10.0.0.1/8 has host bits set"),
        (["--stream", "no-address"], "give NAME=ADDRESS"),
        (["--stream", "a b=rtsp://x"], "give NAME=ADDRESS"),
        (["--stream", "a=x", "--stream", "a=y"], "--stream a: the name is used twice"),
        (["--stream", "a=-"], "stdin cannot be opened twice"),
        (["--videos", "nowhere"], "nowhere: no such folder"),
        (["--host", "203.0.113.7", "--token", "long enough a token"], "cannot listen on 203.0.113.7:0"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    models: list[str], args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["serve", "--port", "0", *models, *args])
    assert isinstance(done.exception, InputError), done
    assert said in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_two_servers_do_not_share_a_folder(tmp_path: Path, quick: PredictorFactory) -> None:
    settings = Settings(data=tmp_path / "data", limits=LIMITS)
    busy = pytest.raises(InputError, match="data: another server uses this folder")
    with running(settings, quick), busy, running(settings, quick):
        pass
    with running(settings, quick) as again:
        assert again.client.get("/api/jobs").json() == []
