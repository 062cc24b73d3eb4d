"""The features of games by a frame encoder that does not learn: each stack is computed once, for all epochs and runs.

A folder has a file for each game, named by all that its features depend on: the weights, the frames' size, the videos.
So runs with the same encoder share a folder, a killed run goes on with what is there, and a damaged file is made again.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from ballcast.core.checks import check_signature, sign_safetensors
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, write_bytes
from ballcast.data.samples.frames import FrameCache
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import stack_span

AT_ONCE = 248  # stacks of a piece of a game: four windows of 62
PIECES = 4  # decoded at once
TELL_S = 20.0  # between two lines of progress


class FeatureCache:
    """The features of the stacks of games, each by the number of its first frame in a `FrameCache`.

    Args:
        frames: of the games.
        backbone: the encoder, without a temporal shift, so that a stack's features do not depend on others.
        folder: where they are kept.
        every: frames from one stack to the next; a divisor of the encoder's stride.
        compiled: as of `BatchEncoder`.
        begin: number of the game to begin with: processes that share a folder begin apart, and find the rest done.
        title, log: what lines of progress begin with, and who gets them.

    Attributes:
        games, first, length, total, size: as of `FrameCache`.
    """

    def __init__(
        self,
        frames: FrameCache,
        backbone: Backbone,
        folder: Path,
        *,
        every: int,
        compiled: bool = False,
        begin: int = 0,
        title: str = "",
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.games, self.first, self.length = frames.games, frames.first, frames.length
        self.total, self.size, self.device = frames.total, frames.size, frames.device
        self._folder, self._every = folder, every
        encoder, made_by = BatchEncoder(backbone, device=frames.device, compiled=compiled), backbone.hash
        own = [np.empty((0, 0), np.float16)] * len(self.games)
        began = told = time.monotonic()
        for done, g in enumerate((*range(begin, len(own)), *range(begin)), start=1):
            own[g] = self._of_game(frames, encoder, made_by, g)
            if time.monotonic() - told > TELL_S or done == len(own):
                told = time.monotonic()
                log(f"{title}: features of {done} of {len(own)} games in {folder} after {told - began:.0f} s")
        rows = np.cumsum([0, *map(len, own)])
        self._row = np.full(self.total, -1)  # (frames,) the row of the stack that begins at each frame
        for g, first in enumerate(self.first.tolist()):
            self._row[first : first + every * len(own[g]) : every] = np.arange(rows[g], rows[g + 1])
        self._bank = torch.from_numpy(np.concatenate(own)).to(self.device)  # (stacks, D) float16

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

    def _of_game(self, frames: FrameCache, encoder: BatchEncoder, made_by: str, g: int) -> NDArray[np.float16]:
        """The features of a game (n, D), from its file or computed into it."""
        videos = [(str(s.path.resolve()), s.start, s.stop, *_stamp(s.path)) for s in self.games[g].segments]
        what = (made_by, encoder.precision, self.size, self._every, int(self.length[g]), videos)
        path = self._folder / f"{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}.safetensors"
        count = max(0, (int(self.length[g]) - stack_span(encoder.config)) // self._every + 1)
        kept = _read(path) if path.is_file() else None
        if kept is not None and kept.shape == (count, encoder.config.width):
            return kept
        features = self._compute(frames, encoder, g, count)
        if not np.isfinite(features).all():
            raise InputError(f"{self.games[g].name}: the encoder gives features that are NaN or infinite")
        write_bytes(path, sign_safetensors(save({"features": features})))
        return features

    def _compute(self, frames: FrameCache, encoder: BatchEncoder, g: int, count: int) -> NDArray[np.float16]:
        every, stride, first = self._every, encoder.config.stride, int(self.first[g])
        features = np.empty((count, encoder.config.width), np.float16)
        if not count:
            return features
        piece = min(AT_ONCE, count)  # stacks; the last piece is moved back, and computes some again
        begins = sorted({min(begin, count - piece) for begin in range(0, count, piece)})
        begins += begins[-1:] * (-len(begins) % PIECES)
        seen = np.arange((piece - 1) * every + stack_span(encoder.config))
        order = first + every * np.array(begins)[:, None] + seen
        steps = order.reshape(len(begins) // PIECES, PIECES, -1)
        for places, pictures in zip(np.reshape(begins, (-1, PIECES)).tolist(), frames.stream(steps), strict=True):
            for begin, own in dict(zip(places, pictures, strict=True)).items():
                for phase in range(stride // every):  # stacks between two of the encoder's stride
                    computed = encoder.clips(own[phase * every :]).half().cpu().numpy()
                    features[begin + phase : begin + piece : stride // every] = computed
        return features


def _read(path: Path) -> NDArray[Any] | None:
    """The features in a file; None: it is damaged, and they are to be computed again."""
    try:
        raw = read_bytes(path, "features of a game")
        return load(raw).get("features") if check_signature(raw, path) else None
    except (InputError, SafetensorError):
        return None


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
