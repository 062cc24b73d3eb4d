"""Pictures that show a football pitch, and pictures that do not; the rates on real videos are in docs/video.md."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from ballcast.core.embedded import SAMPLES
from ballcast.core.events import Gap, Scene
from ballcast.video.file import VideoFile
from ballcast.video.pitch import HEIGHT, WIDTH, PitchDetector, frames_and_scenes, shows_pitch

Paint = Callable[[np.random.Generator], np.ndarray]
GRASS = np.array([60, 110, 40])


def pitch(rng: np.random.Generator, grass: np.ndarray = GRASS) -> np.ndarray:
    """Stripes of grass with lines and players below a stand."""
    picture = grass * (1 + 0.08 * np.sign(np.sin(np.arange(WIDTH) / 6)))[None, :, None]
    picture = picture * rng.normal(1, 0.05, (HEIGHT, WIDTH, 1))
    picture[40, :] = picture[:, 64] = 220
    for y, x in rng.integers(20, 66, (12, 2)):
        picture[y : y + 4, x : x + 2] = 200, 30, 30
    picture[:14] = rng.integers(0, 256, (14, WIDTH, 3))
    return picture.clip(0, 255).astype(np.uint8)


def uniform(*colour: int) -> Paint:
    return lambda rng: np.broadcast_to(np.array(colour, np.uint8), (HEIGHT, WIDTH, 3)).copy()


def test_a_pitch_by_day_at_night_and_dry() -> None:
    rng = np.random.default_rng(0)
    for grass in (GRASS, GRASS // 3, np.array([120, 125, 60]), np.array([90, 160, 70])):
        assert shows_pitch(pitch(rng, grass)), grass


def test_bars_around_a_pitch_do_not_count() -> None:
    barred = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    barred[22:50] = pitch(np.random.default_rng(0))[14:70:2]
    assert shows_pitch(barred)


@pytest.mark.parametrize(
    ("name", "paint"),
    [
        ("black", uniform(0, 0, 0)),
        ("white", uniform(255, 255, 255)),
        ("green screen", uniform(60, 180, 60)),
        ("noise", lambda rng: rng.integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)),
        ("leaves", lambda rng: (GRASS * rng.uniform(0.2, 1.8, (HEIGHT, WIDTH, 1))).clip(0, 255).astype(np.uint8)),
        ("sky above a narrow lawn", lambda rng: np.concatenate([uniform(120, 160, 220)(rng)[:50], pitch(rng)[50:]])),
        ("blue water", lambda rng: pitch(rng, np.array([40, 60, 110]))),
    ],
)
def test_what_is_no_pitch(name: str, paint: Paint) -> None:
    assert not shows_pitch(paint(np.random.default_rng(0))), name


def paint_video(path: Path, seconds: list[bool]) -> Path:
    """A video with a pitch, or a room, in each second."""
    rng = np.random.default_rng(1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"crf": "10", "g": "25"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for second, there in enumerate(seconds):
            shown = pitch(rng) if there else uniform(150, 120, 100)(rng)
            for n in range(25):
                frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
                frame.pts, frame.time_base = 25 * second + n, Fraction(1, 25)
                out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def scenes(path: Path, start: int = 0) -> list[Scene]:
    return [item for item in frames_and_scenes(VideoFile(path), start) if isinstance(item, Scene)]


def test_a_pitch_is_missed_after_ten_seconds_and_found_again_after_two(tmp_path: Path) -> None:
    path = paint_video(tmp_path / "a.mp4", [True] * 4 + [False] * 14 + [True] * 4)
    changes = scenes(path)
    assert changes == [Scene(12_000, pitch=False), Scene(19_000, pitch=True)]
    assert scenes(path, 150)[-1] == changes[-1]  # a run that begins later agrees after ten seconds
    assert not [item for item in frames_and_scenes(VideoFile(path), any_video=True) if isinstance(item, Gap | Scene)]


def test_a_close_up_is_no_other_scene(tmp_path: Path) -> None:
    assert scenes(paint_video(tmp_path / "a.mp4", [True] * 3 + [False] * 7 + [True] * 2)) == []


def test_the_embedded_excerpt_is_a_pitch_all_along() -> None:
    assert scenes(SAMPLES / "test" / "excerpt.mp4") == []


def test_pictures_between_two_seconds_are_not_looked_at() -> None:
    detector = PitchDetector()
    assert detector.look(1, None) is None  # type: ignore[arg-type]
