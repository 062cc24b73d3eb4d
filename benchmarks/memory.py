"""What it costs on a CPU that glibc returns freed memory to the system: work with and without `keep_freed_memory`.

    python -m benchmarks.memory                     # features at two sizes, a step of end-to-end training
    python -m benchmarks.memory --threads 1 --json out.json

Each row is a process of its own that repeats the work; the median time counts. Faults: pages that the system had to
give out, and to fill with zeros, in one repetition. The machine should have nothing else to do.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.embedded import BACKBONE
from ballcast.core.files import write_json
from ballcast.core.util import keep_freed_memory
from ballcast.features import batch_encoder
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.model.anticipator import Anticipator
from ballcast.model.end_to_end import EndToEnd


def encode(size: tuple[int, int], stacks: int) -> Callable[[], object]:
    """Features of so many stacks by the embedded encoder."""
    encoder = BatchEncoder(Backbone.from_pretrained(BACKBONE), device="cpu")
    pictures = torch.randint(0, 256, (stacks, 3, *size), dtype=torch.uint8)

    def run() -> None:
        with torch.no_grad():
            encoder.encode(pictures)

    return run


def train(size: tuple[int, int], windows: int) -> Callable[[], object]:
    """Forward and backward pass of the recipe `e2e`."""
    recipe = load(Recipe, Path("e2e"), [])
    learner = EndToEnd(Backbone(recipe.encoder.network), Anticipator(recipe.model)).train()
    frames = torch.rand(windows, len(learner.frame_offsets), *size)

    def run() -> None:
        slots, _ = learner(frames)
        torch.stack([slots.classes.square().mean(), slots.presence.square().mean()]).sum().backward()

    return run


JOBS: dict[str, Callable[[], Callable[[], object]]] = {
    "features, 62 stacks of 398×224": lambda: encode((224, 398), 62),
    "features, 8 stacks of 1280×720": lambda: encode((720, 1280), 8),
    "training, 2 windows of 198×112": lambda: train((112, 198), 2),
}
MODES = ("returned", "kept")


def child(job: str, mode: str, threads: int, repeats: int) -> None:
    torch.set_num_threads(threads)
    if mode == "kept":
        keep_freed_memory()
    with patch.object(batch_encoder, "keep_freed_memory"):  # "returned": as it was before
        run = JOBS[job]()
    run()
    seconds, faults = [], []
    for _ in range(repeats):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        run()
        seconds.append(time.perf_counter() - began)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"seconds": statistics.median(seconds), "faults": statistics.median(faults), "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=JOBS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        job, mode = args.child
        child(job, mode, args.threads, args.repeats)
        return
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for job in [args.only] if args.only else JOBS:
        for mode in MODES:
            options = ["--threads", str(args.threads), "--repeats", str(args.repeats), "--child", job, mode]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", *options], capture_output=True, text=True, check=True
            )
            rows.setdefault(job, {})[mode] = json.loads(done.stdout)
        before, after = (rows[job][mode] for mode in MODES)
        print(
            f"{job}: {before['seconds'] / after['seconds']:.2f} times faster; faults {before['faults']:.0f} → "
            f"{after['faults']:.0f}; at most {before['peak_mib']:.0f} → {after['peak_mib']:.0f} MiB",
            flush=True,
        )
    if args.json:
        write_json(args.json, rows, indent=1)


if __name__ == "__main__":
    main()
