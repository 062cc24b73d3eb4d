"""Tables in a narrow terminal."""

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
