"""A small colour JPEG of a decoded picture, for people to look at."""

from io import BytesIO

import av
import numpy as np
from PIL import Image

from ballcast.video.luma import Turn

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
