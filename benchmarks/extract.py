"""How fast frames become features: the published order, batching, sharing, compiling, in one run.

    python -m benchmarks.extract                       # on a GPU 1280×720, on a CPU 398×224
    python -m benchmarks.extract --only-end-to-end --decoders 15 0 12 auto --nvdec 0 8 8 --out extract.json

Prints the time of one 5 s window (33 clips) in each order: on a GPU the median, on a CPU the best run on one thread, as
every worker of an extraction has. Then, where PyAV is installed, the speed from mp4 files on disk with decoding, as ×
real time, with the share of the time the network waits for frames: for each number of decoding processes and of
sessions of NVDEC beside them; "auto" is what `ballcast extract --decoder auto` chooses.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.files import write_json
from ballcast.features.backbone import Backbone, BackboneConfig, pad_frames
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, snippet_span, stack_offsets, start_frame
from benchmarks.machine import add_options, settle

TARGET_MS, TARGET_RATIO = 30.0, 4.3  # at 720p on an H200; the ratio is to batching without sharing, eager
BATCHED, OURS = "batched, every stack of every clip, eager", "each distinct stack once, compiled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, threads=1)
    parser.add_argument("--frame", type=int, nargs=2, metavar=("H", "W"), help="another size of frame")
    parser.add_argument("--repeats", type=int, help="default: 20 on a GPU, 3 on a CPU")
    parser.add_argument("--clips", type=int, help="clips of 30 s end to end; default: 96 on a GPU, 1 on a CPU; 0: none")
    parser.add_argument("--only-end-to-end", action="store_true", help="leave the orders of computing out")
    parser.add_argument("--video", type=Path, help="a video of 30 s or more for that; default: a drawn one")
    parser.add_argument(
        "--decoders", nargs="+", help="processes that decode; on a GPU auto too; default: the cores but one"
    )
    parser.add_argument("--nvdec", type=int, nargs="*", default=[], help="sessions of NVDEC beside each of --decoders")
    parser.add_argument("--out", type=Path, help="write the figures here, after each")
    args = parser.parse_args()
    machine = settle(args)
    on_gpu, where, (H, W) = machine.on_gpu, machine.name, args.frame or machine.size
    repeats = args.repeats or (20 if on_gpu else 3)
    torch.manual_seed(0)
    backbone = Backbone(BackboneConfig()).eval().to(args.device)
    frames = torch.randint(0, 256, (WINDOW_FRAMES, H, W), dtype=torch.uint8, device=args.device)
    padded = tuple(pad_frames(frames[:1], backbone.config.padding).shape[-2:])
    what = f"one window of {WINDOW_FRAMES} frames {W}×{H}, padded to {padded[1]}×{padded[0]}"
    print(f"{where}; torch {torch.__version__}; {what}", flush=True)
    result: dict[str, Any] = {"device": where, "torch": torch.__version__, "frame": [H, W], "padded": list(padded)}
    save = (lambda: write_json(args.out, result, indent=1)) if args.out else (lambda: None)
    if not args.only_end_to_end:
        result["window"] = windows(backbone, frames, repeats, on_gpu=on_gpu)
        save()
    del frames
    clips = args.clips if args.clips is not None else (96 if on_gpu else 1)
    if clips:
        end_to_end(backbone, (H, W), clips, args, result.setdefault("end_to_end", []), save)


def windows(backbone: Backbone, frames: Tensor, repeats: int, *, on_gpu: bool) -> dict[str, Any]:
    """Milliseconds a window in each order, with the largest difference from the published order's features."""
    eager = BatchEncoder(backbone, compiled=False)
    orders: list[tuple[str, Callable[[], Callable[[], Tensor]], int]] = [
        ("one stack, one clip at a time, eager (published)", lambda: lambda: one_by_one(eager, frames), 5),
        (BATCHED, lambda: lambda: batched(eager, frames), 1),
    ]
    if on_gpu:
        orders.append(("the same, compiled", lambda: compiled_batched(eager, frames), 1))
    orders.append(("each distinct stack once, eager", lambda: lambda: eager.windows(frames, [0])[0], 1))
    if on_gpu:
        orders.append((OURS, lambda: ours(backbone, frames), 1))

    figures: dict[str, dict[str, Any]] = {}
    reference: Tensor | None = None
    for name, make, slower in orders:
        began = time.perf_counter()
        try:
            run = make()
            features = run()
            for _ in range(2 if on_gpu else 0):
                run()  # a CUDA graph is recorded at the second call
            ready = time.perf_counter() - began
            ms = one_ms(run, max(1, repeats // slower), on_gpu=on_gpu)
        except Exception as error:  # one order that fails must not hide the others
            print(f"  {name:<62} failed: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            figures[name] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            continue
        reference = features if reference is None else reference
        difference = ((features - reference).abs().max() / reference.abs().max()).item()
        figures[name] = {"ms": round(ms, 3), "ready_s": round(ready, 1), "difference": difference}
        print(f"  {name:<62} {ms:9.1f} ms   difference {difference:.1e}   ready after {ready:.0f} s", flush=True)
        del run
        _free(on_gpu)
    base = figures.get(BATCHED, {}).get("ms")
    for name, figure in figures.items():
        if "ms" in figure and base:
            figure["times_batched"] = round(base / figure["ms"], 2)
            real_time = WINDOW_FRAMES / FPS * 1000 / figure["ms"]
            print(f"  {base / figure['ms']:6.2f} × batched eager, {real_time:7.1f} × real time: {name}")
    if "ms" in figures.get(OURS, {}):
        verdicts = (figures[OURS]["ms"] <= TARGET_MS, figures[OURS].get("times_batched", 0) >= TARGET_RATIO)
        print(
            f"  target (H200, 1280×736): at most {TARGET_MS} ms {verdicts[0]}, at least {TARGET_RATIO} × {verdicts[1]}"
        )
    figures["parts"] = parts(eager, frames, repeats, on_gpu=on_gpu)
    return figures


def one_by_one(engine: BatchEncoder, frames: Tensor) -> Tensor:
    """The published predictor's order: one snippet at a time, and in it one stack at a time."""
    c, features = engine.config, []
    with torch.no_grad():
        pixels = pad_frames(frames, c.padding)
        for i in range(snippet_count(c, len(frames))):
            clip = pixels[start_frame(c, i) :][: snippet_span(c) : c.step].unflatten(
                0, (-1, c.stack)
            )  # (J, stack, H, W)
            maps = torch.cat([engine.encode(stack[None]) for stack in clip])
            features.append(engine.backbone.mix(maps))
    return torch.cat(features)


def _all_stacks(engine: BatchEncoder, frames: Tensor) -> Tensor:
    """Every stack of every clip, (N·J, stack, H, W)."""
    c = engine.config
    pixels = pad_frames(frames, c.padding)
    clips = [pixels[start_frame(c, i) :][: snippet_span(c) : c.step] for i in range(snippet_count(c, len(frames)))]
    return torch.stack(clips).unflatten(1, (-1, c.stack)).flatten(0, 1)


def without_sharing(engine: BatchEncoder, stacks: Tensor) -> Tensor:
    """All stacks in one batch; on a CPU in bites that fit its caches, as ours, so that only the sharing differs."""
    on_gpu = engine.device.type == "cuda"
    x = stacks.to(engine.dtype, memory_format=torch.channels_last) / 255
    maps = engine.backbone.encode(x) if on_gpu else engine.encode(stacks)
    at_once = len(stacks) if on_gpu else engine.at_once
    return torch.cat([engine.backbone.mix(some) for some in maps.split(at_once * engine.config.stacks)])


def batched(engine: BatchEncoder, frames: Tensor) -> Tensor:
    with torch.no_grad():
        return without_sharing(engine, _all_stacks(engine, frames))


def compiled_batched(engine: BatchEncoder, frames: Tensor) -> Callable[[], Tensor]:
    network = torch.compile(lambda stacks: without_sharing(engine, stacks), dynamic=False, mode="reduce-overhead")

    def run() -> Tensor:
        with torch.no_grad():
            return network(_all_stacks(engine, frames)).clone()

    return run


def ours(backbone: Backbone, frames: Tensor) -> Callable[[], Tensor]:
    engine = BatchEncoder(backbone)
    return lambda: engine.windows(frames, [0])[0]


def parts(engine: BatchEncoder, frames: Tensor, repeats: int, *, on_gpu: bool) -> dict[str, float]:
    """Where the eager time goes, and the arithmetic of a window: the floor no order of computing goes below."""
    from torch.utils.flop_counter import FlopCounterMode

    c = engine.config
    with torch.no_grad():
        begins = c.stride * torch.arange(engine.stacks_per_batch, device=frames.device)
        frame_index = begins[:, None] + stack_offsets(c, partial(torch.arange, device=frames.device))
        stacks = pad_frames(frames, c.padding)[frame_index]
        maps = engine.encode(stacks)
        figures = {}
        for name, run in (("encode", lambda: engine.encode(stacks)), ("mix", lambda: engine.mix(maps))):
            with FlopCounterMode(display=False) as counter:
                run()
            figures[f"{name}_ms"] = round(one_ms(run, repeats, on_gpu=on_gpu), 3)
            figures[f"{name}_gflop"] = round(counter.get_total_flops() / 1e9, 1)
    print(
        f"  eager parts: 2D encoder {figures['encode_ms']:.1f} ms ({figures['encode_gflop']:.0f} GFLOP), "
        f"3D blocks and pooling {figures['mix_ms']:.1f} ms ({figures['mix_gflop']:.0f} GFLOP)"
    )
    return figures


def end_to_end(
    backbone: Backbone,
    size: tuple[int, int],
    clips: int,
    args: argparse.Namespace,
    rows: list[dict[str, Any]],
    save: Callable[[], None],
) -> None:
    """From mp4 on disk to features, decoding included, once the network is warm; a row for each set of decoders."""
    if find_spec("av") is None:
        print("  end to end: left out, PyAV is not installed here")
        return
    from ballcast.core.actions import CLIP_FRAMES
    from ballcast.core.util import cores
    from ballcast.features.extract_workers import Decoders, choose_decoders
    from ballcast.features.videos import Piece, Source

    engine, on_gpu = BatchEncoder(backbone), args.device.startswith("cuda")
    wanted = args.decoders or [str(max(1, cores() - 1))]
    sessions = [*args.nvdec, *[0] * len(wanted)]
    with tempfile.TemporaryDirectory() as folder:
        path = args.video or draw(Path(folder) / "clip.mp4", size, CLIP_FRAMES)
        source = Source("clip", path, path.name, CLIP_FRAMES, 0, 0)
        pieces = [Piece(source, i, 0, CLIP_FRAMES // WINDOW_FRAMES, WINDOW_FRAMES) for i in range(clips)]
        for number, (count, nvdec) in enumerate(zip(wanted, sessions, strict=False)):
            began = time.perf_counter()
            chosen = choose_decoders(pieces[0], "auto", cores()) if count == "auto" else Decoders(int(count), nvdec)
            row: dict[str, Any] = {"decoders": chosen.cores, "nvdec": chosen.sessions, "why": chosen.why}
            if chosen.why:
                row["measured_s"] = round(time.perf_counter() - began, 2)
                print(f"  auto, after {row['measured_s']:.1f} s: {chosen.why}")
            if not number and on_gpu:
                frames = torch.randint(0, 256, (WINDOW_FRAMES, *size), dtype=torch.uint8)
                for _ in range(3):
                    engine.windows(frames, [0])  # compile and record, outside the clock
            try:
                row |= measure(engine, pieces, chosen.devices(args.device), CLIP_FRAMES)
            except Exception as error:  # one row that fails must not hide the others
                row["failed"] = f"{type(error).__name__}: {error}"[:2000]
                print(f"  {chosen.cores} processes, {nvdec} sessions of NVDEC failed: {row['failed'][:300]}")
            rows.append(row)
            save()


def measure(engine: BatchEncoder, pieces: list[Any], devices: list[str], frames: int) -> dict[str, Any]:
    """Extract the pieces; the clock starts when the decoders are under way and their page-locked memory is there."""
    from ballcast.features.videos import work

    warmup = len(devices) + 2 if engine.device.type == "cuda" else 0
    began, waited, computed = time.perf_counter(), 0.0, 0.0
    for done, outcome in enumerate(work(engine, [*pieces[:1] * warmup, *pieces], devices), start=1):
        if outcome.reason:
            raise SystemExit(outcome.reason)
        waited += outcome.waited
        computed += outcome.computed
        if done == warmup:
            print(f"  warm after {time.perf_counter() - began:.1f} s, {warmup} clips", flush=True)
            began, waited, computed = time.perf_counter(), 0.0, 0.0
    seconds = time.perf_counter() - began
    speed, share, cpus = len(pieces) * frames / seconds, waited / (waited + computed), devices.count("cpu")
    print(
        f"  end to end: {len(pieces)} clips of 30 s, {cpus} processes and {len(devices) - cpus} sessions of NVDEC: "
        f"{speed:.0f} frames a second, {speed / FPS:.1f} × real time; the network waits {100 * share:.0f} % of it",
        flush=True,
    )
    return {"clips": len(pieces), "times_real_time": round(speed / FPS, 2), "waiting": round(share, 4)}


def draw(path: Path, size: tuple[int, int], frames: int) -> Path:
    """A pitch-like image that pans, with a few moving boxes: compressible, but not still."""
    import av
    import numpy as np

    H, W = size
    y, x = np.mgrid[:H, : 2 * W]
    pitch = (90 + 20 * (x // 40 % 2) + 10 * np.sin(y / 17)).astype(np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS, options={"preset": "veryfast", "g": "125"})
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        for i in range(frames):
            image = pitch[:, i % W : i % W + W].copy()
            for k in range(22):
                top, left = (37 * k + i) % (H - 8), (53 * k + (k % 5 + 1) * i) % (W - 4)
                image[top : top + 8, left : left + 4] = 200
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="gray").reformat(format="yuv420p")))
        out.mux(stream.encode())
    return path


def one_ms(run: Callable[[], Tensor], repeats: int, *, on_gpu: bool) -> float:
    times = []
    for _ in range(repeats):
        if on_gpu:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            began = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times) if on_gpu else min(times)  # a CPU is shared with others: the least disturbed run


def _free(on_gpu: bool) -> None:
    gc.collect()
    torch._dynamo.reset()
    if on_gpu:
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
