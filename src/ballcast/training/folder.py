"""What every run's folder holds: the config it was begun with, and the machine it ran on."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast import __version__
from ballcast.core.config import load, to_dict, to_yaml
from ballcast.core.errors import InputError
from ballcast.core.files import alone_at, check_writable, write_bytes, write_json
from ballcast.training import checkpoint

CONFIG, ENVIRONMENT = "config.yaml", "environment.json"


def asks_for_more(config: Any, folder: Path) -> bool:
    """Whether the config has more epochs than the run in `folder` began with; in all else they must be the same."""
    before, now = (_leaves(to_dict(c)) for c in (load(type(config), folder / CONFIG), config))
    for key in {**before, **now}:
        if before.get(key) != now.get(key) and key != "train.epochs":
            raise InputError(
                f"{folder}: was started with {key}={before.get(key)}, now it is {now.get(key)}; "
                "use the old value to go on, or another --out to start anew"
            )
    return now["train.epochs"] > before["train.epochs"]


def is_finished(config: Any, folder: Path) -> bool:
    """Whether the run of this config in `folder` is finished; an InputError if it was begun with another one."""
    state = folder / checkpoint.FILE_NAME
    return state.exists() and not asks_for_more(config, folder) and checkpoint.read_progress(state).finished


def check_folder(folder: Path) -> None:
    """An InputError if a run cannot be written there: to be asked before videos are decoded for it."""
    check_writable(folder / CONFIG)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The only training in the folder: two of them would take turns at its files, and neither could be resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another training is at work there; wait for it, or give another --out"
    with alone_at(folder, folder / ".lock", busy):
        yield


def write_origin(folder: Path, config: Any, device: torch.device, processes: int = 1) -> None:
    """The recipe of a run, and where it runs, as the files of these names."""
    write_bytes(folder / CONFIG, to_yaml(config).encode())
    write_json(folder / ENVIRONMENT, environment(config.train.seed, device, processes), indent=1)


def environment(seed: int, device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Versions, machine, command and git's state, for whoever wants to repeat the run."""
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

    An installed one may lie within a repository of the user's, whose state tells nothing of ours.
    """
    here = Path(__file__)
    if not _git(here.parent, "ls-files", "--error-unmatch", here.name):
        return {"commit": "", "changed": []}
    changed = _git(here.parent, "status", "--porcelain").splitlines()
    return {"commit": _git(here.parent, "rev-parse", "HEAD"), "changed": changed[:50]}


def _git(folder: Path, *args: str) -> str:
    """What git says there; nothing where it fails, or is not: a machine without git trains all the same."""
    try:
        done = subprocess.run(["git", *args], capture_output=True, text=True, cwd=folder)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value of a config by its dotted key; a mapping that is itself a value, such as boosts, by its own."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
