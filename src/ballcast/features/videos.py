"""Videos of an extraction: find them, cut them into pieces, decode and encode each piece.

torch is imported only where frames are decoded: reports look for videos too.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.util import natural
from ballcast.features.stack_index import window_count
from ballcast.video.container import SUFFIXES, clip_video, is_video
from ballcast.video.luma import FrameResizer, Size, array_shape, fitted, picture_shape

if TYPE_CHECKING:
    from torch import Tensor

    from ballcast.features.batch_encoder import BatchEncoder

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
    decoder: str = "cpu"  # what decodes it: "cpu", or "cuda" for NVDEC
    picture_size: Size | None = None  # H, W that its pictures are fitted into; None: they stay as they are
    pad: int = 0  # frames that may be missing at the end of a clip
    colour: bool = False  # frames are I420

    @property
    def start(self) -> int:
        """Its first frame."""
        return self.first * self.every

    @property
    def stop(self) -> int:
        """The frame after its last."""
        return (self.first + self.windows - 1) * self.every + WINDOW_FRAMES


def cut(source: Source, frames: int, every: int) -> list[Piece]:
    """The pieces of a video of so many frames."""
    windows = window_count(frames, every)
    most = window_count(CLIP_FRAMES, every)  # windows a piece
    return [Piece(source, i, at, min(most, windows - at), every) for i, at in enumerate(range(0, windows, most))]


@dataclass(frozen=True)
class Outcome:
    """What became of a piece: its features, or the reason why there are none."""

    piece: Piece
    features: np.ndarray | None = None  # (M, N, D) float16
    resolution: tuple[int, int] = (0, 0)  # H, W of its pictures as the network saw them
    padded: int = 0  # black frames at its end
    reason: str = ""
    frames: int = 0  # decoded and padded
    waited: float = 0.0  # seconds the network waited for them
    computed: float = 0.0  # seconds it then took


def decode(piece: Piece, *, pinned: bool = False) -> "tuple[Tensor, int]":
    """The piece's frames (T, H, W) uint8, or I420, fitted into its picture size, and how many black ones end them.

    T is smaller than planned only at the end of a video of unknown length. A clip of SN-BAA that lacks up to
    `piece.pad` frames at its end gets black ones there, as in FAANTRA's loader; one that lacks more is an error.
    `pinned` puts them into page-locked memory, from which a GPU fetches them several times faster.
    """
    import av
    import torch

    from ballcast.video.file import open_video

    try:
        with open_video(piece.source.path, device=piece.decoder, threads=1) as video:
            fit = FrameResizer(piece.picture_size, colour=piece.colour)
            seen = fitted(video.size, piece.picture_size, colour=piece.colour)
            shape = array_shape(seen, colour=piece.colour)
            frames = torch.empty((piece.stop - piece.start, *shape), dtype=torch.uint8, pin_memory=pinned)
            pixels, count = frames.numpy(), 0
            for frame in video.frames(piece.start, piece.stop, colour=piece.colour):
                pixels[count] = fit(frame)
                count += 1
    except av.FFmpegError as error:  # a GPU's decoder gave up; the CPU's faults are sentences already
        raise InputError(f"{piece.source.path}: cannot be decoded ({error}); try --decoder cpu") from None
    wanted, missing = piece.source.frames, len(frames) - count
    if wanted is None or not missing:
        return frames[:count], 0
    if missing > piece.pad or not count:
        raise InputError(
            f"{piece.source.path}: has {piece.start + count} frames at 25 fps, a clip must have {wanted} "
            f"(up to {piece.pad} missing ones are padded, see --pad); fetch it again"
        )
    frames[count:, : seen[0]] = 16 if piece.colour else 0  # black
    frames[count:, seen[0] :] = 128
    return frames, missing


def compute(engine: "BatchEncoder", piece: Piece, frames: "Tensor") -> np.ndarray:
    """Features (M, N, D) float16 of the piece's windows that lie within its frames."""
    windows = window_count(len(frames), piece.every)
    starts = [piece.every * m for m in range(min(windows, piece.windows))]
    if not starts:
        return np.empty((0, engine.snippets_per_batch, engine.config.width), np.float16)
    features = engine.windows(frames, starts).half().cpu().numpy()
    if not np.isfinite(features).all():
        raise InputError(f"{piece.source.path}: the network gives numbers that are not finite")
    return features


def work(engine: "BatchEncoder", pieces: Iterable[Piece], decoders: int) -> Iterator[Outcome]:
    """Outcomes in the order of the pieces; a video that cannot be read is an outcome too, never the end of the others.

    Args:
        engine: the network.
        pieces: what to do; taken as needed, at most decoders + 1 ahead.
        decoders: threads that decode.
    """
    with ThreadPoolExecutor(decoders, thread_name_prefix="decode") as pool:
        ahead: deque[tuple[Piece, Future[tuple[Tensor, int]]]] = deque()
        try:
            for piece in pieces:
                ahead.append((piece, pool.submit(decode, piece, pinned=engine.device.type == "cuda")))
                if len(ahead) > decoders:
                    yield _outcome(engine, *ahead.popleft())
            while ahead:
                yield _outcome(engine, *ahead.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _outcome(engine: "BatchEncoder", piece: Piece, future: "Future[tuple[Tensor, int]]") -> Outcome:
    began = time.perf_counter()
    try:
        frames, padded = future.result()
        ready = time.perf_counter()
        features = compute(engine, piece, frames)
    except BallcastError as error:
        return Outcome(piece, reason=str(error))
    waited, computed = ready - began, time.perf_counter() - ready
    size = picture_shape(frames.shape, colour=piece.colour)
    return Outcome(piece, features, size, padded, frames=len(frames), waited=waited, computed=computed)
