"""A folder of simulated matches: match_NNNN.mp4, the states it was played by in match_NNNN.npz, and matches.json."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.core.files import exclusive_lock, make_parents, replacing, write_json
from ballcast.core.util import natural
from ballcast.data.labels.games import MATCHES, Match
from tools.simulation.actions import find_actions
from tools.simulation.broadcast import count_frames, develop, filming
from tools.simulation.fixture import TEST_SEEDS, Fixture
from tools.simulation.game import Game
from tools.simulation.states import States, read_rows, read_states, write_states


def video_of(folder: Path, seed: int) -> Path:
    return folder / f"match_{seed:04}.mp4"


def states_of(video: Path) -> Path:
    return video.with_suffix(".npz")


def is_played(video: Path) -> bool:
    """Whether all of the match is there."""
    return video.is_file() and states_of(video).is_file()


def check_split(videos: Iterable[Path], split: str) -> None:
    """Refuse to put a match of TEST_SEEDS into another split than test."""
    test_names = {video_of(Path(), seed).name for seed in TEST_SEEDS}
    wrong = [video for video in videos if video.name in test_names]
    if split != "test" and wrong:
        raise InputError(
            f"{wrong[0]}: cannot be in the split {split}: seeds {TEST_SEEDS[0]} to {TEST_SEEDS[-1]} are test matches; "
            "give --split test, or another --seed"
        )


def record(
    game: Game, fixture: Fixture, video: Path, steps: int, *, every: int, tick: Callable[[], None] = lambda: None
) -> None:
    """Play a match of `steps` steps into `video` and the states beside it; both are there in the end, or neither.

    `tick` is called after each step.
    """
    make_parents(video)
    busy = f"{video}: is being played by another process; wait for it, or give another --seed"
    with exclusive_lock(video, video.with_name(f".{video.stem}.lock"), busy):
        for left in video.parent.glob(f".{video.stem}.*.tmp"):  # by one that was killed
            left.unlink()
        rows: list[list[float]] = []
        hidden: list[int] = []
        with replacing(video) as temporary:
            with filming(temporary) as add:
                for step in game.play(fixture, steps, every=every):
                    if step.picture is not None:
                        add(develop(step.picture, fixture.gain), len(rows))
                    rows.append(step.row)
                    hidden.append(step.hidden)
                    tick()
            write_states(states_of(video), rows, hidden, fixture)


def differences(game: Game, video: Path, seed: int, labelled: Match | None) -> list[str]:
    """Play a match of `video_of` again, without pictures, and compare it with what is kept beside its video.

    Returns what differs: "states" or "labels"; empty if all is the same. `labelled` is its entry of matches.json.
    """
    rows, hidden = read_rows(states_of(video))
    steps = list(game.play(Fixture.draw(seed), len(rows), every=len(rows)))
    again, left_out = np.array([step.row for step in steps], np.float32), np.array([step.hidden for step in steps])
    found = []
    if not (np.array_equal(again, rows) and np.array_equal(left_out, hidden)):
        found.append("states")
    if labelled is None or tuple(find_actions(States.of(again, left_out))) != labelled.events:
        found.append("labels")
    return found


def label_matches(folder: Path, split: str) -> list[Match]:
    """Find the actions of all matches of a folder anew, from their states, and write its matches.json."""
    videos = sorted(folder.glob("match_*.mp4"), key=lambda path: natural(path.name))
    check_split(videos, split)
    matches = []
    for video in filter(is_played, videos):
        states = read_states(states_of(video))
        frames = min(len(states), count_frames(video))  # a reader may count on all of them
        matches.append(Match(video.name, split, frames, tuple(find_actions(states))))
    if not matches:
        raise InputError(
            f"{folder}: has no matches, that is no match_NNNN.mp4 with its match_NNNN.npz; play some first"
        )
    write_json(folder / MATCHES, [_record(match) for match in matches])
    return matches


def _record(match: Match) -> dict[str, object]:
    actions = [_action(event) for event in match.events]
    return {"video": match.video, "split": match.split, "frames": match.frames, "actions": actions}


def _action(event: Event) -> dict[str, object]:
    return {"label": event.label, "position": event.position_ms, "team": event.team, "visibility": "visible"}
