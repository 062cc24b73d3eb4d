"""The overlay: the same pictures at the same times and in the same colours, with the strip below."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.video.overlay import write_overlay
from tests.video.conftest import Make, number_of

TIMELINE = [Forecast(t, (Prediction("PASS", t + 1500, 0.6),)) for t in range(0, 4000, 500)]


def pictures(path: Path) -> tuple[list[float], list[np.ndarray]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return [f.time for f in frames], [f.to_ndarray(format="rgb24") for f in frames]


def test_pictures_times_and_colours_are_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "a.mp4", tmp_path / "b.mp4"
    hues = np.array([(200, 40, 30), (30, 180, 60), (40, 60, 200), (220, 210, 60)], np.uint8)
    rgb = np.repeat(np.repeat(hues[None], 96, 0), 40, 1)  # (96, 160, 3): four stripes
    with av.open(str(source), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(30000, 1001), options={"crf": "10"})
        stream.height, stream.width, stream.pix_fmt = 96, 160, "yuv420p"
        for _ in range(20):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())
    assert write_overlay(source, target, TIMELINE) == 20
    (times, before), (new_times, after) = pictures(source), pictures(target)
    assert np.allclose(np.subtract(new_times, times), 0, atol=1e-4)
    assert after[0].shape[0] > 96
    assert after[0].shape[0] % 2 == 0
    assert after[0].shape[1] == 160
    for old, new in zip(before, after, strict=True):
        assert abs(old[8:88, 4:36].astype(int) - new[8:88, 4:36].astype(int)).max() < 8
        assert abs(old[8:88].astype(int) - new[8:88].astype(int)).mean() < 3


@pytest.mark.parametrize(
    "how", [{"size": (63, 97), "pixels": "yuv444p"}, {"pixels": "yuv420p10le"}, {"pixels": "yuv422p"}]
)
def test_any_video(make: Make, tmp_path: Path, how: dict[str, object]) -> None:
    source = make("a.mkv", range(12), **how)
    write_overlay(source, tmp_path / "b.mp4", TIMELINE)
    _, after = pictures(tmp_path / "b.mp4")
    assert [number_of(y[:62, :96, 1]) for y in after] == list(range(12))
    assert after[0].shape[1] in (96, 98)


def test_nothing_that_makes_the_bytes_differ_from_run_to_run(make: Make, tmp_path: Path) -> None:
    """With mbtree and B-frames, x264 encoded the same pictures differently every few times; a file names what is on."""
    write_overlay(make("a.mp4", range(12)), tmp_path / "b.mp4", TIMELINE)
    raw = (tmp_path / "b.mp4").read_bytes()
    assert b" threads=" in raw
    assert b" mbtree=0 " in raw or b" mbtree=" not in raw


@pytest.mark.parametrize(("degrees", "back", "size"), [(90, -1, (96, 64)), (180, 2, (64, 96))])
def test_turned_videos(make: Make, tmp_path: Path, degrees: int, back: int, size: tuple[int, int]) -> None:
    write_overlay(make("a.mp4", range(6), rotate=degrees), tmp_path / "b.mp4", [])
    _, after = pictures(tmp_path / "b.mp4")
    assert after[0].shape[1] == size[1]
    assert [number_of(np.rot90(y[: size[0], :, 1], back)) for y in after] == list(range(6))


def test_labels_move_with_the_videos_clock(make: Make, tmp_path: Path) -> None:
    """At 1 s the picture is number 25, and what was anticipated for 2 s is a second away."""
    source = make("a.mp4", range(75), size=(64, 398))
    timeline = [Forecast(0, (Prediction("SHOT", 2000, 0.9),))]
    told: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        told.append((done, total))

    target = tmp_path / "b.mp4"
    assert write_overlay(source, target, timeline, progress=progress) == 75
    assert told == [(25, 75), (50, 75), (75, 75)]
    times, after = pictures(tmp_path / "b.mp4")
    assert times[0] == 0
    assert [number_of(y[:64, :, 1]) for y in after] == list(range(75))
    red = [np.argmax(y[64:].astype(int)[..., 0].max(0) - y[64:].astype(int)[..., 2].max(0) > 60) for y in after[25:50]]
    assert abs(red[0] - 398 * 1.7 / 5.8) < 4
    assert red[0] > red[12] > red[24]


def test_refusals_leave_nothing_behind(make: Make, tmp_path: Path) -> None:
    source = make("a.mp4", range(30))
    with pytest.raises(InputError, match=r"name that ends in \.mp4"):
        write_overlay(source, tmp_path / "b.avi", [])
    with pytest.raises(InputError, match="is the file that is read"):
        write_overlay(source, source, [])
    raw = source.read_bytes()
    source.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match="cut short"):
        write_overlay(source, tmp_path / "b.mp4", [])
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_one_picture_in_two_seconds(make: Make, tmp_path: Path) -> None:
    source = make("slow.mp4", range(4), Fraction(2), rate=Fraction(1, 2))
    assert write_overlay(source, tmp_path / "overlay.mp4", []) == 4
