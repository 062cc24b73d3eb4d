"""What all tests share."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hub_server import Hub
from ray_nodes import Nodes, holding_nodes
from warm_cli import WarmCli

# Two workers on two cores: a thread each, in them and in what they start.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

# The same cases on every run: a red main must be somebody's change, not a draw. No deadline: the machine is shared.
hypothesis.settings.register_profile("ballcast", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ballcast")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Exports that commands make by themselves are not those of the user."""
    os.environ["BALLCAST_CACHE"] = str(tmp_path_factory.mktemp("cache"))


ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder of reference results and data beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not beside the checkout")
    return SHARED


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def warm_cli() -> Iterator[WarmCli]:
    running = WarmCli()
    yield running
    running.close()


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[Nodes]:
    """A Ray cluster on this machine, started once; a test asks for the nodes that it needs and may kill them."""
    with tempfile.TemporaryDirectory() as folder, holding_nodes(Path(folder)) as nodes:
        yield nodes


@pytest.fixture
def ballcast(tmp_path: Path, warm_cli: WarmCli) -> Cli:
    """Runs the command line as a user would, in an empty folder; in a fresh interpreter if `env` is given."""

    def run(*args: object, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        words = [str(arg) for arg in args]
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **(env or {})}
        if env is None:
            return warm_cli.run(words, tmp_path, environment, stdin, timeout=300)
        return subprocess.run(
            [sys.executable, "-m", "ballcast", *words],
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def assert_clean_failure(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, one line on stderr that names the words, besides notes, and no traceback."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if re.match(r"ballcast: (?!note: )", line)]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], (word, lines[0])


@pytest.fixture
def clean_failure() -> Callable[..., None]:
    return assert_clean_failure


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A stand-in for the Hugging Face hub on this machine; pass `hub.env` to the process that should see it."""
    with Hub() as running:
        yield running


@pytest.fixture
def on_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The stand-in as the hub of this very process, with an empty cache."""
    from huggingface_hub import close_session, constants

    for name, value in hub.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants._HF_DEFAULT_ENDPOINT, hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    close_session()  # one made before may know of a proxy
    yield hub
    close_session()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 2 MB."""
    disk = tmp_path / "small disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
