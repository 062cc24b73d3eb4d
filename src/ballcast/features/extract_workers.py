"""Workers of an extraction: decoding ahead in threads, pieces in this process, in several, or on a Ray cluster."""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast.core.errors import BallcastError, InputError, MissingExtra
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import window_count
from ballcast.features.videos import Piece
from ballcast.video.luma import FrameResizer, fitted


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

    from ballcast.video.file import open_video

    try:
        with open_video(piece.source.path, device=piece.decoder, threads=1) as video:
            fit, shape = FrameResizer(piece.picture_size), fitted(video.size, piece.picture_size)
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


def compute(engine: BatchEncoder, piece: Piece, frames: Tensor) -> np.ndarray:
    """Features (M, N, D) float16 of the piece's windows that lie within its frames."""
    windows = window_count(len(frames), piece.every)
    starts = [piece.every * m for m in range(min(windows, piece.windows))]
    if not starts:
        return np.empty((0, engine.clips_a_batch, engine.config.width), np.float16)
    features = engine.windows(frames, starts).to(torch.float16).cpu().numpy()
    if not np.isfinite(features).all():
        raise InputError(f"{piece.source.path}: the network gives numbers that are not finite")
    return features


def work(engine: BatchEncoder, pieces: Iterable[Piece], decoders: int) -> Iterator[Outcome]:
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


def _outcome(engine: BatchEncoder, piece: Piece, future: "Future[tuple[Tensor, int]]") -> Outcome:
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


def run_local(
    backbone: Backbone, folder: Path, pieces: Sequence[Piece], *, device: str, workers: int
) -> Iterator[Outcome]:
    """Outcomes as they come.

    Args:
        backbone: the network. folder: where it is saved, for the other processes.
        pieces: what to do.
        device: "cpu": `workers` processes, each with its decoder and network. "cuda": a process for every GPU, and
            `workers` decoding threads among them.
        workers: see there.
    """
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if device == "cuda" else ["cpu"] * workers
    devices = devices[: max(1, len(pieces))]
    decoders = max(1, workers // len(devices)) if device == "cuda" else 1
    if len(devices) == 1:
        with _settled(devices[0]):
            yield from work(BatchEncoder(backbone, device=devices[0]), pieces, decoders)
        return
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA, nor torch's threads safely
    jobs, results = context.SimpleQueue(), context.Queue()
    running = [
        context.Process(target=_serve, args=(folder, name, decoders, jobs, results), daemon=True) for name in devices
    ]
    feeder = threading.Thread(target=_feed, args=(jobs, [*pieces, *[None] * len(devices)]), daemon=True)
    try:
        for process in running:
            process.start()
        feeder.start()
        for _ in pieces:
            yield _next(results, running)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()


def run_ray(
    backbone: Backbone, folder: Path, pieces: Sequence[Piece], *, device: str, workers: int
) -> Iterator[Outcome]:
    """Outcomes as they come, from `workers` actors of Ray Data; every machine must see the videos under their paths."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("Ray Data", "ray") from None

    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, configure_logging=False, include_dashboard=False)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        files = ray.put({path.name: path.read_bytes() for path in folder.iterdir()})
        data = ray.data.from_items([{"piece": piece} for piece in pieces], override_num_blocks=len(pieces)).map(
            _RayWorker,
            fn_constructor_kwargs={"files": files, "device": device},
            concurrency=min(workers, len(pieces)),
            num_cpus=1,
            num_gpus=1 if device == "cuda" else 0,
        )
        for row in data.iter_rows():
            yield row["outcome"]
    finally:
        if started:
            ray.shutdown()


class _RayWorker:
    """One actor: the backbone from its files' bytes, then piece by piece."""

    def __init__(self, files: Any, device: str) -> None:
        import tempfile

        import ray

        with tempfile.TemporaryDirectory() as folder:
            for name, content in ray.get(files).items():
                (Path(folder) / name).write_bytes(content)
            backbone = Backbone.from_pretrained(folder)
        torch.set_num_threads(1)
        self.engine = BatchEncoder(backbone, device=device)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"outcome": next(work(self.engine, [row["piece"]], 1))}


def _serve(folder: Path, device: str, decoders: int, jobs: Any, results: Any) -> None:
    """A worker process: takes pieces until there is None, and ends if its parent does, even by kill −9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with _settled(device):
        engine = BatchEncoder(Backbone.from_pretrained(folder), device=device)
        for outcome in work(engine, iter(jobs.get, None), decoders):
            results.put(outcome)


def _feed(jobs: Any, pieces: Sequence[Piece | None]) -> None:
    for piece in pieces:
        jobs.put(piece)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _next(results: Any, running: Sequence[Any]) -> Outcome:
    while True:
        try:
            return results.get(timeout=1)
        except queue.Empty:
            for process in running:
                if process.exitcode:
                    raise BallcastError(
                        f"a worker died (exit code {process.exitcode}; out of memory?); "
                        "what was done is kept, run again with fewer --workers"
                    ) from None


@contextmanager
def _settled(device: str) -> Iterator[None]:
    """On the CPU, one torch thread: the features then do not depend on the number of workers; on a GPU, that one."""
    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    try:
        yield
    finally:
        torch.set_num_threads(before)
