"""The luma is the coded Y plane, upright, whatever the pixel format, the size and the rotation."""

import av
import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.video.decode import VideoFile
from ballcast.video.luma import luma, turn_of
from tests.video.conftest import Make, number_of, numbers, picture


def frame_of(y: np.ndarray, pixels: str, value: int = 128) -> av.VideoFrame:
    """A frame whose first plane is y and whose others are `value`."""
    frame = av.VideoFrame(y.shape[1], y.shape[0], pixels)
    for i, plane in enumerate(frame.planes):
        lines = np.full((plane.height, plane.line_size // y.itemsize), value, y.dtype)
        if i == 0:
            lines[:, : y.shape[1]] = y
        plane.update(lines.tobytes())
    return frame


def same(y: np.ndarray) -> np.ndarray:
    return y


@pytest.mark.parametrize("pixels", ["yuv420p", "yuvj420p", "yuv422p", "yuv444p", "gray", "yuv411p", "nv12"])
@pytest.mark.parametrize("size", [(64, 96), (63, 97), (5, 3), (224, 398)])
def test_eight_bits_are_the_plane_itself(pixels: str, size: tuple[int, int]) -> None:
    y = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    got = luma(frame_of(y, pixels), same)
    assert np.array_equal(got, y)
    assert got.flags.c_contiguous
    assert got.flags.owndata


@pytest.mark.parametrize(
    ("pixels", "bits"), [("yuv420p10le", 10), ("yuv422p10le", 10), ("yuv444p12le", 12), ("gray10le", 10)]
)
def test_deeper_video_is_rounded_in_its_own_range(pixels: str, bits: int) -> None:
    y = np.random.default_rng(0).integers(0, 1 << bits, (33, 41), dtype=np.uint16)
    want = np.minimum(np.floor(y / (1 << (bits - 8)) + 0.5), 255)
    assert np.array_equal(luma(frame_of(y, pixels, 1 << (bits - 1)), same), want)


def test_p010() -> None:
    y = np.random.default_rng(0).integers(0, 1 << 10, (32, 40), dtype=np.uint16)
    want = np.minimum(np.floor(y / 4 + 0.5), 255)
    assert np.array_equal(luma(frame_of(y << 6, "p010le"), same), want)


def test_rgb_becomes_broadcast_luma() -> None:
    levels = np.array([0, 128, 255], np.uint8)
    rgb = np.repeat(levels, 20)[None, :, None].repeat(8, 0).repeat(3, 2)
    got = luma(av.VideoFrame.from_ndarray(rgb, format="rgb24"), same)
    assert abs(got[4, [10, 30, 50]].astype(int) - [16, 126, 235]).max() <= 1


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [("libx264", "yuv420p10le"), ("libx264", "yuv422p"), ("libx264", "yuv444p"), ("ffv1", "bgr0"), ("ffv1", "gray")],
)
def test_decodes_from_files(make: Make, codec: str, pixels: str) -> None:
    frames = list(VideoFile(make("a.mkv", range(20), codec=codec, pixels=pixels)).frames())
    assert numbers(frames) == list(range(20))


@pytest.mark.parametrize("size", [(63, 97), (65, 131)])
def test_odd_sizes(make: Make, size: tuple[int, int]) -> None:
    video = VideoFile(make("a.mkv", range(10), size=size, pixels="yuv444p"))
    frames = list(video.frames())
    assert video.size == size == frames[0].shape
    assert numbers(frames) == list(range(10))
    assert abs(frames[3].astype(int) - picture(3, *size) * (219 / 255) - 16)[:20].max() < 30  # no garbage at the edges


@pytest.mark.parametrize(("degrees", "back"), [(90, -1), (180, 2), (-90, 1), (0, 0)])
def test_quarter_turns_are_shown_upright(make: Make, degrees: int, back: int) -> None:
    """The display matrix says: turn counter-clockwise by so many degrees."""
    video = VideoFile(make("a.mp4", range(600, 610), rotate=degrees))
    frames = list(video.frames())
    assert video.size == ((96, 64) if back % 2 else (64, 96)) == frames[0].shape
    assert [number_of(np.rot90(y, back)) for y in frames] == list(range(10))
    assert frames[0].flags.c_contiguous


def test_a_slanted_video_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match=r"a\.mp4: is rotated by -?30°; only quarter turns"):
        VideoFile(make("a.mp4", range(3), rotate=30))


def test_without_a_matrix_nothing_turns() -> None:
    y = picture(5, 20, 40)
    frame = frame_of(y, "gray")
    assert np.array_equal(luma(frame, turn_of(frame, "a")), y)
