"""The pixels behind the windows of a feature store: the frames that each row of a `WindowSet` was made from."""

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
from ballcast.data.labels.games import Game, split_games
from ballcast.data.samples.batches import Batch, Samples
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.windows import WindowSet
from ballcast.features.stack_index import window_frames
from ballcast.features.store import FeatureStore

Ints = NDArray[np.int64]
Sources = Sequence[tuple[FeatureStore, Sequence[Game]]]


@dataclass
class PixelBatch(Batch):
    """A batch whose latest V windows also come as `pixels` (n, V, 125, H, W) uint8."""

    pixels: Tensor


class WindowPixels:
    """The frames of the windows of some samples.

    Args:
        windows: samples cut from the stores of `sources`, in this order.
        sources: the stores, each with the games of its videos: a video of the store is a clip of a game, or a
            whole game of the same name. Games without samples may be left out.
        device, where, workers: see `FrameCache`.
    """

    def __init__(
        self,
        windows: WindowSet,
        sources: Sources,
        device: torch.device,
        where: Literal["auto", "gpu", "memory", "disk"] = "auto",
        *,
        workers: int = 0,
    ) -> None:
        self.windows = windows
        self.bank = FrameCache([game for _, games in sources for game in games], device, where, workers=workers)
        begins, numbers = iter(self.bank.first.tolist()), []
        for store, games in sources:
            places: dict[str, int] = {}
            for game in games:
                begin = next(begins)
                places |= {name: begin + offset for name, offset in (game.clips or {game.name: 0}).items()}
            numbers.append(_first_frames(store, places))
        self.first: Ints = np.concatenate(numbers)  # (R,) the number of each row's first frame
        self.used: Ints = np.unique(windows.index[windows.index >= 0])
        if (self.first[self.used] < 0).any():
            stores = ", ".join(str(store.path) for store, _ in sources)
            raise InputError(f"{stores}: some of its videos are in none of the games; give the games of all")

    def rows(self, compute: Callable[[Tensor], Tensor]) -> WindowSet:
        """Recompute the features from the pixels.

        Args:
            compute: frames of a window (125, H, W) uint8 → features (N, D).

        Returns:
            The same samples with the new features.
        """
        features = np.zeros((len(self.first), *self.windows.rows[0].shape[1:]), np.float16)
        for row in self.used.tolist():
            begin = int(self.first[row])
            made = compute(self.bank.read(begin, begin + WINDOW_FRAMES))
            features[row] = made.to(torch.float16).cpu().numpy()
        return dataclasses.replace(self.windows, rows=[features])


class PixelSamples(Samples):
    """Samples whose latest windows come as pixels too.

    Args:
        windows: the samples, with the features of the earlier windows.
        pixels: their frames.
        latest: V, the number of latest windows that come as pixels.
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
        self._first = pixels.first[np.maximum(rows, 0)]  # (S, V); arbitrary for an absent window

    def stream(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        """Yield batches with pixels, all of one size."""
        if not len(order):
            return
        chosen = torch.stack(list(order)).cpu().numpy()  # (steps, n)
        first = self._first[chosen]  # (steps, n, V)
        frames = window_frames(first).reshape(len(chosen), -1, WINDOW_FRAMES)
        for batch, pixels in zip(super().stream(order), self.pixels.bank.stream(frames), strict=True):
            shaped = pixels.unflatten(0, first.shape[1:])
            yield PixelBatch(batch.features, batch.present, batch.classes, batch.position_ms, batch.presence, shaped)


def split_sources(stores: Sequence[FeatureStore], videos: Path) -> Sources:
    """Pair stores of SN-BAA's splits with the games of the clips in `videos`/<store's name>."""
    return [(store, split_games(videos / store.path.name)) for store in stores]


def _first_frames(store: FeatureStore, places: dict[str, int]) -> Ints:
    """Find the first frame of each row of a store.

    Args:
        store: of R rows, counted as `WindowSet` does.
        places: video name → number of its first frame.

    Returns:
        (R,) frame numbers; −1: not known.
    """
    before = np.cumsum([0, *(block.shape[0] * block.shape[1] for block in store.rows)])
    first = np.full(int(before[-1]), -1, np.int64)
    for entry in store.manifest.entries:
        if entry.name in places:
            starts = np.array(store.starts(entry.name))
            begin = int(before[entry.shard]) + entry.index * len(starts)
            first[begin : begin + len(starts)] = places[entry.name] + starts
    return first
