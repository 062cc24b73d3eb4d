"""Every figure of the docs that needs a GPU, in one command that goes on where it stopped.

    python -m benchmarks.gpu --out figures --data ../shared/data/simbaa MATCHES --seconds 1500
    python -m benchmarks.gpu --out figures --only streams extract
    python -m benchmarks.gpu --out figures --try           # each step for a moment, on any machine

Steps run one after the other, each alone on the machine: two at once would measure each other. What a step prints is in
OUT/<step>.txt, its figures are beside it. A step that has ended well is not run again. With --seconds, a step is begun
only if it should end in time, and is stopped at its limit; what it has written by then stays. --data: simbaa, and
folders of simulated matches (docs/backbone.md); the steps of training need it.
"""

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.files import write_json

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Step:
    """A command, `seconds` that it may take, and how it is shortened to be tried. OUT, DATA, MODEL stand for paths."""

    name: str
    command: str
    seconds: int
    trial: str = ""  # appended with --try; of two equal options the last counts
    data: bool = False  # needs --data
    after: str = ""  # the step whose result it needs


STEPS = (
    Step("speed", "benchmarks.end_to_end speed --work OUT/speed --steps 20 --kernels --how triton eager", 120,
         "--steps 1 --how triton --lines 112 train.batch=1"),
    Step("streams", "benchmarks.streams --lines 720 --streams 1,10,30,100 --seconds 8 --out OUT/streams.json", 300,
         "--lines 224 --streams 1 --seconds 2 --network tiny"),
    Step("followers", "benchmarks.streams --lines 720 --streams 100 --processes 2 --only scheduler --seconds 8 "
         "--out OUT/followers.json", 150, "--lines 224 --streams 2 --processes 2 --seconds 2 --network tiny"),
    Step("live", "benchmarks.live --seconds 15 --forecasts 200 --only latency --model MODEL --backbone BACKBONE "
         "--json OUT/live.json", 60, "--seconds 20 --forecasts 2 --size 224p"),
    Step("tests", "pytest -q -m gpu -p no:cacheprovider tests", 480, "--collect-only"),
    Step("embedded", "benchmarks.end_to_end embedded --data DATA --work OUT/models", 60, "", True),
    Step("frozen", "benchmarks.end_to_end frozen --data DATA --work OUT/models --backbone PAPER train.epochs=8 "
         "train.warmup_epochs=1 train.restart_epochs=7", 400, "", True),
    Step("faantra-ws", "benchmarks.end_to_end train --data DATA --work OUT/models --steps 2500 "
         "--rows 'faantra-ws 1' faantra-ws", 240, "", True),
    Step("boosted", "benchmarks.end_to_end train --data DATA --work OUT/models --steps 3000 --rows 'boosted head'",
         240, "", True),
    Step("lines", "benchmarks.end_to_end train --data DATA --work OUT/parts --group parts --steps 400 "
         "--rows base '224 lines'", 240, "", True),
    Step("parts", "benchmarks.end_to_end train --data DATA --work OUT/parts --group parts --steps 400", 900, "", True),
    Step("longer", "benchmarks.end_to_end train --data DATA --work OUT/models --steps 3000 --rows 'e2e, longer'",
         600, "", True),
    Step("head", "benchmarks.end_to_end train --data DATA --work OUT/models --steps 3000 --rows 'e2e, head'",
         240, "", True, "longer"),
    Step("heads", "benchmarks.end_to_end train --group heads --data DATA --work OUT/models --steps 3000",
         600, "", True, "longer"),
    Step("throughput", "benchmarks.throughput --out OUT/throughput.json", 480, "--try"),
    Step("extract", "benchmarks.extract --only-end-to-end --decoders auto --clips 96 --out OUT/extract.json", 120,
         "--decoders 1 --clips 1 --frame 64 64"),
    Step("decode", "benchmarks.decode --frame 720 1280 --nvdec 1 4 8 --out OUT/decode.json", 120,
         "--frame 64 64 --nvdec --frames 50 --decoders 1"),
    Step("kernels", "benchmarks.kernels --out OUT/kernels.json", 480, "--tiny --parts window block"),
    Step("table", "benchmarks.end_to_end table --data DATA --work OUT/models --against Markov --json OUT/models.json",
         90, "", True),
    Step("parts table", "benchmarks.end_to_end table --data DATA --work OUT/parts --against base --json OUT/parts.json",
         90, "", True),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, nargs="+", default=[])
    parser.add_argument("--backbone", type=Path, help="one as the paper's, for the step frozen, which needs it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all steps together")
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], help="these steps, in their order")
    parser.add_argument("--try", dest="trial", action="store_true", help="shortened: to see that they run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    end, failed = time.monotonic() + args.seconds, []
    for step in STEPS:
        done = args.out / f"{step.name.replace(' ', '_')}.done.json"
        if (args.only and step.name not in args.only) or done.is_file() or (step.data and not args.data):
            continue
        if "PAPER" in step.command and args.backbone is None:
            continue
        if step.after and not (args.out / f"{step.after}.done.json").is_file():
            print(f"{step.name}: left out: needs the result of the step {step.after}", flush=True)
            continue
        left = end - time.monotonic()
        if left < step.seconds:
            print(f"{step.name}: left out: it may take {step.seconds} s, {left:.0f} s are left", flush=True)
            continue
        code, took = run(step, args.out.resolve(), args.data, args.backbone, trial=args.trial)
        print(f"{step.name}: exit code {code} after {took:.0f} s", flush=True)
        if code == 0:
            write_json(done, {"seconds": round(took, 1), "trial": args.trial})
        else:
            failed.append(step.name)
    sys.exit(f"not done: {', '.join(failed)}" if failed else 0)


def run(step: Step, out: Path, data: list[Path], paper: Path | None, *, trial: bool) -> tuple[int, float]:
    """The exit code of a step, and its seconds; 124: it was stopped at its limit."""
    paths = {"DATA": list(map(str, data)), "MODEL": [str(MODEL)], "BACKBONE": [str(BACKBONE)], "PAPER": [str(paper)]}
    words = shlex.split(f"{step.command} {step.trial if trial else ''}")
    command = [path for word in words for path in paths.get(word, [word.replace("OUT/", f"{out}/")])]
    began = time.monotonic()
    with (out / f"{step.name.replace(' ', '_')}.txt").open("w") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=ROOT, stdout=log, stderr=log, timeout=step.seconds
            )
        except subprocess.TimeoutExpired:
            return 124, time.monotonic() - began
    return done.returncode, time.monotonic() - began


if __name__ == "__main__":
    main()
