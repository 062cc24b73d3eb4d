"""Small helpers: CPU cores, natural sort order, terminal tables."""

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
