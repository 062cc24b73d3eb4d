"""Features of clips along a stream of frames: each distinct stack through the 2D network once, ever.

Clips start on one grid, every `stride` frames from the stream's first, so that clip i needs the stacks i, i + hop, …
of that same grid. A stack is encoded, and the clip it completes is mixed, the moment its last frame is there: when an
anticipation is due, all but the last frame's work has been done. On a CPU one stack at a time costs no more than nine
(they would not share its caches), on a GPU the step is recorded as a CUDA graph.

Frames wait here until their stacks are encoded, the last few stacks' maps until no clip needs them: however long the
stream, what is kept does not grow. And nothing but the frames decides what is computed together, so the same frames
give the same features bit for bit, whether one comes every 40 ms or as fast as a file is read.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.graph import record
from ballcast.features.shared import SharedStacks


class ClipStream:
    """Takes frames in order and gives back the features of the clips they complete.

    backbone: the network. device: where to compute; by default where the backbone lies.
    `frames` and `stacks` count what came in and what was encoded since the start or the last `reset`.
    """

    def __init__(self, backbone: Backbone, *, device: torch.device | str | None = None) -> None:
        self.config = backbone.config
        self._engine = SharedStacks(backbone, device=device, compiled=False)
        self._graphed = self._engine.device.type == "cuda"
        self._size: tuple[int, ...] = ()  # (H, W) of the frames the step below is made for
        self._step: Callable[[Tensor], Tensor] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next frame is a stream's first, and may be of another size."""
        self.frames = self.stacks = 0
        self._waiting: list[np.ndarray] = []  # the latest frames: those of the next stack that are there

    @torch.inference_mode()
    def push(self, frame: np.ndarray) -> Tensor:
        """The next frame (H, W) uint8, which is kept for a while → features (n, D) float32 of the next n ≤ 1 clips."""
        if frame.ndim != 2 or frame.dtype != np.uint8:
            raise InputError(f"frame {self.frames} must be (H, W) uint8, not {frame.shape} {frame.dtype}")
        if self.frames and frame.shape != self._size:
            raise InputError(f"frame {self.frames} is {frame.shape}, the one before {self._size}")
        if frame.shape != self._size:
            self._size, self._step = frame.shape, None
        c = self.config
        self._waiting.append(frame)
        self.frames += 1
        if self.frames < c.stride * self.stacks + c.stack_span:
            return torch.zeros(0, c.width, device=self._engine.device)
        first = c.stride * self.stacks - (self.frames - len(self._waiting))  # the stack's first frame, in _waiting
        pictures = self._engine.load(np.stack(self._waiting[first :: c.step]))[None]  # (1, stack, H, W)
        del self._waiting[: first + c.stride]
        self._step = self._step or self._prepared(pictures)
        self.stacks += 1
        features = self._step(pictures)
        if self.stacks <= self._engine.overlap:  # the first clip is not whole yet
            return features[:0]
        if not torch.isfinite(features).all():
            raise InputError(f"before frame {self.frames}: the backbone gives numbers that are not finite")
        return features

    def _prepared(self, pictures: Tensor) -> Callable[[Tensor], Tensor]:
        """What takes the next stack's pictures (1, stack, H, W) to the features (1, D) of the clip that ends there.

        It keeps the maps (overlap + 1, C, h, w) of the latest stacks; before there are so many, the features are void.
        """
        engine = self._engine
        maps = engine.encode(torch.zeros_like(pictures)).expand(engine.overlap + 1, -1, -1, -1).clone()

        def step(pictures: Tensor) -> Tensor:
            maps.copy_(torch.cat([maps[1:], engine.encode(pictures)]))
            return engine.mix(maps)

        if not self._graphed:
            return step
        given = pictures.clone()
        replay, features = record(lambda: step(given))

        def graphed(pictures: Tensor) -> Tensor:
            given.copy_(pictures)
            replay()
            return features.clone()  # the next replay overwrites it

        return graphed
