"""Small helpers: CPU cores, available memory, natural sort order, terminal tables."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many bytes this process can still allocate without swapping.

    Includes file caches that the kernel can drop, and honours the memory limits of containers (cgroups 1 and 2).

    Args:
        groups: where the cgroups are mounted.
        own: the file that names the cgroups of this process.
    """
    import psutil

    available = int(psutil.virtual_memory().available)
    for line in own.read_text().splitlines() if own.is_file() else ():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, limit, used, cached = groups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top = groups / "memory"
            limit, used, cached = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents[: len(folder.parts) - len(top.parts)]):  # a parent limits its children
            with suppress(OSError, ValueError):  # not mounted here, or "max": no limit
                stats = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
                free = int((group / limit).read_text()) - int((group / used).read_text()) + int(stats.get(cached, 0))
                available = min(available, max(0, free))
    return available


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts clip_2 before clip_10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def print_table(console: "Console", table: "Table") -> None:
    """Print a table at its full width; in a narrow terminal its lines wrap instead of losing numbers."""
    from rich.console import Console
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update_width(1000), table).maximum
    wide = console if needed <= console.width else Console(file=console.file, highlight=False, width=needed)
    wide.print(table)
