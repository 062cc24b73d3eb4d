"""A copy of a video with the anticipations drawn below it, as H.264 in MP4.

The picture keeps its size, its rate and its colours: its planes are copied, not converted to RGB and back. The sound
is left out.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast
from ballcast.core.files import check_not_source, replacing
from ballcast.video.file import VideoFile
from ballcast.video.luma import Turn, plane
from ballcast.video.overlay_strip import Strip


def write_overlay(
    source: Path,
    target: Path,
    timeline: Sequence[Forecast],
    *,
    quality: int = 20,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> int:
    """Write `source` to `target` with the forecasts drawn on a strip below it.

    Args:
        source: any video that can be decoded.
        target: the MP4 file to write.
        timeline: the forecasts, in ms since the video's first frame.
        quality: x264's constant rate factor; smaller is better and larger.
        progress: called once a second of video with the frames done, at 25 fps, and in all (None: unknown).

    Returns:
        The number of frames written.
    """
    check_overlay(source, target)
    with VideoFile(source) as video, replacing(target) as temporary:
        height, width = video.size
        strip = Strip(width=width + width % 2, timeline=timeline)
        rate = Fraction(video.probe().rate or FPS).limit_denominator(1001)
        written, total = 0, video.frame_count()
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            stream = container.add_stream("libx264", rate=rate, options={"crf": str(quality), "preset": "veryfast"})
            stream.width, stream.height = strip.width, height + height % 2 + strip.height
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = clock = Fraction(1, 90_000)
            for seconds, picture in video.pictures():
                if not written:
                    keep_colours(stream.codec_context, picture)
                frame = _compose(picture, strip.draw(float(seconds * 1000)), video.upright)
                frame.pts, frame.time_base = round(seconds / clock), clock
                container.mux(stream.encode(frame))
                written += 1
                if written % round(rate) == 0:
                    progress(int(seconds * FPS) + 1, total)
            container.mux(stream.encode())
    return written


def check_overlay(source: Path, target: Path) -> None:
    """An InputError if the overlay of `source` cannot be `target`; to know before the work that comes before it."""
    if target.suffix.lower() != ".mp4":
        raise InputError(f"{target}: the overlay is written as MP4; give it a name that ends in .mp4")
    check_not_source(target, source)


def _compose(picture: av.VideoFrame, strip: np.ndarray, upright: Turn) -> av.VideoFrame:
    """The picture (any pixel format) above the strip (h, W, 3) as one yuv420p frame of even size."""
    above = picture if picture.format.name in ("yuv420p", "yuvj420p") else picture.reformat(format="yuv420p")
    below = av.VideoFrame.from_ndarray(strip, format="rgb24").reformat(
        format="yuv420p",
        dst_colorspace=above.colorspace if above.colorspace in (1, 5, 6) else "ITU601",
        dst_color_range=above.color_range,
    )
    height = 2 * -(-upright(plane(above, 0)).shape[0] // 2)
    frame = av.VideoFrame(strip.shape[1], height + strip.shape[0], "yuv420p")
    for i, target in enumerate(frame.planes):
        top = upright(plane(above, i))
        rows, columns = (height, strip.shape[1]) if i == 0 else (height // 2, strip.shape[1] // 2)
        top = np.pad(top, ((0, rows - top.shape[0]), (0, columns - top.shape[1])), mode="edge")
        canvas = np.zeros((target.height, target.line_size), np.uint8)
        canvas[:rows, :columns] = top
        canvas[rows:, :columns] = plane(below, i)
        target.update(canvas.tobytes())
    frame.color_range, frame.colorspace = above.color_range, above.colorspace
    return frame


def keep_colours(codec: av.VideoCodecContext, picture: av.VideoFrame) -> None:
    """Tell players to read the colours as they read the source's."""
    codec.color_range, codec.colorspace = picture.color_range, picture.colorspace
    codec.color_primaries, codec.color_trc = picture.color_primaries, picture.color_trc
