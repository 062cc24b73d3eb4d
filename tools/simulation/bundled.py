"""Film matches as arrays on a machine with an NVIDIA GPU: the program of the archive that `bundle.py` makes.

    films/film OUT 6001-6032 6040

OUT gets, for each seed, match_NNNN.npy (pictures as I420, 12.5 a second), match_NNNN.npz (the state of every step), and
matches.json with the actions of all of them. Finished matches stay; one that fails is reported and skipped.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

from ballcast.core.actions import FPS
from ballcast.core.errors import BallcastError
from tools.simulation.crew import Crew, Shoot, exiting_on_sigterm
from tools.simulation.films import missing_seeds, write_labels

NVIDIA = "libEGL_nvidia.so.0"  # of the driver


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="film", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the films")
    parser.add_argument("seeds", type=seeds_of, nargs="+", metavar="SEEDS", help="such as 6001 or 6001-6032")
    parser.add_argument("--minutes", type=float, default=5.0, help="of a match, 5 by default")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="matches at a time")
    parser.add_argument("--timeout", type=float, default=400.0, help="s after which a match is given up")
    parser.add_argument("--engine", type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    steps = round(options.minutes * 60 * FPS)
    if options.jobs < 1 or steps < 1 or options.timeout <= 0:
        parser.error("--jobs, --minutes and --timeout must be positive")
    seeds = [seed for part in options.seeds for seed in part]
    try:
        with exiting_on_sigterm():
            failed = film(options.out, seeds, options.engine, steps, jobs=options.jobs, timeout_s=options.timeout)
    except (BallcastError, OSError) as error:
        sys.exit(f"film: {error}")
    except KeyboardInterrupt:
        sys.exit("film: stopped; the same command resumes with the matches that were being filmed")
    if failed:
        sys.exit(f"film: {len(failed)} of {len(seeds)} matches could not be filmed: {', '.join(map(str, failed))}")


def seeds_of(text: str) -> range:
    """The seeds of "6001" or "6001-6032"."""
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"{text}: ends before it begins")
    return seeds


def film(out: Path, seeds: list[int], engine: Path, steps: int, *, jobs: int, timeout_s: float) -> list[int]:
    """Film the matches that are missing, print a line for each, and return the seeds that failed."""
    out.mkdir(parents=True, exist_ok=True)
    missing = missing_seeds(out, seeds, "npy")
    failed = []
    with tempfile.TemporaryDirectory(prefix="films-") as folder:
        environment = egl_environment(Path(folder))
        shoot = Shoot(out, engine, steps, kind="npy", timeout_s=timeout_s, environment=environment)
        for take in Crew(shoot, jobs).film(missing):
            if take.error is not None:
                failed.append(take.seed)
                print(f"{take.film.name}: {take.error}; skipped", flush=True)  # noqa: T201
                continue
            (entry,) = write_labels(out, [take.film])
            print(f"{take.film.name}: {len(entry['actions'])} actions, in {take.seconds:.0f} s", flush=True)  # noqa: T201
    return failed


def egl_environment(folder: Path) -> dict[str, str]:
    """Variables that make EGL draw with the NVIDIA driver, if there is one; a file for it goes into `folder`."""
    try:
        ctypes.CDLL(NVIDIA)
    except OSError:
        return {}
    vendor = folder / "nvidia.json"
    vendor.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": NVIDIA}}))
    return {"__EGL_VENDOR_LIBRARY_FILENAMES": str(vendor)}


if __name__ == "__main__":
    main()
