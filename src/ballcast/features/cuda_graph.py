"""Recording of CUDA graphs without compiling, which would take a minute."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")
_RECORDING = threading.Lock()  # a recording waits for the device, which spoils one that is running in another thread


def record(work: Callable[[], T], warmups: int = 3, pool: Any = None) -> tuple[Callable[[], None], T]:
    """Run `work` a few times, so that everything is compiled and allocated, then record it.

    Args:
        work: what it reads must stay at the same addresses.
        warmups: number of runs before the recording.
        pool: memory that several recordings share; each replay overwrites all of it.

    Returns:
        The function that replays it, and what it returned: tensors that every replay overwrites.
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
