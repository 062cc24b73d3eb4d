"""Tables in a narrow terminal, and available memory."""

from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from rich.table import Table

from ballcast.core.util import available_memory, print_table


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


@pytest.mark.parametrize(
    ("own", "folder", "names"),
    [
        ("0::/jobs/mine", "jobs", ("memory.max", "memory.current", "inactive_file")),
        (
            "7:cpu:/x\n4:memory,blkio:/jobs/mine",
            "memory/jobs",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_memory_is_what_the_machine_and_the_container_leave(
    tmp_path: Path, own: str, folder: str, names: tuple[str, str, str]
) -> None:
    """A limit of any cgroup above the process counts; file caches, which the kernel can drop, do not."""
    whole = available_memory(tmp_path, tmp_path / "none")
    assert 0 < whole <= psutil.virtual_memory().total
    (tmp_path / "cgroup").write_text(own + "\n")
    group = tmp_path / folder
    (group / "mine").mkdir(parents=True)
    for place, limit in ((group, "9000000"), (group / "mine", "max")):
        (place / names[0]).write_text(limit + "\n")
        (place / names[1]).write_text("5000000\n")
        (place / "memory.stat").write_text(f"anon 1\n{names[2]} 1000000\n")
    assert available_memory(tmp_path, tmp_path / "cgroup") == 5_000_000
    (group / names[0]).write_text("1000000\n")
    assert available_memory(tmp_path, tmp_path / "cgroup") == 0
