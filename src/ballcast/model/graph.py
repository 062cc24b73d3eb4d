"""CUDA graphs: work of fixed shapes recorded once and replayed without the host."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots

T = TypeVar("T")


def record(work: Callable[[], T], warmups: int = 3) -> tuple[Callable[[], None], T]:
    """Run `work` a few times, so that everything is compiled and allocated, then record it.

    Gives the function that replays it and what it returned: tensors that every replay overwrites. What `work` reads
    must stay at the same addresses.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warmups):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph.replay, result


class Graphed:
    """A model's forward pass at one batch size, compiled and recorded: for the lowest latency on a GPU.

    Args:
        model: on a GPU, in eval mode; features (batch, W, N, D) and present (batch, W) in, `Slots` out.
        batch: samples a call.
        compiled: fuse kernels first, which takes about a minute.
    """

    def __init__(self, model: Anticipator, batch: int = 1, *, compiled: bool = True) -> None:
        config, device = model.config, next(model.parameters()).device
        self.features = torch.zeros(batch, config.windows, config.clips, config.width, device=device)
        self.present = torch.ones(batch, config.windows, dtype=torch.bool, device=device)
        forward = torch.compile(model, dynamic=False) if compiled else model
        with torch.inference_mode():
            self._replay, self._slots = record(lambda: forward(self.features, self.present))

    def __call__(self, features: Tensor, present: Tensor | None = None) -> Slots:
        """The slots; the next call overwrites them."""
        self.features.copy_(features, non_blocking=True)
        self.present.fill_(True) if present is None else self.present.copy_(present, non_blocking=True)
        self._replay()
        return self._slots
