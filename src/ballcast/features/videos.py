"""Videos of an extraction: find them, cut them into pieces, decode and encode each piece.

torch is imported only where frames are decoded: reports look for videos too.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.util import available_memory, natural
from ballcast.features.stack_index import window_count
from ballcast.video.container import SUFFIXES, clip_video, is_video
from ballcast.video.luma import Size, picture_shape

if TYPE_CHECKING:
    from torch import Tensor

    from ballcast.features.batch_encoder import AsyncFeatures, BatchEncoder
    from ballcast.video.decode_pool import Decoder, SharedMemory

FEW = 3  # pieces that there is always memory for
POLL_S = 0.002  # how often to look whether a piece is computed while the next one is decoded
_CLIP = re.compile(r"clip_\d+")


@dataclass(frozen=True)
class Source:
    """One video.

    Attributes:
        name: its entry's name in the store.
        path: the file.
        label: the file relative to what was given, as the store records it.
        frames: how many frames it must have, for a clip of SN-BAA; None: as many as it has.
    """

    name: str
    path: Path
    label: str
    frames: int | None
    size: int
    mtime_ns: int


def find_sources(given: Path) -> list[Source]:
    """The videos at `given`, in natural order; folders clip_1, clip_2, … make it a split of SN-BAA."""
    if given.is_file():
        return [_source(given.stem, given, given.parent, None)]
    if not given.is_dir():
        raise InputError(f"{given}: no such file or folder; give a video, a folder of videos or a split of SN-BAA")
    inside = sorted(given.iterdir(), key=lambda path: natural(path.name))
    clips = [path for path in inside if path.is_dir() and _CLIP.fullmatch(path.name)]
    if clips:
        return [_source(clip.name, clip_video(clip, missing_ok=True), given, CLIP_FRAMES) for clip in clips]
    videos = [path for path in inside if is_video(path)]
    if not videos:
        splits = [
            path.name for path in inside if path.is_dir() and any(_CLIP.fullmatch(p.name) for p in path.iterdir())
        ]
        hint = f"; give one of its splits, such as {given / splits[0]}" if splits else ""
        raise InputError(f"{given}: has no videos ({', '.join(SUFFIXES)}) and no folders clip_1, clip_2, …{hint}")
    stems = [path.stem for path in videos]
    names = [path.stem if stems.count(path.stem) == 1 else path.name for path in videos]
    if len(set(names)) < len(names):  # a.mp4, a.mkv and a.mp4.mkv
        names = [path.name for path in videos]
    return [_source(name, path, given, None) for name, path in zip(names, videos, strict=True)]


def _source(name: str, path: Path, root: Path, frames: int | None) -> Source:
    found = path.stat() if path.exists() else None
    label = _readable(path.relative_to(root).as_posix())
    return Source(
        _readable(name), path, label, frames, found.st_size if found else 0, found.st_mtime_ns if found else 0
    )


def _readable(name: str) -> str:
    """The name with bytes that are not UTF-8 written out: manifests and terminals hold text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Piece:
    """Consecutive windows of one video: `windows` of them from the window number `first`, `every` frames apart."""

    source: Source
    number: int  # of the piece in its video
    first: int
    windows: int
    every: int
    picture_size: Size | None = None  # H, W that its frames are fitted into; None: they stay as they are
    pad: int = 0  # frames that may be missing at the end of a clip
    colour: bool = False  # frames are I420
    mirrored: bool = False  # left and right of its frames are exchanged

    @property
    def start(self) -> int:
        """Its first frame."""
        return self.first * self.every

    @property
    def stop(self) -> int:
        """The frame after its last."""
        return (self.first + self.windows - 1) * self.every + WINDOW_FRAMES


def cut(source: Source, frames: int, every: int) -> list[Piece]:
    """The pieces of a video of `frames` frames."""
    windows = window_count(frames, every)
    most = window_count(CLIP_FRAMES, every)  # windows a piece
    return [Piece(source, i, at, min(most, windows - at), every) for i, at in enumerate(range(0, windows, most))]


