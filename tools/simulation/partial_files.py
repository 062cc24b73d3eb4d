"""Write films so that a file of a match has its name only when it is complete, and one process films a match at a time.

Like `ballcast.core.files`, but with the standard library alone: films are also made where nothing is installed.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ballcast.core.errors import InputError


@contextmanager
def completing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else remove it."""
    partial = _partial(path)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial(path: Path) -> None:
    """Remove what a killed process has left of `path`, unless another one is at work on it."""
    with suppress(InputError), locking(path):
        _partial(path).unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


@contextmanager
def locking(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock for the work on `path` during the block, freed even if the process is killed.

    If another process has it, wait for it, or raise an InputError.
    """
    lock = path.with_name(f".{path.name}.lock")
    while True:
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(f"{path}: is being filmed by another process; wait for it") from None
            if not _is_still(lock, file.fileno()):
                continue  # the process that had it has removed it
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one that has the name `path` now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
