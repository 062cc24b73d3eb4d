"""What a run tells: CSV files for people's own tools, TensorBoard for curves. Rewritten whole, never half."""

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.files import read_bytes, write_bytes

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

STEP_COLUMNS = ("step", "epoch", "lr", "total", "objectness", "classes", "offset", "auxiliary")


class Table:
    """Rows of a CSV file, kept in memory and written whole. `columns[0]` counts up; a resumed run drops later rows."""

    def __init__(self, path: Path, columns: Sequence[str], *, keep_through: int = -1) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.rows: list[list[str]] = []
        if path.exists() and keep_through >= 0:
            self.rows = [row for row in self._read() if int(row[0]) <= keep_through]

    def _read(self) -> list[list[str]]:
        """The file's rows, a number for every column and none left out, or an InputError."""
        counts = [column in ("step", "epoch") for column in self.columns]
        try:
            # Strictly: a stray quote would otherwise swallow the lines after it.
            head, *rows = csv.reader(io.StringIO(read_bytes(self.path, "log of the run").decode()), strict=True)
            for row in rows:
                for count, text in zip(counts, row, strict=True):
                    int(text) if count else float(text)
            if [int(row[0]) for row in rows] != [int(rows[0][0]) + i for i in range(len(rows))]:
                head = []
        except (ValueError, csv.Error):  # also bytes that are no text, and a file without a line
            head = []
        if tuple(head) != self.columns:
            raise InputError(f"{self.path}: is not the log this run wrote; move it away and run again")
        return rows

    def add(self, *values: float | int) -> None:
        # repr of a float reads back to the same float: a resumed run's curve can be compared bit for bit.
        self.rows.append([repr(v) for v in values])

    def write(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        write_bytes(self.path, text.getvalue().encode())


class Curves:
    """TensorBoard curves; silent in processes that do not write."""

    def __init__(self, folder: Path | None, *, first_step: int = 0) -> None:
        self._writer: SummaryWriter | None = None
        if folder is not None:
            try:
                from torch.utils import tensorboard
            except ImportError:
                warnings.warn(
                    "tensorboard is not installed: this run draws no curves, see its CSV files",
                    BallcastWarning,
                    stacklevel=2,
                )
                return
            self._writer = tensorboard.SummaryWriter(str(folder), purge_step=first_step)

    def add(self, values: dict[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
