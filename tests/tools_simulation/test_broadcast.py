"""Films as videos: colours, and when a picture is seen."""

from pathlib import Path

import av
import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.video.file import VideoFile
from tools.simulation.broadcast import count_frames, filming


def test_colours_are_kept_in_the_video(tmp_path: Path) -> None:
    colour = (200, 120, 40)
    with filming(tmp_path / "film.mp4", crf=25) as add:
        for n in range(3):
            add(np.full((224, 398, 3), colour, np.uint8), n)
    with av.open(str(tmp_path / "film.mp4")) as container:
        seen = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(seen) == 3
    for frame in seen:
        np.testing.assert_allclose(frame.mean((0, 1)), colour, atol=3)


@pytest.mark.parametrize(("frames", "every"), [(50, 1), (50, 2), (51, 2), (50, 3)])
def test_a_picture_is_seen_from_its_frame_to_the_next_one(frames: int, every: int, tmp_path: Path) -> None:
    """As long as the last frame has one too, all frames that labels may speak of can be read."""
    shown = sorted({*range(0, frames, every), frames - 1})
    with filming(tmp_path / "film.tmp", crf=25) as add:
        for n in shown:
            add(np.full((224, 398, 3), 40 + 4 * n, np.uint8), n)
    with VideoFile(tmp_path / "film.tmp") as video:
        seen = video.read(0, frames)
    assert len(seen) == frames == count_frames(tmp_path / "film.tmp")
    for n, y in enumerate(seen):
        latest = max(s for s in shown if s <= n)
        assert float(y.mean()) == pytest.approx(16 + (40 + 4 * latest) * 219 / 255, abs=2), n


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 125, 250]), (2, [0, 126, 250])])
def test_the_first_picture_of_every_five_seconds_is_a_key_frame(
    every: int, expected: list[int], tmp_path: Path
) -> None:
    """And no other, and packets are in the order of their times: clips are cut without encoding."""
    pictures = np.random.default_rng(0).integers(0, 256, (2, 224, 398, 3), np.uint8)
    with filming(tmp_path / "film.mp4", crf=25) as add:
        for n in range(0, 300, every):
            add(pictures[int(n >= 200)], n)  # a change of scene, which is no key frame
    with av.open(str(tmp_path / "film.mp4")) as container:
        packets = [p for p in container.demux(video=0) if p.pts is not None]
    assert [round(p.pts * p.time_base * 25) for p in packets if p.is_keyframe] == expected
    assert all(p.pts == p.dts for p in packets)


def test_frames_after_the_last_picture_are_not_counted_on(tmp_path: Path) -> None:
    """Decoders give one more or not, as the file's stated rate happens to round."""
    with filming(tmp_path / "film.mp4", crf=25) as add:
        for n in range(0, 50, 2):
            add(np.full((224, 398, 3), 100, np.uint8), n)
    assert count_frames(tmp_path / "film.mp4") == 49
    with filming(tmp_path / "empty.mp4", crf=25):
        pass
    with pytest.raises(InputError, match=r"empty\.mp4"):
        count_frames(tmp_path / "empty.mp4")


def test_compression_is_the_look_s(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (224, 398, 3), np.uint8)
    for crf in (22, 30):
        with filming(tmp_path / f"{crf}.mp4", crf=crf) as add:
            add(picture, 0)
    assert (tmp_path / "22.mp4").stat().st_size > 1.2 * (tmp_path / "30.mp4").stat().st_size
