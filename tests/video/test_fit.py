"""Pictures at the size of training: proportions kept, near sizes untouched, grey levels as they were."""

import warnings

import numpy as np
import pytest

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.video.fit import Fit, choose_size, fitted, other_size

TRAINED = (224, 398)


@pytest.mark.parametrize(
    ("size", "seen"),
    [
        ((720, 1280), (224, 398)),  # SN-BAA's large videos become its small ones
        ((224, 398), (224, 398)),
        ((224, 400), (224, 400)),  # a few pixels are not worth blurring it
        ((180, 320), (224, 398)),
        ((480, 640), (224, 299)),  # its sides are cut off: the scale is that of the height
        ((1080, 2560), (168, 398)),  # above and below are cut off: that of the width
        ((718, 1280), (224, 398)),  # one pixel less by rounding is made whole: training's own size
        ((2, 4096), (1, 398)),  # and never more pixels than in training
    ],
)
def test_it_just_fits_in(size: tuple[int, int], seen: tuple[int, int]) -> None:
    assert fitted(size, TRAINED) == seen
    assert fitted(size, None) == size
    frame = np.full(size, 77, np.uint8)
    scaled = Fit(TRAINED)(frame)
    assert scaled.shape == seen
    assert (scaled == 77).all()  # also at the edges
    assert (scaled is frame) == (seen == size)
    assert Fit(None)(frame) is frame


def test_it_is_the_same_picture() -> None:
    """A soft picture made twice as large comes back, whatever its range, and the same each time."""
    y, x = np.mgrid[:448, :796] / 60
    large = np.round(127.5 + 127.5 * np.sin(y) * np.cos(x)).astype(np.uint8)
    fit = Fit(TRAINED)
    small, again = fit(large), fit(large)
    middle = large.reshape(224, 2, 398, 2).mean((1, 3))
    assert np.abs(small - middle).max() < 1.5
    assert (small.min(), small.max()) == (0, 255)
    assert np.array_equal(small, again)
    assert np.array_equal(fit(large[:, ::-1]), Fit(TRAINED)(np.ascontiguousarray(large[:, ::-1])))  # any memory layout


def test_what_is_told_of_features() -> None:
    assert other_size((720, 1280), TRAINED) == "its pictures are 1280×720, those of training were 398×224"
    assert not any(other_size(*sizes) for sizes in [(TRAINED, TRAINED), (None, TRAINED), (TRAINED, None)])


def test_small_videos_become_large_ones() -> None:
    """398×224 is 16:9 only up to rounding: it becomes 1280×720 and not 1279×720."""
    assert fitted((224, 398), (720, 1280)) == (720, 1280)


@pytest.mark.parametrize(
    ("asked", "size"),
    [(None, TRAINED), ("trained", TRAINED), ("own", None), ("1280x720", (720, 1280)), ("64×32", (32, 64))],
)
def test_the_size_that_is_chosen(asked: str | None, size: tuple[int, int] | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_size(asked, TRAINED, "mine") == size


@pytest.mark.parametrize("asked", ["720p", "1280", "0x5", "1280x99999", "own ", "-1x3", ""])
def test_a_size_that_is_none(asked: str) -> None:
    with pytest.raises(InputError, match="give trained, own, or a width and a height up to 8192"):
        choose_size(asked, TRAINED, "mine")


def test_an_unknown_size_is_warned_of() -> None:
    with pytest.warns(BallcastWarning, match="mine: does not say at which size it saw pictures in training"):
        assert choose_size(None, None, "mine") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_size("own", None, "mine") is None
        assert choose_size("64x32", None, "mine") == (32, 64)
