"""The engine's data in a match's look: what is replaced, by what, and that the engine's own files stay."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tools_simulation.stand_in import BALL_MODEL, BITMAPS, write_new_bitmap

from ballcast.core.errors import InputError
from tools.simulation.bitmaps import read_bitmap, write_bitmap
from tools.simulation.engine import NAME
from tools.simulation.engine_data import (
    BALL,
    BOARDS,
    KITS,
    MUD,
    fade_mud,
    paint_ball,
    scale_vertices,
    shaders,
    tint,
    write_engine_data,
)
from tools.simulation.film import FONT
from tools.simulation.kits import paint_kit
from tools.simulation.look import COLOURS, PATTERNS, Kit, Look


def look_with(boards: str = "many", mud: float = 0.5, seed: int = 6001) -> Look:
    look = Look.draw(seed)
    return replace(look, stadium=replace(look.stadium, boards=boards), grass=replace(look.grass, mud=mud))


def write(stand_in: Path, target: Path, look: Look) -> Path:
    write_engine_data(look, stand_in / NAME / "data", stand_in / NAME / FONT, target)
    return target


def test_a_look_replaces_its_files_and_links_to_the_others(stand_in: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in sorted((stand_in / NAME / "data").rglob("*")) if path.is_file()}
    target = write(stand_in, tmp_path / "data", look_with())
    assert (target / "media" / "animations.txt").is_symlink()
    assert (target / "media" / "animations.txt").read_text() == "as it is"
    for path, shape in BITMAPS.items():
        assert not (target / path).is_symlink()
        assert read_bitmap(target / path).shape == shape
        assert read_bitmap(target / path).tobytes() != read_bitmap(stand_in / NAME / "data" / path).tobytes()
    look = look_with()
    assert np.array_equal(read_bitmap(target / KITS["left"]), paint_kit(look.kits.left))
    assert np.array_equal(read_bitmap(target / KITS["referees"]), paint_kit(look.kits.referees))
    assert {path: path.read_bytes() for path in before} == before


def test_boards_and_mud_may_stay_as_they_are(stand_in: Path, tmp_path: Path) -> None:
    target = write(stand_in, tmp_path / "data", look_with(boards="game", mud=0.99))
    assert (target / BOARDS / "board1.bmp").is_symlink()
    assert (target / MUD).is_symlink()


def test_boards(stand_in: Path, tmp_path: Path) -> None:
    def grounds(kind: str) -> list[tuple[int, ...]]:
        target = write(stand_in, tmp_path / kind, look_with(boards=kind))
        boards = [read_bitmap(target / BOARDS / name) for name in ("board1.bmp", "board2.bmp")]
        if kind == "plain":
            assert all(np.ptp(board, (0, 1)).max() == 0 for board in boards)
        else:
            assert all(len(np.unique(board.reshape(-1, 3), axis=0)) > 2 for board in boards)  # words
        return [tuple(board[0, 0].tolist()) for board in boards]

    assert len(set(grounds("plain"))) == len(set(grounds("led"))) == 1
    assert len(set(grounds("many"))) == 2


@pytest.mark.parametrize("pattern", PATTERNS)
def test_kits(pattern: str) -> None:
    kit = Kit(shirt="red", second="blue", pattern=pattern, shorts="white", socks="black", number="gold")
    texture = paint_kit(kit)
    assert texture.shape == (1024, 1024, 4)
    assert (texture[..., 3] == 255).all()
    front, back = texture[:418, :512, :3], texture[:418, 512:, :3]
    shares = {name: (front == COLOURS[name]).all(-1).mean() for name in ("red", "blue")}
    assert sum(shares.values()) == 1
    assert (shares["blue"] > 0.05) == (pattern != "plain")
    assert shares["red"] > 0.3
    assert (texture[450:580, :, :3] == COLOURS["white"]).all()
    assert (texture[600:780, :, :3] == COLOURS["black"]).all()
    rows, columns = np.nonzero((back == COLOURS["gold"]).all(-1))
    assert len(rows) > 10_000
    back[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = front[
        rows.min() : rows.max() + 1, columns.min() : columns.max() + 1
    ]
    assert np.array_equal(back, front)  # but for the number


def test_textures_are_tinted_and_equally_bright() -> None:
    rng = np.random.default_rng(0)
    for scale in (40, 250):
        texture = rng.integers(0, scale, (32, 32, 4), np.uint8)
        tinted = tint(texture, (1.0, 0.5, 0.2))
        means = tinted[..., :3].mean((0, 1))
        assert means[0] == pytest.approx(150, rel=0.12)
        assert means[1] / means[0] == pytest.approx(0.5, abs=0.05)
        assert np.array_equal(tinted[..., 3], texture[..., 3])


def test_mud_fades_and_lines_stay() -> None:
    overlay = np.zeros((2, 2, 4), np.uint8)
    overlay[0] = (120, 90, 60, 200)
    overlay[1] = (250, 250, 250, 180)
    faded = fade_mud(overlay, 0.25)
    assert (faded[0, :, 3] == 50).all()
    assert (faded[1, :, 3] == 180).all()
    assert np.array_equal(faded[..., :3], overlay[..., :3])


def test_balls() -> None:
    texture = np.full((8, 8, 3), 55, np.uint8)
    texture[::2] = 255
    white = paint_ball(texture, None)
    assert white.min() == 185  # its pattern is nearly gone
    orange = paint_ball(texture, "orange").astype(int)
    assert (orange[..., 0] > orange[..., 1] + 50).all()
    two = paint_ball(texture, "white and blue")
    assert np.array_equal(two[:4], white[:4])
    assert (two[4:, :, 2] > two[4:, :, 0]).all()
    vertices = re.findall(r"\*MESH_VERTEX\s+0\s+(\S+)\s+(\S+)\s+(\S+)", scale_vertices(BALL_MODEL, 1.5))
    assert [float(value) for value in vertices[0]] == [0, -0.075, 0.165]


def test_the_ball_of_a_look(stand_in: Path, tmp_path: Path) -> None:
    plain, coloured = (Look.draw(seed) for seed in (6001, 6015))
    assert coloured.extras.ball == "orange"
    pictures = [
        read_bitmap(write(stand_in, tmp_path / str(n), look) / BALL / "ball.bmp").astype(int)
        for n, look in enumerate((plain, coloured))
    ]
    assert (pictures[1][..., 2] < pictures[0][..., 2]).all()
    text = (tmp_path / "0" / BALL / "generic.ase").read_text()
    assert f"{0.11 * plain.ball_scale:.6f}" in text


def test_shaders_light_the_match() -> None:
    look = Look.draw(7001)
    texts = shaders(look)
    assert set(texts) == {"simple.vert", "simple.frag", "zphase.vert", "zphase.frag", "postprocess.frag"}
    for text in texts.values():
        assert text.startswith("#version 150\n")
        assert "$" not in text
        assert text.count("{") == text.count("}")
    x, y, z = look.light.direction
    assert f"vec3({x:.5f}, {y:.5f}, {z:.5f})" in texts["simple.frag"]
    assert f"vec2({x / z:.5f}, {y / z:.5f})" in texts["zphase.vert"]
    assert "0.01000, 0.01200, 0.02000" in texts["postprocess.frag"]  # a night


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("width", [5, 8])
def test_bitmaps_keep_their_header(channels: int, width: int, tmp_path: Path) -> None:
    """Rows of 24 bits a pixel are padded to whole words."""
    rng = np.random.default_rng(1)
    old, new = (rng.integers(0, 256, (6, width, channels), np.uint8) for _ in range(2))
    write_new_bitmap(tmp_path / "old.bmp", old)
    write_bitmap(tmp_path / "new.bmp", new, tmp_path / "old.bmp")
    assert np.array_equal(read_bitmap(tmp_path / "new.bmp"), new)
    assert (tmp_path / "new.bmp").stat().st_size == (tmp_path / "old.bmp").stat().st_size
    start = int.from_bytes((tmp_path / "old.bmp").read_bytes()[10:14], "little")
    assert (tmp_path / "new.bmp").read_bytes()[:start] == (tmp_path / "old.bmp").read_bytes()[:start]


def test_colours_alone_keep_the_alpha_of_a_bitmap(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    old, colours = rng.integers(0, 256, (6, 5, 4), np.uint8), rng.integers(0, 256, (6, 5, 3), np.uint8)
    write_new_bitmap(tmp_path / "old.bmp", old)
    write_bitmap(tmp_path / "new.bmp", colours, tmp_path / "old.bmp")
    assert np.array_equal(read_bitmap(tmp_path / "new.bmp"), np.dstack([colours, old[..., 3]]))


def test_a_bitmap_of_another_size_is_refused(tmp_path: Path) -> None:
    write_new_bitmap(tmp_path / "old.bmp", np.zeros((6, 5, 3), np.uint8))
    with pytest.raises(InputError, match=r"old\.bmp: a bitmap of 5×6 pixels"):
        write_bitmap(tmp_path / "new.bmp", np.zeros((6, 6, 3), np.uint8), tmp_path / "old.bmp")
