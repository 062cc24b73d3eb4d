"""Workers of an extraction: several processes of this machine, or a Ray cluster."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ballcast.core.errors import BallcastError, MissingExtra
from ballcast.core.util import cores
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder, one_thread
from ballcast.features.videos import Outcome, Piece, work


def run_local(
    backbone: Backbone, folder: Path, pieces: Sequence[Piece], *, device: str, workers: int | None
) -> Iterator[Outcome]:
    """Outcomes as they come.

    Args:
        backbone: the network. folder: where it is saved, for the other processes.
        pieces: what to do.
        device: "cpu": `workers` processes, each with its decoder and network. "cuda": a process for every GPU, and
            `workers` decoding threads among them.
        workers: see there.
    """
    workers = workers or cores()
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if device == "cuda" else ["cpu"] * workers
    devices = devices[: max(1, len(pieces))]
    decoders = max(1, workers // len(devices)) if device == "cuda" else 1
    if len(devices) == 1:
        with one_thread(devices[0]):
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
    backbone: Backbone, folder: Path, pieces: Sequence[Piece], *, device: str, workers: int | None
) -> Iterator[Outcome]:
    """Outcomes as they come, from `workers` actors of Ray Data; every machine must see the videos under their paths."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("Ray Data", "ray") from None

    workers = workers or (torch.cuda.device_count() if device == "cuda" else cores())
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
    with one_thread(device):
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
