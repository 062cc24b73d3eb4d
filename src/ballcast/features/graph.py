"""CUDA graphs: work of fixed shapes recorded once and replayed without the host."""

from collections.abc import Callable
from typing import TypeVar

import torch

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
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the GPU meanwhile
        result = work()
    return graph.replay, result
