"""Read and write files atomically, lock them, and check JSON records.

Errors are one sentence with the file and the place; no half-written file is left behind.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ballcast.core.errors import InputError, NoSpace

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")  # escapes of surrogates, which are valid only in pairs
_WHOLE = re.compile(r"[+-]?\d{1,18}")
KEY = "weights_sha256"  # in the config of a model; older files have none


# --- Reading ---


@contextmanager
def reading(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open a file to read it as bytes; `what` names its content in errors ("labels")."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of the {what}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give the path of the {what} file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the {what}: {error.strerror}") from None


def require_file(path: Path, what: str) -> None:
    """Raise an InputError if a file cannot be read: call it before long work; `what` names its content."""
    with reading(path, what):
        pass


def read_bytes(path: Path, what: str) -> bytes:
    """Return the content of a file; `what` names it in errors."""
    with reading(path, what) as file:
        return file.read()


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file; `what` names its content in errors."""
    return parse_json(read_bytes(path, what), path, what)


def parse_json(raw: bytes, path: Path | str, what: str) -> Any:
    """Parse JSON text.

    NaN and Infinity, which JSON does not have, become floats that the caller must check.

    Args:
        raw: the text in UTF-8.
        path: the file to name in errors.
        what: its content, in the plural ("labels").
    """
    try:
        tree = json.loads(raw.decode("utf-8-sig"))
        if _HALVES.search(raw):
            json.dumps(tree, ensure_ascii=False).encode()
        return tree
    except UnicodeEncodeError:
        raise InputError(f"{path}: an escape like \\ud800 is half a character; write the file again") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: the {what} are not UTF-8; is this the right file?") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        whole = "ends too early" if cut else f"is not valid JSON ({error.msg})"
        raise InputError(f"{path}: {place}: the file {whole}; fetch or write it again") from None
    except RecursionError:
        raise InputError(f"{path}: the JSON is nested too deeply to be {what}; is this the right file?") from None
    except ValueError:  # Python reads no whole number of more than 4300 digits
        raise InputError(f"{path}: a number is too long to belong in {what}; is this the right file?") from None


# --- Writing ---


