"""The plan: what is left to do, and estimates of its time on this machine and of the disk space.

Times are extrapolated from a few stacks through the backbone and a few batches through a model. Sizes are computed.
"""

import time
from collections.abc import Mapping
from itertools import islice

import numpy as np
import torch
from rich.filesize import decimal
from rich.table import Table

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.files import free_space
from ballcast.core.util import cores, print_table
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.windows import STEP_MS, stitch
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, stack_count, stack_span, start_frame, window_count
from ballcast.features.videos import find_sources
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from ballcast.workflows.reproduce.job import EVERY, QUICK_CLIPS, Reproduction, Run, stacks_a_step

PROBED = 8  # stacks that go through the backbone
Pending = Mapping[str, tuple[str, list[str]]]  # step → what it does, what of it is left


def plan_table(job: Reproduction, pending: Pending) -> None:
    """Print the plan; `pending`: of every step that was chosen."""
    seconds, sizes = _estimate(job, pending)
    table = Table(title="the plan", title_justify="left", title_style="bold")
    for heading in ("step", "", "left to do", "time here", "disk"):
        table.add_column(heading, justify="right" if heading in ("time here", "disk") else "left")
    for name, (about, left) in pending.items():
        todo = "nothing" if not left else left[0] if len(left) == 1 else f"{left[0]} … {left[-1]} ({len(left)})"
        if name == "table":
            todo = "always"
        size = decimal(sizes[name]) if name in sizes else ""
        table.add_row(name, about, todo, duration(seconds[name]) if name in seconds else "", size)
    print_table(job.console, table)
    job.log(
        f"time: extrapolated from {PROBED} stacks of frames and two training steps on {_device_name(job.device)}; "
        "compiled, a GPU is faster. disk: of the remaining results; extraction needs as much again until it is merged."
    )
    needed = sum(sizes.values())
    free = free_space(job.out)
    job.log(f"{job.out}: {decimal(needed)} to be written, {decimal(free)} free")
    if needed > free:
        job.log(f"{job.out}: THE DISK IS TOO SMALL; choose another folder with --out, or free some space")


