"""Workers of an extraction: several processes of this machine, or a Ray cluster."""

import math
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast.core.cluster import ray_cluster
from ballcast.core.errors import BallcastError
from ballcast.core.files import working_folder
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder, one_thread
from ballcast.features.videos import Outcome, Piece, work
from ballcast.video.decode_pool import ProcessDecoder, SharedMemory, VideoSpec

SESSIONS = 8  # of NVDEC at once, beside the CPU's decoders
MEASURED = 125  # frames of the first video that show what decodes it faster


@dataclass(frozen=True)
class Decoders:
    """Decoders for one network: how many on the CPU, and how many NVDEC sessions. why: a sentence about it."""

    cores: int = 1
    sessions: int = 0
    why: str = ""

    def devices(self, network: str) -> list[str]:
        """For `DecoderPool`, beside a network on the device `network`."""
        return [network if network != "cpu" else "cuda"] * self.sessions + ["cpu"] * self.cores


def gpu_names() -> list[str]:
    """The GPUs of this machine."""
    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


def choose_decoders(piece: Piece, wanted: str, workers: int) -> Decoders:
    """`workers` decoders for pieces like this one.

    wanted: "cpu", "cuda", or "auto": decode a few seconds of the video both ways. NVDEC then helps if it gives the same
    bytes and takes less of the CPU's time, which it needs to copy frames; the CPU's other cores decode beside it.
    """
    if wanted == "cpu":
        return Decoders(workers, 0, f"the CPU decodes, in {workers} processes")
    if wanted == "cuda":
        return Decoders(0, min(workers, SESSIONS), f"NVDEC decodes, in {min(workers, SESSIONS)} sessions")
    recording = VideoSpec(str(piece.source.path), None, piece.colour)
    stop = min(piece.stop, piece.start + MEASURED)
    frames, speeds, costs = [], [], []
    for device in ("cpu", "cuda"):
        decoder = ProcessDecoder(device)
        try:
            opened = decoder.open(recording)
            if device == "cuda" and "CPU" in opened.decoder:
                return Decoders(workers, 0, f"the CPU decodes, in {workers} processes ({opened.decoder})")
            memory = SharedMemory((stop - piece.start) * opened.shape[0] * opened.shape[1])
            began = time.perf_counter()
            count = decoder.read(recording, piece.start, stop, memory)
            speeds.append(count / (time.perf_counter() - began))
            costs.append(decoder.busy_s / max(1, count))
            frames.append(memory.array)
        except BallcastError as error:  # the piece will say so itself
            return Decoders(workers, 0, f"the CPU decodes, in {workers} processes ({error})")
        finally:
            decoder.close()
    measured = f"a process decodes {speeds[0]:.0f} frames a second, a session of NVDEC {speeds[1]:.0f}"
    if not np.array_equal(frames[0], frames[1]):
        return Decoders(workers, 0, f"the CPU decodes, in {workers} processes: NVDEC gives other pixels")
    if costs[1] > costs[0] / 2:
        return Decoders(
            workers, 0, f"the CPU decodes, in {workers} processes: {measured}, with little less work for it"
        )
    beside = max(1, workers - 1 - math.ceil(SESSIONS * speeds[1] * costs[1]))
    return Decoders(beside, SESSIONS, f"{beside} processes and {SESSIONS} sessions of NVDEC decode: {measured}")


def run_local(
    backbone: Backbone, folder: Path, pieces: Sequence[Piece], *, device: str, workers: int, decoders: Decoders
) -> Iterator[Outcome]:
    """Outcomes as they come.

    Args:
        backbone: the network. folder: where it is saved, for the other processes.
        pieces: what to do.
        device: "cpu": `workers` processes, each with its decoder and network. "cuda": a process for every GPU.
        workers: see there.
        decoders: beside each GPU.
    """
    gpus = gpu_names() if device == "cuda" else []
    names = (gpus or ["cpu"] * workers)[: max(1, len(pieces))]
    if len(names) == 1:
        with one_thread(names[0]):
            yield from work(BatchEncoder(backbone, device=names[0]), pieces, decoders.devices(names[0]))
        return
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA, nor torch's threads safely
    jobs, results = context.SimpleQueue(), context.Queue()
    running = [
        context.Process(target=_serve, args=(folder, name, decoders.devices(name), jobs, results), daemon=True)
        for name in names
    ]
    feeder = threading.Thread(target=_feed, args=(jobs, [*pieces, *[None] * len(names)]), daemon=True)
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
    folder: Path, pieces: Sequence[Piece], *, device: str, workers: int | None, decoders: Decoders, cluster: str | None
) -> Iterator[Outcome]:
    """Outcomes as they come, from actors of Ray Data; every machine must see the videos under their paths.

    What was computed on a machine that dies is computed again on another.

    Args:
        folder: the saved backbone. pieces: what to do. device: "cpu" or "cuda".
        workers: actors; None: one for each GPU, or else for each core, of the cluster.
        decoders: of each actor.
        cluster: address of a running cluster; None: this machine alone.
    """
    with ray_cluster(cluster) as ray:
        import ray.data as ray_data

        resource = "GPU" if device == "cuda" else "CPU"
        room = ray.cluster_resources()
        workers = min(workers or max(1, int(room.get(resource, 1))), len(pieces))
        ray_data.DataContext.get_current().enable_progress_bars = False
        files = ray.put({path.name: path.read_bytes() for path in folder.iterdir()})
        # An actor beside a GPU gets several pieces at once, so that it decodes the next while it computes one.
        devices = decoders.devices(device)
        size = max(1, min(4 * len(devices), len(pieces) // workers)) if device == "cuda" else 1
        groups = [{"pieces": list(pieces[i : i + size])} for i in range(0, len(pieces), size)]
        data = ray_data.from_items(groups, override_num_blocks=len(groups)).flat_map(
            _RayWorker,
            fn_constructor_kwargs={"files": files, "device": device, "devices": devices},
            concurrency=min(workers, len(groups)),
            num_cpus=1,
            num_gpus=1 if device == "cuda" else 0,
        )
        for row in data.iter_rows():
            yield row["outcome"]


class _RayWorker:
    """One actor: the backbone from its files' bytes, then pieces."""

    def __init__(self, files: Any, device: str, devices: list[str]) -> None:
        import ray

        with working_folder() as folder:
            for name, content in ray.get(files).items():
                (folder / name).write_bytes(content)
            backbone = Backbone.from_pretrained(folder)
        torch.set_num_threads(1)
        self.encoder = BatchEncoder(backbone, device=device)
        self.devices = devices

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"outcome": outcome} for outcome in work(self.encoder, row["pieces"], self.devices)]


def _serve(folder: Path, device: str, decoders: list[str], jobs: Any, results: Any) -> None:
    """A worker process: takes pieces until there is None, and ends if its parent does, even by kill −9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with one_thread(device):
        encoder = BatchEncoder(Backbone.from_pretrained(folder), device=device)
        for outcome in work(encoder, iter(jobs.get, None), decoders):
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
