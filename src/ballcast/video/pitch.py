"""Whether a video shows a football pitch, by colour and texture of one small picture a second.

A pitch is a large smooth green area with something on it. Leaves and meadows are green and rough, test cards and green
screens are flat, and most other frames are not green. The rates are in docs/video.md.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.events import Gap, Scene
from ballcast.video.luma import pixels

if TYPE_CHECKING:
    import av
    from av.video.reformatter import VideoReformatter

    from ballcast.video.file import VideoFile

HEIGHT, WIDTH, BLOCK = 72, 128, 8  # of the small picture and of the blocks it is judged by, in pixels
GREEN_SHARE = 0.8  # of a block's pixels from which it is grass
ROUGH = 0.25  # deviation of a block's brightness, as a share of its mean, from which it is not smooth
FIELD = 0.36  # share of the frame that smooth grass covers at least
BLACK, LEAST = 8, 0.25  # a block as dark as this is a bar; bars may cover all but this share
TEXTURE = (0.015, 0.145)  # of the median block of grass: below is a flat colour, above are leaves
SEEN_S, SEEN_SHARE = (
    10,
    0.2,
)  # seconds that are looked back on, and the share of their frames that show a pitch at least, else it is absent


def shows_pitch(rgb: np.ndarray) -> bool:
    """Whether a frame (72, 128, 3) uint8 shows a football pitch."""
    r, g, b = np.moveaxis(rgb.astype(np.float32), -1, 0)
    most, least = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    green = (g >= 0.98 * r) & (g > 1.12 * b) & (most - least > 0.15 * most) & (most > 20)
    luma = _blocks(0.299 * r + 0.587 * g + 0.114 * b)  # (9, 16, 64)
    rough = luma.std(-1) / np.maximum(luma.mean(-1), 16)
    grass = _blocks(green).mean(-1) > GREEN_SHARE
    lit = max((luma.mean(-1) > BLACK).sum(), LEAST * grass.size)  # without bars beside, above or below the frame
    if (grass & (rough < ROUGH)).sum() < FIELD * lit:
        return False
    return bool(TEXTURE[0] < np.median(rough[grass]) < TEXTURE[1])


def _blocks(plane: np.ndarray) -> np.ndarray:
    """(72, 128) → the pixels of its blocks, (9, 16, 64)."""
    parts = plane.reshape(HEIGHT // BLOCK, BLOCK, WIDTH // BLOCK, BLOCK).swapaxes(1, 2)
    return parts.reshape(HEIGHT // BLOCK, WIDTH // BLOCK, BLOCK * BLOCK)


class PitchDetector:
    """Follows the frames of a video and says when a pitch disappears for long, and when it is there again."""

    def __init__(self) -> None:
        self._seen: deque[bool] = deque(maxlen=SEEN_S)
        self._scaler: VideoReformatter | None = None
        self.pitch, self.last = True, True  # in the last seconds, and in the last frame

    def look(self, n: int, picture: "av.VideoFrame") -> Scene | None:
        """Look at frame n (at 25 fps), one per second; returns a change.

        A pitch is absent when the last ten looks, or as many as there were, found it in less than a fifth.
        """
        if n % FPS:
            return None
        from av.video.reformatter import Interpolation, VideoReformatter

        self._scaler = self._scaler or VideoReformatter()
        small = self._scaler.reformat(picture, WIDTH, HEIGHT, "rgb24", interpolation=Interpolation.AREA)
        self.last = shows_pitch(small.to_ndarray())
        self._seen.append(self.last)
        pitch = sum(self._seen) >= SEEN_SHARE * len(self._seen)
        if pitch == self.pitch:
            return None
        self.pitch = pitch
        return Scene(n * FRAME_MS, pitch)


def frames_and_scenes(
    video: "VideoFile", start: int = 0, stop: int | None = None, *, colour: bool = False, any_video: bool = False
) -> Iterator[np.ndarray | Gap | Scene]:
    """The video's frames start … stop − 1 at 25 fps, (H, W) uint8, or I420, with all that happens between them.

    A `Gap` stands for frames that are lost, unless the video is `strict`. A `Scene` comes before its frames.

    any_video: do not look for a pitch.
    """
    detector = None if any_video else PitchDetector()
    n = start
    for item in video.sampled(start, stop) if video.strict else video.sampled_and_gaps(start, stop):
        if isinstance(item, Gap):
            n = item.end_ms // FRAME_MS
            yield item
            continue
        if detector is not None and (scene := detector.look(n, item)) is not None:
            yield scene
        yield pixels(item, video.upright, colour=colour)
        n += 1
