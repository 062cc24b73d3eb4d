"""Tables in a narrow terminal, and memory that is kept."""

import os
import platform
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from ballcast.core.util import print_table


@pytest.mark.parametrize("width", [20, 40, 200])
def test_no_number_is_lost(width: int) -> None:
    table = Table()
    for column in range(9):
        table.add_column(f"column {column}")
    table.add_row(*(f"{1.25 * column:.2f} %" for column in range(9)))
    file = StringIO()
    print_table(Console(file=file, width=width), table)
    assert "…" not in file.getvalue()
    for column in range(9):
        assert f" {1.25 * column:.2f} % " in file.getvalue()
        assert f" column {column} " in file.getvalue()
    assert len(file.getvalue().splitlines()) == 5


FAULTS = """
import resource, sys
import numpy as np
from ballcast.core.util import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
for repetition in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array = np.empty(64 << 20, np.uint8)
    array[:] = 1
    del array
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)  # of the last repetition
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
@pytest.mark.parametrize(
    ("mode", "chosen", "fewest", "most"),
    [("returned", {}, 30, 1 << 20), ("kept", {}, 0, 10), ("kept", {"MALLOC_MMAP_MAX_": "65536"}, 30, 1 << 20)],
)
def test_kept_memory_is_not_taken_from_the_system_again(
    mode: str, chosen: dict[str, str], fewest: int, most: int
) -> None:
    """64 MiB are 16384 pages, or 32 huge ones; what the user chose by the environment stays."""
    unset = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=unset | chosen)
    assert fewest <= int(done.stdout) <= most
