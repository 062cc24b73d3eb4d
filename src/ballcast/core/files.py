"""Reading and writing files: no traceback, no half-written file, every defect of a JSON tree with its place."""

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

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")  # escapes that are a character in pairs, and alone in no text


@contextmanager
def reading(path: Path, what: str) -> Iterator[BinaryIO]:
    """The file, opened; `what` names it for the reader of the error ("labels")."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of the {what}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give the path of the {what} file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the {what}: {error.strerror}") from None


def read_bytes(path: Path, what: str) -> bytes:
    """The file's content."""
    with reading(path, what) as file:
        return file.read()


def parse_json(raw: bytes, path: Path | str, what: str) -> Any:
    """JSON text as data; NaN and Infinity, which JSON does not have, come through as floats for the caller to judge."""
    try:
        tree = json.loads(raw.decode("utf-8-sig"))
        if _HALVES.search(raw):
            json.dumps(tree, ensure_ascii=False).encode()
        return tree
    except UnicodeEncodeError:
        raise InputError(f"{path}: an escape like \\ud800 stands alone, which is no text; write it again") from None
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


def read_json(path: Path, what: str) -> Any:
    return parse_json(read_bytes(path, what), path, what)


@contextmanager
def watching_space(path: Path) -> Iterator[None]:
    """A disk that fills up while the block writes `path` becomes `NoSpace`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(path.parent).free
        raise NoSpace(f"{path}: the disk is full ({free / 1e6:.0f} MB left); free some and run again") from None


def make_room(path: Path) -> None:
    """Make the folders above a file or folder to be; an InputError that names it where that cannot be."""
    if not path.name:  # ".", "/" or nothing at all
        raise InputError(f"'{path}': names nothing to write; give a path that ends in a name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot be written, since a part of its path is a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it if the block succeeds and removed if it does not.

    Works for a file or a folder (a folder target must not exist yet). A full disk becomes `NoSpace`; what else keeps
    `path` from being written, an InputError that names it and not the temporary path.
    """
    make_room(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with watching_space(path):
            yield temporary
            if temporary.is_file():
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses this too; the first error is the one to tell
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_within(error.filename, temporary):
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        if isinstance(error, InputError | NoSpace) and str(temporary) in str(error):  # of a file in a folder to be
            raise type(error)(str(error).replace(str(temporary), str(path))) from None
        raise


def sweep(folder: Path) -> None:
    """Remove, at any depth, what `replacing` could not, since it was killed. Only where nobody else writes."""
    for left in folder.rglob(".*.tmp"):
        with suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


class _Probed(Exception):
    """Ends a `replacing` that was only a probe."""


def check_writable(path: Path) -> None:
    """An InputError if `replacing(path)` could not write there: to be asked before long work. Leaves nothing behind."""
    missing = [folder for folder in path.parents if not os.path.exists(folder)]  # Path.exists may raise
    try:
        with suppress(_Probed), replacing(path) as temporary:
            temporary.write_bytes(b"")
            raise _Probed
    finally:
        for folder in missing:
            with suppress(OSError):  # it was not made
                folder.rmdir()


def check_not_source(path: Path, source: Path | str) -> None:
    """An InputError if writing `path` would overwrite the file read: `source`, or for "-" what stdin reads."""
    try:
        read, written = os.fstat(0) if source == "-" else os.stat(source), path.stat()
    except (OSError, ValueError):  # a stream, or a file yet to be
        return
    if stat.S_ISREG(read.st_mode) and os.path.samestat(read, written):
        raise InputError(f"{path}: is the file that is read; write to another one")


@contextmanager
def alone(lock: Path, busy: str) -> Iterator[None]:
    """The only process in this block; while another holds `lock`, an InputError that says `busy`.

    The lock ends with its process, however that ends.
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
    """As `alone`, for work on `path`: what keeps its lock from being made is told of it, and no lock is left behind."""
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(lock, busy))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _is_within(name: object, folder: Path) -> bool:
    """Whether an OSError's file name is `folder` or below it."""
    return isinstance(name, str | Path) and Path(name).is_relative_to(folder)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together: all under temporary names first, so that only the renames come one by one."""
    with ExitStack() as stack:
        for path, content in files.items():
            stack.enter_context(replacing(path)).write_bytes(content)


def write_json(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Strict JSON: a NaN in a result is a fault of ours and must not reach a file."""
    write_bytes(path, json.dumps(content, indent=indent, allow_nan=False).encode() + b"\n")


KEY = "weights_sha256"  # in the config; files from before it was written there have none


def write_pair(folder: Path, weights_name: str, weights: bytes, config_name: str, config: dict[str, Any]) -> None:
    """Write both files into `folder`, the config as JSON with the hash of the weights in it."""
    told = {**config, KEY: hashlib.sha256(weights).hexdigest()}
    text = json.dumps(told, indent=1, allow_nan=False).encode() + b"\n"
    write_together({folder / weights_name: weights, folder / config_name: text})


def check_weights(expected: Mapping[str, Any], given: Mapping[str, Any], where: str, hint: str = "") -> None:
    """Raise an InputError unless a file's tensors have the names, shapes and kinds of number that a network has.

    Args:
        expected: the network's `state_dict()`, on any device, also "meta".
        given: the file's tensors by name.
        where: the file, for the error.
        hint: what to do about it, added to the error.
    """
    if missing := expected.keys() - given.keys():
        raise InputError(f"{where}: lacks weight {min(missing)!r}{hint}")
    if unknown := given.keys() - expected.keys():
        raise InputError(f"{where}: has an unknown weight {min(unknown)!r}{hint}")
    for key, value in given.items():
        shape = tuple(expected[key].shape)
        if (found := tuple(value.shape) if hasattr(value, "shape") else "none") != shape:
            raise InputError(f"{where}: {key} has shape {found} instead of {shape}{hint}")
        if value.is_floating_point() != expected[key].is_floating_point():
            kind = "floating-point numbers" if expected[key].is_floating_point() else "integers"
            raise InputError(f"{where}: {key} holds {value.dtype} instead of {kind}{hint}")


def check_pair(weights_path: Path, weights: bytes, config_path: Path, config: dict[str, Any]) -> None:
    """An InputError if `config`, as read, was written for other weights."""
    if config.get(KEY) not in (None, hashlib.sha256(weights).hexdigest()):
        raise InputError(
            f"{weights_path}: is not what {config_path.name} beside it was written for; one of the two was replaced or "
            "saving was stopped between them, so save or fetch both again"
        )


_WHOLE = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class Defect:
    """Something wrong in a file, at `place` ("videos[3].annotations.anticipation[0]")."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class _Placed(InputError):
    """An error that names its place already."""


@dataclass
class Defects:
    """The defects found so far. `strict` raises the first as an InputError instead of collecting it."""

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
        """An InputError in the block becomes a defect at `place`; what the block was building is left out."""
        try:
            yield
        except _Placed:  # from a block within, which knew the place better
            raise
        except InputError as error:
            try:
                self.add(place, str(error))
            except _Placed as placed:
                raise placed from None


def get(record: Any, key: str, kind: type | tuple[type, ...], what: str) -> Any:
    """`record[key]`, which must be there and of the type `kind`; `what` names the type for the reader."""
    if not isinstance(record, dict):
        raise InputError(f"is {show(record)} instead of a record with the key '{key}'")
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"'{key}' is {show(value)} instead of {what}")
    return value


def whole_number(record: Any, key: str) -> int:
    """A whole number, written as a number or, as SoccerNet does, as text."""
    value = get(record, key, (int, str, float), "a whole number")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise InputError(f"'{key}' is {show(value)} instead of a whole number of milliseconds")


def finite(value: Any, name: str) -> float:
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
    """`value` for the reader of an error: short, whatever it is."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a record"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "…"
