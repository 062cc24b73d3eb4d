"""The frames of games, numbered through, kept on the GPU, in memory or on disk.

Videos are decoded once, by several threads, into one tensor; a batch of snippets is then a gather. Frames that do not
fit in memory are decoded snippet by snippet, by seeking, some batches ahead.
"""

import copy
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import GamesConfig
from ballcast.core.util import cores
from ballcast.data.labels.games import Game, VideoSegment
from ballcast.data.samples.batches import place
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer, array_shape, fitted, show_size

CHUNK = 500  # frames a thread decodes at a time
AHEAD = 3  # batches read early from disk
OPEN = 8  # videos a thread keeps open
UNSURE = FPS // 2  # a file's stated length may be off by half a second: that much of its end is left out

Progress = Callable[[int, int], None]  # frames done, frames in all


def scaled_size(size: tuple[int, int], lines: int) -> tuple[int, int]:
    """H, W of frames of `size` scaled to so many lines, both even; 0: as they are."""
    return (lines, 2 * round(size[1] * lines / size[0] / 2)) if lines and lines != size[0] else size


def open_frames(
    games: Sequence[Game],
    config: GamesConfig,
    device: torch.device,
    *,
    title: str = "",
    log: Callable[[str], None] = lambda line: None,
    progress: Progress = lambda done, total: None,
    colour: bool = False,
) -> "FrameCache":
    """Decode games as a recipe has it; `log` gets one line, which begins with `title`: how many, and where they are."""
    began = time.perf_counter()
    bank = FrameCache(
        games,
        device,
        config.device,
        lines=config.lines,
        workers=config.workers,
        progress=progress,
        colour=colour,
    )
    place = {"gpu": "on the GPU", "memory": "in memory", "disk": "on disk, read as needed"}[bank.where]
    H, W = bank.size
    events = sum(len(game.events) for game in bank.games)
    count = f"{len(bank.games)} game{'s' * (len(bank.games) != 1)}"
    log(
        f"{title}: {count}, {bank.total} frames of {W}×{H}, {events} actions; {place} "
        f"after {time.perf_counter() - began:.0f} s"
    )
    return bank


