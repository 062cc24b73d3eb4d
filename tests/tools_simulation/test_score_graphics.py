"""Score, clock and logo: where they belong, and only there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tools.simulation.engine import NAME
from tools.simulation.film import FONT
from tools.simulation.look import COLOURS, Graphics, Look
from tools.simulation.score_graphics import ScoreGraphics

SIZE = (224, 398)


def graphics(stand_in: Path, seed: int = 3, **how: object) -> ScoreGraphics:
    values = {"score": True, "corner": "left", "logo": True, "seed": seed, **how}
    look = replace(Look.draw(6001), graphics=Graphics(**values))  # type: ignore[arg-type]
    return ScoreGraphics(look, stand_in / NAME / FONT, SIZE, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("corner", ["left", "right"])
def test_the_score_is_in_its_corner_and_the_logo_in_the_other(corner: str, seed: int, stand_in: Path) -> None:
    colours, opacity = graphics(stand_in, seed, corner=corner).at(0)
    assert colours.shape == (*SIZE, 3)
    assert opacity.shape == (*SIZE, 1)
    assert 0 <= opacity.min() < opacity.max() <= 1
    assert (opacity[50:] == 0).all()  # the game is seen
    score, logo = opacity[:, :199], opacity[:, 199:]
    if corner == "right":
        score, logo = logo, score
    assert 400 < (score > 0.5).sum() < 2200
    assert 20 < (logo > 0.3).sum() < 400


def test_without_graphics_nothing_is_drawn(stand_in: Path) -> None:
    _, opacity = graphics(stand_in, score=False, logo=False).at(0)
    assert (opacity == 0).all()


def test_teams_have_the_colours_of_their_shirts(stand_in: Path) -> None:
    look = Look.draw(6001)
    colours, opacity = graphics(stand_in, logo=False).at(0)
    seen = colours[opacity[..., 0] == 1]
    for kit in (look.kits.left, look.kits.right):
        assert (np.abs(seen - COLOURS[kit.shirt]).max(-1) < 3).sum() >= 5


def test_the_clock_runs(stand_in: Path) -> None:
    drawn = graphics(stand_in)
    first = [np.array(part) for part in drawn.at(0)]
    same = drawn.at(0)
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    later = drawn.at(1)
    changed = np.argwhere((first[0] != later[0]).any(-1))
    assert 0 < len(changed) < 300  # the clock's digits alone
    assert np.ptp(changed[:, 1]) < 40
