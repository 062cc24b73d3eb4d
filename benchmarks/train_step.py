"""One training step of the paper's recipe, eager against compiled in a CUDA graph; an epoch; inference at batch 1.

    python -m benchmarks.train_step [--config configs/paper.yaml] [--json FILE] [--samples 22927]

A step is everything: gathering the batch, MixUp, forward, both matchings, auxiliary loss, backward, clipping, AdamW.
Needs a GPU; --smoke runs it small, on whatever there is, to see that the script works.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.config import load
from ballcast.core.files import write_json
from ballcast.data.samples.batches import TrainingBatch
from ballcast.data.samples.windows import WindowSet
from ballcast.features.cuda_graph import record
from ballcast.loss.criterion import Criterion
from ballcast.loss.matcher import Targets
from ballcast.model.anticipator import Anticipator
from ballcast.model.layers import DropPath
from ballcast.model.slots import Slots
from ballcast.training.anticipation import AnticipationTask
from ballcast.training.data import TrainingData
from ballcast.training.loop import RunContext, read_losses, train_one_epoch
from ballcast.training.step import anticipation_losses

PEAK_FLOPS, PEAK_BYTES = 790e12, 4.3e12  # bf16 matrix products and copies, as measured on the H200 here


def made_up(samples: int, recipe: Recipe) -> WindowSet:
    """A stitched split: one row a second, random features, about 2 events a sample."""
    rng, model = np.random.default_rng(0), recipe.model
    some = rng.standard_normal((256, model.clips, model.width), np.float32).astype(np.float16)
    rows = np.tile(some, (-(-(samples + 25) // 256), 1, 1))
    index = np.arange(samples)[:, None] + 5 * np.arange(model.windows)
    count = rng.poisson(2.0, samples).clip(max=8)
    share = np.array([34, 32, 5, 6, 3, 3, 2, 5, 2, 1]) / 93
    classes = np.where(np.arange(8) < count[:, None], rng.choice(10, (samples, 8), p=share), -1)
    position = np.sort(rng.integers(30_000, 35_000, (samples, 8)), axis=1)
    presence = (rng.random((samples, model.clips, 10)) < 0.01).astype(np.uint8)
    return WindowSet([rows], index, classes, position, presence, [f"clip_{i}" for i in range(samples)], [])


def timed(work: Callable[[int], object], repeats: int, device: torch.device) -> float:
    """Median time of a call in ms, the device idle before and after each."""
    times = []
    for i in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work(i)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


class Bench:
    """A training on made-up windows, and its batches over and over."""

    def __init__(self, recipe: Recipe, windows: WindowSet, device: torch.device, *, graphed: bool) -> None:
        self.recipe = replace(recipe, train=replace(recipe.train, compile=graphed, graph=graphed))
        data = TrainingData(windows, None, BackboneIdentity("made up", "made up"))
        self.task = AnticipationTask(self.recipe, RunContext(Path("unused"), device), data)
        self.model = self.task.model.train()
        self._batches: Iterator[TrainingBatch] = iter(())

    def batch(self) -> TrainingBatch:
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self.task.batches(0, 0)
            batch = next(self._batches)
        return batch

    def run(self, _: int) -> None:
        self.task.step(self.batch())


class Graphed:
    """A model's forward pass at one batch size, compiled and recorded.

    Args:
        model: on a GPU, in eval mode; features (batch, W, N, D) and present (batch, W) in, `Slots` out.
        batch: samples a call.
        compiled: fuse kernels first, which takes about a minute.
    """

    def __init__(self, model: Anticipator, batch: int = 1, *, compiled: bool = True) -> None:
        config, device = model.config, next(model.parameters()).device
        self.features = torch.zeros(batch, config.windows, config.clips, config.width, device=device)
        self.present = torch.ones(batch, config.windows, dtype=torch.bool, device=device)
        forward = torch.compile(model, dynamic=False) if compiled else model
        with torch.inference_mode():
            self._replay, self._slots = record(lambda: forward(self.features, self.present))

    def __call__(self, features: torch.Tensor, present: torch.Tensor | None = None) -> Slots:
        """The slots; the next call overwrites them."""
        self.features.copy_(features, non_blocking=True)
        self.present.fill_(True) if present is None else self.present.copy_(present, non_blocking=True)
        self._replay()
        return self._slots


class FixedDraws(nn.Module):
    """Dropout, or DropPath with `whole`, whose draws depend only on the positions, whichever code runs it."""

    def __init__(self, rate: float, salt: int, *, whole: bool) -> None:
        super().__init__()
        self.rate, self.salt, self.whole = rate, salt, whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (len(x), *[1] * (x.ndim - 1)) if self.whole else x.shape
        place = torch.arange(math.prod(shape), device=x.device).view(shape)
        drawn = (place % 32003 * 12345 + 7919 * self.salt) % 32003  # small enough for 32-bit indices
        return x * ((drawn >= self.rate * 32003).to(x.dtype) / (1 - self.rate))


def fix_draws(model: nn.Module) -> None:
    """Replace every draw; attention's own dropout happens inside a fused kernel, and is fixed at dropping nothing."""
    for salt, module in enumerate(list(model.modules())):
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0  # type: ignore[assignment]
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout | DropPath):
                rate = child.p if isinstance(child, nn.Dropout) else child.drop_prob
                setattr(module, name, FixedDraws(rate, salt, whole=isinstance(child, DropPath)))


