"""Small helpers: CPU cores, natural sort order, terminal tables."""

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts clip_2 before clip_10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def print_table(console: "Console", table: "Table") -> None:
    """The whole table: lines wrap in a terminal too narrow for it, where a squeezed one would have lost its numbers."""
    from rich.console import Console
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update_width(1000), table).maximum
    wide = console if needed <= console.width else Console(file=console.file, highlight=False, width=needed)
    wide.print(table)
