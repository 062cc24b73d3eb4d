"""Which frames a window, a clip and a stack consist of. Numbers only: no video here.

A window is 125 frames (5 s). Its clips start every 3 frames; a clip is n frames (15, or 33) at step 2, so it spans
2(n − 1) + 1 frames, and is read as n/3 stacks of 3 frames. Stack j of the clip that starts at frame c is c + 6j,
c + 6j + 2, c + 6j + 4. As clips start every 3 frames and stacks every 6, most stacks belong to several clips: 33 clips
of 5 stacks have only 41 distinct ones.
"""

from typing import NamedTuple

import numpy as np

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.errors import InputError

STRIDE = 3  # frames from the start of a clip to that of the next
STEP = 2  # frames from a sampled frame to the next
STACK = 3  # sampled frames in a stack, the encoder's input channels


class Stacks(NamedTuple):
    """The distinct stacks of several clips."""

    starts: np.ndarray  # (M,) int64, ascending: the first frame of each distinct stack
    of_clip: np.ndarray  # (n_clips, n_stacks) int64: which of them is stack j of clip i


def span(frames: int = 15) -> int:
    """Frames from a clip's first to its last, both counted: 29 for 15 sampled frames."""
    if frames <= 0 or frames % STACK:
        raise InputError(f"a clip is read in stacks of {STACK} frames, so {frames} frames make no clip")
    return STEP * (frames - 1) + 1


def clips_per_window(window: int = WINDOW_FRAMES, span: int = 29, stride: int = STRIDE) -> int:
    """How many clips fit into a window of `window` frames: 33; none if it is shorter than a clip."""
    return max(0, (window - span) // stride + 1)


def clip_starts(start: int, *, window: int = WINDOW_FRAMES, frames: int = 15, stride: int = STRIDE) -> np.ndarray:
    """First frames of the clips of the window that begins at frame `start`, (n_clips,) int64."""
    return start + stride * np.arange(clips_per_window(window, span(frames), stride), dtype=np.int64)


def clip_frames(starts: np.ndarray, *, frames: int = 15) -> np.ndarray:
    """The sampled frames of the clips that begin at `starts` (n_clips,), (n_clips, frames) int64."""
    span(frames)
    return np.asarray(starts, np.int64)[:, None] + STEP * np.arange(frames, dtype=np.int64)


def distinct_stacks(starts: np.ndarray, *, frames: int = 15) -> Stacks:
    """The stacks of the clips that begin at `starts` (n_clips,), each once, and where each clip finds its own."""
    of_clip = clip_frames(starts, frames=frames)[:, ::STACK]  # (n_clips, n_stacks)
    unique, index = np.unique(of_clip, return_inverse=True)
    return Stacks(unique, index.reshape(of_clip.shape))


def stack_frames(starts: np.ndarray) -> np.ndarray:
    """The frames of the stacks that begin at `starts` (M,), (M, 3) int64."""
    return np.asarray(starts, np.int64)[:, None] + STEP * np.arange(STACK, dtype=np.int64)


def snap(start: int, stride: int = STRIDE) -> int:
    """The latest frame of the grid (every `stride` frames from the video's first) that is not after `start`.

    Rolling and live prediction begin their windows there, so that windows a second apart share their clips' features;
    not later, so that no window sees beyond its own end.
    """
    return start - start % stride
