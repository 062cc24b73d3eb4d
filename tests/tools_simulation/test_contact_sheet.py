"""Contact sheets: a row for each film, pictures from all of it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ballcast.core.errors import InputError
from tools.simulation import contact_sheet
from tools.simulation.arrays import filming_array
from tools.simulation.broadcast import filming
from tools.simulation.contact_sheet import GAP, pictures_of
from tools.simulation.develop import HEIGHT, WIDTH


def grays(film: Path, values: range) -> Path:
    sink = filming_array(film, len(values)) if film.suffix == ".npy" else filming(film, crf=25)
    with sink as add:
        for frame, value in enumerate(values):
            add(np.full((HEIGHT, WIDTH, 3), value, np.uint8), 2 * frame)
    return film


@pytest.mark.parametrize("suffix", ["mp4", "npy"])
def test_pictures_are_spread_over_a_film(suffix: str, tmp_path: Path) -> None:
    film = grays(tmp_path / f"film.{suffix}", range(40, 200, 2))  # 80 pictures
    pictures = pictures_of(film, 4)
    assert [picture.shape for picture in pictures] == [(HEIGHT, WIDTH, 3)] * 4
    for picture, value in zip(pictures, (60, 100, 140, 180), strict=True):
        assert picture.mean() == pytest.approx(value, abs=3)


def test_a_sheet_has_films_in_rows_and_columns(tmp_path: Path) -> None:
    films = [grays(tmp_path / f"{n}.mp4", range(n, n + 8)) for n in (50, 100, 150)]
    words = [tmp_path / "sheet.png", *films, "--pictures", 2, "--columns", 2, "--width", 40]
    contact_sheet.main([str(word) for word in words])
    sheet = np.array(Image.open(tmp_path / "sheet.png").convert("L")).astype(int)
    height = round(40 * HEIGHT / WIDTH)
    assert sheet.shape == (2 * height + GAP, 4 * 40 + 3 * GAP)
    tops, lefts = (0, height + GAP), [n * (40 + GAP) for n in range(4)]
    means = [[sheet[top + 5 : top + height - 5, left + 5 : left + 35].mean() for left in lefts] for top in tops]
    np.testing.assert_allclose(means, [[52, 56, 102, 106], [152, 156, 255, 255]], atol=3)


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    film = grays(tmp_path / "film.mp4", range(50, 53))
    with pytest.raises(InputError, match=r"film\.mp4: has 3 pictures, too few for 4"):
        contact_sheet.main([str(tmp_path / "sheet.png"), str(film)])
    with pytest.raises(InputError, match=r"sheet\.doc: cannot be written"):
        contact_sheet.main([str(tmp_path / "sheet.doc"), str(film), "--pictures", "2"])
    (tmp_path / "film.npy").write_bytes(b"text")
    with pytest.raises(InputError, match=r"film\.npy: cannot be read as an array"):
        contact_sheet.main([str(tmp_path / "sheet.png"), str(tmp_path / "film.npy")])
