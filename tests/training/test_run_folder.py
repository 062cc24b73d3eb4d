"""What a run's folder says of the machine and of the code it ran on."""

import csv
import errno
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ballcast.core.errors import InputError, NoSpace
from ballcast.training import run_folder as folder
from ballcast.training.checkpoint import FILE_NAME, Progress, load_state
from ballcast.training.progress import AFTER, Estimate
from ballcast.training.run_folder import STEP_COLUMNS, RunLog, Table, check_folder, environment, run_lock

UNKNOWN = {"commit": "", "changed": []}


def test_a_machine_without_git_trains_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = environment(3, torch.device("cpu"))
    assert told["git"] == UNKNOWN
    assert told["seed"] == 3


def test_one_training_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    with run_lock(run), pytest.raises(InputError, match="a: another training is running there"):
        run_lock(run).__enter__()
    with run_lock(run):
        pass
    assert not list(run.iterdir())


def test_a_folder_that_cannot_be_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written, since a part of its path is a file"):
        check_folder(tmp_path / "file" / "run")
    check_folder(tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_only_a_repository_that_keeps_the_code_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package installed within somebody's own repository is not part of it."""
    installed = tmp_path / "site-packages" / "folder.py"
    installed.parent.mkdir()
    installed.touch()

    def git(*args: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "theirs")
    monkeypatch.setattr(folder, "__file__", str(installed))
    assert environment(0, torch.device("cpu"))["git"] == UNKNOWN
    git("add", ".")
    git("commit", "-m", "ours")
    installed.write_text("# changed")
    told = environment(0, torch.device("cpu"))["git"]
    assert len(told["commit"]) == 40
    assert told["changed"] == ["M site-packages/folder.py"]


COLUMNS = {"steps": ("step", "epoch", "lr", "a", "b"), "epochs": ("epoch", "seconds", "a", "b", "score")}


def run_log(folder: Path, progress: Progress, **more: bool) -> RunLog:
    return RunLog(folder, progress, **COLUMNS, per_epoch=2, **more)


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open()))[1:]


def test_steps_and_epochs_and_going_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    first = run_log(tmp_path, progress := Progress())
    assert first.add_steps(0, [0.1, 0.2], [[1.0, 2.0], [3.0, 4.0]]) == {"a": 3.0, "b": 4.0}
    assert (progress.step, first.rate) == (2, 0.2)
    assert first.add_epoch(0, 7.5, [0.5], {"score": 0.5}) == {"a": 2.0, "b": 3.0}
    first.save(model, optimizer, None)
    first.add_steps(1, [0.3], [[5.0, 6.0]])
    (tmp_path / FILE_NAME).rename(tmp_path / "kept")
    first.save(model, optimizer, None)  # a kill before its last file: the logs are longer than the state
    (tmp_path / "kept").rename(tmp_path / FILE_NAME)
    first.close()
    assert len(table(tmp_path / "steps.csv")) == 3
    progress = load_state(tmp_path / FILE_NAME, model, optimizer)
    again = run_log(tmp_path, progress)
    assert (progress.step, again.rate, again.seconds) == (2, 0.2, 7.5)
    again.add_steps(1, [0.4, 0.5], [[7.0, 8.0], [9.0, 10.0]])
    assert again.add_epoch(1, 2.5, [0.25], {}) == {"a": 8.0, "b": 9.0}
    again.save(model, optimizer, None)
    again.close()
    assert [row[0] for row in table(tmp_path / "steps.csv")] == ["0", "1", "2", "3"]
    assert table(tmp_path / "epochs.csv") == [["1", "7.5", "2.0", "3.0", "0.5"], ["2", "2.5", "8.0", "9.0", "0.25"]]


def test_processes_that_do_not_write(tmp_path: Path) -> None:
    quiet = run_log(tmp_path, progress := Progress(), writes=False)
    quiet.add_steps(0, [0.1], [[1.0, 2.0]])
    model = torch.nn.Linear(2, 2)
    quiet.save(model, torch.optim.AdamW(model.parameters()), None)
    quiet.close()
    assert progress.step == 1
    assert not list(tmp_path.iterdir())


def test_how_long_it_takes_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = iter([100.0, 110.0, 100.0 + AFTER * 0.1, 300.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    estimate = Estimate(625 + AFTER, said.append)
    for done in (25, 26, 25 + AFTER, 500):
        estimate(done)
    assert said == ["100 ms a step: 1.0 minutes for the 600 to go, without scoring"]


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


def test_curves_on_a_full_disk_name_their_folder(tmp_path: Path) -> None:
    curves = folder.Curves(tmp_path / "tensorboard")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # from a thread, which knows no path

    curves._writer.add_scalar = fail  # type: ignore[union-attr, method-assign]
    with pytest.raises(NoSpace, match=r"tensorboard: the disk is full"):
        curves.add({"loss": 1.0}, 1)
    curves._writer.close = fail  # type: ignore[union-attr, method-assign]
    with pytest.raises(NoSpace, match=r"tensorboard: the disk is full"):
        curves.close()
