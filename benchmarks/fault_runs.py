"""Run a command in a process of its own, and compare what it leaves with what it should.

Processes are forked from one that has imported everything already, so that faults hit the work, not its start.
"""

import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_jobs import Job  # before torch: it sets the number of threads

import av  # isort: skip
import torch
from safetensors import safe_open

import ballcast
from ballcast.cli import main as ballcast_main

TIMED = ("environment.json",)  # and TensorBoard's files
EXTRAS = ("torch.onnx", "timm", "onnxruntime", "torch.utils.tensorboard", "pyarrow.parquet", "matplotlib.pyplot")
RENAMES = "renames.txt"
SHARED_MEMORY = Path("/dev/shm")
ORPHANS_S = 10.0  # until the workers of a killed command must have ended


def import_everything() -> None:
    """Import what commands import when they are called."""
    for module in pkgutil.walk_packages(ballcast.__path__, "ballcast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in EXTRAS:
        importlib.import_module(name)


def fork(work: Callable[[], Any], log: Path) -> int:
    """The id of a process, the first of a session, that does the work quietly, with status 0 if it succeeds."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        torch.set_num_threads(1)
        work()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def ended(child: int, within: float, watch: Callable[[], None] = lambda: None) -> int | None:
    """The exit code of a process that ends within so many seconds; None: it runs. `watch` is called while it waits."""
    until = time.monotonic() + within
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        watch()
        time.sleep(min(0.002, max(0.0, until - time.monotonic())))


@dataclass
class Place:
    """The folder in which a job runs: what it writes, its folder of temporary files, and what it prints.

    Args:
        job: the command.
        folder: with `log.txt` and the number of renames.
        disk: with `run` and `tmp`; in `folder` unless another is given.
    """

    job: Job
    folder: Path
    disk: Path = field(default=Path())

    def __post_init__(self) -> None:
        self.disk = self.folder / "disk" if self.disk == Path() else self.disk
        self.out, self.temporary = self.disk / "run", self.disk / "tmp"
        self.log = self.folder / "log.txt"
        self.shared_memory = set(os.listdir(SHARED_MEMORY))

    def clear(self) -> None:
        """Begin anew."""
        self.folder.mkdir(exist_ok=True)
        self.disk.mkdir(exist_ok=True)
        for old in self.disk.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        self.temporary.mkdir()
        self.job.setup(self.out)

    def start(self, other: list[str] | None = None, *, strike: tuple[int, bool] = (0, False)) -> int:
        """Start the command, or another with these arguments.

        `strike`: it is killed by its own hand at rename number n, before or after it.
        """

        def work() -> None:
            os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
            os.environ["BALLCAST_CACHE"] = str(self.disk / "cache")
            count_renames(strike, self.folder / RENAMES)
            self.job.prepare_process()
            ballcast_main(self.job.arguments(self.out) if other is None else other)

        return fork(work, self.log)

    def finish(self) -> None:
        """Let the command go on to its end, which must be a good one."""
        self.check(ended(self.start(), 600))

    def check(self, code: int | None) -> None:
        """End the benchmark unless a run came to a good end."""
        printed = self.log.read_text()
        if code != 0 and not (self.job.done and self.job.done in printed):
            sys.exit(f"{self.job.name}: exit code {code}: {printed[-2000:]}")

    def contents(self) -> dict[str, bytes]:
        """All files on the disk that must not depend on faults, by their paths."""
        files = [p for p in self.disk.rglob("*") if p.is_file() and "tensorboard" not in p.parts]
        return {str(p.relative_to(self.disk)): _timeless(p) for p in files if p.name not in TIMED}

    def leftovers(self, *, partial: bool = False) -> list[str]:
        """Temporary files on the disk and in shared memory; `partial`: those that a run can go on from may be there."""
        names = (".tmp", ".old") if partial else (".tmp", ".old", ".part", ".tree")
        found = [p for p in self.disk.rglob("*") if p.name.endswith(names)] + list(self.temporary.iterdir())
        shared = set(os.listdir(SHARED_MEMORY)) - self.shared_memory
        named = [f"/dev/shm/{name}" for name in shared if name.startswith(("psm_", "sem.", "ballcast", "torch_"))]
        return [f"leftover {name}" for name in sorted({*named, *(str(p.relative_to(self.disk)) for p in found)})]


def orphans(leader: int) -> list[int]:
    """Processes of a session that are there so long after its leader was killed; ends them."""
    until = time.monotonic() + ORPHANS_S
    while left := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session(pid) == leader]:
        if time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return left
        time.sleep(0.02)
    return []


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def count_renames(strike: tuple[int, bool], count_file: Path) -> None:
    """Count the calls of os.replace in a file, and end this process at one of them."""
    number, after = strike
    rename, done = os.replace, 0

    def replace(source: Any, target: Any) -> None:
        nonlocal done
        done += 1
        count_file.write_text(str(done))
        if done == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]


def _timeless(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.name == "epochs.csv":  # its second column is seconds
        return b"\n".join(b",".join(c for i, c in enumerate(row.split(b",")) if i != 1) for row in raw.split(b"\n"))
    if path.name == "report.json":
        return json.dumps({**json.loads(raw), "seconds": 0}).encode()
    return raw


def torn(folder: Path) -> Iterator[str]:
    """Files that a fault left half, but for those under temporary names."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not path.is_file() or hidden or path.name.endswith(".part"):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    file.keys()
            elif path.suffix in (".npz", ".zip"):
                with zipfile.ZipFile(path) as archive:
                    if (bad := archive.testzip()) is not None:
                        raise ValueError(f"{bad} is damaged")
            elif path.suffix == ".mp4" and not path.match("clip_*/*.mp4"):  # those of a download are noise
                with av.open(str(path)):
                    pass
            elif path.suffix in (".csv", ".html", ".yaml", ".md") and not path.read_bytes().endswith((b"\n", b">")):
                raise ValueError("its end is missing")
        except Exception as error:
            yield f"{path.name}: {error}"


def differences(found: dict[str, bytes], whole: dict[str, bytes]) -> list[str]:
    """The files that are not as they should be, each with what is wrong."""
    wrong = sorted(name for name in whole.keys() | found.keys() if whole.get(name) != found.get(name))
    how = {n: "missing" if n not in found else "left over" if n not in whole else "different" for n in wrong}
    return [f"{name}: {what}" for name, what in how.items()]
