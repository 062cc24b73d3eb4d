"""Samples as tensors, where the machine has room for them: on the GPU, in memory, or read from disk as they come."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.data.room import Where, place
from ballcast.data.windows import ABSENT, WindowSet

T = TypeVar("T")


@dataclass
class Batch:
    """n samples; axes as in `WindowSet`.

    - `features` (n, W, N, D) float16; what an absent window holds means nothing.
    - `present` (n, W) bool.
    - `classes`, `position_ms` (n, 8) int64, `presence` (n, N, C) uint8: what happened.
    """

    features: Tensor
    present: Tensor
    classes: Tensor
    position_ms: Tensor
    presence: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def copy_(self, other: "Batch") -> None:
        """Overwrite this batch, whose memory a CUDA graph knows, with another."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)


class Samples:
    """A `WindowSet` on a device.

    Args:
        windows: the samples.
        device: where batches are wanted.
        where: where the features live; "auto" takes the nearest place with room for them.
    """

    def __init__(
        self, windows: WindowSet, device: torch.device, where: Literal["auto", "gpu", "memory", "disk"]
    ) -> None:
        self.windows = windows
        self.device = device
        used = np.unique(windows.index[windows.index != ABSENT])
        self.nbytes = len(used) * int(np.prod(windows.rows[0].shape[1:])) * 2
        self.where: Where = place(self.nbytes, device, where)
        self._offsets = np.cumsum([0, *(len(block) for block in windows.rows)])
        self._bank: Tensor | None = None
        index = windows.index
        if self.where != "disk":
            block = windows.rows[0]
            whole = len(windows.rows) == 1 and len(used) == len(block) and block.flags.writeable
            rows = torch.from_numpy(block if whole else self._read(used))
            self._bank = rows.to(device) if self.where == "gpu" else rows
            index = np.where(index == ABSENT, ABSENT, np.searchsorted(used, index))
        # Plans stay on the host unless everything is on the GPU, where a step then never leaves it.
        self.plan_device = device if self.where == "gpu" else torch.device("cpu")
        self._index = torch.from_numpy(index).to(self.plan_device)
        self._classes = torch.from_numpy(windows.classes).to(self.plan_device)
        self._position_ms = torch.from_numpy(windows.position_ms).to(self.plan_device)
        self._presence = torch.from_numpy(windows.presence).to(self.plan_device)

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, chosen: Tensor) -> Batch:
        """The samples `chosen` (n,) int64, on the device; number S + s is sample s mirrored (`plan_epoch`)."""
        turned, chosen = chosen >= len(self), chosen % len(self)
        index = self._index[chosen]  # (n, W)
        present = index != ABSENT
        rows = index.clamp(min=0).flatten()
        if self._bank is not None:
            features = self._bank.index_select(0, rows)
        else:
            features = torch.from_numpy(self._read(rows.numpy()))
        features = features.view(*index.shape, *features.shape[1:])
        for column in self.windows.mirrored:
            features[..., column] = (features[..., column] - turned.view(-1, 1, 1).half()).abs()
        batch = Batch(
            features,
            present,
            self._classes[chosen],
            self._position_ms[chosen],
            self._presence[chosen],
        )
        return batch if self.where == "gpu" else Batch(*(t.to(self.device, non_blocking=True) for t in batch.tensors()))

    def run(
        self, forward: Callable[[Tensor, Tensor], T], *, batch: int = 512, rank: int = 0, ranks: int = 1
    ) -> list[T]:
        """`forward(features, present)` of every sample in order, `batch` at a time; of every `ranks`-th only."""
        own = torch.arange(rank, len(self), ranks, device=self.plan_device)
        return [forward(b.features, b.present) for b in self.stream(own.split(batch))]

    def stream(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        """`take` of each entry in turn; from disk, the next is read while the last is worked on."""
        if self.where != "disk":
            yield from map(self.take, order)
            return
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.take, order[0]) if len(order) else None
            for following in (*order[1:], None):
                assert coming is not None
                batch = coming.result()
                coming = reader.submit(self.take, following) if following is not None else None
                yield batch

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        """(n, N, D) of the stores' rows, block by block."""
        block = np.searchsorted(self._offsets, rows, side="right") - 1
        result = np.empty((len(rows), *self.windows.rows[0].shape[1:]), np.float16)
        order = np.argsort(block, kind="stable")  # stores of a thousand matches have as many blocks
        used, begin = np.unique(block[order], return_index=True)
        for b, mine in zip(used, np.split(order, begin[1:]), strict=True):
            result[mine] = self.windows.rows[b][rows[mine] - self._offsets[b]]
        return result
