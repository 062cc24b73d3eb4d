"""Batches of samples: the plan of an epoch (draws, MixUp), and tensors on the GPU, in memory or read from disk."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import DataConfig
from ballcast.core.errors import InputError
from ballcast.core.events import action_index
from ballcast.core.util import available_memory
from ballcast.data.samples.windows import ABSENT, WindowSet
from ballcast.features.store import read_rows

Where = Literal["gpu", "memory", "disk"]


def place(nbytes: int, device: torch.device, wanted: Literal["auto", "gpu", "memory", "disk"] = "auto") -> Where:
    """Choose where `nbytes` bytes of features are kept.

    Returns:
        `wanted`, or for "auto" the fastest place where they take at most half of the free memory.
    """
    if wanted == "gpu" and device.type != "cuda":
        raise InputError("data.device=gpu needs a GPU, and torch sees none; use data.device=auto")
    if wanted != "auto":
        return wanted
    if device.type == "cuda" and nbytes < torch.cuda.mem_get_info(device)[0] / 2:
        return "gpu"
    return "memory" if nbytes < available_memory() / 2 else "disk"


@dataclass(frozen=True)
class Plan:
    """An epoch of `steps` batches of B samples.

    - `first`, `second` (steps, B) int64: the samples, and their MixUp partners; number S + s is sample s mirrored.
    - `share` (steps, B) float32: λ, the weight of `first` in each sample; all 1 without MixUp.
    - `absent` (steps, B) int64: the number of early windows dropped.
    - `mixed`: whether there is MixUp.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    share: NDArray[np.float32]
    absent: NDArray[np.int64]
    mixed: bool

    def __len__(self) -> int:
        return len(self.first)

    def slice(self, rank: int, ranks: int) -> "Plan":
        """Return the part of every batch for process `rank` of `ranks`."""
        size = self.first.shape[1] // ranks
        part = np.s_[:, rank * size : (rank + 1) * size]
        return Plan(self.first[part], self.second[part], self.share[part], self.absent[part], self.mixed)


def sample_weights(classes: NDArray[np.int64], config: DataConfig) -> NDArray[np.float64] | None:
    """Compute how likely each sample is drawn, from the boosts of its events.

    Args:
        classes: (S, 8) event classes, −1: none.
        config: `boost` by label (1 for the others); `boost_rule`: the largest, the sum (at least 1) or the product.

    Returns:
        (S,) unnormalised weights; None without boosts.
    """
    if not config.boost:
        return None
    boost = np.ones(len(ACTIONS) + 1)
    for label, factor in config.boost.items():
        boost[action_index(label)] = factor
    of_events = boost[classes]  # class −1, no event, reads the last entry, 1
    if config.boost_rule == "sum":
        return np.maximum((of_events * (classes >= 0)).sum(1), 1)
    return of_events.max(1) if config.boost_rule == "max" else of_events.prod(1)


