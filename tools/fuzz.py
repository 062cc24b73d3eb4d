"""Fuzz what ballcast reads: real files, spoilt at random, through the real readers and commands.

    python -m tools.fuzz --minutes 60                      # every kind in turn
    python -m tools.fuzz --minutes 5 --kind video live --seed 7
    python -m tools.fuzz --corpus                          # only what was found before

One case in thirty goes through the command line in the same process, one in a thousand through a process of its own.
All cases run in a forked worker with bounded memory: one that crashes or hangs there is a finding too. Findings are
listed at the end and kept, shortened, below --found; inputs of fixed faults belong into tests/corpus/TARGET/.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
from rich.console import Console

from tools.fuzzing.judge import Finding, judge, shorten
from tools.fuzzing.target import Target
from tools.fuzzing.targets import KINDS, NEW, TARGETS, corpus_files

STUCK_S = 120  # without a case for so long, the worker hangs where no alarm reaches
MEMORY = 3 << 30  # bytes a worker may take beyond what it begins with
SHORTEN_S = 60.0  # to shorten a finding: less than `STUCK_S`
TURN_S = 20.0  # of one target


def bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def work(target: Target, seed: int, seconds: float, folder: Path, found: Path, known: set[str]) -> None:
    """The worker: cases until the time is over; the case at hand and the counts always lie in `folder`."""
    bound_memory()
    torch.set_num_threads(1)
    rng = random.Random(seed)
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        raw = target.mutate(rng)
        draw = rng.random()
        how = "process" if draw < 0.001 else "command" if draw < 0.001 + target.commanded else "drive"
        (folder / "case").write_bytes(raw)
        rounds += 1
        (folder / "rounds").write_text(str(rounds))
        finding = judge(target, raw, folder / "work", how)
        if finding is None or f"{finding.target} {finding.where}" in known:
            continue
        known.add(f"{finding.target} {finding.where}")

        ends = time.monotonic() + SHORTEN_S

        def same(shorter: bytes, where: str = finding.where, how: str = how, ends: float = ends) -> bool:
            if time.monotonic() > ends:
                return False
            again = judge(target, shorter, folder / "work", how)
            return again is not None and again.where == where

        keep(finding, shorten(raw, same, tries=150 if how == "drive" else 0), found, target.suffix)


def keep(finding: Finding, raw: bytes, found: Path, suffix: str) -> None:
    folder = found / finding.target
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.txt")))
    (folder / f"{number:03}{suffix}").write_bytes(raw)
    (folder / f"{number:03}.txt").write_text(f"{finding.target} {finding.where}\n{finding.what}\n")


def turn(target: Target, seed: int, seconds: float, folder: Path, found: Path, known: set[str]) -> int:
    """One worker's time on one target; how many cases it did."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "rounds").write_text("0")
    child = os.fork()
    if not child:
        try:
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            work(target, seed, seconds, folder, found, known)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    status = _wait(child, folder, seconds)
    with suppress(ProcessLookupError):  # what the worker started and left
        os.killpg(child, signal.SIGKILL)
    if status:
        name = type(target).__name__
        what = f"the worker ended with {os.waitstatus_to_exitcode(status) if status > 0 else 'a hang'}"
        if f"{name} crash" not in known:
            keep(Finding(name, "crash", what), (folder / "case").read_bytes(), found, target.suffix)
        known.add(f"{name} crash")
    return int((folder / "rounds").read_text() or 0)


def _wait(child: int, folder: Path, seconds: float) -> int:
    """The worker's status; −1 if it hung and was killed."""
    until = time.monotonic() + seconds + STUCK_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        with suppress(FileNotFoundError):
            until = max(until, (folder / "case").stat().st_mtime - time.time() + time.monotonic() + STUCK_S)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kind", default=["all"], nargs="+", choices=("all", *KINDS))
    parser.add_argument(
        "--new", action="store_true", help="only what came after the first round (feeds, serving, models)"
    )
    parser.add_argument("--target", help="only this one, for example Manifest")
    parser.add_argument("--patience", type=int, default=1, help="times as long until a case hangs, on a busy machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="where findings go")
    parser.add_argument("--corpus", action="store_true", help="only drive what was found before")
    given = parser.parse_args()
    console = Console(highlight=False)
    every = NEW if given.new else TARGETS
    chosen = [t for t in every if {"all", t.kind} & {*given.kind} and given.target in (None, t.__name__)]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        base = Path(temporary)
        made: dict[str, Target] = {}
        for sort in chosen:
            home = base / sort.__name__
            home.mkdir()
            made[sort.__name__] = sort(home)
            made[sort.__name__].seconds *= given.patience
        if given.corpus:
            sys.exit(replay(made, base, console))
        known: set[str] = set()
        rounds: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        began, number = time.monotonic(), 0
        while time.monotonic() - began < 60 * given.minutes:
            for name, target in made.items():
                left = 60 * given.minutes - (time.monotonic() - began)
                if left <= 0:
                    break
                known |= {text.read_text().splitlines()[0] for text in given.found.rglob("*.txt")}
                at, number = time.monotonic(), number + 1
                seconds = min(TURN_S, left, max(1.0, 60 * given.minutes / len(made)))
                rounds[name] += turn(target, 1000 * given.seed + number, seconds, base / "work", given.found, known)
                spent[name] += round(1000 * (time.monotonic() - at))
                stats = {name: {"seconds": round(spent[name] / 1000), "rounds": rounds[name]} for name in rounds}
                (base / "stats.json").write_text(json.dumps(stats))
        for name, target in made.items():
            console.print(f"{target.kind:10s} {name:20s} {rounds[name]:8d} rounds in {spent[name] / 1000:6.0f} s")
        texts = sorted(given.found.rglob("*.txt"))
        console.print(
            f"{sum(rounds.values())} rounds in {sum(spent.values()) / 60000:.1f} minutes, {len(texts)} findings in all"
        )
        for text in texts:
            console.print(f"{text}: {' | '.join(text.read_text().splitlines())}", markup=False, soft_wrap=True)
        sys.exit(1 if texts else 0)


def replay(made: dict[str, Target], base: Path, console: Console) -> int:
    faults = 0
    for name, target in made.items():
        for path in corpus_files(name):
            if finding := judge(target, path.read_bytes(), base / "work"):
                faults += 1
                console.print(f"{path}: {finding.where}: {finding.what}", markup=False, soft_wrap=True)
    console.print(f"{faults} findings")
    return 1 if faults else 0


if __name__ == "__main__":
    main()
