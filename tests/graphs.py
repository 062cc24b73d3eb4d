"""CUDA graphs where there is no GPU: what is recorded is run again, into the same tensors, with the same pitfalls."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


def record(work: Callable[[], Any], warmups: int = 3, pool: object = None) -> tuple[Callable[[], None], Any]:
    """As `features.cuda_graph.record`: warm-ups change what `work` changes, replays overwrite what it returned."""
    for _ in range(warmups):
        work()
    result = work()

    def replay() -> None:
        for old, new in zip(pytree.tree_leaves(result), pytree.tree_leaves(work()), strict=True):
            if isinstance(old, Tensor):
                old.copy_(new)

    return replay, result
