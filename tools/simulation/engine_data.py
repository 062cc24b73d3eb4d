"""The engine's data in the look of a match: links to the engine's files, or files of the look in their place."""

import colorsys
import os
import re
import shutil
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tools.simulation.bitmaps import read_bitmap, write_bitmap
from tools.simulation.kits import paint_kit
from tools.simulation.look import BALLS, Colour, Look

SHADERS = Path(__file__).parent / "shaders"
TEAMS = Path("databases/default/images_teams/primeradivision")
PLAYERS = Path("media/objects/players/textures")
STADIUM = Path("media/objects/stadiums/test")
BOARDS = Path("media/textures/adboards")
BALL = Path("media/objects/balls")
KITS = {
    "left": TEAMS / "fcbarcelona_kit_02.bmp",
    "right": TEAMS / "realmadrid_kit_02.bmp",
    "goalkeepers": PLAYERS / "goalie_kit.bmp",
    "referees": PLAYERS / "referee_kit.bmp",
}
TINTED = {
    "crowd": (Path("media/textures/stadium/crowd01.bmp"),),
    "seats": (STADIUM / "floor01wall.bmp", STADIUM / "floor02wall.bmp", STADIUM / "hekje.bmp"),
    "walls": (Path("media/textures/concrete/concrete.wall01a.bmp"), STADIUM / "lightgrey.bmp"),
    "floor": (Path("media/textures/stadium/greenish_floor.bmp"),),
}
MUD = Path("media/textures/pitch/overlay.bmp")
MEAN = 150  # brightness of a tinted texture in the mean, before its colour
BROWN = 15  # red above blue by more is mud
ALL_MUD = 0.95  # opacity from which the texture stays as it is
BALL_CONTRAST = 0.35  # of the pattern on the ball that is left
LETTERS = list("ABCDEFGHIKLMNOPRSTUVXZ")  # of the words on boards


def write_engine_data(look: Look, data: Path, font: Path, target: Path) -> None:
    """Write the folder `target` for the engine's variable GFOOTBALL_DATA_DIR.

    Args:
        data: the engine's data, which must stay where it is.
        font: of the words on boards.
    """
    shutil.copytree(data.resolve(), target, copy_function=os.symlink, dirs_exist_ok=True)
    for role, path in KITS.items():
        write_bitmap(target / path, paint_kit(getattr(look.kits, role)), data / path)
    for part, paths in TINTED.items():
        for path in paths:
            write_bitmap(target / path, tint(read_bitmap(data / path), getattr(look.stadium, part)), data / path)
    if look.stadium.boards != "game":
        _write_boards(look, data, font, target)
    if look.grass.mud <= ALL_MUD:
        write_bitmap(target / MUD, fade_mud(read_bitmap(data / MUD), look.grass.mud), data / MUD)
    _write_ball(look, data, target)
    for name, text in shaders(look).items():
        _write_text(target / "media" / "shaders" / name, text)


def tint(pixels: NDArray[np.uint8], colour: Colour) -> NDArray[np.uint8]:
    """A texture (H, W, 3 or 4) nearly without its own colour, as bright as all others, in `colour` (0 to 1)."""
    tinted = pixels.astype(float)
    rgb = tinted[..., :3]
    rgb[...] = rgb.mean(-1, keepdims=True) * 0.8 + rgb * 0.2
    rgb[...] = (rgb / max(rgb.mean(), 1) * MEAN * np.array(colour)).clip(0, 255)
    return tinted.astype(np.uint8)


def fade_mud(pixels: NDArray[np.uint8], opacity: float) -> NDArray[np.uint8]:
    """The overlay of the pitch (H, W, 4), its brown parts `opacity` times as opaque; lines stay."""
    faded = pixels.copy()
    is_brown = pixels[..., 0].astype(int) - pixels[..., 2] > BROWN
    faded[..., 3] = np.where(is_brown, (pixels[..., 3] * opacity).astype(np.uint8), pixels[..., 3])
    return faded


