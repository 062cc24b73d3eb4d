"""More than one process: torchrun says who we are, DDP averages the gradients, rank 0 writes."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ballcast.core.errors import InputError


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

    def interleave(self, own: Tensor, total: int) -> Tensor:
        """Rows r, r + count, … of each rank r → all `total` rows in order, in every process."""
        if self.count == 1:
            return own
        longest = -(-total // self.count)
        padded = torch.zeros(longest, *own.shape[1:], dtype=own.dtype, device=own.device)
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        dist.all_gather(parts, padded)
        return torch.stack(parts, 1).flatten(0, 1)[:total]


def start(device: str) -> tuple[Ranks, torch.device]:
    """Join the others if torchrun started us; gives our rank and our device.

    `device` is "auto", "cpu" or "cuda".
    """
    count, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise InputError("--device cuda: torch sees no GPU here; use --device auto or cpu (see `ballcast doctor`)")
    chosen = torch.device("cuda", local) if has_gpu and device != "cpu" else torch.device("cpu")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if count > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return (Ranks(dist.get_rank(), count) if count > 1 else Ranks()), chosen


def stop(ranks: Ranks) -> None:
    if ranks.count > 1 and dist.is_initialized():
        dist.destroy_process_group()
