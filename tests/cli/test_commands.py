"""The command line as a whole: help that teaches, quick answers."""

import importlib.util
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from ballcast.cli import app

ROOT_COMMAND = typer.main.get_command(app)


def commands(command: Any = ROOT_COMMAND, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, child in command.commands.items():
        found += commands(child, (*path, name)) if hasattr(child, "commands") else [(*path, name)]
    return found


def test_help_answers_in_under_a_second() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "ballcast", "--help"], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    assert "Anticipate football" in done.stdout
    assert min(times) < 1


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, ballcast.cli; print([m for m in ('torch', 'numpy', 'av', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], ballcast: Callable[..., Any]) -> None:
    done = ballcast(*path, "--help", env={"COLUMNS": "300"})
    assert done.returncode == 0, done.stderr
    assert re.search(r"Examples?:", done.stdout), path
    assert f"ballcast {' '.join(path)}" in done.stdout
    command = ROOT_COMMAND
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    for line in re.findall(r"^(?:Example: |`)?(ballcast .*?)`?$", command.help or "", re.M):
        assert line in done.stdout, "help is read as Markdown, which takes some characters for its own"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_can_show_it(encoding: str, ballcast: Callable[..., Any]) -> None:
    """What an encoding has no sign for is written out, not the end of the command."""
    done = ballcast("doctor", env={"PYTHONIOENCODING": encoding})
    assert done.returncode == 0, done.stderr
    assert ("✓" if encoding == "utf-8" else "\\u2713") in done.stdout


def test_doctor(ballcast: Callable[..., Any]) -> None:
    done = ballcast("doctor")
    assert done.returncode == 0, done.stdout
    for word in ("Python", "runtime", "ONNX Runtime", "decoder h264", "disk", "extra train", "extra ray"):
        assert word in done.stdout
    if importlib.util.find_spec("paho"):  # its package has another name
        assert "paho-mqtt not installed" not in " ".join(done.stdout.split())


def test_doctor_knows_all_that_is_needed() -> None:
    from ballcast.inference.doctor import EXTRAS, NEEDED

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert sorted(NEEDED) == sorted(_names(project["dependencies"]))
    extras = {extra: _names(packages) for extra, packages in project["optional-dependencies"].items() if extra != "dev"}
    assert {extra: list(packages) for extra, (packages, _) in EXTRAS.items()} == extras


def _names(requirements: list[str]) -> list[str]:
    return [re.split(r"[\[>=]", requirement)[0] for requirement in requirements]


def test_version(ballcast: Callable[..., Any]) -> None:
    from ballcast import __version__

    assert ballcast("--version").stdout == f"ballcast {__version__}\n"
