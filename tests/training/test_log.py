"""A run's tables: rows survive bit for bit, and a damaged file is one sentence."""

from pathlib import Path

import pytest

from ballcast.core.errors import InputError
from ballcast.training.log import STEP_COLUMNS, Table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = Table(tmp_path / "steps.csv", STEP_COLUMNS)
    for step in range(6):
        table.add(step, 1, 0.1 + step, *[1 / (3 + step)] * 5)
    table.write()
    return table.path


def test_a_resumed_run_keeps_its_rows_and_drops_later_ones(path: Path) -> None:
    whole = path.read_bytes()
    table = Table(path, STEP_COLUMNS, keep_through=3)
    assert [int(row[0]) for row in table.rows] == [0, 1, 2, 3]
    table.write()
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:5])
    assert Table(path, STEP_COLUMNS).rows == []  # a new run


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n1,", b"\n\n1,"),  # a blank line
        (b"\n1,", b"\n\xff,"),  # no text
        (b"\n1,", b"\n\x00,"),
        (b"\n1,", b"\nx,"),
        (b"\n1,1,", b"\n1,1.5,"),  # no whole epoch
        (b"\n1,1,", b"\n1,"),  # a column short
        (b"\n1,1,", b'\n1,"1,'),  # a stray quote
        (b"\n1,1,", b"\n7,1,"),  # out of order
        (b"step", b"stop"),
        (b"\n2,1,2.1,", b"\n2,1,2.x,"),
    ],
)
def test_a_damaged_log_is_one_sentence(path: Path, old: bytes, new: bytes) -> None:
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new, 1))
    with pytest.raises(InputError, match=r"steps\.csv: is not the log this run wrote") as caught:
        Table(path, STEP_COLUMNS, keep_through=5)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is not the log"):
        Table(path, STEP_COLUMNS, keep_through=5)
