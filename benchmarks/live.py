"""Live anticipation: how soon after the last frame, how much work, and what the shared grid of clips costs.

    python -m benchmarks.live                          # on a GPU 1280×720, on a CPU 398×224; frames made up
    python -m benchmarks.live --json out.json
    python -m benchmarks.live --only grid --matches ../shared/data/simbaa --split test --model M --backbone B

Parts, which `--only` picks; the first two by default:

- latency: from the last frame's arrival to the prediction, backbone included. Frames come 25 a second for `--seconds`
  through a live session, its threads and queues included; then back to back, for many more forecasts.
- work: one step (a second of video, one anticipation) against computing the last 30 s anew, in FLOP and in time.
- hour: an hour of frames through a live session as fast as it goes, and the resident memory from minute to minute.
- grid: windows snapped to the absolute grid of clip starts (at most 2 frames early) against exact ones, on simulated
  matches: how much features and predictions differ, and the score of both if the model was trained. Needs PyAV.

Weights are random unless --model and --backbone are given: time does not depend on them, the grid's cost does.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ballcast.core.actions import CLIP_FRAMES, END_MS, FPS, FRAME_MS, OBSERVED_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.events import Clip
from ballcast.core.files import write_json
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, start_frame
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast, Status
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit
from ballcast.model.slots import Slots
from ballcast.video.luma import array_shape
from ballcast.video.resample import snap
from ballcast.video.sources import LiveFrame, StreamGap
from benchmarks.machine import add_options, settle

TARGET_MS, TARGET_RATIO = 40.0, 20.0  # p95 at 720p on an H200; work of a step against all anew


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, threads=2)
    parser.add_argument("--every", type=float, default=1.0, help="seconds from one anticipation to the next")
    parser.add_argument("--seconds", type=float, default=60.0, help="of real time")
    parser.add_argument("--forecasts", type=int, help="back to back; default: 600 on a GPU, 30 on a CPU")
    parser.add_argument("--model", help="a trained model's folder")
    parser.add_argument("--backbone", help="the backbone it was trained on")
    parser.add_argument("--only", choices=["latency", "work", "hour", "grid"], action="append")
    parser.add_argument("--matches", type=Path, help="grid: the folder of matches.json and its videos")
    parser.add_argument("--split", default="test", help="grid: of the matches")
    parser.add_argument("--most", type=float, default=60.0, help="grid: seconds of each match, at most")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    machine = settle(args)
    on_gpu, where, (H, W) = machine.on_gpu, machine.name, machine.size
    torch.manual_seed(0)
    backbone = (Backbone.load(args.backbone) if args.backbone else Backbone().eval()).to(args.device)
    if args.model:
        model = Anticipator.from_pretrained(args.model)
    else:
        model = Anticipator(ModelConfig(clips=snippet_count(backbone.config), width=backbone.config.width)).eval()
    print(f"{where}; torch {torch.__version__}; frames {W}×{H}; every {args.every:g} s", flush=True)
    result: dict[str, Any] = {"device": where, "torch": torch.__version__, "frame": [H, W], "every_s": args.every}
    parts = args.only or ["latency", "work", *(["grid"] if args.matches else [])]
    runtime = TorchRuntime(model, backbone, device=args.device)
    runtime.picture_size = None  # the size asked for is the size to measure
    predictor = StreamPredictor(runtime, every_ms=round(1000 * args.every))
    frames = made_up(*array_shape((H, W), colour=predictor.colour))
    if "latency" in parts:
        result["latency"] = latency(
            predictor, frames, args.seconds, args.forecasts or (600 if on_gpu else 30), on_gpu=on_gpu
        )
    if "work" in parts:
        result["work"] = work(predictor, model, backbone, frames, on_gpu=on_gpu)
    if "hour" in parts:
        result["hour"] = hour(predictor, frames)
    if "grid" in parts:
        if args.matches is None:
            parser.error("--only grid needs --matches")
        result["grid"] = grid(
            model, backbone, args.matches, args.split, args.most, args.device, trained=bool(args.model)
        )
    if args.json:
        write_json(args.json, result, indent=1)


def made_up(H: int, W: int, count: int = 50) -> list[np.ndarray]:
    """Two seconds of noise, to be shown over and over."""
    rng = np.random.default_rng(0)
    return [rng.integers(16, 236, (H, W), dtype=np.uint8) for _ in range(count)]


# -- latency -------------------------------------------------------------------------------------------------------


class Camera:
    """Frames at 25 a second, whatever happens, as a `LiveSource`; `blocking`: as fast as they are read."""

    name = "camera"

    def __init__(self, frames: list[np.ndarray], seconds: float, *, blocking: bool = False) -> None:
        self._frames, self._count, self._stopped = frames, round(seconds * FPS), threading.Event()
        self.blocking = blocking

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        began = time.monotonic()
        for n in range(self._count):
            due = began if self.blocking else began + n / FPS
            if self._stopped.wait(max(0.0, due - time.monotonic())):
                return
            yield LiveFrame(self._frames[n % len(self._frames)], n * FRAME_MS, time.time())

    def close(self) -> None:
        self._stopped.set()


def latency(
    predictor: StreamPredictor, frames: list[np.ndarray], seconds: float, forecasts: int, *, on_gpu: bool
) -> dict[str, Any]:
    """In real time, then back to back; milliseconds."""
    began = time.perf_counter()
    back_to_back(predictor, frames, 2)
    ready = time.perf_counter() - began
    print(f"  ready after {ready:.1f} s")
    asked_ms = predictor.every_ms
    session = LiveSession(Camera(frames, seconds), predictor)
    with session.subscribe(capacity=100_000) as records, session:
        received = list(records)
    if session.error is not None:
        raise session.error
    made = [r for r in received if isinstance(r, LiveForecast)]
    states = [r for r in received if isinstance(r, Status)]
    busy = [r.busy for r in states if r.state in ("running", "slow")][1:]
    live: dict[str, Any] = {
        "forecasts": len(made),
        **percentiles([r.latency_ms for r in made]),
        "most_behind_ms": max((r.behind_ms for r in made), default=0),
        "dropped_frames": states[-1].dropped,
        "every_ms": states[-1].every_ms,
        "busy": round(statistics.mean(busy), 3) if busy else None,
        "held": all(r.state not in ("slow", "skipped") for r in states),
    }
    print(f"  in real time, {seconds:g} s: {_line(live)}; {live['busy'] or 0:.0%} busy, ", end="")
    print(
        "real time held" if live["held"] else f"NOT held: every {live['every_ms']} ms, {live['dropped_frames']} dropped"
    )
    predictor.every_ms = asked_ms
    times, total = back_to_back(predictor, frames, forecasts)
    video_s = (forecasts - 1) * asked_ms / 1000
    quick: dict[str, Any] = {"forecasts": forecasts, **percentiles(times), "times_real_time": round(video_s / total, 2)}
    print(f"  back to back: {_line(quick)}; {quick['times_real_time']:.1f} × real time")
    if on_gpu:
        print(f"  target (H200, 1280×720): p95 under {TARGET_MS:g} ms {max(live['p95'], quick['p95']) < TARGET_MS}")
    return {"ready_s": round(ready, 1), "real_time": live, "back_to_back": quick}


def back_to_back(predictor: StreamPredictor, frames: list[np.ndarray], forecasts: int) -> tuple[list[float], float]:
    """Milliseconds of the push that gives an anticipation, for each, and the seconds from the first to the last."""
    predictor.reset()
    times: list[float] = []
    n, first = 0, 0.0
    while len(times) < forecasts:
        began = time.perf_counter()
        made = predictor.push(frames[n % len(frames)])
        n += 1
        if made is not None:
            times.append(1000 * (time.perf_counter() - began))
            first = first or time.perf_counter()
    return times, time.perf_counter() - first


def percentiles(times: list[float]) -> dict[str, float]:
    if not times:
        sys.exit("nothing was anticipated in that time: give more --seconds")
    return {f"p{p}": round(float(np.percentile(times, p)), 3) for p in (50, 95, 99)}


def _line(figures: dict[str, Any]) -> str:
    times = ", ".join(f"{p} {figures[p]:.1f}" for p in ("p50", "p95", "p99"))
    return f"{times} ms ({figures['forecasts']} forecasts)"


# -- work ----------------------------------------------------------------------------------------------------------


def work(
    predictor: StreamPredictor, model: Anticipator, backbone: Backbone, frames: list[np.ndarray], *, on_gpu: bool
) -> dict[str, Any]:
    """One step once running, against the last 30 s anew: each window's distinct stacks once, as extraction does it."""
    c, device = backbone.config, next(backbone.parameters()).device
    engine = BatchEncoder(backbone, device=device, compiled=False)
    W = model.network.lookback
    shown = np.stack([frames[n % len(frames)] for n in range(WINDOW_FRAMES * W)])  # (T, H, W)
    stacks_a_step = predictor.every_ms * FPS / 1000 / c.stride
    present = torch.ones(1, W, dtype=torch.bool, device=device)

    def anew() -> Slots:
        windows = [engine.windows(shown[w * WINDOW_FRAMES : (w + 1) * WINDOW_FRAMES], [0])[0] for w in range(W)]
        return model.anticipate(model.encode_window(torch.stack(windows)[None]), present)

    with torch.no_grad():
        pixels = engine.load(shown[:WINDOW_FRAMES])
        maps = engine.maps(pixels, start_frame(c, torch.arange(engine.overlap + 1, device=device)))
        features = engine.windows(shown[:WINDOW_FRAMES], [0])[0]
        tokens = torch.stack([model.encode_window(features)] * W)[None]
        per_clip = flop(lambda: engine.maps(pixels, torch.zeros(1, dtype=torch.long, device=device)))
        per_clip += flop(lambda: engine.mix(maps))
        step = stacks_a_step * per_clip + flop(lambda: model.encode_window(features))
        step += flop(lambda: model.anticipate(tokens, present))
        whole = flop(anew)
        anew_ms = timed(anew, 5 if on_gpu else 1, on_gpu=on_gpu)
    forecasts = 50 if on_gpu else 5
    step_ms = 1000 * back_to_back(predictor, frames, forecasts + 1)[1] / forecasts
    figures = {
        "step_gflop": round(step / 1e9, 2),
        "anew_gflop": round(whole / 1e9, 2),
        "times_less_flop": round(whole / step, 2),
        "step_ms": round(step_ms, 2),
        "anew_ms": round(anew_ms, 2),
        "times_less_time": round(anew_ms / step_ms, 2),
    }
    print(
        f"  a step: {figures['step_gflop']} GFLOP, all 30 s anew {figures['anew_gflop']}: "
        f"{figures['times_less_flop']:.1f} times less work; at least {TARGET_RATIO:g}: {whole / step >= TARGET_RATIO}"
    )
    print(f"  in time: {step_ms:.1f} against {anew_ms:.1f} ms, {figures['times_less_time']:.1f} times less")
    return figures


