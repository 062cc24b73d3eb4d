"""A folder of films: what is complete, and its labels."""

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from tools_simulation.story import Story

from ballcast.core.errors import InputError
from tools.simulation.films import film_of, find_films, missing_seeds, read_labels, seed_of, write_labels
from tools.simulation.fixture import Fixture
from tools.simulation.partial_files import completing, locking, remove_partial
from tools.simulation.states import write_states


def keep(folder: Path, seed: int, story: Story) -> Path:
    """An array of a film that was made before."""
    film = film_of(folder, seed, "npy")
    np.save(film, np.zeros((1, 1), np.uint8))
    write_states(film.with_suffix(".npz"), story.rows, story.hidden, Fixture.draw(seed))
    return film


def a_pass() -> Story:
    return Story().held(0, 5, 10).free(20, (12, 0)).held(0, 7, 10)


def test_seeds_are_read_from_names(tmp_path: Path) -> None:
    assert film_of(tmp_path, 41).name == "match_0041.mp4"
    assert seed_of(film_of(tmp_path, 10001, "npy")) == 10001
    with pytest.raises(InputError, match=r"final\.mp4: its name has no seed"):
        seed_of(tmp_path / "final.mp4")


def test_only_complete_films_are_found(tmp_path: Path) -> None:
    films = [keep(tmp_path, seed, a_pass()) for seed in (10001, 9, 6001)]
    (tmp_path / "match_0010.npy").write_bytes(b"its states are not there")
    np.savez(tmp_path / "match_0009_scores.npz", s=np.zeros(3))
    (tmp_path / "match_0009_scores.npy").write_bytes(b"not a film")
    assert find_films(tmp_path) == [films[1], films[2], films[0]]


def test_labels_of_one_film_leave_the_others(tmp_path: Path) -> None:
    first, second, third = (keep(tmp_path, seed, a_pass()) for seed in (8001, 6001, 7001))
    assert [entry["video"] for entry in write_labels(tmp_path, [first])] == ["match_8001.npy"]
    write_labels(tmp_path, [second], "extra")
    write_labels(tmp_path, [third])
    entries = json.loads((tmp_path / "matches.json").read_text())
    assert [(entry["video"], entry["split"], entry["frames"]) for entry in entries] == [
        ("match_6001.npy", "extra", 40),
        ("match_7001.npy", "test", 40),
        ("match_8001.npy", "valid", 40),
    ]
    assert entries[0]["actions"] == [{"label": "PASS", "position": 360, "team": "home", "visibility": "visible"}]
    keep(tmp_path, 6001, Story().held(0, 5, 40))
    third.unlink()
    write_labels(tmp_path, [second])
    again = read_labels(tmp_path)
    assert list(again) == ["match_6001.npy", "match_8001.npy"]  # what is gone has no labels
    assert again["match_6001.npy"]["split"] == "extra"  # a split stays
    assert again["match_6001.npy"]["actions"] == []


def test_a_test_match_is_never_labelled_for_training(tmp_path: Path) -> None:
    film = keep(tmp_path, 7001, a_pass())
    with pytest.raises(InputError, match="seed 7001 cannot be in the split train"):
        write_labels(tmp_path, [film], "train")
    assert read_labels(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[", "{}x", '[{"split": "train"}]', "[1]"])
def test_labels_that_are_none_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "matches.json").write_text(text)
    with pytest.raises(InputError, match=r"matches\.json: cannot be read as labels"):
        read_labels(tmp_path)


def test_a_file_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "film.npy"

    def fail() -> None:
        with completing(target) as partial:
            partial.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with completing(target) as partial:
        partial.write_bytes(b"whole")
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["film.npy"]


def _append(path: Path, times: int) -> None:
    for _ in range(times):
        with locking(path, wait=True):
            count = int(path.read_text()) if path.exists() else 0
            path.write_text(str(count + 1))


def test_processes_wait_for_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(tmp_path / "count", 200)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (tmp_path / "count").read_text() == "600"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_what_is_at_work_is_left_alone(tmp_path: Path) -> None:
    film = tmp_path / "film.npy"
    with locking(film), completing(film) as partial:
        partial.write_bytes(b"half")
        with pytest.raises(InputError, match="is being filmed by another process"), locking(film):
            pass
        remove_partial(film)
        assert partial.exists()
    (tmp_path / ".film.npy.tmp").write_bytes(b"left by a process that was killed")
    remove_partial(film)
    assert [path.name for path in tmp_path.iterdir()] == ["film.npy"]


def test_films_that_a_kill_left_without_labels_get_them(tmp_path: Path) -> None:
    write_labels(tmp_path, [keep(tmp_path, 6001, a_pass())], "extra")
    keep(tmp_path, 6002, a_pass())
    assert missing_seeds(tmp_path, [6001, 6002, 6003], "npy") == [6003]
    assert {name: entry["split"] for name, entry in read_labels(tmp_path).items()} == {
        "match_6001.npy": "extra",
        "match_6002.npy": "train",
    }