class FrameCache:
    """The frames of all games, one after the other: frame f of game g has the number `first[g]` + f.

    Args:
        games: at least one; all of one frame size.
        device: where frames are wanted.
        where: where they are kept; "auto": see `batches.place`.
        lines: height that frames are scaled to, their shape kept; 0: as they are.
        workers: threads that decode; 0: one a core.
        progress: called with the frames decoded and in all.
        colour: frames are I420, (3H/2, W) uint8 (see `ballcast.video.luma`), instead of their luma (H, W).

    Attributes:
        size: (H, W) of every picture. length: (G,) frames of each game. first: (G,) number of its first frame.
    """

    def __init__(
        self,
        games: Sequence[Game],
        device: torch.device,
        where: Literal["auto", "gpu", "memory", "disk"] = "auto",
        *,
        lines: int = 0,
        workers: int = 0,
        progress: Progress = lambda done, total: None,
        colour: bool = False,
    ) -> None:
        self.games, self.device, self.colour = list(games), device, colour
        self.workers = workers or cores()
        self._open = threading.local()
        self._own_size = fitted(self._video(games[0].segments[0]).size, None, colour=colour)
        self.size = scaled_size(self._own_size, lines)
        self._segments = [segment for game in games for segment in self._measured(game)]
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
            self._bank = torch.empty(
                self.total, rows, columns, dtype=torch.uint8, device=device if self.where == "gpu" else "cpu"
            )
            self._fill(progress)

    def subset(self, games: Sequence[Game]) -> "FrameCache":
        """The same frames, of some of the games only: numbers stay those of this cache."""
        numbers = {game.name: g for g, game in enumerate(self.games)}
        chosen = [numbers[game.name] for game in games]
        part = copy.copy(self)
        part.games, part.first, part.length = list(games), self.first[chosen], self.length[chosen]
        return part

    def take(self, frames: NDArray[np.int64]) -> Tensor:
        """Return frames by their numbers (B, P) → (B, P, H, W) or I420, uint8 on the device; a row lies in one game."""
        if self._bank is None:
            return torch.from_numpy(np.stack([self._row(row) for row in frames])).to(self.device)
        index = torch.from_numpy(frames).to(self._bank.device, non_blocking=True)
        return self._gather(index).to(self.device, non_blocking=True)

    def stream(self, order: NDArray[np.int64]) -> Iterator[Tensor]:
        """Yield `take` of each step of `order` (steps, B, P); from disk, the next are read while the last is in use."""
        if self._bank is not None:
            numbers = torch.from_numpy(order).to(self._bank.device)  # one copy an epoch, none a step
            for index in numbers:
                yield self._gather(index).to(self.device, non_blocking=True)
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="snippets") as pool:
            coming: deque[list[Future[NDArray[np.uint8]]]] = deque()
            try:
                for step in range(len(order) + AHEAD):
                    if step < len(order):
                        coming.append([pool.submit(self._row, row) for row in order[step]])
                    if step >= AHEAD:
                        rows = [future.result() for future in coming.popleft()]
                        yield torch.from_numpy(np.stack(rows)).to(self.device)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def read(self, first: int, stop: int) -> Tensor:
        """Return frames first … stop − 1, (T, H, W) or I420, uint8, where they are kept (from disk: in memory)."""
        return self._bank[first:stop] if self._bank is not None else torch.from_numpy(self._decode(first, stop))

    def _gather(self, index: Tensor) -> Tensor:
        assert self._bank is not None
        return self._bank.index_select(0, index.flatten()).unflatten(0, index.shape)

    def _row(self, frames: NDArray[np.int64]) -> NDArray[np.uint8]:
        first = int(frames.min())
        return self._decode(first, int(frames.max()) + 1)[frames - first]

    def _fill(self, progress: Progress) -> None:
        """Decode all frames, one chunk of a segment a thread."""
        chunks = [
            (int(a), int(min(a + CHUNK, end)))
            for begin, end in zip(self._segment_first[:-1], self._segment_first[1:], strict=True)
            for a in range(begin, end, CHUNK)
        ]
        bank = self._bank
        assert bank is not None

        def decode(chunk: tuple[int, int]) -> int:
            bank[slice(*chunk)].copy_(torch.from_numpy(self._decode(*chunk)))
            return chunk[1] - chunk[0]

        done = 0
        with ThreadPoolExecutor(self.workers, thread_name_prefix="decode") as pool:
            try:
                for count in pool.map(decode, chunks):
                    done += count
                    progress(done, self.total)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        self._open = threading.local()

    def _decode(self, first: int, stop: int) -> NDArray[np.uint8]:
        """Decode frames first … stop − 1, which may lie in several segments, (T, H, W) or I420."""
        parts = []
        while first < stop:
            i = int(np.searchsorted(self._segment_first, first, side="right")) - 1
            segment, begin = self._segments[i], int(self._segment_first[i])
            end = min(stop, int(self._segment_first[i + 1]))
            start, until = segment.start + first - begin, segment.start + end - begin
            fit = FrameResizer(self.size if self.size != self._own_size else None, colour=self.colour)
            frames = [fit(frame) for frame in self._video(segment).frames(start, until, colour=self.colour)]
            if len(frames) < until - start:
                raise InputError(
                    f"{segment.path}: ends at frame {start + len(frames)}, before frame {until} of its labels"
                )
            parts += frames
            first = end
        return np.stack(parts)

    def _video(self, segment: VideoSegment) -> VideoFile:
        """Return the segment's video, kept open by this thread."""
        kept: OrderedDict[str, VideoFile] = self._open.__dict__.setdefault("videos", OrderedDict())
        key = str(segment.path)
        if key not in kept:
            kept[key] = VideoFile(segment.path, threads=1)
            size = fitted(kept[key].size, None, colour=self.colour)
            if size != getattr(self, "_own_size", size):
                mine, before = show_size(size), show_size(self._own_size)
                raise InputError(
                    f"{segment.path}: its frames are {mine}, those before it {before}; train on videos of one size"
                )
        kept.move_to_end(key)
        while len(kept) > OPEN:
            kept.popitem(last=False)[1].close()
        return kept[key]

    def _measured(self, game: Game) -> Iterator[VideoSegment]:
        """Yield the game's segments, each with its `stop`."""
        for segment in game.segments:
            video = self._video(segment)
            if segment.stop is not None:
                yield segment
                continue
            frames = video.frame_count()
            if frames is None:  # some files do not give their length
                frames = UNSURE + sum(1 for _ in video.frames())
            if frames - UNSURE <= segment.start:
                raise InputError(f"{segment.path}: is too short to train on")
            yield VideoSegment(segment.path, segment.start, frames - UNSURE)
