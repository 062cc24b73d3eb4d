"""A run's records and its state agree, also after a kill between the two."""

import csv
from pathlib import Path

import pytest
import torch

from ballcast.training.checkpoint import FILE_NAME, Progress, load_state
from ballcast.training.estimate import AFTER, Estimate
from ballcast.training.journal import Journal

COLUMNS = {"steps": ("step", "epoch", "lr", "a", "b"), "epochs": ("epoch", "seconds", "a", "b", "score")}


def journal(folder: Path, progress: Progress, **more: bool) -> Journal:
    return Journal(folder, progress, **COLUMNS, per_epoch=2, **more)


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open()))[1:]


def test_steps_and_epochs_and_going_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    first = journal(tmp_path, progress := Progress())
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
    again = journal(tmp_path, progress)
    assert (progress.step, again.rate, again.seconds) == (2, 0.2, 7.5)
    again.add_steps(1, [0.4, 0.5], [[7.0, 8.0], [9.0, 10.0]])
    assert again.add_epoch(1, 2.5, [0.25], {}) == {"a": 8.0, "b": 9.0}
    again.save(model, optimizer, None)
    again.close()
    assert [row[0] for row in table(tmp_path / "steps.csv")] == ["0", "1", "2", "3"]
    assert table(tmp_path / "epochs.csv") == [["1", "7.5", "2.0", "3.0", "0.5"], ["2", "2.5", "8.0", "9.0", "0.25"]]


def test_processes_that_do_not_write(tmp_path: Path) -> None:
    quiet = journal(tmp_path, progress := Progress(), writes=False)
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
