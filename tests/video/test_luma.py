"""Pictures at the size of training: proportions kept, near sizes untouched, grey levels as they were."""

import warnings

import av
import numpy as np
import pytest

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer, choose_size, fitted, i420, luma, other_size, turn_of
from tests.video.conftest import Make, number_of, numbers, picture

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
    scaled = FrameResizer(TRAINED)(frame)
    assert scaled.shape == seen
    assert (scaled == 77).all()  # also at the edges
    assert (scaled is frame) == (seen == size)
    assert FrameResizer(None)(frame) is frame


def test_it_is_the_same_picture() -> None:
    """A soft picture made twice as large comes back, whatever its range, and the same each time."""
    y, x = np.mgrid[:448, :796] / 60
    large = np.round(127.5 + 127.5 * np.sin(y) * np.cos(x)).astype(np.uint8)
    fit = FrameResizer(TRAINED)
    small, again = fit(large), fit(large)
    middle = large.reshape(224, 2, 398, 2).mean((1, 3))
    assert np.abs(small - middle).max() < 1.5
    assert (small.min(), small.max()) == (0, 255)
    assert np.array_equal(small, again)
    mirrored = np.ascontiguousarray(large[:, ::-1])  # another memory layout
    assert np.array_equal(fit(large[:, ::-1]), FrameResizer(TRAINED)(mirrored))


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
    with pytest.warns(BallcastWarning, match="mine: does not record the frame size of its training"):
        assert choose_size(None, None, "mine") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_size("own", None, "mine") is None
        assert choose_size("64x32", None, "mine") == (32, 64)


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


def colour_frame(height: int, width: int, pixels: str = "yuv420p") -> av.VideoFrame:
    """A frame whose planes are ramps: luma along x, U along x, V along y."""
    frame = av.VideoFrame(width, height, pixels)
    for i, plane in enumerate(frame.planes):
        y, x = np.mgrid[: plane.height, : plane.line_size]
        plane.update((20 + 2 * (y if i == 2 else x) + 10 * i).astype(np.uint8).tobytes())
    return frame


def test_i420_is_pyavs_layout() -> None:
    frame = colour_frame(24, 40)
    got = i420(frame, same)
    assert np.array_equal(got, frame.to_ndarray())
    assert got.shape == (36, 40)
    assert got.flags.c_contiguous


@pytest.mark.parametrize("size", [(25, 41), (24, 41), (25, 40)])
def test_an_odd_row_or_column_is_cut_off(size: tuple[int, int]) -> None:
    assert np.array_equal(i420(colour_frame(*size), same), colour_frame(24, 40).to_ndarray())


def test_planes_are_turned_each() -> None:
    frame = colour_frame(24, 40)
    y, u, v = (frame.to_ndarray().ravel()[a:b] for a, b in ((0, 960), (960, 1200), (1200, 1440)))
    got = i420(frame, lambda plane: np.rot90(plane, -1))
    turned = [np.rot90(plane.reshape(-1, w), -1).ravel() for plane, w in ((y, 40), (u, 20), (v, 20))]
    assert got.shape == (60, 24)
    assert np.array_equal(got.ravel(), np.concatenate(turned))


@pytest.mark.parametrize("pixels", ["yuv422p", "yuv444p", "yuv420p10le", "nv12", "yuvj420p", "rgb24", "gray"])
def test_other_formats_become_i420_of_the_limited_range(pixels: str) -> None:
    """One plain colour in each format is the same plain colour in I420."""
    colour = np.full((24, 40, 3), (200, 120, 40), np.uint8)
    plain = av.VideoFrame.from_ndarray(colour, format="rgb24").reformat(format="yuv420p")
    want = i420(plain, same)
    got = i420(plain.reformat(format=pixels), same)  # not from RGB: FFmpeg's 10 bits of that differ by chance
    assert got.shape == (36, 40)
    assert np.abs(got[:24].astype(int) - want[:24]).max() <= 2
    assert np.abs(got[24:].astype(int) - (want[24:] if pixels != "gray" else 128)).max() <= 2


def test_colour_is_resized_like_luma() -> None:
    assert fitted((480, 641), (224, 398), colour=True) == (224, 298)
    assert fitted((225, 399), None, colour=True) == (224, 398)
    large = np.concatenate([np.full(448 * 796, 90), np.full(224 * 398, 100), np.full(224 * 398, 160)]).astype(np.uint8)
    frame = large.reshape(-1, 796)
    small = FrameResizer(TRAINED, colour=True)(frame)
    assert small.shape == (336, 398)
    assert [np.unique(part).tolist() for part in (small[:224], small[224:280], small[280:])] == [[90], [100], [160]]
    assert FrameResizer(TRAINED, colour=True)(small) is small


def test_colour_from_a_file(make: Make) -> None:
    video = VideoFile(make("a.mkv", range(20), size=(63, 97), pixels="yuv444p"))
    frames = list(video.frames(3, 9, colour=True))
    assert [frame.shape for frame in frames] == [(93, 96)] * 6
    assert numbers([frame[:62] for frame in frames]) == list(range(3, 9))
    assert np.array_equal(video.read(3, 9, colour=True), np.stack(frames))
    assert video.read(9, 10).shape == (1, 63, 97)  # not a continuation of the colour read
    assert video.read(50, 60, colour=True).shape == (0, 93, 96)
