"""Pictures as a broadcast: what is covered, how bright it is, when it is seen."""

from pathlib import Path

import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.video.decode import VideoFile
from tools.simulation.broadcast import COVER, RADAR, count_frames, develop, filming


def test_pictures_are_grey_brighter_and_without_the_radar() -> None:
    picture = np.zeros((224, 400, 3), np.uint8)
    picture[:100] = (50, 100, 20)
    picture[100:, :, 1] = 200
    luma = develop(picture, 2.0)
    assert (luma.shape, luma.dtype) == ((224, 398), np.uint8)
    assert set(luma[:100].ravel().tolist()) == {int(2 * (0.299 * 50 + 0.587 * 100 + 0.114 * 20))}
    assert (luma[RADAR] == COVER).all()
    luma[RADAR] = 234
    assert set(luma[100:].ravel().tolist()) == {234}
    assert develop(np.full((224, 400, 3), 200, np.uint8), 3.0).max() == 255  # and not round again


@pytest.mark.parametrize(("frames", "every"), [(50, 1), (50, 2), (51, 2), (50, 3)])
def test_a_picture_is_seen_from_its_frame_to_the_next_one(frames: int, every: int, tmp_path: Path) -> None:
    """As long as the last frame has one too, all frames that labels may speak of can be read."""
    shown = sorted({*range(0, frames, every), frames - 1})
    with filming(tmp_path / "film.tmp") as add:
        for n in shown:
            add(np.full((224, 398), 40 + 4 * n, np.uint8), n)
    with VideoFile(tmp_path / "film.tmp") as video:
        seen = video.read(0, frames)
    assert len(seen) == frames == count_frames(tmp_path / "film.tmp")
    for n, y in enumerate(seen):
        latest = max(s for s in shown if s <= n)
        assert float(y.mean()) == pytest.approx(16 + (40 + 4 * latest) * 219 / 255, abs=2), n


def test_frames_after_the_last_picture_are_not_counted_on(tmp_path: Path) -> None:
    """Decoders give one more or not, as the file's stated rate happens to round."""
    with filming(tmp_path / "film.mp4") as add:
        for n in range(0, 50, 2):
            add(np.full((224, 398), 100, np.uint8), n)
    assert count_frames(tmp_path / "film.mp4") == 49
    with filming(tmp_path / "empty.mp4"):
        pass
    with pytest.raises(InputError, match=r"empty\.mp4"):
        count_frames(tmp_path / "empty.mp4")
