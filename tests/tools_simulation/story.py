"""States of a match, written as what happens to the ball, part by part."""

import numpy as np

from tools.simulation.states import COLUMNS, IN_PLAY, METRES, PER_SECOND, PLAYERS, States

FAR = (0.0, 60.0)  # m: where players are who are not at the ball


class Story:
    """Begins with the ball at `at` (m); every part adds steps of 40 ms, in which the ball goes on from where it is."""

    def __init__(self, at: tuple[float, float] = (0.0, 0.0)) -> None:
        self.ball = np.array(at)
        self.rows: list[list[float]] = []
        self.hidden: list[int] = []

    def held(self, team: int, player: int, steps: int, velocity: tuple[float, float] = (0, 0), **how: int) -> "Story":
        """A player has the ball; `velocity` in m/s."""
        return self._add(steps, (team, player), velocity, 0.1, **how)

    def free(self, steps: int, velocity: tuple[float, float], height: float = 0.1, **how: int) -> "Story":
        """Nobody has it; `height` in m."""
        return self._add(steps, (-1, -1), velocity, height, **how)

    def touched(self, team: int, player: int, away: float = 0.0) -> "Story":
        """A player stands at the free ball, `away` m from it, at the end of the last part; the next is their touch."""
        first = 11 + 2 * (team * PLAYERS + player)
        self.rows[-1][first : first + 2] = [self.rows[-1][0] + away / METRES[0], self.rows[-1][1]]
        return self

    def _add(
        self,
        steps: int,
        owner: tuple[int, int],
        velocity: tuple[float, float],
        height: float,
        mode: int = IN_PLAY,
        cut: int = 0,
    ) -> "Story":
        for step in range(steps):
            self.ball = self.ball + np.array(velocity) * 0.04
            place, way = np.array([*self.ball, height]) / METRES, np.array([*velocity, 0.0]) / METRES / PER_SECOND
            players = np.tile(np.array(FAR) / METRES[:2], 2 * PLAYERS)
            row = [*place, *way, *owner, mode, 0, 0, *players]
            assert len(row) == COLUMNS
            self.rows.append(row)
            self.hidden.append(cut if step == 0 else 0)
        return self

    def states(self) -> States:
        return States.of(np.array(self.rows, np.float32), np.array(self.hidden))
