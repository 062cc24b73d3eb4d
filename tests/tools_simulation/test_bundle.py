"""The archive for machines with a GPU: its program, what it loads, and what is left out."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tools.simulation import bundle, bundled
from tools.simulation.crew import ROOT

# Imports what films import, and prints the packages that are neither of the standard library nor of this project.
FOREIGN = """
import sys
import tools.simulation.bundled, tools.simulation.film
names = {name.split(".")[0] for name in sys.modules if not name.startswith("_")}
print(*sorted(names - set(sys.stdlib_module_names) - {"ballcast", "tools", "sitecustomize"}))
"""


def film(*words: object, engine: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Runs the archive's program in this process; returns what it ends with."""
    monkeypatch.setattr(sys, "argv", ["film", *map(str, words), "--engine", str(engine)])
    try:
        bundled.main()
    except SystemExit as ended:
        return str(ended.code)
    return None


def test_films_need_numpy_and_pillow_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FOREIGN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"cython_runtime"} == {"numpy", "PIL"}


def test_films_as_arrays(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("STAND_IN_TROUBLE", "6002 raise")
    words = ("--minutes", 0.0134, "--jobs", 2, tmp_path / "out", "6001-6003")
    ended = film(*words, engine=stand_in, monkeypatch=monkeypatch)
    assert ended == "film: 1 of 3 matches could not be filmed: 6002"
    assert "match_6002.npy: the engine is out of order; skipped" in capsys.readouterr().out
    monkeypatch.delenv("STAND_IN_TROUBLE")
    first = (tmp_path / "out" / "match_6001.npy").stat()
    assert film(*words, 7001, engine=stand_in, monkeypatch=monkeypatch) is None
    assert (tmp_path / "out" / "match_6001.npy").stat() == first  # what is filmed stays
    entries = json.loads((tmp_path / "out" / "matches.json").read_text())
    assert [(entry["video"], entry["split"], entry["frames"]) for entry in entries] == [
        ("match_6001.npy", "train", 20),
        ("match_6002.npy", "train", 20),
        ("match_6003.npy", "train", 20),
        ("match_7001.npy", "test", 20),
    ]
    assert len(list((tmp_path / "out").iterdir())) == 2 * 4 + 1


@pytest.mark.parametrize("words", [("x",), ("6002-6001",), ("6001", "--jobs", "0"), ("6001", "--minutes", "0")])
def test_wrong_words_are_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert film(tmp_path / "out", *words, engine=tmp_path, monkeypatch=monkeypatch) == "2"
    assert "film: error" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_driver_draws_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "NVIDIA", "libc.so.6")
    environment = bundled.egl_environment(tmp_path)
    vendor = json.loads(Path(environment["__EGL_VENDOR_LIBRARY_FILENAMES"]).read_text())
    assert vendor["ICD"]["library_path"] == "libc.so.6"
    monkeypatch.setattr(bundled, "NVIDIA", "libno_such_driver.so.0")
    assert bundled.egl_environment(tmp_path) == {}


def test_the_archive_films_alone(engine: Path, tmp_path: Path) -> None:
    """With nothing of this machine but its C libraries and its driver; the pictures are those of this Python."""
    archive = tmp_path / "films.tar.xz"
    bundle.main([str(archive), "--engine", str(engine)])
    assert archive.stat().st_size < 32e6
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    words = ["6001", "--minutes", "0.05"]
    bare = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    subprocess.run([tmp_path / "films" / "film", tmp_path / "out", *words], cwd="/", env=bare, check=True)
    here = [sys.executable, "-m", "tools.simulation.bundled", tmp_path / "here", *words, "--engine", engine]
    subprocess.run(here, cwd=ROOT, env=dict(os.environ), check=True)
    there, again = (np.load(tmp_path / folder / "match_6001.npy").astype(int) for folder in ("out", "here"))
    assert np.abs(there - again).max() <= 1
    assert there[0].std() > 10
    assert (tmp_path / "out" / "matches.json").read_text() == (tmp_path / "here" / "matches.json").read_text()
