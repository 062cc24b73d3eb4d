"""Pieces of videos to features: decoders read ahead in threads while the network works on what is there."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.errors import BallcastError, InputError
from ballcast.features.parts import Piece
from ballcast.features.shared import SharedStacks
from ballcast.video.fit import Fit, fitted


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


def decode(piece: Piece, *, pinned: bool = False) -> tuple[Tensor, int]:
    """The piece's frames (T, H, W) uint8, fitted into its picture size, and how many black ones are at their end.

    T is smaller than planned only at the end of a video of unknown length. A clip of SN-BAA that lacks up to
    `piece.pad` frames at its end gets black ones there, as in FAANTRA's loader; one that lacks more is an error.
    `pinned` puts them into page-locked memory, from which a GPU fetches them several times faster.
    """
    import av

    from ballcast.video.gpu import open_video

    try:
        with open_video(piece.source.path, device=piece.decoder, threads=1) as video:
            fit, shape = Fit(piece.picture_size), fitted(video.size, piece.picture_size)
            frames = torch.empty((piece.stop - piece.start, *shape), dtype=torch.uint8, pin_memory=pinned)
            pixels, count = frames.numpy(), 0
            for frame in video.frames(piece.start, piece.stop):
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
    frames[count:] = 0
    return frames, missing


def compute(engine: SharedStacks, piece: Piece, frames: Tensor) -> np.ndarray:
    """Features (M, N, D) float16 of the piece's windows that lie within its frames."""
    windows = max(0, (len(frames) - WINDOW_FRAMES) // piece.every + 1)
    starts = [piece.every * m for m in range(min(windows, piece.windows))]
    if not starts:
        return np.empty((0, engine.clips_a_batch, engine.config.width), np.float16)
    features = engine.windows(frames, starts).to(torch.float16).cpu().numpy()
    if not np.isfinite(features).all():
        raise InputError(f"{piece.source.path}: the network gives numbers that are not finite")
    return features


def work(engine: SharedStacks, pieces: Iterable[Piece], decoders: int) -> Iterator[Outcome]:
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


def _outcome(engine: SharedStacks, piece: Piece, future: "Future[tuple[Tensor, int]]") -> Outcome:
    began = time.perf_counter()
    try:
        frames, padded = future.result()
        ready = time.perf_counter()
        features = compute(engine, piece, frames)
    except BallcastError as error:
        return Outcome(piece, reason=str(error))
    waited, computed = ready - began, time.perf_counter() - ready
    size = (frames.shape[1], frames.shape[2])
    return Outcome(piece, features, size, padded, frames=len(frames), waited=waited, computed=computed)
