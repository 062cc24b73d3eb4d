"""The folder of a run: config, machine, tables of steps and epochs, curves, and the state it resumes from."""

import csv
import io
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ballcast import __version__
from ballcast.core.config import load, to_dict, to_yaml
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.files import check_writable, exclusive_lock, read_bytes, watching_space, write_bytes, write_json
from ballcast.metrics.average_precision import TOLERANCES
from ballcast.training import checkpoint
from ballcast.training.checkpoint import FILE_NAME, Progress, save_state
from ballcast.training.ema import Ema

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"


def extends_training(config: Any, folder: Path) -> bool:
    """Whether the config has more epochs than the run in `folder` was started with; nothing else may differ."""
    before, now = (_leaves(to_dict(c)) for c in (load(type(config), folder / CONFIG), config))
    for key in {**before, **now}:
        if before.get(key) != now.get(key) and key != "train.epochs":
            raise InputError(
                f"{folder}: was started with {key}={before.get(key)}, now it is {now.get(key)}; "
                "use the old value to resume, or another --out to start a new run"
            )
    return now["train.epochs"] > before["train.epochs"]


def is_finished(config: Any, folder: Path) -> bool:
    """Whether the run of this config in `folder` is finished; an InputError if it was begun with another one."""
    state = folder / checkpoint.FILE_NAME
    return state.exists() and not extends_training(config, folder) and checkpoint.read_progress(state).finished


def check_folder(folder: Path) -> None:
    """Raise an InputError if a run cannot be written there; call it before videos are decoded for it."""
    check_writable(folder / CONFIG)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder: two trainings would overwrite each other's files."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another training is running there; wait for it, or give another --out"
    with exclusive_lock(folder, folder / ".lock", busy):
        yield


def write_run_config(folder: Path, config: Any, device: torch.device, processes: int = 1) -> None:
    """Write config.yaml and environment.json."""
    write_bytes(folder / CONFIG, to_yaml(config).encode())
    write_json(folder / ENVIRONMENT, environment(config.train.seed, device, processes), indent=1)


def environment(seed: int, device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Versions, machine, command and git's state, to repeat the run by."""
    return {
        "ballcast": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "processes": processes,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "command": sys.argv,
        "git": _git_state(),
    }


def _git_state() -> dict[str, Any]:
    """Commit and changes of the repository that this file is kept in; nothing for a package that was installed.

    An installed one may lie within a repository of the user's, whose state is not ours.
    """
    here = Path(__file__)
    if not _git(here.parent, "ls-files", "--error-unmatch", here.name):
        return {"commit": "", "changed": []}
    changed = _git(here.parent, "status", "--porcelain").splitlines()
    return {"commit": _git(here.parent, "rev-parse", "HEAD"), "changed": changed[:50]}


def _git(folder: Path, *args: str) -> str:
    """Output of a git command; empty if it fails or git is not installed: training needs no git."""
    try:
        done = subprocess.run(["git", *args], capture_output=True, text=True, cwd=folder)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value of a config by its dotted key; mappings that are values, such as boosts, too."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


STEP_COLUMNS = ("step", "epoch", "lr", "total", "objectness", "classes", "offset", "auxiliary")
EPOCH_COLUMNS = ("epoch", "seconds", *STEP_COLUMNS[3:], *TOLERANCES, "avg")


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
        self._folder = folder or Path()
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
            with watching_space(folder):
                self._writer = tensorboard.SummaryWriter(str(folder), purge_step=first_step)

    def add(self, values: dict[str, float], step: int) -> None:
        if self._writer is not None:
            with watching_space(self._folder):  # a thread writes; what stopped it is raised here
                for name, value in values.items():
                    self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            with watching_space(self._folder):
                self._writer.close()


class RunLog:
    """steps.csv, epochs.csv, curves and the state in a run's folder; a resumed run drops what came after its state.

    Args:
        folder: of the run.
        progress: how far the run is; its steps are counted here.
        steps: columns of steps.csv: step, epoch, lr, then the losses.
        epochs: columns of epochs.csv: epoch, seconds, the same losses, then the scores.
        per_epoch: steps of an epoch.
        writes: whether this process writes files; of several, one does.
    """

    def __init__(
        self,
        folder: Path,
        progress: Progress,
        *,
        steps: Sequence[str],
        epochs: Sequence[str],
        per_epoch: int,
        writes: bool = True,
    ) -> None:
        self._folder = folder
        self._progress = progress
        self._writes = writes
        self._losses = tuple(steps[3:])
        self._steps = Table(folder / "steps.csv", steps, keep_through=progress.step - 1)
        self._epochs = Table(folder / "epochs.csv", epochs, keep_through=progress.step // per_epoch)
        self._curves = Curves(folder / "tensorboard" if writes else None, first_step=progress.step)

    @property
    def rate(self) -> float:
        """The last step's learning rate."""
        return float(self._steps.rows[-1][2])

    @property
    def seconds(self) -> float:
        """Of all epochs together."""
        return sum(float(row[1]) for row in self._epochs.rows)

    def add_steps(self, epoch: int, rates: Sequence[float], losses: Sequence[Sequence[float]]) -> dict[str, float]:
        """The next steps, of the epoch counted from 0: each one's learning rate and losses. Gives the last losses."""
        for rate, row in zip(rates, losses, strict=True):
            self._steps.add(self._progress.step, epoch + 1, rate, *row)
            self._progress.step += 1
        named = dict(zip(self._losses, losses[-1], strict=True))
        curves = {f"train/{name}": loss for name, loss in named.items()} | {"train/lr": rates[-1]}
        self._curves.add(curves, self._progress.step)
        return named

    def add_epoch(
        self, epoch: int, seconds: float, scores: Sequence[float], curves: Mapping[str, float]
    ) -> dict[str, float]:
        """The epoch that is over: its scores for the table, and those for the curves. Gives its mean losses."""
        rows = [[float(loss) for loss in row[3:]] for row in self._steps.rows if int(row[1]) == epoch + 1]
        mean = np.mean(rows, axis=0).tolist()
        self._epochs.add(epoch + 1, seconds, *mean, *scores)
        self._curves.add({f"valid/{name}": score for name, score in curves.items()}, self._progress.step)
        return dict(zip(self._losses, mean, strict=True))

    def save(self, learner: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        """Logs first, state last: a kill in between leaves logs that are longer than the state, and these are cut."""
        if self._writes:
            self._steps.write()
            self._epochs.write()
            save_state(self._folder / FILE_NAME, learner, optimizer, self._progress, ema)

    def close(self) -> None:
        self._curves.close()
