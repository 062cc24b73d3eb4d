"""Many matches in processes of their own: one that fails is reported, and leaves nothing behind."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from tools_simulation.stand_in import WALK

from tools.simulation import film as film_module
from tools.simulation.crew import ROOT, Crew, Shoot, Take
from tools.simulation.films import film_of
from tools.simulation.game import picture_frames
from tools.simulation.partial_files import locking


@pytest.fixture
def shoot(stand_in: Path, tmp_path: Path) -> Shoot:
    return Shoot(tmp_path, stand_in, steps=30, kind="npy")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_films_states_and_progress(shoot: Shoot, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    takes = list(Crew(shoot, workers=2).film([6001, 6002], lambda seed, steps: seen.append((seed, steps))))
    assert {(take.seed, take.film.name, take.error) for take in takes} == {
        (6001, "match_6001.npy", None),
        (6002, "match_6002.npy", None),
    }
    assert sorted(seen) == [(6001, 25), (6001, 30), (6002, 25), (6002, 30)]
    assert names(tmp_path) == ["match_6001.npy", "match_6001.npz", "match_6002.npy", "match_6002.npz"]
    one, other = (np.load(film_of(tmp_path, seed, "npy")) for seed in (6001, 6002))
    assert one.shape == (len(picture_frames(30, 2)), 336 * 398) == (16, 133728)
    assert not np.array_equal(one, other)  # the same game of the stand-in, in two looks
    with np.load(tmp_path / "match_6001.npz") as states, np.load(tmp_path / "match_6002.npz") as others:
        assert np.array_equal(states["rows"], others["rows"])
        assert states["hidden"][0] == WALK


def test_the_same_seed_is_the_same_film(shoot: Shoot, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        (take,) = Crew(shoot, workers=1).film([6001])
        contents.append(take.film.read_bytes())
        take.film.unlink()
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("trouble", "timeout_s", "error"),
    [
        ("raise", None, "the engine is out of order"),  # the last line of the error
        ("die", None, "its process was killed by signal 11"),
        ("hang", 8.0, "took longer than 8 s"),
    ],
)
def test_a_match_that_fails_is_reported_and_the_others_are_filmed(
    trouble: str, timeout_s: float | None, error: str, stand_in: Path, tmp_path: Path
) -> None:
    environment = {"STAND_IN_TROUBLE": f"6002 {trouble}"}
    shoot = Shoot(tmp_path, stand_in, 30, kind="npy", timeout_s=timeout_s, environment=environment)
    takes: dict[int, Take] = {take.seed: take for take in Crew(shoot, workers=1).film([6001, 6002, 6003])}
    assert {seed: take.error is None for seed, take in takes.items()} == {6001: True, 6002: False, 6003: True}
    assert takes[6002].error == error
    assert names(tmp_path) == ["match_6001.npy", "match_6001.npz", "match_6003.npy", "match_6003.npz"]


def test_a_match_that_another_process_films_is_left_to_it(shoot: Shoot, tmp_path: Path) -> None:
    with locking(film_of(tmp_path, 6001, "npy")):
        (take,) = Crew(shoot, workers=1).film([6001])
    assert take.error is not None
    assert "is being filmed by another process" in take.error
    assert names(tmp_path) == []


def test_processes_end_with_the_iteration(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (tmp_path / "out").mkdir()
    environment = {"STAND_IN_TROUBLE": "6002 hang"}
    shoot = Shoot(tmp_path / "out", stand_in, 30, kind="npy", environment=environment)
    began = time.monotonic()
    takes = Crew(shoot, workers=2).film([6001, 6002, 6003, 6004])
    assert next(takes).seed == 6001
    takes.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 30
    assert "match_6002.npy" not in names(tmp_path / "out")
    assert not any(name.endswith((".tmp", ".lock")) for name in names(tmp_path / "out"))
    assert names(scratch) == []


def test_a_film_that_is_told_to_end_leaves_nothing(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "scratch").mkdir()
    words = [tmp_path / "out", "6002", "--engine", stand_in, "--scratch", tmp_path / "scratch"]
    process = subprocess.Popen(
        [sys.executable, "-m", film_module.__name__, *words, "--steps", "30", "--kind", "npy"],
        cwd=ROOT,
        env={**os.environ, "STAND_IN_TROUBLE": "6002 hang"},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "out" / ".match_6002.npy.tmp").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.terminate()
    assert process.wait(10) == 143
    assert names(tmp_path / "out") == []
