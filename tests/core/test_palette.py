"""The colours can be told apart and read, with and without red and green."""

import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.palette import DARK, LIGHT, Theme, contrast, css, ink_on, rgb

# How colours look to people without red (protan) or green (deutan) cones: matrices on linear RGB (Machado 2009).
SIGHTS = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def linear(colour: str) -> np.ndarray:
    value = np.array(rgb(colour)) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(light: np.ndarray) -> np.ndarray:
    """Linear RGB (…, 3) in a space where equal distances look equally different."""
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.cbrt(np.clip(light, 0, 1) @ np.array(to_cones).T) @ np.array(to_lab).T


@pytest.mark.parametrize("theme", [DARK, LIGHT])
@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_actions_look_different(theme: Theme, sight: str) -> None:
    seen = oklab(np.array([linear(c) for c in theme.actions]) @ np.array(SIGHTS[sight]).T)
    apart = np.linalg.norm(seen[:, None] - seen, axis=-1) + np.eye(len(ACTIONS))
    assert apart.min() > 0.08  # 0.02 is just noticeable


def test_contrast_is_wcags() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)  # the known borderline grey


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_everything_stands_out_from_its_ground(theme: Theme) -> None:
    for ground in (rgb(theme.ground), rgb(theme.panel)):
        assert min(contrast(rgb(c), ground) for c in theme.actions) >= 3  # graphics
        words = (theme.ink, theme.quiet, theme.accent, theme.good, theme.bad)
        assert min(contrast(rgb(c), ground) for c in words) >= 4.5
    assert min(contrast(ink_on(rgb(c)), rgb(c)) for c in theme.actions) >= 4  # large text on a patch of the colour


def test_the_style_sheet_has_every_colour_in_both_themes() -> None:
    sheet = css()
    for theme in (DARK, LIGHT):
        assert all(f"--action-{i}: {hue};" in sheet for i, hue in enumerate(theme.actions))
        assert f"--ink: {theme.ink};" in sheet
    assert sheet.count("--ground:") == 5  # each by the system's wish and by the viewer's, and paper
