"""Single pictures of a video, in colour and upright: for film strips, previews and pictures."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import av
import numpy as np
from PIL import Image

from ballcast.core.actions import FPS
from ballcast.video.file import VideoFile
from ballcast.video.luma import Turn


def stills(
    path: Path, times_ms: Sequence[int], width: int | None = None, *, strict: bool = True
) -> list[Image.Image | None]:
    """What the video shows at each of `times_ms` (ascending, ms since its first frame); None after its end.

    width: of the pictures in pixels; None: the video's own. strict: damage is an error, else the last whole picture
    before it is shown. Decodes from the first of the times to the last.
    """
    found: list[Image.Image | None] = []
    with VideoFile(path, strict=strict) as video:
        held: av.VideoFrame | None = None
        since = 0.0
        for seconds, frame in video.pictures(max(0, times_ms[0] * FPS // 1000)) if times_ms else ():
            while len(found) < len(times_ms) and held is not None and times_ms[len(found)] < seconds * 1000:
                found.append(_upright(held, video.upright, width))
            if len(found) == len(times_ms):
                return found
            held = frame
            since = float(seconds * 1000)
        stands = 1000 / (video.probe().rate or FPS)  # ms the last picture is seen
        for time in times_ms[len(found) :]:
            shown = held is not None and time < since + stands
            found.append(_upright(held, video.upright, width) if shown and held is not None else None)
    return found


def _upright(frame: av.VideoFrame, turn: Turn, width: int | None) -> Image.Image:
    rgb = frame.to_ndarray(format="rgb24")  # (H, W, 3)
    picture = Image.fromarray(np.stack([turn(rgb[..., c]) for c in range(3)], axis=-1))
    if width is None:
        return picture
    return picture.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS)


QUALITY = 72


def to_jpeg(picture: av.VideoFrame, turn: Turn, width: int) -> tuple[int, int, bytes]:
    """(width, height, JPEG) of the picture, upright, at most about `width` pixels wide."""
    scale = min(1.0, width / picture.width)
    size = [max(16, round(side * scale) // 2 * 2) for side in (picture.width, picture.height)]
    rgb = picture.reformat(width=size[0], height=size[1], format="rgb24").to_ndarray()  # (h, w, 3)
    upright = np.stack([turn(rgb[..., channel]) for channel in range(3)], -1)
    out = BytesIO()
    Image.fromarray(upright).save(out, "JPEG", quality=QUALITY)
    return upright.shape[1], upright.shape[0], out.getvalue()
