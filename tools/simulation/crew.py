"""Film many matches: each in a process of its own, several at a time; one that fails is reported and skipped."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from tools.simulation.films import film_of
from tools.simulation.partial_files import remove_partial

ROOT = Path(__file__).parents[2]  # the folder of tools/
ONE_THREAD = dict.fromkeys(("LP_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
TERM_S = 5.0  # that a process has to end when it is told to

Progress = Callable[[int, int], None]
Process: TypeAlias = subprocess.Popen[str]


@dataclass(frozen=True)
class Shoot:
    """What to film, the same for all matches.

    Attributes:
        out: folder of the films; it must exist.
        engine: folder that holds gfootball_engine/.
        steps: of a match, 25 a second.
        every: steps from one picture to the next.
        kind: "mp4" or "npy".
        timeout_s: after which a match is given up; None for no limit.
        environment: variables of the processes besides those of this one.
    """

    out: Path
    engine: Path
    steps: int
    every: int = 2
    kind: str = "mp4"
    timeout_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Take:
    """A match that was filmed, or was not: then `error` says why in a sentence."""

    seed: int
    film: Path
    seconds: float
    error: str | None


@contextmanager
def exiting_on_sigterm() -> Iterator[None]:
    """Leave the block with SystemExit when this process is told to end, so that a crew can end its processes too."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Crew:
    """Films matches in `workers` processes at a time."""

    def __init__(self, shoot: Shoot, workers: int) -> None:
        self._shoot, self._workers = shoot, workers
        self._running: set[Process] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def film(self, seeds: Sequence[int], progress: Progress = lambda seed, steps: None) -> Iterator[Take]:
        """Film matches; yields each when it is done. If the iteration ends early, so do the processes.

        Args:
            progress: is called with a seed and the steps of its match that are done, from any thread.
        """
        with ThreadPoolExecutor(self._workers) as pool, self._stopping():
            takes: list[Future[Take]] = [pool.submit(self._film_one, seed, progress) for seed in seeds]
            try:
                for take in as_completed(takes):
                    yield take.result()
            finally:
                for take in takes:
                    take.cancel()

    def _film_one(self, seed: int, progress: Progress) -> Take:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="films-") as scratch:
            error = self._run(seed, Path(scratch), progress)
        film = film_of(self._shoot.out, seed, self._shoot.kind)
        if error is not None:
            remove_partial(film)
        return Take(seed, film, time.monotonic() - began, error)

    def _run(self, seed: int, scratch: Path, progress: Progress) -> str | None:
        """Run the process that films a match; returns why it failed, None if it did not."""
        limit_s = self._shoot.timeout_s
        with tempfile.TemporaryFile("w+") as errors:
            process = self._start(seed, scratch, errors)
            if process is None:
                return "was not begun"
            with process, _time_limit(process, limit_s) as is_late:
                for line in process.stdout or ():
                    word, _, steps = line.partition(" ")
                    if word == "progress":
                        progress(seed, int(steps))
                code = process.wait()
            with self._lock:
                self._running.discard(process)
            errors.seek(0)
            last_line = errors.read().strip().rpartition("\n")[2]
        if is_late.is_set():
            return f"took longer than {limit_s:.0f} s"
        if code < 0:
            return f"its process was killed by signal {-code}"
        return (last_line or f"its process ended with code {code}") if code else None

    def _start(self, seed: int, scratch: Path, errors: IO[str]) -> Process | None:
        """Start the process that films a match; None if the crew has stopped."""
        shoot = self._shoot
        words = [str(shoot.out.resolve()), str(seed), "--engine", str(shoot.engine.resolve()), "--scratch"]
        words += [str(scratch), "--steps", str(shoot.steps), "--every", str(shoot.every), "--kind", shoot.kind]
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(
                [sys.executable, "-m", "tools.simulation.film", *words],
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD, **shoot.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            self._running.add(process)
            return process

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """End all processes that still run after the block."""
        try:
            yield
        finally:
            with self._lock:
                self._stopped, running = True, list(self._running)
            for process in running:
                process.terminate()
            for process in running:
                try:
                    process.wait(TERM_S)
                except subprocess.TimeoutExpired:
                    process.kill()


@contextmanager
def _time_limit(process: Process, limit_s: float | None) -> Iterator[threading.Event]:
    """Kill a process that is still running after `limit_s`; yields an event that is set then."""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(limit_s, give_up) if limit_s is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield is_late
    finally:
        if timer is not None:
            timer.cancel()
