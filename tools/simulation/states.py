"""The state of the game at every step, 25 a second: as the engine gives it, as it is stored, and in metres."""

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.errors import InputError
from tools.simulation.fixture import Fixture
from tools.simulation.partial_files import completing

PLAYERS = 11  # a side
COLUMNS = 11 + 2 * PLAYERS * 2
METRES = np.array([54.4, 83.6, 1.0])  # of the engine's units along the pitch, across it, up
HALF_LENGTH = METRES[0]  # from the middle to a goal line
PER_SECOND = 4  # the engine gives the ball's movement in a quarter of a second

# The engine's modes of play that matter here.
IN_PLAY, GOAL_KICK, CORNER, THROW_IN = 0, 2, 4, 5


def state_row(info: Any) -> list[float]:
    """A step as it is kept, from the engine's `get_info()`.

    Columns: the ball's place 0–2 and its way 3–5; the team (0 left, 1 right, −1 nobody) and the player who own it 6, 7;
    the mode of play 8; goals of the left and the right 9, 10; x and y of the left side's players 11–32, the right's
    33–54; all in the engine's units.
    """
    ball = [where[axis] for where in (info.ball_position, info.ball_direction) for axis in range(3)]
    status = [info.ball_owned_team, info.ball_owned_player, int(info.game_mode), info.left_goals, info.right_goals]
    players = [p.position[axis] for team in (info.left_team, info.right_team) for p in team for axis in range(2)]
    return [*ball, *status, *players]


@dataclass(frozen=True)
class States:
    """A match step by step. The pitch's middle is the origin; the left side plays towards larger x.

    Attributes:
        ball: (T, 3) where it is in m.
        velocity: (T, 3) of the ball in m/s.
        owner: (T, 2) the team (0 left, 1 right) and the player who have it; −1 where nobody does.
        mode: (T,) of play, IN_PLAY unless there is a restart to come.
        players: (T, 2, 11, 2) where the players of both teams are in m.
        scene: (T,) counted up wherever the game, and with it the broadcast, leaves steps out.
    """

    ball: NDArray[np.float64]
    velocity: NDArray[np.float64]
    owner: NDArray[np.int64]
    mode: NDArray[np.int64]
    players: NDArray[np.float64]
    scene: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.float32], hidden: NDArray[np.int64]) -> "States":
        """From rows (T, 55) of `state_row`, and how many steps before each are not shown (T,)."""
        values = rows.astype(np.float64)
        return cls(
            ball=values[:, :3] * METRES,
            velocity=values[:, 3:6] * METRES * PER_SECOND,
            owner=values[:, 6:8].astype(np.int64),
            mode=values[:, 8].astype(np.int64),
            players=values[:, 11:].reshape(-1, 2, PLAYERS, 2) * METRES[:2],  # (T, 2, 11, 2)
            scene=np.cumsum(hidden > 0),
        )

    def __len__(self) -> int:
        return len(self.ball)

    @cached_property  # asked for at every contact
    def speed(self) -> NDArray[np.float64]:
        """(T,) of the ball over the ground, in m/s."""
        return np.hypot(self.velocity[:, 0], self.velocity[:, 1])


def write_states(path: Path, rows: list[list[float]], hidden: list[int], fixture: Fixture) -> None:
    """Keep the steps of a match: rows (T, 55), the steps left out before each (T,), and what was played (3,)."""
    info = np.array([fixture.seed, fixture.left, fixture.right])
    with completing(path) as partial, partial.open("wb") as file:
        np.savez(file, rows=np.array(rows, np.float32), hidden=np.array(hidden), info=info)


def read_states(path: Path) -> States:
    """The states that `write_states` kept."""
    return States.of(*read_rows(path))


def read_rows(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows (T, 55) and the steps left out before each (T,), as `write_states` kept them."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            rows, hidden = kept["rows"], kept["hidden"]
        if not len(rows) or rows.shape != (len(hidden), COLUMNS):
            raise ValueError(f"rows of shape {rows.shape}, {len(hidden)} of hidden")
        return rows, hidden
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: these are no states of a match ({error}); remove it and film it again") from None