def plan_epoch(
    classes: NDArray[np.int64], config: DataConfig, *, batch: int, windows: int, seed: int, epoch: int
) -> Plan:
    """Plan an epoch; the same seed and epoch always give the same plan.

    Args:
        classes: (S, 8) event classes of the samples.
        config: boosts, MixUp, mirroring, dropped windows.
        batch: B, samples a step.
        windows: W, windows a sample.
        seed, epoch: of the random draws.

    Returns:
        The plan. With boosts, S samples are drawn with replacement; without, each comes once. An incomplete last batch
        is left out.
    """
    rng = np.random.default_rng([seed, epoch])
    count = len(classes)
    weights = sample_weights(classes, config)
    if weights is not None:
        order = rng.choice(count, max(count, batch), p=weights / weights.sum())
    else:
        order = np.concatenate([rng.permutation(count) for _ in range(-(-batch // count))])
    steps = len(order) // batch
    first = order[: steps * batch].reshape(steps, batch)
    if config.mirror:
        first = first + count * (rng.random((steps, batch)) < config.mirror)
    absent = rng.integers(1, windows, (steps, batch)) if windows > 1 else np.zeros((steps, batch), np.int64)
    absent = np.where(rng.random((steps, batch)) < config.drop_windows, absent, 0)
    if not config.mixup:
        return Plan(first, first, np.ones(first.shape, np.float32), absent, mixed=False)
    second = rng.permuted(first, axis=1)  # within the batch; a sample may meet itself, which changes nothing
    share = rng.beta(config.mixup, config.mixup, first.shape).astype(np.float32)
    return Plan(first, second, share, absent, mixed=True)


T = TypeVar("T")


class Tensors:
    """A dataclass of tensors."""

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def clone(self) -> Self:
        return type(self)(*(t.clone() for t in self.tensors()))

    def copy_(self, other: Self) -> None:
        """Overwrite these tensors in place: a CUDA graph reads their memory."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)


@dataclass
class Batch(Tensors):
    """n samples; axes as in `WindowSet`.

    - `features` (n, W, N, D) float16; arbitrary where a window is absent.
    - `present` (n, W) bool.
    - `classes`, `position_ms` (n, 8) int64, `presence` (n, N, C) uint8: the targets.
    """

    features: Tensor
    present: Tensor
    classes: Tensor
    position_ms: Tensor
    presence: Tensor


@dataclass
class TrainingBatch(Batch):
    """A step of B samples; with MixUp it has n = 2B, and sample b is mixed with sample B + b.

    - `share` (B,) float32: λ, the weight of the first of each pair; 1 without MixUp.
    - `absent` (B,) int64: the number of early windows dropped.
    """

    share: Tensor
    absent: Tensor


class Samples:
    """A `WindowSet` on a device.

    Args:
        windows: the samples.
        device: where batches are wanted.
        where: where the features are kept; "auto": see `place`.
    """

    def __init__(
        self, windows: WindowSet, device: torch.device, where: Literal["auto", "gpu", "memory", "disk"]
    ) -> None:
        self.windows = windows
        self.device = device
        used = np.unique(windows.index[windows.index != ABSENT])
        self.nbytes = len(used) * int(np.prod(windows.rows[0].shape[1:])) * 2
        self.where: Where = place(self.nbytes, device, where)
        self._bank: Tensor | None = None
        index = windows.index
        if self.where != "disk":
            block = windows.rows[0]
            whole = len(windows.rows) == 1 and len(used) == len(block) and block.flags.writeable
            rows = torch.from_numpy(block if whole else read_rows(windows.rows, used))
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
        """Return the samples `chosen` (n,) int64, on the device; number S + s is sample s mirrored (`plan_epoch`)."""
        mirrored = chosen >= len(self)
        chosen = chosen % len(self)
        index = self._index[chosen]  # (n, W)
        present = index != ABSENT
        rows = index.clamp(min=0).flatten()
        if self._bank is not None:
            features = self._bank.index_select(0, rows)
        else:
            features = torch.from_numpy(read_rows(self.windows.rows, rows.numpy()))
        features = features.view(*index.shape, *features.shape[1:])
        for column in self.windows.mirrored:
            features[..., column] = (features[..., column] - mirrored.view(-1, 1, 1).half()).abs()
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
        """Call `forward(features, present)` on every `ranks`-th sample from `rank` on, `batch` at a time, in order."""
        share = torch.arange(rank, len(self), ranks, device=self.plan_device)
        return [forward(b.features, b.present) for b in self.stream(share.split(batch))]

    def stream(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        """Yield `take(chosen)` for each entry of `order`; from disk, the next is read while the last is in use."""
        if self.where != "disk" or not len(order):
            yield from map(self.take, order)
            return
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.take, order[0])
            for following in order[1:]:
                batch = coming.result()
                coming = reader.submit(self.take, following)
                yield batch
            yield coming.result()
