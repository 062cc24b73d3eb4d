"""Disturb every long command in one of three ways, let it go on, and compare what it leaves.

    python -m benchmarks.kills [--kills 50] [--renames 10] [--enospc 0] [--flips 0] [--only VERB …] [--seed 0]

**Kills.** Each command runs once without being disturbed, T seconds. Then it is started and killed with SIGKILL at a
time drawn from 0 … T, started again in the same folder, and so on until it ends before that time; that folder must
then hold the same files with the same bytes as the undisturbed one, and no leftovers: nothing under a temporary name,
nothing in the system's folder of temporary files or in shared memory, no process. New folders follow until there have
been so many kills. Besides, `--renames` more kills strike right before or after a rename, drawn from all of a run's,
where a torn write would show. After every kill, whatever file is there must be whole: JSON that parses, safetensors
that open, CSV that ends its line.

`--enospc N`: the disk is full N times (`disk_full`). `--flips N`: N flipped bits of every kind of file (`flips`).

Not compared are times: seconds in epochs.csv and report.json, TensorBoard, environment.json.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.disk_full import fill_often
from benchmarks.fault_jobs import HUB, INPUTS, jobs, prepare, serve_hub
from benchmarks.fault_runs import RENAMES, Place, differences, ended, fork, import_everything, orphans, torn
from benchmarks.flips import flip_often


@dataclass
class Account:
    """How one command fared."""

    place: Place
    kills: int = 0
    runs: int = 0  # that came to their end after being killed
    differences: int = 0
    leftovers: int = 0

    def tell(self, what: str) -> None:
        print(f"{self.place.job.name}: {what}", flush=True)

    def after_kill(self, child: int) -> None:
        """Everything must be whole, and the command's own processes must end."""
        self.kills += 1
        for what in torn(self.place.out):
            self.differences += 1
            self.tell(f"torn: {what}")
        for left in orphans(child):
            self.leftovers += 1
            self.tell(f"process {left} still runs")

    def finish(self, whole: dict[str, bytes]) -> None:
        """Let the command end, and compare."""
        self.place.finish()
        self.runs += 1
        wrong, left = differences(self.place.contents(), whole), self.place.leftovers()
        self.differences += len(wrong)
        self.leftovers += len(left)
        for what in (*wrong, *left):
            self.tell(what)


def kill_often(place: Place, kills: int, renames: int, rng: random.Random) -> Account:
    """Kill a command so many times at random, and so many at renames."""
    account = Account(place)
    place.clear()
    began = time.monotonic()
    place.finish()
    seconds, whole, most = time.monotonic() - began, place.contents(), int((place.folder / RENAMES).read_text())
    account.tell(f"{seconds:.1f} s without a kill, {most} renames, {len(whole)} files to compare")
    while account.kills < kills:
        place.clear()
        while account.kills < kills:
            child = place.start()
            if (code := ended(child, rng.uniform(0, seconds))) is not None:
                place.check(code)
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            account.after_kill(child)
        account.finish(whole)
    for _ in range(renames):
        place.clear()
        child = place.start(strike=(rng.randint(1, most), rng.random() < 0.5))
        if (code := ended(child, 600)) == -signal.SIGKILL:
            account.after_kill(child)
        else:
            place.check(code)
        account.finish(whole)
    return account


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="at random times, of each command")
    parser.add_argument("--renames", type=int, default=10, help="more, right at renames")
    parser.add_argument("--enospc", type=int, default=0, help="how often each command finds the disk full")
    parser.add_argument("--flips", type=int, default=0, help="flipped bits of each kind of file")
    parser.add_argument("--only", nargs="+", choices=INPUTS, help="these commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="a folder for inputs and results, which is kept and used again")
    given = parser.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if ended(fork(lambda: prepare(folder, [*(given.only or INPUTS), "download"]), folder / "log.txt"), 600) != 0:
            sys.exit((folder / "log.txt").read_text())
        hub = fork(lambda: serve_hub(folder), folder / "hub.log")
        while not (folder / HUB).exists():
            time.sleep(0.01)
        try:
            faults = disturb(folder, given)
        finally:
            os.kill(hub, signal.SIGKILL)
            os.waitpid(hub, 0)
    print(f"{faults} faults in all")
    sys.exit(1 if faults else 0)


def disturb(folder: Path, given: argparse.Namespace) -> int:
    """Disturb the commands as the options say, with the inputs in `folder`; the number of faults."""
    faults = 0
    for job in jobs(folder):
        if given.only and job.name not in given.only:
            continue
        if given.kills or given.renames:
            place, rng = Place(job, folder / f"{job.name} killed"), random.Random(f"{given.seed} {job.name}")
            account = kill_often(place, given.kills, given.renames, rng)
            faults += account.differences + account.leftovers
            account.tell(
                f"{account.kills} kills, {account.runs} runs that went on to their end: "
                f"{account.differences} differences, {account.leftovers} leftovers"
            )
        if given.enospc:
            faults += fill_often(job, folder / f"{job.name} full", given.enospc, random.Random(given.seed))
    if given.flips:
        faults += flip_often(folder, given.flips, random.Random(given.seed), given.only)
    return faults


if __name__ == "__main__":
    main()
