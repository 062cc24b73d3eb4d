"""Many streams on one machine: how long after a stream's last frame its forecast comes, and how many streams hold.

    python -m benchmarks.streams --lines 720 --streams 1,10,30,100 --seconds 20 --out streams.json    # on a GPU
    python -m benchmarks.streams --lines 224 --streams 1,2,4 --seconds 20 --out streams.json          # on two cores
    python -m benchmarks.streams --streams 100 --processes 4 --only scheduler       # as four followers have them

A file is decoded and played in real time by every stream, each from its own beginning. First N streams run in one
scheduler (`ballcast_server.streams.scheduler`), then N separate sessions as N commands `ballcast live` have them, but
with one copy of the weights and in one process. Milliseconds from the arrival of the last frame to the forecast, after
all streams run. "held": every stream made all its forecasts, none dropped a frame, none was late or waiting.

--processes: the streams are shared out to so many processes, each with a scheduler and weights of its own, that measure
the same seconds; the figures are those of all together.

--network full: the published sizes with random weights, in torch. onnx: the embedded models in ONNX Runtime.
tiny: a few thousand weights, to measure everything but the network. The figures are written after each step.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
import torch

from ballcast.api import load
from ballcast.core.actions import FPS
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.files import write_json
from ballcast.core.util import cores
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.inference.runtime import Runtime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast, Status
from ballcast.model.anticipator import Anticipator
from ballcast.video.sources import FileSource, LiveSource
from ballcast.video.stream import StreamSource
from ballcast_server.streams.decoder import open_stream
from ballcast_server.streams.scheduler import Scheduler
from benchmarks.extract import draw
from benchmarks.machine import SIZES

TARGET_MS = 100.0  # p95, 100 streams of 720p on one H200
FILL_S = 5.0  # of a stream's first window
SETTLE_S = 3.0  # after all streams run
START_S = 60.0  # for the networks to be recorded and all streams to run
LOAD_S = 300.0  # for the other processes to load and compile their networks
ROOT = Path(__file__).parents[1]


def main() -> None:
    args = _options()
    torch.set_num_threads(args.threads)
    if args.child:
        _follow(args)
        return
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else f"CPU, {args.threads} thread(s)"
    result: dict[str, Any] = {"device": where, "cores": cores(), "lines": args.lines, "network": args.network}
    result |= {"processes": args.processes, "steps": []}
    shown = f"{args.lines} lines; network: {args.network}; processes: {args.processes}"
    print(f"{where}; {cores()} cores; torch {torch.__version__}; {shown}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        length_s = args.seconds + FILL_S + SETTLE_S + START_S * min(args.processes, 2)
        args.video = args.video or draw(Path(folder) / "video.mp4", SIZES[f"{args.lines}p"], round(length_s * FPS))
        new_runtime = networks(args.network, args.device, args.threads) if args.processes == 1 else None
        for count in [int(count) for count in args.streams.split(",")]:
            for kind in ("scheduler", "separate"):
                if args.only in (None, kind):
                    step = {"kind": kind, "streams": count, **_measured(kind, new_runtime, count, args)}
                    result["steps"].append(step)
                    print(f"  {count:4} streams, {kind:9}: {_line(step)}", flush=True)
                    if args.out:
                        write_json(args.out, result, indent=1)
    held = [s["streams"] for s in result["steps"] if s["kind"] == "scheduler" and s.get("held")]
    quick = [s["streams"] for s in result["steps"] if s["kind"] == "scheduler" and s.get("p95", 1e9) < TARGET_MS]
    most, quickly = max(held, default=0), max(set(held) & set(quick), default=0)
    who = "one scheduler holds" if args.processes == 1 else f"{args.processes} processes hold"
    print(f"  {who} real time with {most} streams, with p95 under {TARGET_MS:g} ms {quickly}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,10,30,100", help="how many, with commas")
    parser.add_argument("--lines", type=int, choices=[720, 224], help="default: 720 on a GPU, 224 on a CPU")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, of each step")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--network", choices=["full", "onnx", "tiny"], help="default: full on a GPU, onnx on a CPU")
    parser.add_argument("--only", choices=["scheduler", "separate"], help="one of the two")
    parser.add_argument("--processes", type=int, default=1, help="that share the streams, each with its own scheduler")
    parser.add_argument("--video", type=Path, help="an own video instead of the drawn one; it is played from its start")
    parser.add_argument(
        "--source", choices=SOURCES, default="file", help="a file, or the same over HTTP: decoded here, or confined"
    )
    parser.add_argument("--threads", type=int, default=cores(), help="of the network on a CPU, in each process")
    parser.add_argument("--out", type=Path, help="write the figures here, after each step")
    parser.add_argument("--child", nargs=3, metavar=("FOLDER", "N", "OF"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processes < 1:
        parser.error("--processes: give 1 or more")
    on_gpu = args.device.startswith("cuda")
    args.lines = args.lines or (720 if on_gpu else 224)
    args.network = args.network or ("full" if on_gpu else "onnx")
    args.video = args.video and args.video.absolute()  # processes run in a folder of their own
    return args


SOURCES: dict[str, Callable[[str], LiveSource]] = {
    "file": lambda path: FileSource(path, threads=1),
    "stream": StreamSource,
    "confined": lambda address: open_stream(address, colour=False),  # as the server decodes streams
}


@contextmanager
def _served(video: Path) -> Iterator[str]:
    """Serve a video over HTTP as a transport stream, from a process of its own; the address."""
    with tempfile.TemporaryDirectory() as folder:
        with av.open(str(video)) as given, av.open(f"{folder}/a.ts", "w") as made:
            stream = made.add_stream_from_template(given.streams.video[0])
            for packet in given.demux(video=0):
                if packet.dts is not None:
                    packet.stream = stream
                    made.mux(packet)
        command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            try:
                yield f"http://127.0.0.1:{server.stdout.readline().split(' port ')[1].split()[0]}/a.ts"
            finally:
                server.kill()


def networks(network: str, device: str, threads: int) -> Callable[[], Runtime]:
    """A function that gives runtimes which share their networks."""
    if network == "onnx":
        return load(runtime="onnx", threads=threads, size="own").new_runtime
    torch.manual_seed(0)
    config, sizes = BackboneConfig(), HierarchyConfig()
    if network == "tiny":
        config = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=4)
        sizes = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=32, decoder_heads=2, decoder_ffn=32)
    backbone = Backbone(config).eval().to(device)
    model = Anticipator(ModelConfig(clips=snippet_count(config), width=config.width, hierarchy=sizes)).eval()
    runtime = TorchRuntime(model, backbone, device=device)
    runtime.picture_size = None  # the frames' own size is the one to measure
    return lambda: runtime


def _measured(
    kind: str, new_runtime: Callable[[], Runtime] | None, count: int, args: argparse.Namespace
) -> dict[str, Any]:
    """The figures of one step, in processes of their own without `new_runtime`; of one that fails, the reason."""
    try:
        if new_runtime is None:
            return summary(measure_apart(kind, count, args))
        return summary(measure(kind, new_runtime, args.video, count, args.seconds, source=args.source))
    except Exception as error:  # separate sessions may not fit on the device; the other steps still count
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


def measure_apart(kind: str, count: int, args: argparse.Namespace) -> dict[str, Any]:
    """Share the streams out to processes; what all measured together. The first that fails ends the others."""
    processes = min(args.processes, count)
    command = [sys.executable, "-m", "benchmarks.streams", "--only", kind]
    for name in ("lines", "seconds", "device", "network", "video", "threads", "source"):
        command += [f"--{name}", str(getattr(args, name))]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        children = []
        for n in range(processes):
            share = [f"--streams={count // processes + (n < count % processes)}", "--child", name, str(n)]
            log = stack.enter_context((folder / f"{n}.txt").open("w"))
            child = subprocess.Popen([*command, *share, str(processes)], cwd=ROOT, stdout=log, stderr=log)
            children.append(child)
            stack.callback(child.wait)
            stack.callback(child.kill)
        while any(child.poll() is None for child in children) and not any(child.poll() for child in children):
            time.sleep(0.2)
        for n, child in enumerate(children):
            if child.returncode:
                lines = (folder / f"{n}.txt").read_text().strip().splitlines() or ["it wrote nothing"]
                raise RuntimeError(f"process {n} ended with {child.returncode}: {lines[-1]}")
        return merged([json.loads((folder / f"{n}.json").read_text()) for n in range(processes)])


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of processes that measured the same seconds, as of one."""
    figures = dict(parts[0])  # the GPU, which all of them share
    for key in ("forecasts", "expected", "frames_lost", "waiting", "slow", "cores_used", "threads_busy"):
        if key in figures:
            figures[key] = round(sum(part[key] for part in parts), 3)
    for key in ("late_ms", "ready_s", "machine_load"):
        figures[key] = max(part[key] for part in parts)
    if "steps_a_batch" in figures:
        figures["steps_a_batch"] = round(statistics.mean(part["steps_a_batch"] for part in parts), 2)
    figures["held"] = all(part["held"] for part in parts)
    figures["errors"] = sorted({error for part in parts for error in part["errors"]})[:3]
    figures["latencies_ms"] = [each for part in parts for each in part["latencies_ms"]]
    return figures


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures with percentiles instead of every latency."""
    figures = dict(figures)
    if times := figures.pop("latencies_ms"):
        p50, p95, p99 = (round(float(x), 1) for x in np.percentile(times, [50, 95, 99]))
        figures |= {"p50": p50, "p95": p95, "p99": p99, "most": round(max(times), 1)}
    return figures


def _follow(args: argparse.Namespace) -> None:
    """One of the processes: its share of the streams; the figures go to a file."""
    folder, n, of = Path(args.child[0]), int(args.child[1]), int(args.child[2])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    meet = partial(_meet, folder, n, of)
    new_runtime = networks(args.network, args.device, args.threads)
    figures = measure(args.only, new_runtime, args.video, int(args.streams), args.seconds, meet, args.source)
    write_json(folder / f"{n}.json", figures)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: killed, it could not."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _meet(folder: Path, n: int, of: int, where: str) -> None:
    """Wait until all processes are there."""
    (folder / f"{where}-{n}").touch()
    end = time.monotonic() + LOAD_S
    while len(list(folder.glob(f"{where}-*"))) < of:
        if time.monotonic() > end:
            raise TimeoutError(f"the other processes were not {where} within {LOAD_S:g} s")
        time.sleep(0.05)


def measure(
    kind: str,
    new_runtime: Callable[[], Runtime],
    video: Path,
    count: int,
    seconds: float,
    meet: Callable[[str], None] = lambda _: None,
    source: str = "file",
) -> dict[str, Any]:
    """Run `count` streams, and measure for so many seconds once all of them make forecasts.

    source: one of `SOURCES`.
    meet: called when the networks are loaded, and when all streams run; it may wait for others.
    """
    with ExitStack() as stack:
        scheduler = stack.enter_context(Scheduler(new_runtime, streams=max(count, 2))) if kind == "scheduler" else None
        sessions: list[LiveSession] = []
        meet("loaded")
        began = time.monotonic()
        opened = SOURCES[source]
        address = str(video) if source == "file" else stack.enter_context(_served(video))
        for n in range(count):
            frames = opened(address)
            one = scheduler.session(frames) if scheduler else LiveSession(frames, StreamPredictor(new_runtime()))
            sessions.append(stack.enter_context(one))
            time.sleep(max(0.0, began + (n + 1) / count - time.monotonic()))  # their seconds begin at different times
        end = time.monotonic() + START_S
        while time.monotonic() < end and not all(_runs(session) for session in sessions):
            time.sleep(0.1)
        meet("running")
        time.sleep(SETTLE_S)
        ready_s = time.monotonic() - began
        records = [stack.enter_context(session.subscribe(capacity=100_000)) for session in sessions]
        for each in records:
            while each.get(0) is not None:  # what was there before
                pass
        before = [session.load[1] for session in sessions]
        with usage() as used:
            load, busy_s = scheduler.load if scheduler else None, scheduler.batcher.busy_s if scheduler else 0.0
            time.sleep(seconds)
        received = [list(iter(lambda: each.get(0), None)) for each in records]  # noqa: B023
        lost = sum(session.load[1] - old for session, old in zip(sessions, before, strict=True))
        figures = _figures(received, sessions, seconds, lost)
        if scheduler is not None and load is not None:
            now = scheduler.load
            figures["threads_busy"] = round((scheduler.batcher.busy_s - busy_s) / seconds, 3)
            figures["steps_a_batch"] = round((now.steps - load.steps) / max(1, now.batches - load.batches), 2)
        errors = [str(session.error) for session in sessions if session.error is not None]
    return {**figures, **used, "ready_s": round(ready_s, 1), "errors": sorted(set(errors))[:3]}


def _runs(session: LiveSession) -> bool:
    """Whether it makes forecasts, or there is no room for it, or it has failed."""
    status = session.status
    return status.state in ("running", "slow", "error") or status.message.startswith("no room")


def _figures(received: list[list[Any]], sessions: list[LiveSession], seconds: float, lost: int) -> dict[str, Any]:
    made = [[r for r in records if isinstance(r, LiveForecast)] for records in received]
    times = [r.latency_ms for records in made for r in records]
    bad = [
        any(isinstance(r, Status) and r.state not in ("running", "filling") for r in records) for records in received
    ]
    waiting = sum(session.held for session in sessions)
    least = int(seconds) - 1
    late = [session._session_status._late_ms for session in sessions]
    return {
        "forecasts": len(times),
        "expected": round(seconds) * len(sessions),
        "frames_lost": lost,
        "waiting": waiting,
        "slow": sum(bad),
        "late_ms": max(late),
        "held": not waiting and not lost and not any(bad) and all(len(records) >= least for records in made),
        "latencies_ms": [float(each) for each in times],
    }


@contextmanager
def usage() -> Iterator[dict[str, Any]]:
    """Cores and GPU that this process and its children use within the block, as far as they can be read."""
    found: dict[str, Any] = {}
    began, cpu, stop = time.monotonic(), _processor_s(), threading.Event()
    seen: list[tuple[float, float]] = []

    def ask() -> None:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        while not stop.wait(1.0):
            answer = subprocess.run(query, capture_output=True, text=True, timeout=10)
            if answer.returncode == 0:
                percent, mebibytes = answer.stdout.splitlines()[0].split(",")
                seen.append((float(percent), float(mebibytes)))

    thread = threading.Thread(target=ask, daemon=True)
    if torch.cuda.is_available() and shutil.which("nvidia-smi"):
        thread.start()
    yield found
    took = time.monotonic() - began
    found["cores_used"] = round((_processor_s() - cpu) / took, 2)
    found["machine_load"] = round(os.getloadavg()[0], 1)
    stop.set()
    if seen:
        found["gpu_percent"] = round(statistics.mean(percent for percent, _ in seen), 1)
        found["gpu_mib"] = max(mebibytes for _, mebibytes in seen)


def _processor_s() -> float:
    """Processor time of this process and of its children, in seconds."""
    own = psutil.Process()
    return sum(times.user + times.system for times in [p.cpu_times() for p in (own, *own.children(recursive=True))])


def _line(step: dict[str, Any]) -> str:
    if "failed" in step:
        return f"failed: {step['failed']}"
    times = f"p50 {step['p50']}, p95 {step['p95']}, p99 {step['p99']} ms" if "p50" in step else "no forecast"
    verdict = (
        "real time held" if step["held"] else f"NOT held: {step['waiting']} waiting, {step['slow']} slow or broken"
    )
    gpu = f", GPU {step['gpu_percent']} %" if "gpu_percent" in step else ""
    batch = (
        f", {step['steps_a_batch']} steps a batch, {step['threads_busy']:.2f} threads busy"
        if "threads_busy" in step
        else ""
    )
    made = f"{step['forecasts']} of {step['expected']} forecasts, {step['frames_lost']} frames lost"
    return f"{times}; {verdict}; {made}; {step['cores_used']} cores{gpu}{batch}"


if __name__ == "__main__":
    main()
