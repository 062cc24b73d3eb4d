"""Films as arrays: I420 as decoders have it, complete or not there."""

from pathlib import Path

import av
import numpy as np
import pytest

from tools.simulation.arrays import PICTURE_BYTES, filming_array, to_i420
from tools.simulation.develop import HEIGHT, WIDTH


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (90, 140, 60)])
def test_colours_are_those_of_a_decoder(colour: tuple[int, int, int]) -> None:
    picture = np.full((HEIGHT, WIDTH, 3), colour, np.uint8)
    flat = to_i420(picture)
    assert flat.shape == (PICTURE_BYTES,) == (336 * 398,)
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p").to_ndarray()
    np.testing.assert_allclose(flat.astype(int), frame.ravel().astype(int), atol=1)


def test_luma_is_fine_and_colour_is_the_mean_of_four_pixels() -> None:
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    picture[0, 1] = 255
    picture[2:4, 2:4] = (255, 0, 0)
    picture[4, 4] = (255, 0, 0)
    flat = to_i420(picture)
    luma, red = flat[: HEIGHT * WIDTH].reshape(HEIGHT, WIDTH), flat[-HEIGHT * WIDTH // 4 :].reshape(112, 199)
    assert luma[0, :3].tolist() == [16, 235, 16]
    assert red[0, 0] == 128
    assert red[1, 1] == 240
    assert red[2, 2] == 128 + 112 / 4


def test_an_array_can_be_mapped(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, HEIGHT, WIDTH, 3), np.uint8)
    with filming_array(tmp_path / "film.npy", 3) as add:
        for n, picture in enumerate(pictures):
            add(picture, 2 * n)
    array = np.load(tmp_path / "film.npy", mmap_mode="r")
    assert array.shape == (3, PICTURE_BYTES)
    assert array.dtype == np.uint8
    assert all(np.array_equal(row, to_i420(picture)) for row, picture in zip(array, pictures, strict=True))


def test_a_missing_picture_is_noticed(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="1 pictures instead of 2"),
        filming_array(tmp_path / "film.npy", 2) as add,
    ):
        add(np.zeros((HEIGHT, WIDTH, 3), np.uint8), 0)
