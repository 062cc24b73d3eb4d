"""A stand-in for the game's engine: the parts of gfootball_engine that are used, and a ball that rolls to the right."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from tools.simulation.game import HEIGHT, WIDTH
from tools.simulation.states import PLAYERS

WALK = 3  # steps that are not shown at the start, and again before step 20


class GameEnv:
    """Keeps what it was asked for: `scenarios`, and in `rendered` the steps that were rendered."""

    def __init__(self) -> None:
        self.game_config = SimpleNamespace()
        self.scenarios: list[Any] = []
        self.rendered: list[int] = []

    def start_game(self) -> None:
        assert self.game_config.render

    def reset(self, scenario: Any, animated: bool) -> None:
        self.scenarios.append(scenario)
        self.at = 0

    def get_info(self) -> SimpleNamespace:
        shown = self.at >= WALK and not 20 + WALK <= self.at < 20 + 2 * WALK
        players = [SimpleNamespace(position=(0.1 * n, 0.2)) for n in range(PLAYERS)]
        owner = (0, 5) if self.at < 35 else (-1, -1)
        return SimpleNamespace(
            ball_position=(0.004 * self.at, 0.0, 0.1),
            ball_direction=(0.02, 0.0, 0.0),
            ball_owned_team=owner[0],
            ball_owned_player=owner[1],
            game_mode=0,
            left_goals=0,
            right_goals=1,
            left_team=players,
            right_team=players,
            is_in_play=shown,
        )

    def step(self) -> None:
        self.at += 1
        if self.game_config.render:
            self.render(True)

    def render(self, swap_buffer: bool) -> None:
        assert self.game_config.render  # else the engine draws no players
        self.rendered.append(self.at)

    def get_frame(self) -> bytes:
        """The bottom row first: dark there, bright at the top; green is the step rendered last, blue the one before it,
        which the camera is of."""
        picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        picture[..., 0] = np.linspace(0, 80, HEIGHT, dtype=np.uint8)[:, None]
        picture[..., 1] = self.rendered[-1]
        picture[..., 2] = self.rendered[-2] if len(self.rendered) > 1 else 255
        return picture.tobytes()


class ScenarioConfig:
    @staticmethod
    def make() -> SimpleNamespace:
        return SimpleNamespace(left_team=[], right_team=[])


class Roles:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("e_PlayerRole_")


ENGINE = SimpleNamespace(
    GameEnv=GameEnv,
    GameState=SimpleNamespace(game_running="running"),
    ScenarioConfig=ScenarioConfig,
    FormationEntry=lambda x, y, role, lazy, controllable: (x, y, role),
    e_PlayerRole=Roles(),
)
