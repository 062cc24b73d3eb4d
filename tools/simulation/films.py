"""A folder of films: match_NNNN.mp4 or .npy, the states of the game in match_NNNN.npz, and matches.json with labels."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.errors import InputError
from ballcast.core.events import Event
from tools.simulation.actions import find_actions
from tools.simulation.fixture import Fixture
from tools.simulation.game import Game
from tools.simulation.partial_files import completing, locking
from tools.simulation.seeds import check_split, split_of
from tools.simulation.states import States, read_rows, read_states, write_states

LABELS = "matches.json"
KINDS = ("mp4", "npy")  # a video, or an array for training

Entry = dict[str, Any]  # of a film in matches.json: "video", "split", "frames" and "actions"
Add = Callable[[NDArray[np.uint8], int], None]
Sink = Callable[[Path], AbstractContextManager[Add]]


def film_of(folder: Path, seed: int, kind: str = "mp4") -> Path:
    return folder / f"match_{seed:04}.{kind}"


def states_of(film: Path) -> Path:
    return film.with_suffix(".npz")


def seed_of(film: Path) -> int:
    """The seed in a film's name."""
    digits = film.stem.removeprefix("match_")
    if not digits.isdecimal():
        raise InputError(f"{film}: its name has no seed; films are named match_NNNN.mp4 or match_NNNN.npy")
    return int(digits)


def is_complete(film: Path) -> bool:
    """Whether the film and its states are there."""
    return film.is_file() and states_of(film).is_file()


def find_films(folder: Path) -> list[Path]:
    """All complete films of a folder, by seed."""
    films = [path for kind in KINDS for path in folder.glob(f"match_*.{kind}")]
    return sorted((path for path in films if path.stem[len("match_") :].isdecimal() and is_complete(path)), key=_order)


def record(
    game: Game,
    fixture: Fixture,
    film: Path,
    steps: int,
    *,
    every: int,
    sink: Sink,
    develop: Callable[[NDArray[np.uint8], int], NDArray[np.uint8]],
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Play a match of `steps` steps and write its film and states; both are there in the end, or neither.

    Args:
        film: the file to write; its folder must exist.
        every: steps from one picture to the next.
        sink: opens a path for writing and yields a function that adds a picture at a frame.
        develop: turns a rendered picture and its frame into one of the film.
        tick: is called after each step.
    """
    with locking(film):
        rows: list[list[float]] = []
        hidden: list[int] = []
        with completing(film) as partial:
            with sink(partial) as add:
                for step in game.play(fixture, steps, every=every):
                    if step.picture is not None:
                        add(develop(step.picture, len(rows)), len(rows))
                    rows.append(step.row)
                    hidden.append(step.hidden)
                    tick()
            write_states(states_of(film), rows, hidden, fixture)


def differences(game: Game, film: Path, actions: list[dict[str, Any]] | None) -> list[str]:
    """Play the match of a film again, without its look and without pictures, and compare it with what is kept.

    Args:
        actions: of its entry of matches.json; None if it has none.

    Returns:
        What differs: "states" or "labels"; empty if all is the same.
    """
    rows, hidden = read_rows(states_of(film))
    steps = list(game.play(Fixture.draw(seed_of(film)), len(rows), every=len(rows)))
    again, left_out = np.array([step.row for step in steps], np.float32), np.array([step.hidden for step in steps])
    found = []
    if not (np.array_equal(again, rows) and np.array_equal(left_out, hidden)):
        found.append("states")
    if actions is None or [_action(event) for event in find_actions(States.of(again, left_out))] != actions:
        found.append("labels")
    return found


# --- Labels ---


def read_labels(folder: Path) -> dict[str, Entry]:
    """The entries of matches.json by their films' names; empty if there is no such file."""
    path = folder / LABELS
    try:
        return {entry["video"]: entry for entry in json.loads(path.read_text())}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as labels of matches ({error}); remove it and label again") from None


def write_labels(folder: Path, films: Sequence[Path], split: str | None = None) -> list[Entry]:
    """Find the actions of films from their states, and write them into matches.json; entries of other films stay.

    Entries of films that are no longer there go. With `split` None a film keeps the split that it has, or gets that of
    its seed.

    Returns:
        The entries of `films`.
    """
    path = folder / LABELS
    with locking(path, wait=True):
        labels = read_labels(folder)
        for film in films:
            known = labels.get(film.name, {}).get("split")
            labels[film.name] = label(film, split or known or split_of(seed_of(film)))
        there = sorted((film for film in map(folder.joinpath, labels) if film.is_file()), key=_order)
        with completing(path) as partial:
            partial.write_text(json.dumps([labels[film.name] for film in there]) + "\n")
    return [labels[film.name] for film in films]


def missing_seeds(folder: Path, seeds: Sequence[int], kind: str, split: str | None = None) -> list[int]:
    """The seeds that have no complete film yet; films that have no labels, after a kill, get them."""
    films = {seed: film_of(folder, seed, kind) for seed in seeds}
    complete = [film for film in films.values() if is_complete(film)]
    labels = read_labels(folder)
    if unlabelled := [film for film in complete if film.name not in labels]:
        write_labels(folder, unlabelled, split)
    return [seed for seed, film in films.items() if film not in complete]


def label(film: Path, split: str) -> Entry:
    """The entry of a film in matches.json."""
    check_split([seed_of(film)], split)
    states = read_states(states_of(film))
    actions = [_action(event) for event in find_actions(states)]
    return {"video": film.name, "split": split, "frames": _frames(film, len(states)), "actions": actions}


def _frames(film: Path, steps: int) -> int:
    """How many frames of a film a reader may count on."""
    if film.suffix != ".mp4":
        return steps
    from tools.simulation.broadcast import count_frames  # PyAV is only needed for videos

    return min(steps, count_frames(film))


def _action(event: Event) -> dict[str, Any]:
    return {"label": event.label, "position": event.position_ms, "team": event.team, "visibility": "visible"}


def _order(film: Path) -> tuple[int, str]:
    return seed_of(film), film.name
