"""What a stream costs outside the network: microseconds of the interpreter's lock a frame, by place.

    python -m benchmarks.stream_lock --streams 1,10,30,100                             # blank frames: no decoding
    python -m benchmarks.stream_lock --video match720.mp4 --streams 12 --seconds 30    # and beside it:
    py-spy record --gil -t -r 400 -f raw -o lock.txt -p PID -d 20
    python -m benchmarks.stream_lock --read lock.txt --streams 12

N streams of a file are played in real time in one scheduler, with a runtime that only sleeps: `--call-ms` a call and
`--step-ms` more for each stack, as a GPU takes. Prints the latency of forecasts, steps a batch, cores, and how late a
thread that only asks for the lock gets it.
"""

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.core.actions import FPS
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.status import LiveForecast
from ballcast.model.postprocess import SlotArrays
from ballcast.video.sources import FileSource, LiveFrame, Pacer
from ballcast_server.streams.scheduler import Scheduler
from benchmarks.streams import networks


class WaitingStream:
    """A `Stream` that copies the frames of its next stack, as `TorchStream` does."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._array = np.zeros(shape, np.uint8)

    def fill(self, frames: Any) -> None:
        np.stack(list(frames), out=self._array)


class Sleeping(TorchRuntime):
    """A `Runtime` that only waits."""

    call_s = 0.0
    step_s = 0.0

    def open_stream(self, size: tuple[int, int]) -> Any:
        return WaitingStream((self.backbone.stack, *size))

    def close_stream(self, stream: Any) -> None:
        pass

    def encode_stacks(self, streams: Sequence[Any]) -> np.ndarray:
        time.sleep(self.call_s + self.step_s * len(streams))
        return np.zeros((len(streams), self.backbone.width), np.float32)

    def encode_windows(self, features: np.ndarray) -> np.ndarray:
        time.sleep(self.call_s)
        return np.zeros((*features.shape[:2], 256), np.float32)

    def predict(self, tokens: np.ndarray, present: np.ndarray) -> SlotArrays:
        time.sleep(self.call_s)
        b = len(tokens)
        objectness, classes, offsets = (np.zeros(shape, np.float32) for shape in ((b, 8), (b, 8, 10), (b, 8, 16)))
        return SlotArrays(objectness, classes, offsets, bins=16)


class Blank(FileSource):
    """Frames that need no decoding, to have more streams than the machine decodes."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.name, self._speed, self._stopped = "blank", 1.0, threading.Event()
        self._frame = np.zeros(size, np.uint8)

    def items(self) -> Any:
        pacer = Pacer(1.0, self._stopped)
        for n in range(10**9):
            if not pacer.wait(40 * n):
                return
            yield LiveFrame(self._frame, 40 * n, time.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", type=Path, help="default: blank frames of 8 × 8 pixels, which are not decoded")
    parser.add_argument("--streams", default="12", help="how many, with commas")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured")
    parser.add_argument("--call-ms", type=float, default=3.0)
    parser.add_argument("--step-ms", type=float, default=0.5)
    parser.add_argument("--read", type=Path, help="sum up a file of py-spy instead")
    args = parser.parse_args()
    counts = [int(count) for count in args.streams.split(",")]
    if args.read is not None:
        show(args.read, counts[0])
        return
    for count in counts:
        measure(args, count)


def measure(args: argparse.Namespace, count: int) -> None:
    """Run so many streams, and print the figures of the seconds after their windows are full."""
    tiny: Any = networks("tiny", "cpu", 1)()
    runtime = Sleeping(tiny.network, tiny.encoder.backbone)
    runtime.picture_size = None
    runtime.call_s = args.call_ms / 1000
    runtime.step_s = args.step_ms / 1000
    with Scheduler(lambda: runtime, streams=max(2, count)) as scheduler, ExitStack() as stack:
        scheduler._share = 10.0  # all are to run
        sources = [FileSource(args.video, threads=1) if args.video else Blank((8, 8)) for _ in range(count)]
        sessions = [stack.enter_context(scheduler.session(source)) for source in sources]
        while not all(session.status.state in ("running", "slow") for session in sessions):
            time.sleep(0.1)
        time.sleep(2.0)
        records = [stack.enter_context(session.subscribe(capacity=10_000)) for session in sessions]
        load, cpu, began, delays = scheduler.load, time.process_time(), time.monotonic(), list[float]()
        print(f"{count} streams run; process {os.getpid()}", flush=True)
        while time.monotonic() < began + args.seconds:
            asked = time.perf_counter()
            time.sleep(0.005)
            delays.append(1000 * (time.perf_counter() - asked) - 5)
        took, now = time.monotonic() - began, scheduler.load
        received = [record for each in records for record in iter(partial(each.get, 0), None)]
        times = [record.latency_ms for record in received if isinstance(record, LiveForecast)]
        p50, p95, p99 = np.percentile(times, [50, 95, 99])
        batches = max(1, now.batches - load.batches)
        cores = (time.process_time() - cpu) / took
        frames = count * FPS * took
        print(
            f"  {len(times)} forecasts of {count * round(took)}; p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms; "
            f"{(now.steps - load.steps) / batches:.2f} steps a batch; {cores:.2f} cores, "
            f"{1e6 * cores * took / frames:.0f} µs of a core a frame; sleeps late by {np.mean(delays):.2f} ms; "
            f"dropped {sum(session.load[1] for session in sessions)}",
            flush=True,
        )


def show(path: Path, streams: int, rate: int = 400, seconds: int = 20) -> None:
    """Print the places that hold the lock longest, in microseconds a frame."""
    own, within, total = Counter[str](), Counter[str](), 0
    for line in path.read_text().splitlines():
        stack, _, times = line.rpartition(" ")
        places, count = stack.split(";"), int(times)
        if "MainThread" in places[0]:  # that which measures
            continue
        total += count
        own[places[-1]] += count
        for place in {place.rpartition(":")[0] for place in places}:
            within[place] += count
    frame_us = 1e6 / rate / (streams * FPS * seconds)
    share = total / rate / seconds
    held = f"{100 * share:.1f} % of the time, {100 * share / streams:.2f} % a stream, {total * frame_us:.0f} µs a frame"
    print(f"lock held {held}")
    for name, counted in (("lines", own), ("functions and what they call", within)):
        print(f"  {name}:")
        for place, count in counted.most_common(45):
            print(f"    {count * frame_us:6.1f} µs  {place}")


if __name__ == "__main__":
    main()
