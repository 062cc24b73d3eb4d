"""Where a GPU's time goes in the backbone: a window, a 3D block in training, and batches of streams.

    python -m benchmarks.kernels                                    # on a GPU 1280×720
    python -m benchmarks.kernels --device cpu --tiny                # tries the script itself

Prints the milliseconds of one 5 s window with the depthwise 3×3×3 convolutions as PyTorch's conv3d and as 2D ones, with
the kernels that take longest; of layers of training in Triton beside timm's; of a forward and backward pass of one 3D
block both ways; and of batches of streams,
eager and compiled, for the 15-frame backbone and for the frame encoder of recipe e2e, all with random weights.
Compares the features of eager and compiled batches, and says what the time until they are ready is spent on.
"""

import argparse
import copy
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import ballcast
from ballcast.core import config as configs
from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.files import write_json
from ballcast.features import backbone as network
from ballcast.features.backbone import Backbone, BackboneConfig, InvertedResidual3d
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.inference.torch_stacks import StackBatch
from benchmarks.extract import one_ms
from benchmarks.machine import add_options, settle

WAYS = {"conv3d": False, "2D taps": True}
LONGEST = 12  # kernels printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, threads=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 32], help="streams in a batch")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tiny", action="store_true", help="small networks and frames, few repeats")
    parser.add_argument("--out", type=Path, help="write the figures here, after each part")
    args = parser.parse_args()
    machine = settle(args)
    args.frame = (64, 96) if args.tiny else machine.size
    args.repeats = 2 if args.tiny else args.repeats
    print(f"{machine.name}; torch {torch.__version__}; frames {args.frame[1]}×{args.frame[0]}", flush=True)
    result: dict[str, Any] = {"device": machine.name, "torch": torch.__version__, "frame": list(args.frame)}
    for part in args.parts:
        try:
            result[part] = PARTS[part](args)
        except Exception as error:  # one part that fails must not hide the others
            result[part] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            print(f"{part} failed: {result[part]['failed'][:600]}", flush=True)
        if args.out:
            write_json(args.out, result, indent=1)
        _free(args.device)


def networks(args: argparse.Namespace) -> dict[str, Backbone]:
    """The 15-frame backbone and the frame encoder of e2e, with random weights."""
    recipe = configs.read_yaml(Path(ballcast.__file__).parent / "configs" / "e2e.yaml")
    sizes = recipe["encoder"]["network"]
    long: dict[str, Any] = {}
    if args.tiny:
        long = {"encoder": "test_efficientnet", "channels": 16, "se_ratio": 4, "projected": 8, "blocks": 2}
        sizes = {**sizes, "encoder": "test_efficientnet"}
    chosen = {"15 frames": BackboneConfig(**long), "e2e": configs.from_dict(BackboneConfig, sizes, "e2e.yaml")}
    torch.manual_seed(0)
    made = {name: Backbone(config).eval() for name, config in chosen.items()}
    for module in (module for backbone in made.values() for module in backbone.modules()):
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(module.bias, 0.1, 0.2)  # keeps maps alive, so that features can be compared
    return {name: backbone.to(args.device) for name, backbone in made.items()}


def window(args: argparse.Namespace) -> dict[str, Any]:
    """One window, compiled on a GPU, in each way, and the longest kernels."""
    backbone, on_gpu = networks(args)["15 frames"], args.device.startswith("cuda")
    frames = torch.randint(0, 256, (WINDOW_FRAMES, *args.frame), dtype=torch.uint8, device=args.device)
    rows: dict[str, Any] = {}
    features: list[Tensor] = []
    for way, planes in WAYS.items():
        with depthwise(planes):
            encoder, began = BatchEncoder(backbone), time.perf_counter()

            def run(encoder: BatchEncoder = encoder) -> Tensor:
                return encoder.windows(frames, [0])[0]

            for _ in range(3):
                features[len(rows) :] = [run().float().clone()]
            ready = time.perf_counter() - began
            ms = one_ms(run, args.repeats, on_gpu=on_gpu)
            kernels = longest(run, on_gpu=on_gpu)
        rows[way] = {"ms": round(ms, 3), "ready_s": round(ready, 1), "kernels_ms": kernels}
        print(f"window, {way}: {ms:.2f} ms, kernels {sum(kernels.values()):.2f} ms; ready after {ready:.0f} s")
        for name, spent in list(kernels.items())[:LONGEST]:
            print(f"  {spent:8.3f} ms  {name[:120]}")
        del encoder, run
        _free(args.device)
    rows["difference"] = ((features[1] - features[0]).abs().max() / features[0].abs().max()).item()
    print(f"  largest difference of the features, relative to the largest: {rows['difference']:.1e}", flush=True)
    return rows


