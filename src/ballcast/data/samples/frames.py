"""The frames of games, numbered through, kept on the GPU, in memory or on disk.

Videos are decoded once, by several processes, into one tensor; a batch of snippets is then a gather. Frames that do not
fit in memory are decoded snippet by snippet, by seeking, some batches ahead.
"""

import copy
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import GamesConfig
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.core.util import cores
from ballcast.data.labels.games import Game, VideoSegment
from ballcast.data.samples.batches import place
from ballcast.video.decode_pool import Decoder, DecoderPool, LocalDecoder, SharedMemory, VideoSpec
from ballcast.video.luma import array_shape, fitted, show_size

CHUNK_BYTES = 64 << 20  # of the frames a decoder gives at a time, on the way to a GPU
RUN = 3000  # frames a decoder reads without seeking, at most: a seek decodes again from the key frame before it
SHORT = 500  # a video is not cut into parts shorter than this
CPU = ("cpu",)  # what decodes
AHEAD = 3  # batches read early from disk
UNSURE = FPS // 2  # a file's stated length may be off by half a second: that much of its end is left out


def scaled_size(size: tuple[int, int], lines: int) -> tuple[int, int]:
    """H, W of frames of `size` scaled to a height of `lines`, both even; 0: as they are."""
    return (lines, 2 * round(size[1] * lines / size[0] / 2)) if lines and lines != size[0] else size


def open_frames(
    games: Sequence[Game],
    config: GamesConfig,
    device: torch.device,
    *,
    title: str = "",
    log: Callable[[str], None] = lambda line: None,
    progress: ProgressCallback = no_progress,
    colour: bool = False,
) -> "FrameCache":
    """Decode games as a recipe has it; `log` gets one line, which begins with `title`: how many, and where they are."""
    began = time.perf_counter()
    cache = FrameCache(
        games,
        device,
        config.device,
        lines=config.lines,
        workers=config.workers,
        progress=progress,
        colour=colour,
    )
    place = {"gpu": "on the GPU", "memory": "in memory", "disk": "on disk, read as needed"}[cache.where]
    H, W = cache.size
    events = sum(len(game.events) for game in cache.games)
    count = f"{len(cache.games)} game{'s' * (len(cache.games) != 1)}"
    log(
        f"{title}: {count}, {cache.total} frames of {W}×{H}, {events} actions; {place} "
        f"after {time.perf_counter() - began:.0f} s"
    )
    return cache


