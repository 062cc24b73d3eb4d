"""The sandbox: what a confined process still can do, and what is refused to it and to the server's processes."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast_server.confined import sandbox
from ballcast_server.confined.decoder import Bounds
from ballcast_server.confined.rendering import RenderOrder
from tests.feeds import made_up
from tests.server.confined.sandbox_attack import attempts
from tests.video.conftest import make_video

ATTACK = Path(__file__).parent / "sandbox_attack.py"
confined = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    for name in ("secret", "secret.old", "own"):
        (tmp_path / name).write_text(name)
    (tmp_path / "out").mkdir()
    return {name: str(tmp_path / name) for name in ("secret", "own", "out", "unix")}


def attack(where: str, given: dict[str, Any]) -> list[str]:
    """What a process that was taken over achieves: names of `attempts`."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(given["unix"])
        unix.listen()
        given["port"] = tcp.getsockname()[1]
        done = subprocess.run(
            [sys.executable, ATTACK, where, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_process_that_is_not_confined_can_do_all_of_it(given: dict[str, Any]) -> None:
    assert attack("free", given) == list(attempts({**given, "port": 0}))


@confined
def test_a_confined_process_has_its_files_and_nothing_else(given: dict[str, Any]) -> None:
    assert attack("confined", given) == []
    assert Path(given["secret"]).read_text() == "secret"
    assert Path(given["secret"] + ".old").read_text() == "secret.old"


@confined
def test_a_process_of_the_network_has_tcp_and_udp_and_nothing_else(given: dict[str, Any]) -> None:
    assert attack("network", given) == ["TCP", "UDP"]


@confined
def test_a_process_with_a_program_starts_no_other(given: dict[str, Any]) -> None:
    given["program"] = shutil.which("sleep")
    done = attack("programs", given)
    assert [name for name in done if name != "signal"] == ["TCP", "UDP", "fork"]  # signals: from Linux 6.12 on refused


@confined
def test_the_decoder_process_is_confined(given: dict[str, Any], tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", range(30), size=(32, 64))
    given["arguments"] = [json.dumps(asdict(Bounds(10**7, 100.0, 3 << 30))), str(video)]
    assert attack("decoder", given) == []


@confined
def test_the_rendering_process_is_confined(given: dict[str, Any], tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", range(30), size=(32, 64))
    timeline = Path(given["out"]) / "timeline.json"
    timeline.write_text('{"anticipations": []}')
    target = str(timeline.with_name("overlay.mp4"))
    given["arguments"] = [json.dumps(asdict(RenderOrder(3 << 30, 1 << 20, str(video), str(timeline), target, 0, None)))]
    assert attack("renders", given) == []


@confined
def test_the_process_that_reads_feeds_is_confined(given: dict[str, Any]) -> None:
    (Path(given["out"]) / "match.json").write_text(json.dumps({"events": made_up(30, seed=0)}))
    given["arguments"] = [str(3 << 30), given["out"]]
    assert attack("feeds", given) == []


def test_elsewhere_it_goes_on_without_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    assert "has none that ballcast uses" in sandbox.missing()
    sandbox.confine(read=[tmp_path])
    assert Path("/etc/passwd").read_bytes()
    monkeypatch.undo()
    monkeypatch.setattr(sandbox, "_landlock_version", lambda: 0)
    assert sandbox.missing() == (
        "this kernel does not keep them from the files (no Landlock; Linux 5.13 and later have it)"
    )
    monkeypatch.setattr(sandbox, "_has_seccomp", lambda: False)
    assert "or the network and programs (no seccomp)" in sandbox.missing()
    said = CliRunner().invoke(app, ["doctor"])
    assert "no Landlock" in " ".join(said.output.split())


def test_no_system_call_of_one_machine_is_taken_for_another() -> None:
    """The numbers of the machines differ; each list has no number twice."""
    for column in (0, 1):
        rows = [*sandbox._REFUSED.values(), sandbox._CLONE, sandbox._CLONE3, sandbox._PRLIMIT]
        numbers = [row[column] for row in rows if row[column] is not None]
        assert len({*numbers}) == len(numbers)
    assert sandbox._REFUSED["socket"] == (41, 198)
    assert sandbox._REFUSED["execve"] == (59, 221)
