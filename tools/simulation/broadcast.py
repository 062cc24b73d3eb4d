"""Films as MP4: 398×224 in colour, each picture at its time on a timeline of 25 frames a second."""

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
from tools.simulation.develop import HEIGHT, WIDTH

KEY_FRAMES = 125  # frames apart: 5 s, as in simbaa, so that its build.py can cut clips without encoding
# Colour is coded more finely than luma: players are a few pixels wide, and their shirts turn grey otherwise.
H264 = {"preset": "veryfast", "x264-params": "chroma-qp-offset=-8", "threads": "1"}
H264 |= {"g": str(KEY_FRAMES), "forced-idr": "1", "sc_threshold": "0", "bf": "0"}  # key frames there alone, no B-frames

Add = Callable[[NDArray[np.uint8], int], None]


@contextmanager
def filming(path: Path, *, crf: int) -> Iterator[Add]:
    """Write an MP4 to `path`, whatever its suffix; yields a function that adds a picture (224, 398, 3) RGB at a frame.

    Frames are counted at 25 fps; a picture is seen until the next one begins. The first picture of every 125 frames is
    a key frame. `crf` is x264's: larger is smaller and worse.
    """
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": str(crf), **H264})
        stream.height, stream.width = HEIGHT, WIDTH
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
        raise InputError(f"{path}: has no pictures; remove it and film it again")
    return round(max(times) * FPS) + 1
