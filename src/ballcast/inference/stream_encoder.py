"""Features of snippets along a stream of frames: each distinct stack goes through the 2D network once.

Snippets start every `stride` frames from the stream's first (see `stack_index`). A stack is encoded, and the snippet
it completes is mixed, as soon as its last frame arrives: when a forecast is due, only the last frame's work is left.

Frames wait here until their stacks are encoded, the last few stacks' maps until no snippet needs them: memory does not
grow with the stream. And nothing but the frames decides what is computed together, so the same frames
give the same features bit for bit, whether one comes every 40 ms or as fast as a file is read.

With a temporal shift, features depend on their whole window. Then only frames are kept, and `window` computes.
"""

import numpy as np

from ballcast.core.errors import InputError
from ballcast.features.stack_index import (
    snippet_count,
    stack_frames,
    stack_offsets,
    stack_overlap,
    stack_span,
    start_frame,
)
from ballcast.inference.runtime import Floats, Frames, Runtime, Stream


class StreamEncoder:
    """Takes frames in order and returns the features of the snippets they complete.

    Args:
        runtime: with a backbone. The stream is opened in it at the first stack, on the thread that uses it.

    Attributes:
        frames, stacks: number of frames that came in, and of stacks that were encoded, since the last `reset`.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.config = runtime.backbone
        self._runtime = runtime
        self._offsets = stack_offsets(self.config).tolist()
        self._overlap = stack_overlap(self.config)
        self._size: tuple[int, ...] = ()  # (H, W) of the frames of the stream below
        self._stream: Stream | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next frame is a stream's first, and may be of another size."""
        self.frames = self.stacks = 0
        # the latest frames: those of the next stack that are there; with a temporal shift, all not forgotten
        self._waiting: list[np.ndarray] = []

    def push(self, frame: np.ndarray) -> Floats:
        """The next frame (H, W) uint8, or I420, which is kept for a while → features (n, D) of the next n ≤ 1 snippets.

        With a temporal shift, n is always 0: see `window`.
        """
        if frame.ndim != 2 or frame.dtype != np.uint8:
            raise InputError(f"frame {self.frames} must be (H, W) uint8, not {frame.shape} {frame.dtype}")
        if self.frames and frame.shape != self._size:
            raise InputError(f"frame {self.frames} is {frame.shape}, the one before {self._size}")
        if frame.shape != self._size:
            self.close()
            self._size = frame.shape
        c = self.config
        self._waiting.append(frame)
        self.frames += 1
        if c.shift != "none" or self.frames < start_frame(c, self.stacks) + stack_span(c):
            return np.zeros((0, c.width), np.float32)
        first = start_frame(c, self.stacks) - (self.frames - len(self._waiting))  # the stack's first frame, in _waiting
        stack = [self._waiting[first + offset] for offset in self._offsets]  # (stack, H, W)
        del self._waiting[: first + c.stride]
        self.stacks += 1
        features = self._run(stack)[None]  # (1, D)
        if self.stacks <= self._overlap:  # the first snippet is not complete yet
            return features[:0]
        return self._finite(features)

    def window(self, first: int) -> Floats:
        """With a temporal shift: features (N, D) of the window that begins with snippet `first`."""
        c = self.config
        index = stack_frames(c, snippet_count(c)) + start_frame(c, first) - (self.frames - len(self._waiting))
        stacks = np.stack([np.stack([self._waiting[frame] for frame in stack]) for stack in index.tolist()])
        self.stacks += len(stacks)
        return self._finite(self._run(stacks))

    def forget(self, before: int) -> None:
        """With a temporal shift: drop the frames before the snippet `before`, which no window needs any more."""
        kept = start_frame(self.config, before) - (self.frames - len(self._waiting))
        del self._waiting[: max(0, kept)]

    def close(self) -> None:
        """Give the stream's place in the runtime to another; the next stack opens one again."""
        stream = self._stream
        self._stream = None
        if stream is not None:
            self._runtime.close_stream(stream)

    def _run(self, frames: Frames) -> Floats:
        """The frames of a stack → (D,); with a temporal shift those of a window → (N, D)."""
        if self._stream is None:
            self._stream = self._runtime.open_stream((self._size[0], self._size[1]))
        self._stream.fill(frames)
        return self._runtime.encode_stacks([self._stream])[0]

    def _finite(self, features: Floats) -> Floats:
        if not np.isfinite(features).all():
            raise InputError(f"before frame {self.frames}: the backbone gives numbers that are not finite")
        return features
