"""The engine at play: from a fixture to states and pictures, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.simulation.fixture import Fixture
from tools.simulation.states import state_row

HEIGHT, WIDTH = 336, 600  # of what is rendered, 1.5 times a film; the engine wants widths that four divides
PHYSICS_STEPS = 4  # of 10 ms: a step is 40 ms, a frame at 25 fps


def picture_frames(steps: int, every: int) -> list[int]:
    """The steps of a match that have a picture: every `every`-th from the first on, and the last."""
    return sorted({*range(0, steps, every), steps - 1})


@dataclass(frozen=True)
class GameStep:
    """One step that a broadcast shows.

    Attributes:
        row: the state, as `state_row` returns it.
        hidden: how many steps before it are not shown: the ball is fetched, players walk to their places.
        picture: (336, 600, 3) uint8 RGB, or None where none is asked for.
    """

    row: list[float]
    hidden: int
    picture: NDArray[np.uint8] | None


class Game:
    """A running engine, which takes seconds to start and plays any number of matches, one after the other."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._game = engine.GameEnv()
        config = self._game.game_config
        config.physics_steps_per_frame = PHYSICS_STEPS
        config.render_resolution_x, config.render_resolution_y = WIDTH, HEIGHT
        config.render = True
        self._game.start_game()

    def play(self, fixture: Fixture, steps: int, *, every: int) -> Iterator[GameStep]:
        """The first `steps` steps that are shown, with the pictures of `picture_frames`."""
        game = self._game

        seen = set(picture_frames(steps, every))
        game.state = self._engine.GameState.game_running
        game.game_config.render = True
        game.reset(fixture.scenario(self._engine), True)
        game.game_config.render = False  # in step(): rendering is nearly all of the work, and few steps need it
        shown = hidden = 0
        is_cut = True  # since the last picture
        while True:
            info = game.get_info()
            if info.is_in_play:
                picture = None
                if shown in seen:
                    picture, is_cut = self._picture(is_cut=is_cut), False
                yield GameStep(state_row(info), hidden, picture)
                shown, hidden = shown + 1, 0
                if shown == steps:
                    return
            else:
                hidden, is_cut = hidden + 1, True
            game.step()

    def _picture(self, *, is_cut: bool) -> NDArray[np.uint8]:
        """Render the game as it is now; `is_cut` where steps since the last picture were not shown."""
        config = self._game.game_config
        config.render = True  # or players are not drawn
        for _ in range(2 if is_cut else 1):  # the camera of a picture is the one that the rendering before it set
            self._game.render(True)
        config.render = False
        rows = np.frombuffer(self._game.get_frame(), np.uint8).reshape(HEIGHT, WIDTH, 3)
        return rows[::-1]  # the engine begins at the bottom