def duration(seconds: float) -> str:
    """Format a duration: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _estimate(job: Reproduction, pending: Pending) -> tuple[dict[str, float], dict[str, int]]:
    """Estimate seconds and bytes of the unfinished steps, by name; steps that cannot be estimated are left out."""
    seconds: dict[str, float] = {}
    sizes: dict[str, int] = {}
    left = {name: names for name, (_, names) in pending.items()}
    there = (job.given / "train").is_dir()
    config = _network_config(job)
    if there and (left.get("backbone") or left.get("features")):
        decode, stack = probe_backbone(job, config)
        if left.get("backbone"):
            spotting = job.pretrain_config
            steps = spotting.train.epochs * spotting.train.steps
            seconds["backbone"] = 3 * steps * stacks_a_step(spotting) * stack  # a backward pass costs about two forward
        if left.get("features"):
            seconds["features"] = sum(_extraction(job, config, split, decode, stack) for split in left["features"])
            sizes["features"] = sum(_store_bytes(job, config, split) for split in left["features"])
    if left.get("train"):
        runs = [run for run in job.runs() if run.name in left["train"]]
        samples = _samples(job)
        seconds["train"] = 0.0
        sizes["train"] = 0
        for name in dict.fromkeys(run.recipe for run in runs):
            some = [run for run in runs if run.recipe == name]
            recipe = _recipe(job, some[0], config)
            step, parameters = probe_training(recipe, job.device)
            steps = max(1, samples // recipe.train.batch) * recipe.train.epochs
            seconds["train"] += len(some) * steps * step
            sizes["train"] += (
                len(some) * 5 * 4 * parameters
            )  # weights and two optimizer moments, best and last, in float32
    return seconds, sizes


def _network_config(job: Reproduction) -> BackboneConfig:
    if job.backbone is not None or (job.pretraining / "best").is_dir():
        return job.network.config
    return job.pretrain_config.network


def _recipe(job: Reproduction, run: Run, config: BackboneConfig) -> Recipe:
    return job.recipe(run, snippet_count(config), config.width)


def clip_stacks(config: BackboneConfig, every: int) -> int:
    """Count the distinct stacks of one clip of 30 s with windows `every` frames apart."""
    windows = range(0, CLIP_FRAMES - WINDOW_FRAMES + 1, every)
    stacks = range(stack_count(config, snippet_count(config)))
    return len({start + start_frame(config, i) for start in windows for i in stacks})


def _clips(job: Reproduction, split: str) -> int:
    if not (job.given / split).is_dir():
        return 0
    count = len(find_sources(job.given / split))
    return min(count, QUICK_CLIPS) if job.quick else count


def _extraction(job: Reproduction, config: BackboneConfig, split: str, decode: float, stack: float) -> float:
    workers = job.workers or cores()
    decoding = CLIP_FRAMES * decode
    computing = clip_stacks(config, EVERY[split]) * stack
    if job.device.type == "cuda":  # threads decode while the GPU computes
        return _clips(job, split) * max(decoding / workers, computing)
    return _clips(job, split) * (decoding + computing) / workers


def _store_bytes(job: Reproduction, config: BackboneConfig, split: str) -> int:
    windows = window_count(CLIP_FRAMES, EVERY[split])
    return _clips(job, split) * windows * snippet_count(config) * config.width * 2


def _samples(job: Reproduction) -> int:
    """Count the training windows: one a second of every stretch of adjoining clips."""
    folder = next((f for f in (job.given / "train", job.features / "train") if f.is_dir()), None)
    clips = read_labels(folder) if folder else []
    stretches = stitch(clips[:QUICK_CLIPS] if job.quick else clips)
    return sum((len(stretch.clips) - 1) * STEP_MS // 1000 + 1 for stretch in stretches)


def probe_backbone(job: Reproduction, config: BackboneConfig) -> tuple[float, float]:
    """Measure the seconds to decode a frame and to encode a stack with one worker of an extraction."""
    threads = torch.get_num_threads()
    video = find_sources(job.given / "train")[0].path
    count = start_frame(config, PROBED - 1) + stack_span(config)
    with VideoFile(video) as opened:
        began = time.perf_counter()
        frames = np.stack(list(islice(opened.frames(colour=config.colour), count)))
        decode = (time.perf_counter() - began) / count
    trained = job.backbone is not None or (job.pretraining / "best").is_dir()
    network = job.network if trained else Backbone(config).eval()
    torch.set_num_threads(1)
    try:
        engine = BatchEncoder(network, device=job.device, compiled=False)
        pixels = engine.load(frames)
        begins = config.stride * torch.arange(PROBED, device=job.device)
        with torch.inference_mode():
            engine.maps(pixels, begins)  # the first is slower
            _wait(job.device)
            began = time.perf_counter()
            engine.maps(pixels, begins)
            _wait(job.device)
    finally:
        torch.set_num_threads(threads)
    return decode, (time.perf_counter() - began) / PROBED


def probe_training(recipe: Recipe, device: torch.device) -> tuple[float, int]:
    """Measure the seconds of a forward and backward pass, not compiled; also return the number of parameters."""
    config = recipe.model
    state = torch.get_rng_state()
    model = Anticipator(config, emit=recipe.emit).to(device).train()
    features = torch.randn(recipe.train.batch, config.windows, config.clips, config.width, device=device)
    seconds = 0.0
    for _ in range(2):  # the first is slower
        _wait(device)
        began = time.perf_counter()
        slots = model(features)
        (slots.objectness.sum() + slots.classes.sum() + slots.offsets.sum()).backward()
        _wait(device)
        seconds = time.perf_counter() - began
    torch.set_rng_state(state)
    return seconds, sum(p.numel() for p in model.parameters())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"this CPU ({cores()} cores)"
