"""Pictures of the game as a broadcast: 398×224 in colour and the radar covered, as simbaa has it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from numpy.typing import NDArray

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.video.container import open_container
from tools.simulation.game import HEIGHT, WIDTH

MARGIN = 1  # columns cut at either side: 400 to 398
RADAR = (slice(172, 218), slice(162, 236))  # rows and columns; it would show where everybody is
COVER = 26  # red, green and blue of its cover
KEY_FRAMES = 125  # frames apart: 5 s, as in simbaa, so that its build.py can cut clips without encoding
# Colour is coded more finely than luma: players are a few pixels wide, and their shirts turn grey otherwise.
H264 = {"crf": "28", "preset": "veryfast", "x264-params": "chroma-qp-offset=-8", "threads": "1"}
H264 |= {"g": str(KEY_FRAMES), "forced-idr": "1", "sc_threshold": "0", "bf": "0"}  # key frames there alone, no B-frames

Add = Callable[[NDArray[np.uint8], int], None]


def develop(picture: NDArray[np.uint8], gain: float) -> NDArray[np.uint8]:
    """Frame (224, 398, 3) uint8 RGB of a picture (224, 400, 3), `gain` times as bright, the radar covered."""
    brighter = (np.arange(256) * gain).clip(0, 255).astype(np.uint8)  # (256,)
    frame = brighter[picture[:, MARGIN:-MARGIN]]  # (224, 398, 3)
    frame[RADAR] = COVER
    return frame


@contextmanager
def filming(path: Path) -> Iterator[Add]:
    """Write an MP4 to `path`, whatever its suffix; yields a function that adds a picture (224, 398, 3) RGB at a frame.

    Frames are counted at 25 fps; a picture is seen until the next one begins. The first picture of every 125 frames is
    a key frame.
    """
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options=H264)
        stream.height, stream.width = HEIGHT, WIDTH - 2 * MARGIN
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, FPS)
        next_key = 0

        def add(picture: NDArray[np.uint8], frame: int) -> None:
            nonlocal next_key
            encoded = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            encoded.pts, encoded.time_base = frame, Fraction(1, FPS)
            if frame >= next_key:
                encoded.pict_type = PictureType.I
                next_key = (frame // KEY_FRAMES + 1) * KEY_FRAMES
            container.mux(stream.encode(encoded))

        yield add
        container.mux(stream.encode(None))


def count_frames(path: Path) -> int:
    """How many frames at 25 fps a film surely has: up to the one at which its last picture begins."""
    container, stream = open_container(path)
    with container:
        times = [packet.pts * packet.time_base for packet in container.demux(stream) if packet.pts is not None]
    if not times:
        raise InputError(f"{path}: has no pictures; remove it and play it again")
    return round(max(times) * FPS) + 1
