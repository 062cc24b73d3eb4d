"""What a terminal is shown."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_table(console: "Console", table: "Table") -> None:
    """The whole table: lines wrap in a terminal too narrow for it, where a squeezed one would have lost its numbers."""
    from rich.console import Console
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update_width(1000), table).maximum
    wide = console if needed <= console.width else Console(file=console.file, highlight=False, width=needed)
    wide.print(table)