def block(args: argparse.Namespace) -> dict[str, Any]:
    """Forward and backward pass of one 3D block on the maps of 8 snippets, bf16, eager, in each way."""
    config, on_gpu = networks(args)["15 frames"].config, args.device.startswith("cuda")
    torch.manual_seed(0)
    layer = InvertedResidual3d(channels=config.channels, expansion=config.expansion, se_ratio=config.se_ratio)
    layer = layer.to(args.device).train()
    h, w = (-(-side // 32) for side in args.frame)
    x = torch.randn(8 * config.stacks, config.channels, h, w, device=args.device)
    x = x.contiguous(memory_format=torch.channels_last).unflatten(0, (-1, config.stacks)).requires_grad_()
    rows: dict[str, Any] = {}
    for way, planes in WAYS.items():

        def step() -> Tensor:
            with torch.autocast(x.device.type, torch.bfloat16):
                y = layer(x)
            y.float().square().mean().backward()
            return y

        with depthwise(planes):
            for _ in range(3):
                step()
            ms = one_ms(step, args.repeats, on_gpu=on_gpu)
        rows[way] = round(ms, 3)
        print(f"a 3D block in training, 8 snippets, {way}: {ms:.2f} ms", flush=True)
    return rows


def layers(args: argparse.Namespace) -> dict[str, Any]:
    """Layers of e2e in training, of timm and in Triton: forward and backward pass on 992 stacks, bf16."""
    from timm.layers import BatchNormAct2d, Conv2dSame

    from ballcast.training.triton_layers import use_triton_layers

    stacks, on_gpu, rows = (2 if args.tiny else 992), args.device.startswith("cuda"), {}
    if not on_gpu:
        return {"left out": "Triton needs a GPU"}
    for name, layer, shape in (
        ("norm and ReLU6", BatchNormAct2d(96, act_layer=torch.nn.ReLU6), (96, 112, 192)),
        ("norm and ReLU6", BatchNormAct2d(144, act_layer=torch.nn.ReLU6), (144, 56, 96)),
        ("3×3, stride 2", Conv2dSame(96, 96, 3, stride=2, groups=96, bias=False), (96, 112, 192)),
        ("5×5, stride 2", Conv2dSame(144, 144, 5, stride=2, groups=144, bias=False), (144, 56, 96)),
    ):
        x = torch.randn(stacks, *shape, device=args.device, dtype=torch.bfloat16)
        x = x.to(memory_format=torch.channels_last).requires_grad_()
        for how in ("timm", "Triton"):
            module = copy.deepcopy(layer).to(args.device).train()
            if how == "Triton":
                use_triton_layers(module)
            with torch.autocast("cuda", torch.bfloat16):
                forward = partial(module, x)
                y = forward()
                given = [x, *module.parameters()]
                back = partial(torch.autograd.grad, y, given, torch.ones_like(y), retain_graph=True)
                ms = [one_ms(cast(Callable[[], Tensor], run), args.repeats, on_gpu=on_gpu) for run in (forward, back)]
            rows[f"{name} of {'×'.join(map(str, shape))}, {how}"] = [round(each, 3) for each in ms]
            print(f"{name} of {'×'.join(map(str, shape))}, {how}: {ms[0]:.2f} + {ms[1]:.2f} ms", flush=True)
    return rows


def batches(args: argparse.Namespace) -> dict[str, Any]:
    """Batches of streams, recorded on a GPU, eager and compiled: milliseconds from pinned frames to features."""
    rows: dict[str, Any] = {}
    for name, backbone in networks(args).items():
        encoder = BatchEncoder(backbone, compiled=False)
        for how in ("eager", "compiled"):
            rows[f"{name}, {how}"] = row = _batches(args, encoder, compiled=how == "compiled")
            figures = "   ".join(
                f"{count} streams {ms:.2f} ms ({ms / count:.2f} each)" for count, ms in row["ms"].items()
            )
            print(f"{name}, {how}: {figures}", flush=True)
            spent = ", ".join(f"{what} {seconds:.1f}" for what, seconds in row["took_s"].items())
            print(f"  ready after {row['ready_s']:.1f} s: {spent}", flush=True)
            _free(args.device)
        first, second = (np.array(rows[f"{name}, {how}"].pop("features")) for how in ("eager", "compiled"))
        difference = rows[f"{name}, compiled"]["difference"] = float(np.abs(first - second).max() / np.abs(first).max())
        print(f"  largest difference of the features, relative to the largest: {difference:.1e}", flush=True)
    return rows


def _batches(args: argparse.Namespace, encoder: BatchEncoder, *, compiled: bool) -> dict[str, Any]:
    on_gpu, began = encoder.device.type == "cuda", time.perf_counter()
    batch = StackBatch(encoder, args.frame, streams=max(args.batches), graphed=on_gpu, compiled=compiled)
    ready = time.perf_counter() - began
    pictures = np.random.default_rng(0).integers(0, 256, (encoder.config.stack, *args.frame), dtype=np.uint8)
    streams = [batch.open() for _ in range(max(args.batches))]
    for stream in streams:
        stream.fill(pictures)
    features = batch.run(streams)
    took = {what: round(seconds, 2) for what, seconds in batch.took.items()}
    row: dict[str, Any] = {"ready_s": round(ready, 2), "took_s": took, "features": features, "ms": {}}
    for count in args.batches:
        batch.run(streams[:count])
        times = []
        for _ in range(args.repeats):
            began = time.perf_counter()
            batch.run(streams[:count])  # its result is on the CPU
            times.append(1000 * (time.perf_counter() - began))
        row["ms"][count] = round(sorted(times)[len(times) // 2], 3)
    return row


@contextmanager
def depthwise(planes: bool) -> Iterator[None]:
    """Depthwise 3×3×3 convolutions as 2D ones, or as conv3d."""
    before = network.use_2d_convolutions
    network.use_2d_convolutions = lambda x: planes
    try:
        yield
    finally:
        network.use_2d_convolutions = before


def longest(run: Callable[[], Tensor], *, on_gpu: bool) -> dict[str, float]:
    """Milliseconds of each kernel, on a CPU of each operator, in one run; the longest first."""
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as found:
        run()
        if on_gpu:
            torch.cuda.synchronize()
    spent: dict[str, float] = {}
    for event in found.key_averages():
        if (event.device_type == DeviceType.CUDA) == on_gpu:
            us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            name = f"{event.key} ({event.count} calls)"
            spent[name] = spent.get(name, 0.0) + round(us / 1000, 4)
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:40])


def _free(device: str) -> None:
    gc.collect()
    torch._dynamo.reset()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "window": window,
    "layers": layers,
    "block": block,
    "batches": batches,
}

if __name__ == "__main__":
    main()
