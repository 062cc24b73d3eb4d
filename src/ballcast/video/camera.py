"""A camera that follows the play: a moving crop of a fixed view of the whole pitch, written as a video."""

from collections.abc import Callable
from fractions import Fraction
from math import exp
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.core.files import replacing
from ballcast.video.file import VideoFile
from ballcast.video.luma import plane
from ballcast.video.overlay import keep_colours

SETTLE_S = 0.6  # time constant of the camera's movement
STILL = 0.08  # share of the crop's size by which the target may be off its middle before the camera moves
INSIDE = 0.4  # the target is never further from the middle than this share of the crop's size
KEY_FRAMES = 125  # frames between key frames: 5 s, as in simbaa


def crop_size(panorama: tuple[int, int], size: tuple[int, int], view: float) -> tuple[int, int]:
    """Return the (height, width) of the crop, even numbers.

    Args:
        panorama: (height, width) of the whole picture.
        size: (height, width) of the video to write, whose shape the crop has.
        view: share of the panorama's width that the crop shows; less if the panorama is not high enough.
    """
    height, width = panorama
    wide = min(view * width, height * size[1] / size[0], width)
    even = [2 * max(int(side / 2), 1) for side in (wide * size[0] / size[1], wide)]
    return even[0], even[1]


def follow(target: NDArray[np.float64], panorama: tuple[int, int], crop: tuple[int, int]) -> NDArray[np.int64]:
    """Move a crop after a target.

    The camera sees the target of the present and of the past alone, never of the future, so that its movement does
    not give away what happens next. It moves towards the target with a time constant of `SETTLE_S`, rests while the
    target is near its middle, and is carried along by a target at its edge. Where the target is not known, it rests;
    until it is known for the first time, in the middle of the panorama.

    Args:
        target: (T, 2) x and y in pixels of the panorama, at 25 fps; NaN: not known.
        panorama: (height, width).
        crop: (height, width), not larger.

    Returns:
        (T, 2) x and y of the crop's upper left corner, even numbers within the panorama.
    """
    size = np.array(crop[::-1], float)
    lowest, highest = size / 2, np.array(panorama[::-1], float) - size / 2
    middle, known = np.array(panorama[::-1]) / 2, np.isfinite(target.sum(1))
    first = int(known.argmax())
    share = 1 - exp(-1 / (SETTLE_S * FPS))
    corners = np.empty((len(target), 2))
    for t, at in enumerate(target):
        if known[t]:
            off = at - middle if t > first else np.zeros(2)
            middle = middle + share * np.sign(off) * np.maximum(np.abs(off) - STILL * size, 0)
            middle = np.clip(middle, at - INSIDE * size, at + INSIDE * size)
            middle = np.clip(middle, lowest, highest)
        corners[t] = middle - size / 2
    return 2 * (corners // 2).astype(np.int64)


def write_crop(
    source: Path,
    target: Path,
    corners: NDArray[np.int64],
    crop: tuple[int, int],
    size: tuple[int, int],
    *,
    quality: int = 20,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> int:
    """Write the crop of a video as MP4 at 25 fps; the file appears when it is complete.

    Args:
        source: the video of the whole pitch.
        target: the file to write.
        corners: (T, 2) from `follow`; frames after the last keep its corner.
        crop: (height, width) of the crop, even numbers.
        size: (height, width) of the frames to write, even numbers.
        quality: x264's constant rate factor; smaller is better and larger.
        progress: called every second of video with the frames done, and in all (None: not known).

    Returns:
        The number of frames written.
    """
    written = 0
    with VideoFile(source) as video, replacing(target) as temporary:
        total = video.frame_count()
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            options = {"crf": str(quality), "preset": "veryfast", "g": str(KEY_FRAMES), "bf": "0"}
            stream = container.add_stream("libx264", rate=FPS, options=options)
            stream.height, stream.width = size
            stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, FPS)
            for picture in video.sampled():
                if not written:
                    keep_colours(stream.codec_context, picture)
                x, y = corners[min(written, len(corners) - 1)]
                frame = _cropped(picture, int(x), int(y), crop).reformat(
                    width=size[1], height=size[0], interpolation="AREA"
                )
                frame.pts, frame.time_base = written, Fraction(1, FPS)
                container.mux(stream.encode(frame))
                written += 1
                if written % FPS == 0:
                    progress(written, total)
            container.mux(stream.encode())
    if not written:
        raise InputError(f"{source}: has no frames")
    return written


def _cropped(picture: av.VideoFrame, x: int, y: int, crop: tuple[int, int]) -> av.VideoFrame:
    """Cut a crop out of a picture, as yuv420p."""
    whole = picture if picture.format.name in ("yuv420p", "yuvj420p") else picture.reformat(format="yuv420p")
    height, width = crop
    frame = av.VideoFrame(width, height, "yuv420p")
    for i, target in enumerate(frame.planes):
        step = 1 if i == 0 else 2  # the colours have half the size
        rows, columns = slice(y // step, (y + height) // step), slice(x // step, (x + width) // step)
        canvas = np.zeros((target.height, target.line_size), np.uint8)
        canvas[:, : target.width] = plane(whole, i)[rows, columns]
        target.update(canvas.tobytes())
    frame.color_range, frame.colorspace = whole.color_range, whole.colorspace
    return frame
