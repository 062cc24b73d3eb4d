"""What a run's folder says of the machine and of the code it ran on."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.training import folder
from ballcast.training.folder import alone_in, check_folder, environment

UNKNOWN = {"commit": "", "changed": []}


def test_a_machine_without_git_trains_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = environment(3, torch.device("cpu"))
    assert told["git"] == UNKNOWN
    assert told["seed"] == 3


def test_one_training_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    with alone_in(run), pytest.raises(InputError, match="a: another training is at work there"):
        alone_in(run).__enter__()
    with alone_in(run):
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
