"""The windows of a feature store as pixels again: which frames each row of a `WindowSet` was made from."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.errors import InputError
from ballcast.data.batch import Batch, Samples
from ballcast.data.frames import FrameBank
from ballcast.data.games import split_games
from ballcast.data.windows import WindowSet
from ballcast.features.store import FeatureStore

Ints = NDArray[np.int64]


@dataclass
class PixelBatch(Batch):
    """A batch whose latest V windows also come as `pixels` (n, V, 125, H, W) uint8."""

    pixels: Tensor


class WindowPixels:
    """The frames of all windows of some stores.

    Args:
        windows: samples cut from `stores`, in this order.
        stores: the stores, each of a split of SN-BAA.
        videos: folder with the splits' videos, <store's name>/clip_N/….
        device, where, workers: see `FrameBank`.
    """

    def __init__(
        self,
        windows: WindowSet,
        stores: Sequence[FeatureStore],
        videos: Path,
        device: torch.device,
        where: Literal["auto", "gpu", "memory", "disk"] = "auto",
        *,
        workers: int = 0,
    ) -> None:
        self.windows = windows
        games = [(store.path.name, game) for store in stores for game in split_games(videos / store.path.name)]
        self.bank = FrameBank([game for _, game in games], device, where, workers=workers)
        places = {
            (split, name): begin + offset
            for (split, game), begin in zip(games, self.bank.first.tolist(), strict=True)
            for name, offset in game.clips.items()
        }
        numbers = [_first_frames(store, places) for store in stores]
        self.first: Ints = np.concatenate(numbers)  # (R,) the number of each row's first frame
        self.used: Ints = np.unique(windows.index[windows.index >= 0])

    def rows(self, compute: Callable[[Tensor], Tensor]) -> WindowSet:
        """The same samples with features computed anew from the pixels: (125, H, W) uint8 → (N, D), row by row."""
        features = np.zeros((len(self.first), *self.windows.rows[0].shape[1:]), np.float16)
        for row in self.used.tolist():
            begin = int(self.first[row])
            made = compute(self.bank.read(begin, begin + WINDOW_FRAMES))
            features[row] = made.to(torch.float16).cpu().numpy()
        return dataclasses.replace(self.windows, rows=[features])


class PixelSamples(Samples):
    """Samples whose latest windows come as pixels too.

    Args:
        windows: the samples, with whatever features the earlier windows should have.
        pixels: their frames.
        latest: V, how many of the latest windows.
        device, where: see `Samples`.
    """

    def __init__(
        self,
        windows: WindowSet,
        pixels: WindowPixels,
        latest: int,
        device: torch.device,
        where: Literal["auto", "gpu", "memory", "disk"],
    ) -> None:
        super().__init__(windows, device, where)
        self.pixels = pixels
        rows = windows.index[:, -latest:]
        self._first = pixels.first[np.maximum(rows, 0)]  # (S, V); an absent window's pixels mean nothing

    def stream(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        """Batches with pixels, of equal sizes."""
        if not len(order):
            return
        chosen = torch.stack(list(order)).cpu().numpy()  # (steps, n)
        first = self._first[chosen]  # (steps, n, V)
        frames = (first[..., None] + np.arange(WINDOW_FRAMES)).reshape(len(chosen), -1, WINDOW_FRAMES)
        for batch, pixels in zip(super().stream(order), self.pixels.bank.stream(frames), strict=True):
            shaped = pixels.unflatten(0, first.shape[1:])
            yield PixelBatch(batch.features, batch.present, batch.classes, batch.position_ms, batch.presence, shaped)


def _first_frames(store: FeatureStore, places: dict[tuple[str, str], int]) -> Ints:
    """(rows,) the number of the first frame of each row of the store, rows counted as `WindowSet` counts them."""
    before = np.cumsum([0, *(block.shape[0] * block.shape[1] for block in store.rows)])
    first = np.zeros(int(before[-1]), np.int64)
    for entry in store.manifest.entries:
        place = places.get((store.path.name, entry.name))
        if place is None:
            raise InputError(f"{store.path}: {entry.name} is not in the labels of its videos; use those it was made of")
        starts = np.array(store.starts(entry.name))
        begin = int(before[entry.shard]) + entry.index * len(starts)
        first[begin : begin + len(starts)] = place + starts
    return first