@dataclass(frozen=True)
class Outcome:
    """What became of a piece: its features, or the reason why there are none."""

    piece: Piece
    features: np.ndarray | None = None  # (M, N, D) float16
    resolution: tuple[int, int] = (0, 0)  # H, W of its frames as the network saw them
    padded: int = 0  # black frames at its end
    reason: str = ""
    frames: int = 0  # decoded and padded
    waited: float = 0.0  # seconds the network waited for them
    computed: float = 0.0  # seconds it then took


class BufferPool:
    """Memory that decoders write pieces into, used again and again: at most `count` pieces, and half of what is free.

    pinned: page-lock it, so that a GPU fetches from it several times faster.
    """

    def __init__(self, count: int, *, pinned: bool = False) -> None:
        self._most = count
        self._pinned = pinned
        self._made = 0
        self._closed = False
        self._free: list[SharedMemory] = []
        self._locked: dict[int, SharedMemory] = {}  # by address
        self._changed = threading.Condition()

    def take(self, size: int) -> "SharedMemory":
        """Wait for memory of at least `size` bytes."""
        from ballcast.video.decode_pool import SharedMemory

        with self._changed:
            if not self._made and self._most > FEW:
                self._most = min(self._most, max(FEW, available_memory() // 2 // size))
            self._changed.wait_for(lambda: self._free or self._made < self._most or self._closed)
            if self._closed:
                raise BallcastError("the extraction was stopped")
            memory = self._free.pop() if self._free else None
            self._made += memory is None
        if memory is not None and memory.array.size >= size:
            return memory
        if memory is not None:
            self._unlock(memory)
        memory = SharedMemory(size)
        if self._pinned:
            import torch

            address = memory.array.ctypes.data
            if int(torch.cuda.cudart().cudaHostRegister(address, size, 0)) == 0:  # else it is only slower
                self._locked[address] = memory
        return memory

    def give(self, memory: "SharedMemory") -> None:
        """Let others use it."""
        with self._changed:
            self._free.append(memory)
            self._changed.notify()

    def close(self) -> None:
        """Unlock all, and end those that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for memory in list(self._locked.values()):
            self._unlock(memory)

    def _unlock(self, memory: "SharedMemory") -> None:
        address = memory.array.ctypes.data
        if self._locked.pop(address, None) is not None:
            import torch

            torch.cuda.cudart().cudaHostUnregister(address)


@dataclass(frozen=True)
class DecodedPiece:
    """frames: (T, H, W) uint8, or I420, in `memory`. padded: how many black ones end them."""

    frames: "Tensor"
    padded: int
    memory: "SharedMemory"


def decode(piece: Piece, buffers: BufferPool, decoder: "Decoder") -> DecodedPiece:
    """The piece's frames, fitted into its frame size.

    T is smaller than planned only at the end of a video of unknown length. A clip of SN-BAA that lacks up to
    `piece.pad` frames at its end gets black ones there, as in FAANTRA's loader; one that lacks more is an error.
    """
    import torch

    from ballcast.video.decode_pool import VideoSpec

    recording = VideoSpec(str(piece.source.path), piece.picture_size, piece.colour)
    opened = decoder.open(recording)
    planned = piece.stop - piece.start
    size = planned * opened.shape[0] * opened.shape[1]
    memory = buffers.take(size)
    try:
        count = decoder.read(recording, piece.start, piece.stop, memory)
        wanted = piece.source.frames
        missing = planned - count
        if wanted is not None and missing and (missing > piece.pad or not count):
            raise InputError(
                f"{piece.source.path}: has {piece.start + count} frames at 25 fps, a clip must have {wanted} "
                f"(up to {piece.pad} missing ones are padded, see --pad); fetch it again"
            )
    except BaseException:
        buffers.give(memory)
        raise
    frames = torch.from_numpy(memory.array[:size]).view(planned, *opened.shape)
    if wanted is None or not missing:
        return DecodedPiece(frames[:count], 0, memory)
    frames[count:, : opened.seen[0]] = 16 if piece.colour else 0  # black
    frames[count:, opened.seen[0] :] = 128
    return DecodedPiece(frames, missing, memory)


def compute(encoder: "BatchEncoder", piece: Piece, frames: "Tensor") -> "AsyncFeatures":
    """Start computing the features (M, N, D) float16 of the piece's windows that lie within its frames."""
    windows = min(window_count(len(frames), piece.every), piece.windows)
    return encoder.start_windows(frames, [piece.every * m for m in range(windows)], mirrored=piece.mirrored)


def work(
    encoder: "BatchEncoder", pieces: Iterable[Piece], devices: Sequence[str], *, ahead: bool | None = None
) -> Iterator[Outcome]:
    """Outcomes as they come; a video that cannot be read is an outcome too, never the end of the others.

    Args:
        encoder: the network.
        pieces: what to do; taken as needed, at most one more than there are decoders ahead.
        devices: of the decoders, see `DecoderPool`.
        ahead: begin a piece before the last one's result is there; by default on a GPU, which copies while it computes.
    """
    from ballcast.video.decode_pool import DecoderPool

    on_gpu = encoder.device.type == "cuda"
    ahead = on_gpu if ahead is None else ahead
    buffers = BufferPool(len(devices) + 2 + ahead, pinned=on_gpu)
    left = iter(pieces)
    running: dict[Future[DecodedPiece], Piece] = {}
    computing: _Computation | None = None
    with DecoderPool(devices) as pool, closing(buffers):  # closed first: decoders may wait for memory
        try:
            while True:
                while len(running) <= len(devices) and (piece := next(left, None)) is not None:
                    running[pool.submit(partial(decode, piece, buffers))] = piece
                if not running and computing is None:
                    return
                before = computing
                began = time.perf_counter()
                ready = _decoded(running, before)
                waited = time.perf_counter() - began if before is None else 0.0
                computing = _Computation(encoder, running.pop(ready), ready, buffers, waited) if ready else None
                if before is not None:
                    yield before.outcome()
                    if computing is not None:
                        computing.began = time.perf_counter()
                if computing is not None and not ahead:
                    before = computing
                    computing = None
                    yield before.outcome()
        finally:
            if computing is not None:
                computing.release()


def _decoded(running: dict[Future[DecodedPiece], Piece], computing: "_Computation | None") -> Any:
    """Wait for the future of the next piece; None: the one that is computed was ready first, or there is none."""
    while running:
        done = wait(running, timeout=None if computing is None else POLL_S, return_when=FIRST_COMPLETED).done
        if done:
            return next(iter(done))
        if computing is not None and computing.ready():
            return None
    return None


class _Computation:
    """A decoded piece that is being computed; its frames stay in their memory until its features are there."""

    def __init__(
        self, encoder: "BatchEncoder", piece: Piece, future: "Future[DecodedPiece]", buffers: BufferPool, waited: float
    ) -> None:
        self.piece = piece
        self._buffers = buffers
        self._waited = waited
        self.began = time.perf_counter()  # or when the device was free, if that was later
        self._reason = ""
        self._given: DecodedPiece | None = None
        self._fetch: AsyncFeatures | None = None
        try:
            self._given = future.result()
            self._fetch = compute(encoder, piece, self._given.frames)
        except BallcastError as error:
            self._reason = str(error)
        except BaseException:
            self.release()
            raise

    def ready(self) -> bool:
        """Whether its features are there."""
        return self._fetch is None or self._fetch.ready()

    def release(self) -> None:
        """Wait for the features, then let others use the frames' memory."""
        given = self._given
        self._given = None
        try:
            if self._fetch is not None:
                self._fetch.array()
        finally:
            if given is not None:
                self._buffers.give(given.memory)

    def outcome(self) -> Outcome:
        """Its features; wait for them."""
        given = self._given
        self.release()
        if given is None or self._fetch is None:
            return Outcome(self.piece, reason=self._reason)
        features = self._fetch.array()
        T, *shape = given.frames.shape
        if not np.isfinite(features).all():
            fault = "the network gives numbers that are not finite"
            return Outcome(self.piece, reason=f"{self.piece.source.path}: {fault}")
        size = picture_shape(tuple(shape), colour=self.piece.colour)
        computed = time.perf_counter() - self.began
        return Outcome(self.piece, features, size, given.padded, frames=T, waited=self._waited, computed=computed)
