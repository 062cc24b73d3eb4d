"""A contact sheet: pictures of several films in one image, a row for each film.

python -m tools.simulate contacts docs/images/films.webp films/match_6001.mp4 films/match_6002.mp4
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ballcast.core.errors import InputError
from ballcast.video.container import open_container
from tools.simulation.develop import HEIGHT, WIDTH

GAP = 4  # pixels between pictures
GROUND = (255, 255, 255)
QUALITY = 70  # of a WebP or a JPEG


def pictures_of(film: Path, count: int) -> list[NDArray[np.uint8]]:
    """`count` pictures (H, W, 3) uint8 RGB of a film, the same time apart, the first half that time after its start."""
    if film.suffix == ".npy":
        return _pictures_of_array(film, count)
    container, stream = open_container(film)
    with container:
        times = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        if len(times) < count:
            raise InputError(f"{film}: has {len(times)} pictures, too few for {count} of a contact sheet")
        wanted = [times[index] for index in _spread(len(times), count)]
        return [_picture_at(container, stream, time) for time in wanted]


def _picture_at(container: av.container.InputContainer, stream: av.VideoStream, time: int) -> NDArray[np.uint8]:
    container.seek(time, stream=stream)
    frames = (frame for frame in container.decode(stream) if frame.pts is not None and frame.pts >= time)
    return _rgb(next(frames))


def _rgb(frame: av.VideoFrame) -> NDArray[np.uint8]:
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _pictures_of_array(film: Path, count: int) -> list[NDArray[np.uint8]]:
    try:
        pictures = np.load(film, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{film}: cannot be read as an array ({error}); film the match again") from None
    frames = []
    for index in _spread(len(pictures), count):
        i420 = np.array(pictures[index]).reshape(HEIGHT * 3 // 2, WIDTH)
        frames.append(_rgb(av.VideoFrame.from_ndarray(i420, format="yuv420p")))
    return frames


def _spread(total: int, count: int) -> list[int]:
    return [int((n + 0.5) * total / count) for n in range(count)]


def make_sheet(rows: Sequence[Sequence[NDArray[np.uint8]]], width: int) -> Image.Image:
    """Lay out rows of pictures, each picture `width` pixels wide."""
    height = round(width * HEIGHT / WIDTH)
    columns = max(len(row) for row in rows)
    sheet = Image.new("RGB", (columns * (width + GAP) - GAP, len(rows) * (height + GAP) - GAP), GROUND)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            small = Image.fromarray(picture).resize((width, height), Image.Resampling.LANCZOS)
            sheet.paste(small, (x * (width + GAP), y * (height + GAP)))
    return sheet


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.simulate contacts", description=__doc__)
    parser.add_argument("image", type=Path, metavar="IMAGE", help="to write: .webp, .png or .jpg")
    parser.add_argument("films", type=Path, nargs="+", metavar="FILM", help="match_NNNN.mp4 or match_NNNN.npy")
    parser.add_argument("--pictures", type=int, default=4, help="of each film, 4 by default")
    parser.add_argument("--columns", type=int, default=1, help="films side by side, 1 by default")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of a picture in pixels, {WIDTH} by default")
    options = parser.parse_args(words)
    if min(options.pictures, options.columns, options.width) < 1:
        parser.error("--pictures, --columns and --width must be positive")
    found = [pictures_of(film, options.pictures) for film in options.films]
    rows = [
        [picture for film in found[first : first + options.columns] for picture in film]
        for first in range(0, len(found), options.columns)
    ]
    try:
        make_sheet(rows, options.width).save(options.image, quality=QUALITY)
    except (OSError, ValueError) as error:
        raise InputError(f"{options.image}: cannot be written: {error}") from None
