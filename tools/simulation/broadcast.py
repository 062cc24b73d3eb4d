"""Pictures of the game as a broadcast: 398×224 in colour and the radar covered, as simbaa has it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.video.container import open_container
from tools.simulation.game import HEIGHT, WIDTH

MARGIN = 1  # columns cut at either side: 400 to 398
RADAR = (slice(172, 218), slice(162, 236))  # rows and columns; it would show where everybody is
COVER = 26  # red, green and blue of its cover
H264 = {"crf": "26", "preset": "veryfast", "g": "125", "threads": "1"}

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

    Frames are counted at 25 fps; a picture is seen until the next one begins.
    """
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options=H264)
        stream.height, stream.width = HEIGHT, WIDTH - 2 * MARGIN
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, FPS)

        def add(picture: NDArray[np.uint8], frame: int) -> None:
            encoded = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            encoded.pts, encoded.time_base = frame, Fraction(1, FPS)
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
