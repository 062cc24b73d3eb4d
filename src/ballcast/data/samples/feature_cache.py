"""The features of games by a frame encoder that does not learn: each stack is computed once, for all epochs and runs.

A folder has a file for every few minutes of a game, named by all that its features depend on: the weights, the frames'
size, the videos. So runs with the same encoder share a folder, a killed run resumes with what is there, and a damaged
file is made again.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from ballcast.core.checks import add_safetensors_checksum, verify_checksum
from ballcast.core.errors import InputError
from ballcast.core.files import check_writable, read_bytes, write_bytes
from ballcast.data.samples.frames import FrameCache
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.frame_network import mirror
from ballcast.features.stack_index import stack_span
from ballcast.video.luma import array_shape

VERSION = 1  # of the files; one more when decoding or the network's arithmetic changes
PART = 62 * 64  # stacks of a file, at most: five minutes at 12.5 a second
PIECE, PIECE_BYTES = 62 * 4, 128 << 20  # stacks that are decoded together, at most, and bytes of their frames
AHEAD = 8  # pieces that are decoded early, at most
LOG_EVERY_S = 20.0  # between two lines of progress


class FeatureCache:
    """The features of the stacks of games, each by the number of its first frame in a `FrameCache`.

    With `mirrored`, those of the same stacks with left and right exchanged are numbered from `total` on.

    Args:
        frames: of the games.
        backbone: the encoder, without a temporal shift, so that a stack's features do not depend on others.
        folder: where they are kept.
        every: frames from one stack to the next; a divisor of the encoder's stride.
        mirrored: whether to compute mirrored stacks too.
        compiled: see `BatchEncoder`.
        begin: number of the game to begin with: processes that share a folder begin apart, and find the rest done.
        title, log: what lines of progress begin with, and who gets them.

    Attributes:
        games, first, length, total, size: see `FrameCache`.
    """

    def __init__(
        self,
        frames: FrameCache,
        backbone: Backbone,
        folder: Path,
        *,
        every: int,
        mirrored: bool = False,
        compiled: bool = False,
        begin: int = 0,
        title: str = "",
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.games = frames.games
        self.first = frames.first
        self.length = frames.length
        self.total = frames.total
        self.size = frames.size
        self.device = frames.device
        encoder = BatchEncoder(backbone, device=frames.device, compiled=compiled)
        span = stack_span(encoder.config)
        made_by = (VERSION, backbone.hash, encoder.precision, self.size, every)
        counts = np.maximum(0, (self.length - span) // every + 1)  # (G,) stacks
        ends, views = np.cumsum(counts), range(1 + mirrored)  # 0: as it is, 1: mirrored
        row = np.full(self.total, -1)  # (frames,) the row of the stack that begins at each frame
        bank = np.empty((len(views), ends[-1], encoder.config.width), np.float16)
        done = 0
        began = time.monotonic()
        last_log = time.monotonic()
        for g in (*range(begin, len(counts)), *range(begin)):
            first = int(self.first[g])
            count = int(counts[g])
            rows = slice(ends[g] - counts[g], ends[g])
            row[first : first + every * count : every] = np.arange(rows.start, rows.stop)
            for a in range(0, count, PART):
                piece = bank[:, rows][:, a : a + PART]  # (V, n, D), a view
                paths = [folder / f"{self._key(g, a, (*made_by, *['mirrored'] * view))}.safetensors" for view in views]
                missing = [view for view in views if not _read(paths[view], piece[view])]
                if missing:
                    check_writable(paths[missing[0]])  # before minutes of work
                    _compute({view: piece[view] for view in missing}, frames, encoder, first + a * every, every)
                for view in missing:
                    if not np.isfinite(piece[view]).all():
                        raise InputError(f"{self.games[g].name}: the encoder gives features that are NaN or infinite")
                    write_bytes(paths[view], add_safetensors_checksum(save({"features": piece[view]})))
                done += piece.shape[1]
                now = time.monotonic()
                if now - last_log > LOG_EVERY_S or done == ends[-1]:
                    last_log = now
                    log(f"{title}: features of {done} of {ends[-1]} stacks in {folder} after {now - began:.0f} s")
        self._row = np.concatenate([np.where(row < 0, -1, row + view * ends[-1]) for view in views])
        self._bank = torch.from_numpy(bank).flatten(0, 1).to(self.device)  # (V · stacks, D)

    def take(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return features (B, P, D) float32 on the device, of the stacks that begin at the frames (B, P)."""
        return self._gather(torch.from_numpy(self._rows(numbers)).to(self.device))

    def stream(self, order: NDArray[np.int64]) -> Iterator[Tensor]:
        """Yield `take` of each step of `order` (steps, B, P)."""
        yield from map(self._gather, torch.from_numpy(self._rows(order)).to(self.device))

    def _gather(self, rows: Tensor) -> Tensor:
        return self._bank.index_select(0, rows.flatten()).unflatten(0, rows.shape).float()

    def _rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = self._row[numbers]
        if (rows < 0).any():
            raise ValueError(f"no stack was computed at the frame {numbers[rows < 0][0]}")
        return rows

    def _key(self, g: int, part: int, made_by: tuple[Any, ...]) -> str:
        """Of all that the features of a game from the stack `part` on depend on."""
        videos = [(str(s.path.resolve()), s.start, s.stop, *_stamp(s.path)) for s in self.games[g].segments]
        what = (*made_by, int(self.length[g]), part, videos)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]


def _compute(
    views: dict[int, NDArray[np.float16]], frames: FrameCache, encoder: BatchEncoder, first: int, every: int
) -> None:
    """Fill arrays (n, D) with the features of stacks `every` frames apart, the first at the frame number `first`.

    `views`: the array of the stacks as they are, by 0; that of mirrored ones, by 1; or one of both.
    """
    stride = encoder.config.stride
    span = stack_span(encoder.config)
    count = len(next(iter(views.values())))
    frame = prod(array_shape(frames.size, colour=frames.colour))
    piece = min(PIECE, count, max(1, PIECE_BYTES // frame // every))
    begins = sorted({min(begin, count - piece) for begin in range(0, count, piece)})  # the last one is moved back
    order = first + every * np.array(begins)[:, None] + np.arange((piece - 1) * every + span)
    for begin, (pictures,) in zip(begins, frames.stream(order[:, None], ahead=min(AHEAD, frames.workers)), strict=True):
        for is_mirrored, into in views.items():
            seen = mirror(pictures, colour=frames.colour) if is_mirrored else pictures
            for phase in range(stride // every):  # stacks between two of the encoder's stride
                computed = encoder.snippets(seen[phase * every :]).half().cpu().numpy()
                into[begin + phase : begin + piece : stride // every] = computed


def _read(path: Path, into: NDArray[np.float16]) -> bool:
    """Fill `into` with the features in a file; False: there is none, or it is damaged, and they are to be computed."""
    if not path.is_file():
        return False
    try:
        raw = read_bytes(path, "features of a game")
        kept = load(raw).get("features") if verify_checksum(raw, path) else None
    except (InputError, KeyError, SafetensorError):  # KeyError: a type that NumPy has not
        return False
    if kept is None or kept.shape != into.shape or kept.dtype != np.float16 or not np.isfinite(kept).all():
        return False
    into[:] = kept
    return True


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
