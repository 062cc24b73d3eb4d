"""The engine at play, by a stand-in; and, where it is built, by itself."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tools_simulation.stand_in import ENGINE, WALK

from ballcast.video.file import VideoFile
from tools.simulation.fixture import SKILLS, Fixture
from tools.simulation.game import HEIGHT, WIDTH, Game
from tools.simulation.look import Look
from tools.simulation.states import COLUMNS

ROOT = Path(__file__).parents[2]


def test_what_is_not_shown_is_counted_and_pictures_come_where_they_are_wanted() -> None:
    game = Game(ENGINE)
    moments = list(game.play(Fixture.draw(7), 30, every=4))
    assert len(moments) == 30
    assert [n for n, m in enumerate(moments) if m.hidden] == [0, 20]
    assert {m.hidden for m in moments} == {0, WALK}
    assert [n for n, m in enumerate(moments) if m.picture is not None] == [0, 4, 8, 12, 16, 20, 24, 28, 29]
    assert {len(m.row) for m in moments} == {COLUMNS}
    for n, moment in enumerate(moments):
        step = n + (WALK if n < 20 else 2 * WALK)
        assert moment.row[0] == pytest.approx(0.004 * step)
        if moment.picture is not None:
            assert moment.picture.shape == (HEIGHT, WIDTH, 3)
            camera = step if moment.hidden else step - (1 if n == 29 else 4)  # never from before a cut
            assert moment.picture[0, 0].tolist() == [80, step, camera]  # upright
            assert moment.picture[-1, 0].tolist() == [0, step, camera]
    assert len(game._game.rendered) == 9 + 2  # twice after a cut; other steps cost no rendering, nor do hidden ones


def test_the_camera_of_a_picture_is_never_from_before_a_cut() -> None:
    """Also where the first step after the cut, the 21st, has no picture."""
    game = Game(ENGINE)
    pictures = {n: m.picture for n, m in enumerate(game.play(Fixture.draw(7), 30, every=3)) if m.picture is not None}
    camera = {n: int(picture[0, 0, 2]) for n, picture in pictures.items()}
    assert camera[18] == 15 + WALK
    assert camera[21] == 21 + 2 * WALK
    assert camera[24] == 21 + 2 * WALK


def test_one_engine_plays_match_after_match() -> None:
    game = Game(ENGINE)
    first, again = (list(game.play(Fixture.draw(7), 10, every=2)) for _ in range(2))
    assert [m.row for m in first] == [m.row for m in again]
    assert len(game._game.scenarios) == 2


def test_a_seed_is_a_fixture() -> None:
    drawn = [Fixture.draw(seed) for seed in range(200)]
    assert drawn == [Fixture.draw(seed) for seed in range(200)]
    assert {f.left for f in drawn} == {f.right for f in drawn} == set(SKILLS)
    assert Fixture.draw(5001) == Fixture(5001, 0.9, 0.8)


def test_eleven_against_eleven() -> None:
    scenario = Fixture(seed=8, left=0.9, right=0.6).scenario(ENGINE)
    assert (scenario.left_agents, scenario.right_agents) == (0, 0)  # nobody is played from outside
    assert (scenario.left_team_difficulty, scenario.right_team_difficulty) == (0.9, 0.6)
    assert scenario.game_engine_random_seed == 8
    for team in (scenario.left_team, scenario.right_team):
        assert len(set(team)) == 11
        assert [role for _, _, role in team].count("GK") == 1
        assert all(x <= 0 for x, _, _ in team)  # each in its own half
    assert min(np.hypot(x, y) for x, y, _ in scenario.right_team) < min(
        np.hypot(x, y) for x, y, _ in scenario.left_team
    )


def test_the_real_engine_films_twenty_seconds(engine: Path, tmp_path: Path) -> None:
    """And plays them again without a film, with the same states and labels."""
    words = [tmp_path, "--matches", "1", "--seed", "6001", "--minutes", str(1 / 3)]
    for more in (["--every", "50"], ["--check"]):
        command = [sys.executable, "-m", "tools.simulate", *words, "--engine", engine, *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "match_6001.mp4: states and labels are the same" in done.stdout
    (match,) = json.loads((tmp_path / "matches.json").read_text())
    assert (match["video"], match["split"], match["frames"]) == ("match_6001.mp4", "train", 500)
    assert 5 <= len(match["actions"]) <= 30
    with VideoFile(tmp_path / "match_6001.mp4") as video:
        frames = video.read(0, 500)
    assert frames.shape == (500, 224, 398)
    assert frames[0].std() > 10  # there is something to be seen
    assert np.abs(frames[0].astype(int) - frames[400]).mean() > 2  # and it moves
    assert np.median(frames[0, 60:200]) == pytest.approx(16 + Look.draw(6001).exposure.level * 219 / 255, abs=12)
    rows = np.load(tmp_path / "match_6001.npz")["rows"]
    assert np.ptp(rows[:, 0]) > 0.1  # the ball does