def largest_difference(bench: Bench, *, half: bool) -> float:
    """Largest relative difference of eager and compiled losses of a batch: same weights and draws, one matching."""
    fix_draws(bench.model)
    batch, recipe = bench.batch(), bench.recipe
    count = len(batch.share)
    part = batch.share.view(-1, 1, 1, 1)
    criterion = Criterion(config=recipe.loss, model=recipe.model).to(part.device)
    with torch.no_grad():
        slots = bench.model(part * batch.features[:count] + (1 - part) * batch.features[count:])
        targets = Targets.from_ms(batch.classes, batch.position_ms, recipe.model.bins, batch.presence)
        matching = criterion.match(slots.map(lambda t: torch.cat([t, t])), targets)
    eager, compiled = (
        torch.stack(losses_of(bench.model, criterion, batch, half=half, matching=matching)).detach()
        for losses_of in (anticipation_losses, torch.compile(anticipation_losses, dynamic=False))
    )
    return float(((eager - compiled).abs() / eager.abs()).max())


def floor_ms(recipe: Recipe, parameters: int) -> dict[str, float]:
    """Least time of a step: matrix products, bytes, each as if the other were free."""
    model, h = recipe.model, recipe.model.hierarchy
    tokens = recipe.train.batch * model.windows * model.clips
    per_token = 2 * (model.width * h.dim + h.encoder_layers * (4 * h.dim**2 + 2 * h.dim * h.encoder_ffn))
    memory = recipe.train.batch * model.windows * h.steps
    per_step = 2 * (6 * h.dim**2 * h.gru_layers + h.decoder_layers * 2 * h.dim**2)
    flops = 3 * (tokens * per_token + memory * per_step)  # forward, and twice that backward
    features = 2 * tokens * model.width * 2
    moved = 2 * features + parameters * 4 * (2 + 2 + 3 + 2)  # gathered and read; weights, gradients, two moments
    return {"flops_ms": 1000 * flops / PEAK_FLOPS, "bytes_ms": 1000 * moved / PEAK_BYTES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("configs/paper.yaml"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--samples", type=int, default=22_927)
    parser.add_argument("--smoke", action="store_true", help="a small model, a few steps")
    args = parser.parse_args()
    gpu = torch.cuda.is_available()
    if not gpu and not args.smoke:
        sys.exit("this benchmark needs a GPU; --smoke runs it small on the CPU")
    device = torch.device("cuda" if gpu else "cpu")
    repeats = 3 if args.smoke else 50
    small = ["model.width=64", "model.clips=9", "model.hierarchy.dim=32", "train.batch=4"] if args.smoke else []
    recipe = load(Recipe, args.config, small)
    windows = made_up(64 if args.smoke else args.samples, recipe)
    result: dict[str, float | str] = {
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "torch": torch.__version__,
    }

    eager = Bench(recipe, windows, device, graphed=False)
    parameters = sum(p.numel() for p in eager.model.parameters())
    result |= {"parameters": parameters, **floor_ms(recipe, parameters)}
    for i in range(3):
        eager.run(i)
    result["eager_step_ms"] = timed(eager.run, repeats, device)
    ours = Bench(recipe, windows, device, graphed=gpu)
    start = time.perf_counter()
    for i in range(3):
        ours.run(i)
    result["compile_s"] = time.perf_counter() - start
    result["step_ms"] = timed(ours.run, 4 * repeats, device)
    result["eager_again_ms"] = timed(eager.run, repeats, device)
    result["ratio"] = float(result["eager_step_ms"]) / float(result["step_ms"])

    start = time.perf_counter()
    for _ in read_losses(train_one_epoch(ours.task, epoch=0), ours.task.steps_per_epoch, device):
        pass
    if gpu:
        torch.cuda.synchronize()
    result["epoch_s"] = time.perf_counter() - start
    result["epoch_steps"] = ours.task.steps_per_epoch

    ours.model.eval()
    samples = ours.task.samples
    features = samples.take(torch.zeros(1, dtype=torch.long, device=samples.plan_device)).features.float()
    with torch.inference_mode():
        result["inference_eager_ms"] = timed(lambda i: ours.model(features), 2 * repeats, device)
        if gpu:
            given, present = features.clone(), torch.ones(features.shape[:2], dtype=torch.bool, device=device)
            forward = torch.compile(ours.model, dynamic=False)
            replay, slots = record(lambda: forward(given, present))

            def fast(_: int) -> None:
                given.copy_(features, non_blocking=True)
                present.fill_(True)
                replay()

            result["inference_ms"] = timed(fast, 4 * repeats, device)
            expected, got = (found.arrays().scores() for found in (ours.model(features), slots))
            result["inference_difference"] = float(abs(expected - got).max())
    for precision in ("bf16", "fp32"):
        bench = Bench(recipe, windows, device, graphed=False)
        result[f"loss_difference_{precision}"] = largest_difference(bench, half=precision == "bf16")
    for key, value in result.items():
        print(f"{key:22} {value if isinstance(value, str | int) else format(value, '.4g')}")
    if args.json:
        write_json(args.json, result, indent=1)


if __name__ == "__main__":
    main()
