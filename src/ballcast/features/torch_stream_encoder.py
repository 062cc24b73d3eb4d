"""Encode a stream's stacks with torch, on a GPU as a recorded CUDA graph."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stream_encoder import Floats, Pictures, Step

T = TypeVar("T")
_RECORDING = threading.Lock()  # a recording waits for the device, which spoils one that goes on in another thread


def record(work: Callable[[], T], warmups: int = 3, pool: Any = None) -> tuple[Callable[[], None], T]:
    """Run `work` a few times, so that everything is compiled and allocated, then record it.

    Gives the function that replays it and what it returned: tensors that every replay overwrites. What `work` reads
    must stay at the same addresses. `pool`: memory that several recordings share; each replay overwrites all of it.
    """
    with _RECORDING:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(warmups):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=pool, capture_error_mode="thread_local"
        ):  # other threads may use the GPU meanwhile
            result = work()
    return graph.replay, result


class TorchStackEncoder:
    """A `StackEncoder` that runs a backbone in torch.

    backbone: the network. device: where to compute; by default where the backbone lies.
    """

    def __init__(self, backbone: Backbone, *, device: torch.device | str | None = None) -> None:
        self.config = backbone.config
        self.encoder = BatchEncoder(backbone, device=device, compiled=False)
        self._graphed = self.encoder.device.type == "cuda"

    @torch.inference_mode()
    def begin(self, size: tuple[int, int]) -> Step:
        """See `StackEncoder`; it keeps the maps (overlap + 1, C, h, w) of the latest stacks."""
        encoder, shifted = self.encoder, self.config.shift != "none"
        stacks = encoder.stacks_per_batch if shifted else 1
        black = self._load(np.zeros((stacks, self.config.stack, *size), np.uint8))
        maps = encoder.encode(black).expand(max(stacks, encoder.overlap + 1), -1, -1, -1).clone()

        def advance(pictures: Tensor) -> Tensor:
            if shifted:
                return encoder.mix(encoder.encode(pictures))
            maps.copy_(torch.cat([maps[1:], encoder.encode(pictures)]))
            return encoder.mix(maps)

        if self._graphed:
            given = black.clone()
            replay, features = record(lambda: advance(given))

        @torch.inference_mode()
        def step(pictures: Pictures) -> Floats:
            stacked = np.asarray(pictures) if shifted else np.stack(list(pictures))
            loaded = self._load(stacked if shifted else stacked[None])
            if self._graphed:
                given.copy_(loaded)
                replay()
                made = features.cpu().numpy().copy()  # the next replay overwrites it
            else:
                made = advance(loaded).numpy()
            return made if shifted else made[0]

        return step

    def _load(self, stacks: NDArray[np.uint8]) -> Tensor:
        """(S, stack, H, W) → the same on the device and padded."""
        return self.encoder.load(stacks.reshape(-1, *stacks.shape[2:])).unflatten(0, stacks.shape[:2])
