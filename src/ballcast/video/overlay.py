"""A copy of a video with the anticipations drawn below it, as H.264 in MP4.

The frame keeps its size, its rate and its colours: its planes are copied, not converted to RGB and back. The sound
is copied as it is, where MP4 can hold it. Where frames are damaged, the copy is blank.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap
from ballcast.core.files import check_not_source, replacing
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.video.file import VideoFile
from ballcast.video.luma import Turn, plane
from ballcast.video.overlay_strip import Strip
from ballcast.video.sound import SoundCopy

CLOCK = Fraction(1, 90_000)
ENCODER = {"preset": "veryfast", "mbtree": "0"}  # with mbtree, x264 165 gives other bytes every few times


def write_overlay(
    source: Path,
    target: Path,
    timeline: Sequence[Forecast],
    gaps: Sequence[Gap] = (),
    *,
    note: str = "",
    quality: int = 20,
    begin_ms: int = 0,
    end_ms: int | None = None,
    progress: ProgressCallback = no_progress,
) -> int:
    """Write `source` to `target` with the forecasts drawn on a strip below it.

    Args:
        source: any video that can be decoded.
        target: the MP4 file to write.
        timeline: the forecasts, in ms since the video's first frame.
        gaps: the parts without forecasts, as found when they were made.
        note: a line that is seen all the time, such as what the model was trained on.
        quality: x264's constant rate factor; smaller is better and larger.
        begin_ms, end_ms: the part of the video to write.
        progress: called once a second of video with the frames done, at 25 fps, and in all (None: unknown).

    Returns:
        The number of frames written.
    """
    check_overlay(source, target)
    with VideoFile(source, strict=False) as video, replacing(target) as temporary:
        height, width = video.size
        strip = Strip(width=width + width % 2, timeline=timeline, gaps=gaps, note=note)
        rate = Fraction(video.probe().rate or FPS).limit_denominator(1001)
        begin = Fraction(begin_ms, 1000)
        end = None if end_ms is None else Fraction(end_ms, 1000)
        written = 0
        total = video.frame_count()
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            stream = container.add_stream("libx264", rate=rate, options={**ENCODER, "crf": str(quality)})
            stream.width = strip.width
            stream.height = height + height % 2 + strip.height
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = CLOCK
            with SoundCopy(source, container, origin=video.begin + begin, end=end and video.begin + end) as sound:
                for seconds, picture in _with_blanks(video, gaps, begin, end):
                    if not written and picture is not None:
                        keep_colours(stream.codec_context, picture)
                    drawn = strip.draw(float(seconds * 1000))
                    frame = _compose(picture or _blank(video.size), drawn, video.upright if picture else np.asarray)
                    frame.pts = round((seconds - begin) / CLOCK)
                    frame.time_base = CLOCK
                    sound.copy_until(seconds - begin)
                    container.mux(stream.encode(frame))
                    written += 1
                    if written % max(1, round(rate)) == 0:
                        progress(int(seconds * FPS) + 1, total)
                container.mux(stream.encode())
                sound.copy_until(None)
    return written


def check_overlay(source: Path, target: Path) -> None:
    """An InputError if the overlay of `source` cannot be `target`; to know before the work that comes before it."""
    if target.suffix.lower() != ".mp4":
        raise InputError(f"{target}: the overlay is written as MP4; give it a name that ends in .mp4")
    check_not_source(target, source)


def _with_blanks(
    video: VideoFile, gaps: Sequence[Gap], begin: Fraction, end: Fraction | None
) -> Iterator[tuple[Fraction, av.VideoFrame | None]]:
    """The video's frames between two times, in seconds; None, 25 times a second, where they are damaged."""
    lost = [
        Fraction(at, 1000)
        for gap in gaps
        if gap.kind == "damage"
        for at in range(gap.begin_ms, gap.end_ms, FRAME_MS)
        if begin * 1000 <= at and (end is None or at < end * 1000)
    ]
    for seconds, picture in video.pictures(int(begin * FPS)):
        while lost and lost[0] < seconds:
            yield lost.pop(0), None
        if end is not None and seconds >= end:
            break
        if seconds >= begin and not (lost and lost[0] == seconds):
            yield seconds, picture
    for at in lost:
        yield at, None


def _blank(size: tuple[int, int]) -> av.VideoFrame:
    """A dark frame of `size` (H, W) that shows nothing."""
    height, width = (side + side % 2 for side in size)
    planes = np.full((height * 3 // 2, width), 128, np.uint8)
    planes[:height] = 32
    return av.VideoFrame.from_ndarray(planes, format="yuv420p")


def _compose(picture: av.VideoFrame, strip: np.ndarray, upright: Turn) -> av.VideoFrame:
    """The frame (any pixel format) above the strip (h, W, 3) as one yuv420p frame of even size."""
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
    frame.color_range = above.color_range
    frame.colorspace = above.colorspace
    return frame


def keep_colours(codec: av.VideoCodecContext, picture: av.VideoFrame) -> None:
    """Tell players to read the colours as they read the source's."""
    codec.color_range = picture.color_range
    codec.colorspace = picture.colorspace
    codec.color_primaries = picture.color_primaries
    codec.color_trc = picture.color_trc
