"""Rendered pictures become those of a film: size, exposure, sharpness, noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.simulation.develop import HEIGHT, LUMA, WIDTH, Developer, blur, scale_down, tone_curves
from tools.simulation.engine import NAME
from tools.simulation.film import FONT
from tools.simulation.look import Exposure, Graphics, Look

NEUTRAL = Exposure(level=100, gamma=1, saturation=1, red=1, blue=1, blur=0, sharpen=0, noise=0, vignette=0, crf=25)
GRASS = (30, 80, 20)


def grass(height: int = 336, width: int = 600) -> NDArray[np.uint8]:
    return np.full((height, width, 3), GRASS, np.uint8)


@pytest.fixture
def develop(stand_in: Path):
    def develop(picture: NDArray[np.uint8], frame: int = 0, **exposure: float) -> NDArray[np.uint8]:
        plain = Graphics(score=False, corner="left", logo=False, seed=1)
        look = replace(Look.draw(6001), exposure=replace(NEUTRAL, **exposure), graphics=plain)
        return Developer(look, stand_in / NAME / FONT).develop(picture, frame)

    return develop


def test_pictures_are_scaled_by_areas() -> None:
    rendered = np.zeros((336, 600, 3), np.uint8)
    rendered[0::3] = 90  # rows of three: the first film row takes two thirds of the bright one, the second nothing
    small = scale_down(rendered)
    assert small.shape == (HEIGHT, WIDTH, 3)
    assert (small[0::2] == 60).all()
    assert (small[1::2] == 0).all()
    columns = np.zeros((336, 600, 3), np.uint8)
    columns[:, :, 1] = np.arange(600) * 255 // 599
    ramp = scale_down(columns)[0, :, 1].astype(int)
    assert (np.diff(ramp) >= 0).all()
    np.testing.assert_allclose(ramp, 2 * 255 / 599 + (np.arange(WIDTH) + 0.5) * 596 / WIDTH * 255 / 599, atol=1.5)
    assert abs(scale_down(columns).mean() - columns[:, 2:-2].mean()) < 0.5  # no light is lost


@pytest.mark.parametrize("brightness", [0.3, 1.0, 2.0])
def test_the_exposure_is_that_of_the_grass(brightness: float) -> None:
    picture = (grass(224, 398) * brightness).astype(np.uint8)
    picture[:50] = 255  # the stands do not count
    curves = tone_curves(picture, replace(NEUTRAL, level=96))
    seen = np.stack([curves[c][picture[..., c]] for c in range(3)], axis=-1)
    assert (seen[60:200] @ LUMA).mean() == pytest.approx(96, abs=1)


def test_tone_curves_rise_to_white_and_white_balance_tilts_them() -> None:
    picture = grass(224, 398)
    curves = tone_curves(picture, replace(NEUTRAL, red=1.05, blue=0.95, gamma=1.1))
    assert curves.shape == (3, 256)
    assert (np.diff(curves, axis=1) >= 0).all()
    assert (curves >= 0).all()
    assert (curves <= 255).all()
    assert (curves[0, 1:120] > curves[1, 1:120]).all()
    assert (curves[1, 1:120] > curves[2, 1:120]).all()


def test_the_first_picture_sets_the_exposure_of_all(stand_in: Path) -> None:
    look = replace(Look.draw(6001), exposure=NEUTRAL, graphics=Graphics(False, "left", False, 1))
    developer = Developer(look, stand_in / NAME / FONT)
    first = developer.develop(grass(), 0)
    brighter = developer.develop((grass() * 1.2).astype(np.uint8), 2)
    assert first.dtype == np.uint8
    assert first.shape == (HEIGHT, WIDTH, 3)
    assert brighter.mean() == pytest.approx(first.mean() * 1.2, rel=0.03)


def test_saturation_and_vignette(develop) -> None:
    plain = develop(grass()).astype(int)
    pale = develop(grass(), saturation=0.5).astype(int)
    assert np.ptp(pale[100, 200]) == pytest.approx(np.ptp(plain[100, 200]) / 2, abs=2)
    assert (pale[100, 200] @ LUMA) == pytest.approx(plain[100, 200] @ LUMA, abs=1)
    dark = develop(grass(), vignette=0.25).astype(int)
    assert dark[112, 199] == pytest.approx(plain[112, 199], abs=1)
    assert dark[0, 0] == pytest.approx(plain[0, 0] * 0.75, abs=1)


def test_blur_spreads_and_sharpening_overshoots(develop) -> None:
    picture = grass()
    picture[:, 300:] = (60, 160, 40)
    plain, soft, sharp = (
        develop(picture, **how)[100, :, 1].astype(int) for how in ({}, {"blur": 0.5}, {"sharpen": 0.9})
    )
    middle = slice(195, 203)
    assert np.abs(np.diff(soft[middle])).max() < np.abs(np.diff(plain[middle])).max()
    assert sharp[middle].max() > plain[middle].max()
    assert sharp[middle].min() < plain[middle].min()
    assert (soft[:150] == plain[:150]).all()


def test_gaussian_blur_keeps_the_mean_and_has_its_deviation() -> None:
    point = np.zeros((41, 41, 1), np.float32)
    point[20, 20] = 1
    spread = blur(point, 1.5)[..., 0]
    assert spread.sum() == pytest.approx(1, abs=1e-5)
    at = np.arange(41) - 20
    for axis in (0, 1):
        assert np.sqrt((spread.sum(axis) * at**2).sum()) == pytest.approx(1.5, abs=0.01)
    flat = np.full((9, 9, 3), 7, np.float32)
    np.testing.assert_allclose(blur(flat, 1.0), flat, rtol=1e-5)  # also at the edges


def test_noise_has_its_strength_and_changes(stand_in: Path) -> None:
    exposure = replace(NEUTRAL, noise=3.0)
    look = replace(Look.draw(6001), exposure=exposure, graphics=Graphics(False, "left", False, 1))
    developer, again = (Developer(look, stand_in / NAME / FONT) for _ in range(2))
    first, second = developer.develop(grass(), 0).astype(int), developer.develop(grass(), 2).astype(int)
    assert first[..., 1].std() == pytest.approx(3, abs=0.2)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again.develop(grass(), 0))  # a film can be made again
