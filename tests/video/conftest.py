"""Small videos made on the spot: every picture carries its own number, so that each decoded one can be identified."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest

BITS = 10
Make = Callable[..., Path]


def picture(number: int, height: int, width: int) -> np.ndarray:
    """(H, W) uint8: the number in ten bright or dark blocks on top, a texture that moves below."""
    y = np.empty((height, width), np.uint8)
    bits = [(number >> b) & 1 for b in range(BITS)]
    y[:] = np.repeat(np.where(bits, 200, 50), width // BITS + 1)[:width]
    noise = np.random.default_rng(number // 40).integers(60, 200, (height - height // 2, width))
    y[height // 2 :] = np.roll(noise, number, 1)
    return y


def number_of(y: np.ndarray) -> int:
    """The number that `picture` drew into (H, W)."""
    step = y.shape[1] // BITS + 1
    row = y[2 : y.shape[0] // 2 - 2].mean(0)
    return sum(1 << b for b in range(BITS) if row[b * step + 2 : min((b + 1) * step, y.shape[1]) - 2].mean() > 125)


def numbers(frames: Sequence[np.ndarray]) -> list[int]:
    return [number_of(y) for y in frames]


def make_video(
    path: Path,
    times: Sequence[int],
    unit: Fraction = Fraction(1, 25),
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    size: tuple[int, int] = (64, 96),
    rate: Fraction | int = 25,
    codec_options: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
    rotate: float | None = None,
    audio: bool = False,
    ratio: Fraction | None = None,
) -> Path:
    """A video of len(times) numbered pictures, picture i at times[i] · unit seconds; ratio: of a pixel's sides."""
    with av.open(str(path), "w", options=options or {}) as container:
        # With mbtree, x264's bytes differ between processors, and so would what a test damages.
        same_bytes = {"mbtree": "0"} if codec == "libx264" else {}
        coding = {"g": "12", "crf": "15", **same_bytes, **(codec_options or {})}
        added = container.add_stream(codec, rate=rate, options=coding)
        stream = cast(av.VideoStream, added)
        stream.height, stream.width = size
        stream.pix_fmt = pixels
        if ratio is not None:
            stream.codec_context.sample_aspect_ratio = ratio
        stream.codec_context.thread_count = 1  # the same bytes with any number of cores
        stream.codec_context.time_base = unit
        stream.time_base = unit
        if rotate is not None:
            stream.set_display_rotation(rotate)
        sound = container.add_stream("aac", rate=8000, layout="mono") if audio else None
        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(picture(number, *size), format="gray").reformat(format=pixels)
            frame.pts, frame.time_base = time, unit
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if sound is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), format="fltp", layout="mono")
            silence.sample_rate = 8000
            silence.pts = 0
            container.mux(sound.encode(silence))
            container.mux(sound.encode())
    return path


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(name, times, unit, …)`: see `make_video`."""

    def video(name: str, times: Sequence[int] = range(50), unit: Fraction = Fraction(1, 25), **how: object) -> Path:
        return make_video(tmp_path / name, times, unit, **how)  # type: ignore[arg-type]

    return video
