"""How fast videos are decoded into memory: threads of one process against processes, by their number, in one run.

    python -m benchmarks.decode                        # 224p; 1, 2, 4, … decoders, and one a core
    python -m benchmarks.decode --frame 720 1280 --nvdec 1 4 8 --out decode.json

Prints frames a second, their ratio to one thread, and how many cores were busy. `--nvdec` adds sessions of the GPU's
decoder, whose frames are copied to the host. The same bytes come out of all; a difference ends the run.
"""

import argparse
import hashlib
import os
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.core.files import write_json
from ballcast.core.util import cores
from ballcast.video.decode_pool import Decoder, DecoderPool, SharedMemory, VideoSpec
from benchmarks.extract import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frame", type=int, nargs=2, metavar=("H", "W"), default=(224, 398))
    parser.add_argument("--frames", type=int, default=1500, help="frames a decoder reads, and of the drawn video")
    parser.add_argument("--video", type=Path, help="decode this one instead of a drawn one")
    parser.add_argument("--decoders", type=int, nargs="+", help="default: 1, 2, 4, … up to the cores")
    parser.add_argument("--nvdec", type=int, nargs="*", default=[], help="sessions of NVDEC to measure too")
    parser.add_argument("--repeats", type=int, default=2, help="of which the fastest counts")
    parser.add_argument("--out", type=Path, help="write the figures here, after each")
    args = parser.parse_args()
    numbers = args.decoders or sorted({*(1 << i for i in range(8) if 1 << i <= cores()), cores()})
    result: dict[str, Any] = {"cores": cores(), "frame": args.frame, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        path = args.video or draw(Path(folder) / "video.mp4", args.frame, args.frames)
        plans = [("threads", n) for n in numbers] + [("processes", n) for n in numbers]
        for kind, count in [*plans, *(("nvdec", n) for n in args.nvdec)]:
            row = max((measure(path, kind, count, args.frames) for _ in range(args.repeats)), key=lambda r: r["speed"])
            result["rows"].append(row)
            first = result["rows"][0]
            row["times_one_thread"] = round(row["speed"] / first["speed"], 2)
            if row["sha256"] != first["sha256"]:
                raise SystemExit(f"{kind}: other bytes than those of one thread")
            print(
                f"  {kind:>9} {count:3d}: {row['speed']:8.0f} frames a second, {row['times_one_thread']:5.2f} × "
                f"one thread, {row['cores']:5.2f} cores busy",
                flush=True,
            )
            if args.out:
                write_json(args.out, result, indent=1)


def measure(path: Path, kind: str, count: int, frames: int) -> dict[str, Any]:
    """Let `count` decoders read the video, each the whole of it, once their processes are there."""
    recording, device = VideoSpec(str(path)), "cuda" if kind == "nvdec" else "cpu"
    with DecoderPool([device] * count, apart=kind != "threads") as pool:
        ready = [pool.submit(partial(_warm, recording=recording, device=device)) for _ in range(count)]
        sizes = [future.result() for future in ready]
        memories = [SharedMemory(frames * size) for size in sizes]
        for memory in memories:
            memory.array[:] = 0  # pages of its own, so that none are made under the clock
        used, began = _cpu(), time.perf_counter()
        work = [pool.submit(partial(_read, recording=recording, frames=frames, memory=memory)) for memory in memories]
        done = sum(future.result() for future in work)
        seconds = time.perf_counter() - began
        busy = (_cpu() - used) / seconds
        digests = {hashlib.sha256(memory.array.data).hexdigest() for memory in memories}
    if len(digests) > 1:
        raise SystemExit(f"{kind}: decoders differ")
    return {
        "kind": kind,
        "decoders": count,
        "speed": round(done / seconds, 1),
        "cores": round(busy, 2),
        "sha256": digests.pop(),
    }


def _warm(decoder: Decoder, recording: VideoSpec, device: str) -> int:
    shape = decoder.open(recording)
    time.sleep(0.5)  # so that every decoder is asked
    if device == "cuda" and "CPU" in shape.decoder:
        raise SystemExit(shape.decoder)
    return int(np.prod(shape.shape))


def _read(decoder: Decoder, recording: VideoSpec, frames: int, memory: SharedMemory) -> int:
    return decoder.read(recording, 0, frames, memory)


def _cpu() -> float:
    """Seconds of CPU that this process and its children have used; others may be at work on the machine too."""
    own, ticks = os.getpid(), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            if own in (int(path.parent.name), int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