def flop(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def timed(run: Callable[[], object], repeats: int, *, on_gpu: bool) -> float:
    """Median milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def hour(predictor: StreamPredictor, frames: list[np.ndarray], seconds: int = 3600) -> dict[str, Any]:
    """Resident memory in MB at each minute of the stream."""
    session, began = LiveSession(Camera(frames, seconds, blocking=True), predictor), time.perf_counter()
    sizes: list[float] = []
    with session.subscribe(capacity=64) as records, session:
        for record in records:
            if isinstance(record, LiveForecast) and record.forecast.at_ms // 60_000 > len(sizes):
                sizes.append(_rss_mb())
    settled = sizes[10:] or sizes
    growth = max(settled) / settled[0] - 1
    speed = seconds / (time.perf_counter() - began)
    print(
        f"  an hour at {speed:.1f} × real time: {settled[0]:.0f} MB after ten minutes, at most {max(settled):.0f} later"
    )
    return {"rss_mb": sizes, "growth": round(growth, 4), "times_real_time": round(speed, 2)}


def _rss_mb() -> float:
    resident = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]
    return round(int(resident) / 1024, 1)


# -- grid ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def grid(
    model: Anticipator, backbone: Backbone, folder: Path, split: str, most_s: float, device: str, *, trained: bool
) -> dict[str, Any]:
    """At every fifth second from 30 s on: windows at their exact starts, and snapped to the grid of clips."""
    from ballcast.data.labels.games import MATCHES, read_matches
    from ballcast.video.file import VideoFile

    engine, model = BatchEncoder(backbone, device=device, compiled=False), model.to(device).eval()
    W, stride = model.network.lookback, backbone.config.stride
    clips: list[Clip] = []
    features_moved, scores_moved = [], []
    predictions: dict[str, dict[str, list[Any]]] = {"exact": {}, "snapped": {}}
    for match in (m for m in read_matches(folder / MATCHES) if m.split == split):
        with VideoFile(folder / match.video) as video:
            frames = video.read(0, min(match.frames, round(most_s * FPS)), colour=backbone.config.colour)
        exact = range(0, len(frames) - WINDOW_FRAMES + 1, WINDOW_FRAMES)  # all forecasts' windows, M of them
        found = engine.windows(frames, [*exact, *(snap(start, stride) for start in exact)])  # (2 M, N, D)
        windows = {"exact": found[: len(exact)], "snapped": found[len(exact) :]}
        for end in range(CLIP_FRAMES, len(frames) + 1, WINDOW_FRAMES):
            last = end // WINDOW_FRAMES
            features = {name: x[None, last - W : last] for name, x in windows.items()}  # (1, W, N, D)
            slots = {name: model(x) for name, x in features.items()}
            a, b = features["exact"], features["snapped"]
            features_moved.append(float((a - b).norm() / a.norm()))
            scores_moved.append(_moved(slots["exact"], slots["snapped"]))
            name, begin_ms = f"{match.video}_{end}", end * FRAME_MS - OBSERVED_MS
            events = [replace(e, position_ms=e.position_ms - begin_ms) for e in match.events]
            clips.append(Clip(name, (), tuple(e for e in events if OBSERVED_MS <= e.position_ms < END_MS)))
            for kind in predictions:
                (predictions[kind][name],) = emit(slots[kind], model.emit)
    figures = {
        "forecasts": len(clips),
        "features_relative": round(statistics.mean(features_moved), 5),
        "scores_relative": round(statistics.mean(scores_moved), 5),
    }
    print(f"  snapped against exact windows, {len(clips)} forecasts of split {split}: features differ by ", end="")
    print(f"{figures['features_relative']:.2%} (L2), the slots' scores by {figures['scores_relative']:.2%} (L1)")
    if trained:
        figures |= {
            f"map_{kind}": round(score(clips, clips_predictions).avg, 5)
            for kind, clips_predictions in predictions.items()
        }
        print("  mAP: " + ", ".join(f"{kind} {100 * figures[f'map_{kind}']:.2f}" for kind in predictions))
    return figures


def _moved(a: Slots, b: Slots) -> float:
    x, y = a.arrays().scores(), b.arrays().scores()
    return float(np.abs(x - y).sum() / np.abs(x).sum())


if __name__ == "__main__":
    main()
