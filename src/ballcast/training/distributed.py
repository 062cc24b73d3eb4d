"""One training in several processes: torchrun starts them, each has a device, and DDP averages their gradients."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ballcast.features.device import choose_device
from ballcast.loss.criterion import at_least


@dataclass(frozen=True)
class Ranks:
    """This process among all of them."""

    rank: int = 0
    count: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model in DDP if there are several processes."""
        if self.count == 1:
            return model
        devices = [p.device.index for p in model.parameters()][:1] if next(model.parameters()).is_cuda else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes, in every one of them."""
        if self.count > 1:
            values = values.detach().clone()
            dist.all_reduce(values)
            values = values / self.count
        return values

    def normalisers(self, sums: Tensor, least: Sequence[float]) -> Tensor:
        """The mean over all processes of sums (n,) that are at least `least` in all processes together."""
        return at_least(self.mean(sums) * self.count, least) / self.count

    def interleave(self, rows: Tensor, total: int) -> Tensor:
        """Rows r, r + count, … of each rank r → all `total` rows in order, in every process."""
        if self.count == 1:
            return rows
        longest = -(-total // self.count)
        padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        dist.all_gather(parts, padded)
        return torch.stack(parts, 1).flatten(0, 1)[:total]


def training_device(wanted: str) -> torch.device:
    """The device that `--device` names; under torchrun, this process's GPU.

    "auto" never chooses "mps": training computes in double precision too, which Apple's GPU has not.
    """
    chosen = choose_device(wanted, ("cuda", "cpu", "mps"))
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(chosen)
    return chosen


@contextmanager
def joined(device: str) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the process group within the block, if torchrun started this process.

    Yields:
        This process's rank, and its device (`training_device`).
    """
    count = int(os.environ.get("WORLD_SIZE", 1))
    chosen = training_device(device)
    if count == 1:
        yield Ranks(), chosen
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), count), chosen
        # A thread of Gloo may still hold a tensor of the last operation; if it lets go of it while Python ends, the
        # process aborts (pytorch/pytorch#190489). A barrier comes after it in the queue, and holds none.
        dist.barrier()
    finally:
        dist.destroy_process_group()