def make_parents(path: Path) -> None:
    """Make the folders above a file or folder that will be written."""
    if not path.name:  # ".", "/" or nothing at all
        raise InputError(f"'{path}': names no file or folder; give a path that ends in a name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot be written, since a part of its path is a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else remove it.

    Works for a file or a folder (a folder must not exist yet). A full disk raises `NoSpace`, any other failure to write
    an InputError; both name `path` and not the temporary path.
    """
    make_parents(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with watching_space(path):
            yield temporary
            if temporary.is_file():
                with temporary.open("rb+") as file:  # Windows syncs only files open for writing
                    os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses this too; report the first error
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_within(error.filename, temporary):
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        if isinstance(error, InputError | NoSpace) and str(temporary) in str(error):  # of a file in the folder
            raise type(error)(str(error).replace(str(temporary), str(path))) from None
        raise


def _is_within(name: object, folder: Path) -> bool:
    """Whether an OSError's file name is `folder` or below it."""
    return isinstance(name, str | Path) and Path(name).is_relative_to(folder)


@contextmanager
def watching_space(path: Path) -> Iterator[None]:
    """Raise `NoSpace` if the disk fills up while the block writes `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(path.parent).free
        raise NoSpace(f"{path}: the disk is full ({free / 1e6:.0f} MB left); free some and run again") from None


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders left in `folder` by killed processes; call it while none writes there."""
    for left in folder.rglob(".*.tmp"):
        with suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


class _Probed(Exception):
    """Ends a `replacing` that was only a probe."""


def check_writable(path: Path) -> None:
    """Raise an InputError if `path` cannot be written: call it before long work. Leaves nothing behind."""
    missing = [folder for folder in path.parents if not os.path.exists(folder)]  # Path.exists may raise
    try:
        with suppress(_Probed), replacing(path) as temporary:
            temporary.write_bytes(b"")
            raise _Probed
    finally:
        for folder in missing:
            with suppress(OSError):  # was not created
                folder.rmdir()


def check_not_source(path: Path, source: Path | str) -> None:
    """Raise an InputError if writing `path` would overwrite the input file `source` ("-": the file at stdin)."""
    try:
        read, written = os.fstat(0) if source == "-" else os.stat(source), path.stat()
    except (OSError, ValueError):  # a stream, or a file that does not exist yet
        return
    if stat.S_ISREG(read.st_mode) and os.path.samestat(read, written):
        raise InputError(f"{path}: is the file that is read; write to another one")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together: all to temporary files first, so that only the renames are done one by one."""
    with ExitStack() as stack:
        for path, content in files.items():
            stack.enter_context(replacing(path)).write_bytes(content)


def write_json(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Write strict JSON; a NaN is a bug of ours, so it raises a ValueError."""
    write_bytes(path, json.dumps(content, indent=indent, allow_nan=False).encode() + b"\n")


def write_pair(folder: Path, weights_name: str, weights: bytes, config_name: str, config: dict[str, Any]) -> None:
    """Write weights and their config into `folder`; the config, as JSON, contains the hash of the weights."""
    stamped = {**config, KEY: hashlib.sha256(weights).hexdigest()}
    text = json.dumps(stamped, indent=1, allow_nan=False).encode() + b"\n"
    write_together({folder / weights_name: weights, folder / config_name: text})


def check_pair(weights_path: Path, weights: bytes, config_path: Path, config: dict[str, Any]) -> None:
    """Raise an InputError if `config` was written for other weights; both are given as read from their files."""
    if config.get(KEY) not in (None, hashlib.sha256(weights).hexdigest()):
        raise InputError(
            f"{weights_path}: does not belong to {config_path.name} beside it; one of them was replaced or saving was "
            "interrupted between them, so save or download both again"
        )


# --- Locks ---


@contextmanager
def file_lock(lock: Path, busy: str) -> Iterator[None]:
    """Hold the lock file `lock` during the block; raise an InputError with the text `busy` if another process holds it.

    The operating system frees the lock when its process ends, even if it is killed.
    """
    from huggingface_hub.utils import WeakFileLock

    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(lock, timeout=0.1))
        except TimeoutError:
            raise InputError(busy) from None
        yield


@contextmanager
def exclusive_lock(path: Path, lock: Path, busy: str) -> Iterator[None]:
    """Hold `lock` as `file_lock` does, for work on `path`: errors name `path`, and the lock file is removed."""
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(lock, busy))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


# --- Checks of JSON records ---


@dataclass(frozen=True)
class Defect:
    """A fault in a file, at `place` ("videos[3].annotations.anticipation[0]")."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class _Placed(InputError):
    """An error whose message contains its place."""


@dataclass
class Defects:
    """The defects found in a file; with `strict`, the first is raised as an InputError instead of collected."""

    file: str
    strict: bool = False
    found: list[Defect] = field(default_factory=list)

    def add(self, place: str, message: str) -> None:
        defect = Defect(self.file, place, message)
        if self.strict:
            raise _Placed(str(defect))
        self.found.append(defect)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Record an InputError in the block as a defect at `place`, and leave the block."""
        try:
            yield
        except _Placed:  # from an inner block, whose place is more exact
            raise
        except InputError as error:
            try:
                self.add(place, str(error))
            except _Placed as placed:
                raise placed from None


def get(record: Any, key: str, kind: type | tuple[type, ...], what: str) -> Any:
    """Return `record[key]`, which must exist and have the type `kind`; `what` names the type in the error."""
    if not isinstance(record, dict):
        raise InputError(f"is {show(record)} instead of a record with the key '{key}'")
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"'{key}' is {show(value)} instead of {what}")
    return value


def whole_number(record: Any, key: str) -> int:
    """Return `record[key]`, a whole number written as a number or, as SoccerNet does, as text."""
    value = get(record, key, (int, str, float), "a whole number")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise InputError(f"'{key}' is {show(value)} instead of a whole number of milliseconds")


def finite(value: Any, name: str) -> float:
    """Return `value` as a float, or raise an InputError if it is not a finite number; `name` is its key."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"'{name}' is {show(value)} instead of a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"'{name}' is {show(value)} instead of a finite number")
    return number


def show(value: Any) -> str:
    """Format a value for an error message: at most 40 characters of any value."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a record"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "…"
