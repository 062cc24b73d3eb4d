"""A stand-in for the game's engine: the parts of gfootball_engine that are used, and a ball that rolls to the right.

`write_engine` makes a folder of it that can be given as --engine. With STAND_IN_TROUBLE="2 hang" in the environment
something happens at the tenth step of seed 2: "hang", "raise", "die" (as a crash of the engine), or "interrupt" (Ctrl-C
reaches the process that started this one).
"""

import os
import shutil
import signal
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
from PIL import Image

from tools.simulation.engine import NAME
from tools.simulation.engine_data import BALL, BOARDS, KITS, MUD, TINTED
from tools.simulation.film import FONT
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
        seed, _, trouble = os.environ.get("STAND_IN_TROUBLE", "").partition(" ")
        self.trouble = trouble if seed == str(scenario.game_engine_random_seed) else ""

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
        if self.at == 10:
            make(self.trouble)
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


def make(trouble: str) -> None:
    if trouble == "raise":
        raise RuntimeError("first line\nthe engine is out of order")
    if trouble == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if trouble == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
    if trouble in ("hang", "interrupt"):
        time.sleep(60)


class ScenarioConfig:
    @staticmethod
    def make() -> SimpleNamespace:
        return SimpleNamespace(left_team=[], right_team=[])


class Roles:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("e_PlayerRole_")


GameState = SimpleNamespace(game_running="running")
e_PlayerRole = Roles()  # noqa: N816 - the engine's name


def FormationEntry(x: float, y: float, role: str, lazy: bool, controllable: bool) -> tuple[float, float, str]:  # noqa: N802
    return x, y, role


ENGINE = SimpleNamespace(
    GameEnv=GameEnv,
    GameState=GameState,
    ScenarioConfig=ScenarioConfig,
    FormationEntry=FormationEntry,
    e_PlayerRole=e_PlayerRole,
)
BITMAPS = {  # of the game's data that looks replace: height, width, channels
    **dict.fromkeys(KITS.values(), (1024, 1024, 4)),
    **{path: (16, 15, 3) for paths in TINTED.values() for path in paths},
    BOARDS / "board1.bmp": (32, 250, 3),
    BOARDS / "board2.bmp": (32, 250, 3),
    MUD: (32, 64, 4),
    BALL / "ball.bmp": (16, 16, 3),
}
BALL_MODEL = "\t\t*MESH_VERTEX_LIST {\n\t\t\t*MESH_VERTEX    0\t0.0000\t-0.0500\t0.1100\n\t\t}\n"


def write_data(data: Path) -> None:
    """The files of the game's data that a look replaces, with colours drawn at random; and one that it does not."""
    rng = np.random.default_rng(0)
    for path, shape in BITMAPS.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        write_new_bitmap(data / path, rng.integers(0, 256, shape, np.uint8))
    (data / BALL / "generic.ase").write_text(BALL_MODEL)
    (data / "media" / "shaders").mkdir()
    (data / "media" / "shaders" / "simple.frag").write_text("the engine's")
    (data / "media" / "animations.txt").write_text("as it is")


def write_new_bitmap(path: Path, pixels: np.ndarray) -> None:
    """A BMP file of pixels (H, W, 3 or 4); with alpha as the game has it, which Pillow reads but does not write."""
    height, width, channels = pixels.shape
    if channels == 3:
        Image.fromarray(pixels).save(path)
        return
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    info = struct.pack("<IiiHHIIiiII", 108, width, height, 1, 32, 3, 0, 2835, 2835, 0, 0) + masks + b"BGRs" + bytes(48)
    content = pixels[::-1, :, [2, 1, 0, 3]].tobytes()
    path.write_bytes(
        struct.pack("<2sIHHI", b"BM", 14 + len(info) + len(content), 0, 0, 14 + len(info)) + info + content
    )


def write_engine(folder: Path) -> Path:
    """Write a package gfootball_engine into `folder` that is this stand-in; returns the folder."""
    package = folder / NAME
    package.mkdir(parents=True)
    tests = Path(__file__).parents[1]
    (package / "__init__.py").write_text(
        f"import sys\nsys.path.append({str(tests)!r})\nfrom tools_simulation.stand_in import *\n"
    )
    write_data(package / "data")
    font = package / FONT
    font.parent.mkdir()
    shutil.copy(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", font)
    return folder