class FrameCache:
    """The frames of all games, one after the other: frame f of game g has the number `first[g]` + f.

    Args:
        games: at least one; all of one frame size.
        device: where frames are wanted.
        where: where they are kept; "auto": see `batches.place`.
        lines: height that frames are scaled to, their shape kept; 0: as they are.
        workers: processes that decode; 0: one a core.
        progress: called with the frames decoded and in all.
        colour: frames are I420, (3H/2, W) uint8 (see `ballcast.video.luma`), instead of their luma (H, W).

    Attributes:
        size: (H, W) of every frame. length: (G,) frames of each game. first: (G,) number of its first frame.
    """

    def __init__(
        self,
        games: Sequence[Game],
        device: torch.device,
        where: Literal["auto", "gpu", "memory", "disk"] = "auto",
        *,
        lines: int = 0,
        workers: int = 0,
        progress: ProgressCallback = no_progress,
        colour: bool = False,
    ) -> None:
        self.games = list(games)
        self.device = device
        self.colour = colour
        self.workers = workers or cores()
        self._pool: DecoderPool | None = None
        here = LocalDecoder()
        self._own_size = here.open(self._recording(games[0].segments[0])).seen
        self.size = scaled_size(self._own_size, lines)
        self._segments = [segment for game in games for segment in self._measured(game, here)]
        here.close()
        lengths = [p.stop - p.start for p in self._segments if p.stop is not None]
        self._segment_first = np.concatenate([[0], np.cumsum(lengths)])
        counts = [len(game.segments) for game in games]
        ends = np.cumsum(counts)
        self.first: NDArray[np.int64] = self._segment_first[ends - counts]
        self.length: NDArray[np.int64] = self._segment_first[ends] - self.first
        self.total = int(self._segment_first[-1])
        rows, columns = array_shape(self.size, colour=colour)
        self.where = place(self.total * rows * columns, device, where)
        self._bank: Tensor | None = None
        if self.where != "disk":
            self._bank = self._fill((self.total, rows, columns), progress)

    def subset(self, games: Sequence[Game]) -> "FrameCache":
        """The same frames, of some of the games only: numbers stay those of this cache."""
        numbers = {game.name: g for g, game in enumerate(self.games)}
        chosen = [numbers[game.name] for game in games]
        part = copy.copy(self)
        part.games = list(games)
        part.first = self.first[chosen]
        part.length = self.length[chosen]
        return part

    def take(self, frames: NDArray[np.int64]) -> Tensor:
        """Return frames by their numbers (B, P) → (B, P, H, W) or I420, uint8 on the device; a row lies in one game."""
        if self._bank is None:
            return torch.from_numpy(np.stack([row.result() for row in map(self._row, frames)])).to(self.device)
        index = torch.from_numpy(frames).to(self._bank.device, non_blocking=True)
        return self._gather(index).to(self.device, non_blocking=True)

    def stream(self, order: NDArray[np.int64], *, ahead: int = AHEAD) -> Iterator[Tensor]:
        """Yield `take` of each step of `order` (steps, B, P); from disk, `ahead` are read while the last is in use."""
        if self._bank is not None:
            numbers = torch.from_numpy(order).to(self._bank.device)  # one copy an epoch, none a step
            for index in numbers:
                yield self._gather(index).to(self.device, non_blocking=True)
            return
        coming: deque[list[Future[NDArray[np.uint8]]]] = deque()
        try:
            for step in range(len(order) + ahead):
                if step < len(order):
                    coming.append([self._row(row) for row in order[step]])
                if step >= ahead:
                    rows = [future.result() for future in coming.popleft()]
                    yield torch.from_numpy(np.stack(rows)).to(self.device)
        finally:
            for rest in coming:
                for future in rest:
                    future.cancel()

    def read(self, first: int, stop: int) -> Tensor:
        """Return frames first … stop − 1, (T, H, W) or I420, uint8, where they are kept (from disk: in memory)."""
        if self._bank is not None:
            return self._bank[first:stop]
        return torch.from_numpy(self._row(np.arange(first, stop)).result())

    def _gather(self, index: Tensor) -> Tensor:
        assert self._bank is not None
        return self._bank.index_select(0, index.flatten()).unflatten(0, index.shape)

    def _row(self, frames: NDArray[np.int64]) -> "Future[NDArray[np.uint8]]":
        """Frames by their numbers, from disk."""
        self._pool = self._pool or DecoderPool(CPU * self.workers)  # kept: the next epoch needs it again
        first = int(frames.min())
        stop = int(frames.max()) + 1
        rows, columns = array_shape(self.size, colour=self.colour)

        def decode(decoder: Decoder) -> NDArray[np.uint8]:
            memory = SharedMemory((stop - first) * rows * columns)
            self._decode(decoder, first, stop, memory, 0)
            return memory.array.reshape(-1, rows, columns)[frames - first]

        return self._pool.submit(decode)

    def _fill(self, shape: tuple[int, int, int], progress: ProgressCallback) -> Tensor:
        """All frames, decoded in runs of a segment, a run a decoder at a time."""
        run = min(RUN, max(SHORT, self.total // (4 * self.workers)))
        runs = [
            (int(a), int(min(a + run, end)))
            for begin, end in zip(self._segment_first[:-1], self._segment_first[1:], strict=True)
            for a in range(begin, end, run)
        ]
        workers = min(self.workers, len(runs))
        frame = shape[1] * shape[2]
        memory = SharedMemory(0 if self.where == "gpu" else self.total * frame)
        chunk = max(1, min(run, CHUNK_BYTES // frame))
        slots: queue.SimpleQueue[SharedMemory] = queue.SimpleQueue()
        if self.where == "gpu":
            bank = torch.empty(shape, dtype=torch.uint8, device=self.device)
            for _ in range(workers):
                slots.put(SharedMemory(chunk * frame))
        else:
            bank = torch.from_numpy(memory.array).view(shape)

        def decode(decoder: Decoder, begin: int, end: int) -> int:
            if self.where != "gpu":
                self._decode(decoder, begin, end, memory, begin * frame)
                return end - begin
            slot = slots.get()
            for a in range(begin, end, chunk):
                b = min(a + chunk, end)
                self._decode(decoder, a, b, slot, 0)
                bank[a:b].copy_(torch.from_numpy(slot.array[: (b - a) * frame]).view(-1, *shape[1:]))
            slots.put(slot)
            return end - begin

        done = 0
        with DecoderPool(CPU * workers) as pool:
            for future in as_completed([pool.submit(partial(decode, begin=a, end=b)) for a, b in runs]):
                done += future.result()
                progress(done, self.total)
        return bank

    def _decode(self, decoder: Decoder, first: int, stop: int, memory: SharedMemory, offset: int) -> None:
        """Decode frames first … stop − 1, which may lie in several segments, into the memory from `offset` on."""
        rows, columns = array_shape(self.size, colour=self.colour)
        while first < stop:
            i = int(np.searchsorted(self._segment_first, first, side="right")) - 1
            segment = self._segments[i]
            begin = int(self._segment_first[i])
            end = min(stop, int(self._segment_first[i + 1]))
            start, until = segment.start + first - begin, segment.start + end - begin
            count = decoder.read(self._recording(segment), start, until, memory, offset)
            if count < until - start:
                raise InputError(f"{segment.path}: ends at frame {start + count}, before frame {until} of its labels")
            offset += count * rows * columns
            first = end

    def _recording(self, segment: VideoSegment) -> VideoSpec:
        scaled = hasattr(self, "size") and self.size != self._own_size
        return VideoSpec(str(segment.path), self.size if scaled else None, self.colour)

    def _measured(self, game: Game, here: LocalDecoder) -> Iterator[VideoSegment]:
        """Yield the game's segments, each with its `stop`."""
        for segment in game.segments:
            video = here.video(str(segment.path))
            if (size := fitted(video.size, None, colour=self.colour)) != self._own_size:
                mine = show_size(size)
                before = show_size(self._own_size)
                raise InputError(
                    f"{segment.path}: its frames are {mine}, those before it {before}; train on videos of one size"
                )
            if segment.stop is not None:
                yield segment
                continue
            frames = video.frame_count()
            if frames is None:  # some files do not give their length
                frames = UNSURE + sum(1 for _ in video.frames())
            if frames - UNSURE <= segment.start:
                raise InputError(f"{segment.path}: is too short to train on")
            yield VideoSegment(segment.path, segment.start, frames - UNSURE)
