"""Features of clips along a stream of frames: each distinct stack through the 2D network once, ever.

Clips start on one grid, every `stride` frames from the stream's first, so that clip i needs the stacks i, i + hop, …
of that same grid. Frames wait here until their stacks are encoded, the last few stacks' maps until no clip needs them:
however long the stream, what is kept does not grow.

Stacks are encoded whenever `batch` of them are whole, and when `flush` asks for those that are. Nothing else decides
what is computed together, so the same frames with the same flushes give the same features bit for bit, whether a frame
comes every 40 ms or as fast as a file is read.
"""

import numpy as np
import torch
from torch import Tensor

from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.shared import SharedStacks


class ClipStream:
    """Takes frames in order and gives back the features of the clips they complete.

    Not compiled on a GPU: a second of video is 8 or 9 stacks, and compiling would take longer than an hour of them.

    Args:
        backbone: the network.
        batch: stacks to encode at once, fewer where the device is better off with fewer.
        device: where to compute; by default where the backbone lies.

    `frames` and `stacks` count what came in and what was encoded since the start or the last `reset`.
    """

    def __init__(self, backbone: Backbone, *, batch: int, device: torch.device | str | None = None) -> None:
        self.config = backbone.config
        self._engine = SharedStacks(backbone, device=device, compiled=False)
        self.batch = min(batch, self._engine.at_once, self._engine.clips_a_batch)
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next frame is a stream's first."""
        self.frames = self.stacks = 0
        self._waiting: list[np.ndarray] = []  # the latest frames, at least all of the next stack's that are there
        self._maps: Tensor | None = None  # (≤ overlap, C, h, w): the latest stacks, which clips to come need

    @property
    def pending(self) -> int:
        """Stacks that are whole but not encoded."""
        whole = (self.frames - self.config.stack_span) // self.config.stride + 1
        return max(0, whole - self.stacks)

    def push(self, frame: np.ndarray) -> Tensor:
        """The next frame (H, W) uint8, which is kept for a while → features (n, D) float32 of the next n ≥ 0 clips."""
        if frame.ndim != 2 or frame.dtype != np.uint8:
            raise InputError(f"frame {self.frames} must be (H, W) uint8, not {frame.shape} {frame.dtype}")
        if self._waiting and frame.shape != self._waiting[-1].shape:
            raise InputError(f"frame {self.frames} is {frame.shape}, the one before {self._waiting[-1].shape}")
        self._waiting.append(frame)
        self.frames += 1
        return self.flush() if self.pending == self.batch else self._none()

    @torch.no_grad()
    def flush(self) -> Tensor:
        """Encode what is pending now → features (n, D) float32 of the clips that completes, perhaps none."""
        c, count = self.config, self.pending
        if not count:
            return self._none()
        first = c.stride * self.stacks - (self.frames - len(self._waiting))  # the next stack's first frame, in _waiting
        stop = first + c.stride * (count - 1) + c.stack_span
        pixels = self._engine.load(np.stack(self._waiting[first:stop]))
        maps = self._engine.maps(pixels, c.stride * torch.arange(count, device=pixels.device))
        self.stacks += count
        del self._waiting[: first + c.stride * count]
        maps = maps if self._maps is None else torch.cat([self._maps, maps])
        overlap = self._engine.overlap
        features = self._engine.mix(maps) if len(maps) > overlap else self._none()
        self._maps = maps[max(0, len(maps) - overlap) :].clone()  # a view would keep all of them
        if not torch.isfinite(features).all():
            raise InputError(f"before frame {self.frames}: the backbone gives numbers that are not finite")
        return features

    def _none(self) -> Tensor:
        return torch.zeros(0, self.config.width, device=self._engine.device)
