"""The runtimes beside each other on a CPU: torch, compiled torch and ONNX, each in a process of its own.

    python -m benchmarks.runtime                                      # the embedded model
    python -m benchmarks.runtime --neighbours 2                       # what other work on the same cores costs
    python -m benchmarks.runtime --onnx exported --threads 2 --json out.json

For each: seconds from the start of the process until the networks are ready, and until the first anticipation (5 s of
video computed); then the median milliseconds of a clip (a stack encoded, a clip mixed) and × real time over --seconds
of video; resident memory then, and at most. One after the other, in one run; the machine should have nothing else to
do. With --neighbours: torch with threads that spin while they wait, as OpenMP's do by default, torch as ballcast sets
it (`set_thread_defaults`), and ONNX, each alone and beside that many busy processes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ballcast.core.actions import FPS
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.files import write_json
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.runtime import Runtime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.video.file import VideoFile

KINDS = ("torch", "compiled torch", "ONNX")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--onnx", type=Path, default=MODEL, help="an export; default: the embedded model")
    parser.add_argument("--video", type=Path, default=MODEL.parent / "test" / "excerpt.mp4")
    parser.add_argument("--seconds", type=float, default=20.0, help="of video, after the first anticipation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside; compares ways of waiting")
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.onnx, args.video, args.seconds)
        return
    rows: dict[str, Any] = {}
    if args.neighbours:
        rows = beside_neighbours(args.onnx, args)
    else:
        for kind in args.only or KINDS:
            rows[kind] = measured(kind, args.onnx, args)
            ratio = rows["torch"]["clip_ms"] / rows[kind]["clip_ms"] if "torch" in rows else float("nan")
            print(f"{kind:15} {_line(rows[kind])}; {ratio:.2f} × torch", flush=True)
    if args.json:
        write_json(args.json, rows, indent=1)


def _line(row: dict[str, float]) -> str:
    return (
        f"ready {row['ready_s']:.2f} s, first anticipation {row['first_s']:.2f} s, a clip {row['clip_ms']:.1f} ms, "
        f"{row['times_real_time']:.2f} × real time, {row['rss_mb']:.0f} MB (at most {row['peak_mb']:.0f})"
    )


def beside_neighbours(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Figures of each way of waiting, alone and beside busy processes."""
    rows: dict[str, Any] = {}
    for count in (0, args.neighbours):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            for kind, policy in (("torch", "ACTIVE"), ("torch", "PASSIVE"), ("ONNX", "PASSIVE")):
                name = f"{kind}, {policy.lower()}, {count} neighbours"
                rows[name] = measured(kind, folder, args, policy)
                print(f"{name:32} {_line(rows[name])}", flush=True)
        finally:
            for process in busy:
                process.kill()
                process.wait()
    return rows


def measured(kind: str, folder: Path, args: argparse.Namespace, policy: str = "PASSIVE") -> dict[str, float]:
    """Figures of one runtime, from a process that has nothing else in it; `policy`: how OpenMP's threads wait."""
    command = [sys.executable, "-m", "benchmarks.runtime", "--child", kind, "--onnx", str(folder)]
    command += ["--video", str(args.video), "--seconds", str(args.seconds)]
    began = time.time()
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "OMP_WAIT_POLICY": policy}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{kind}: {done.stderr}")
    figures = json.loads(done.stdout.splitlines()[-1])
    return {**figures, "ready_s": figures["ready_s"] - began, "first_s": figures["first_s"] - began}


def child(kind: str, folder: Path, video: Path, seconds: float) -> None:
    predictor = StreamPredictor(_runtime(kind, folder))
    ready, first = time.time(), 0.0
    steps, since = [], 0.0
    with VideoFile(video) as file:
        for frame in file.frames(colour=predictor.colour):
            began, stacks = time.perf_counter(), predictor.stream.stacks
            made = predictor.push(frame)
            took = time.perf_counter() - began
            if first and made is None and predictor.stream.stacks > stacks:
                steps.append(1000 * took)
            if not first and made is not None:
                first, since = time.time(), time.perf_counter()
            if first and predictor.frames >= (5 + seconds) * FPS:
                break
    rate = (predictor.frames / FPS - 5) / (time.perf_counter() - since)
    figures = {"ready_s": ready, "first_s": first, "clip_ms": statistics.median(steps), "times_real_time": rate}
    print(json.dumps({**figures, "rss_mb": _status_mb("VmRSS"), "peak_mb": _status_mb("VmHWM")}))


def _runtime(kind: str, folder: Path) -> Runtime:
    if kind == "ONNX":
        runtime = open_light(folder)
        assert "torch" not in sys.modules
        return runtime
    import torch

    from ballcast.inference.torch_runtime import TorchRuntime

    loaded = TorchRuntime.load(MODEL, BACKBONE, device="cpu")
    if kind == "compiled torch":
        for name in ("encode", "mix"):
            setattr(loaded.encoder, name, torch.compile(getattr(loaded.encoder, name), dynamic=False))
    return loaded


def open_light(folder: Path) -> OnnxRuntime:
    """The embedded model, or an export."""
    if folder == MODEL:
        return OnnxRuntime.embedded(MODEL, BACKBONE)
    return OnnxRuntime.open(folder)


def _status_mb(key: str) -> float:
    return int(Path("/proc/self/status").read_text().partition(f"{key}:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