def paint_ball(pixels: NDArray[np.uint8], ball: str | None) -> NDArray[np.uint8]:
    """The ball's texture (H, W, 3) nearly without its pattern; `ball` is one of BALLS, or None for a white one."""
    plain = 255 - (255 - pixels[..., :3].astype(float)) * BALL_CONTRAST
    if ball is not None:
        first, second = BALLS[ball]
        middle = len(plain) // 2
        plain[:middle] *= np.array(first) / 255
        plain[middle:] *= np.array(second) / 255
    return plain.astype(np.uint8)


def scale_vertices(model: str, factor: float) -> str:
    """A model in 3D Studio's ASCII format, its vertices `factor` times as far from the origin."""

    def scaled(match: re.Match[str]) -> str:
        start, *coordinates = match.groups()
        return start + "\t".join(f"{float(value) * factor:.6f}" for value in coordinates)

    return re.sub(r"(\*MESH_VERTEX\s+\d+\s+)(\S+)\s+(\S+)\s+(\S+)", scaled, model)


def shaders(look: Look) -> dict[str, str]:
    """The text of each shader by its file name."""
    light = look.light
    sun, shade = light.direction, light.shade
    values = {
        "sun": _vector(sun),
        "sun_colour": _vector(light.sun_colour * 2),
        "ambient": _vector(light.ambient_colour),
        "slope_x": f"{sun[0] / sun[2]:.5f}",
        "slope_y": f"{sun[1] / sun[2]:.5f}",
        "shade": _vector((shade, shade, shade * 0.6 + 0.4 * (shade + 0.1))),  # bluish: the sky still lights it
        "haze": f"{light.haze:.4f}",
        "sky": _vector(light.sky),
    }
    return {path.name: Template(path.read_text()).substitute(values) for path in sorted(SHADERS.glob("*.*"))}


def _vector(values: Colour | NDArray[np.float64]) -> str:
    return "vec3(" + ", ".join(f"{value:.5f}" for value in values) + ")"


def _write_boards(look: Look, data: Path, font: Path, target: Path) -> None:
    """Boards with words that nobody knows: all in one colour ("led", "plain"), or each in its own ("many")."""
    rng = np.random.default_rng(look.stadium.boards_seed)
    shared = rng.integers(0, 256, 3).astype(float)
    for path in sorted((data / BOARDS).glob("*.bmp")):
        with Image.open(path) as old:
            width, height = old.size
        ground = shared
        if look.stadium.boards == "many":
            ground = np.array(colorsys.hsv_to_rgb(rng.random(), rng.random(), rng.random())) * 255
        ink: tuple[int, ...] = (255, 255, 255) if ground.sum() < 380 else (10, 10, 20)
        if rng.random() < 0.3:
            ink = tuple(int(value) for value in rng.integers(0, 256, 3))
        board = Image.new("RGB", (width, height), tuple(int(value) for value in ground))
        if look.stadium.boards != "plain":
            _write_words(ImageDraw.Draw(board), rng, font, ink, board.size)
        write_bitmap(target / BOARDS / path.name, np.array(board), path)


def _write_words(
    draw: ImageDraw.ImageDraw,
    rng: np.random.Generator,
    font: Path,
    ink: tuple[int, ...],
    size: tuple[int, int],
) -> None:
    width, height = size
    face = ImageFont.truetype(str(font), int(height * rng.uniform(0.55, 0.9)))
    x = 10.0
    while x < width:
        word = "".join(rng.choice(LETTERS, int(rng.integers(3, 9))))
        draw.text((x, height * 0.05), word, font=face, fill=ink)
        x += draw.textlength(word, font=face) + int(rng.integers(40, 250))


def _write_ball(look: Look, data: Path, target: Path) -> None:
    model = (data / BALL / "generic.ase").read_text()
    _write_text(target / BALL / "generic.ase", scale_vertices(model, look.ball_scale))
    texture = data / BALL / "ball.bmp"
    write_bitmap(target / BALL / "ball.bmp", paint_ball(read_bitmap(texture), look.extras.ball), texture)


def _write_text(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # a link to the engine's file
    path.write_text(text)
