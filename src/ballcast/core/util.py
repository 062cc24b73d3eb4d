"""Small helpers: CPU cores, memory and threads, how to install an extra, sort orders, terminal tables."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

T = TypeVar("T")


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many cores this process may use: of those it may run on, as many as its container may keep busy.

    Args:
        quota: the file with the container's quota on Linux.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or "max": no quota
        used, period = map(int, quota.read_text().split())
        return max(1, min(allowed, -(-used // period)))
    return allowed


def available_memory(groups: Path = Path("/sys/fs/cgroup"), memberships: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many bytes this process can still allocate without swapping.

    Includes file caches that the kernel can drop, and honours the memory limits of containers (cgroups 1 and 2).

    Args:
        groups: where the cgroups are mounted.
        memberships: the file that names the cgroups of this process.
    """
    import psutil

    available = int(psutil.virtual_memory().available)
    for line in memberships.read_text().splitlines() if memberships.is_file() else ():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = groups
            limit = "memory.max"
            used = "memory.current"
            cached = "inactive_file"
        elif "memory" in controllers.split(","):
            top = groups / "memory"
            limit = "memory.limit_in_bytes"
            used = "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents[: len(folder.parts) - len(top.parts)]):  # a parent limits its children
            with suppress(OSError, ValueError):  # not mounted here, or "max": no limit
                stats = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
                free = int((group / limit).read_text()) - int((group / used).read_text()) + int(stats.get(cached, 0))
                available = min(available, max(0, free))
    return available


def set_thread_defaults() -> None:
    """Let OpenMP's threads sleep while they wait, and be as many as there are cores, unless the user chose otherwise.

    They spin by default: beside any other work the same video took 3 to 20 times as long. Has an effect only before
    torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))


def keep_freed_memory() -> None:
    """Keep what the main thread frees for its next arrays, until the process ends; only with glibc (most of Linux).

    glibc returns large blocks to the system at once, which fills every page with zeros when it is taken again: on two
    cores that took up to twice as long as the networks (`python -m benchmarks.memory`). The price is memory: what is
    kept has gaps. A user who sets MALLOC_MMAP_MAX_ or MALLOC_TRIM_THRESHOLD_ has chosen otherwise.
    """
    chosen = {"MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"} & os.environ.keys()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" and not chosen else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block gets a separate mapping
        mallopt(-1, -1)  # M_TRIM_THRESHOLD: the heap is never cut


def cache_folder() -> Path:
    """The folder for what can be made again: BALLCAST_CACHE, or else ballcast in XDG_CACHE_HOME or ~/.cache."""
    chosen = os.environ.get("BALLCAST_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ballcast"


def install_command(extra: str = "") -> str:
    """Return the pip command that adds an extra to this installation: from where it was installed, a clone or a file.

    Before a release no index has the package, so its name alone is right only for an installation from an index.
    """
    suffix = f"[{extra}]" if extra else ""
    root = Path(__file__).parents[3]
    if (root / "pyproject.toml").is_file():  # run from a clone, or installed from it with --editable
        return f"pip install '{root}{suffix}'"
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlparse

    try:
        recorded = distribution("ballcast").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    if recorded is None:
        return f"pip install 'ballcast{suffix}'"
    place = Path(unquote(urlparse(json.loads(recorded)["url"]).path))
    return f"pip install '{place}{suffix}'" if place.exists() else f"in a clone of ballcast, pip install '.{suffix}'"


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts clip_2 before clip_10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def strongest_apart(
    items: Iterable[T], count: int, apart_ms: int, *, strength: Callable[[T], float], time_ms: Callable[[T], int]
) -> list[T]:
    """Return the strongest items, the strongest first: at most `count`, no two closer than `apart_ms`.

    Of equally strong ones the first is taken.
    """
    chosen: list[T] = []
    for item in sorted(items, key=strength, reverse=True):
        if len(chosen) == count:
            break
        if all(abs(time_ms(item) - time_ms(other)) >= apart_ms for other in chosen):
            chosen.append(item)
    return chosen


def print_table(console: "Console", table: "Table") -> None:
    """Print a table at its full width; in a narrow terminal its lines wrap instead of losing numbers."""
    from rich.console import Console
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update_width(1000), table).maximum
    wide = console if needed <= console.width else Console(file=console.file, highlight=False, width=needed)
    wide.print(table)
