"""Read and write files atomically and with checksums, remove what killed processes left, and lock files.

Errors are one sentence with the file and the place; no half-written file is left behind. Ours because libraries for
atomic files write single files, and here folders are replaced and what a killed process left is removed.
"""

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from ballcast.core.checks import CHECKSUM_KEY, KEY, add_json_checksum, verify_checksum
from ballcast.core.errors import InputError, NoSpace

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")  # escapes of surrogates, which are valid only in pairs
_TEMPORARY = re.compile(r"^\.(.+)\.(?:([0-9a-f]{8})-(\d+)-)?[0-9a-f]{8}\.(tmp|old)$")  # target, machine, process
_STALE_S = 86_400.0  # a temporary of another machine that has not changed for this long is removed
_swept: set[Path] = set()  # folders this process has looked through


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

    NaN and Infinity, which JSON does not have, become floats that the caller must check. A checksum is verified and
    left out of the result.

    Args:
        raw: the text in UTF-8.
        path: the file to name in errors.
        what: its content, in the plural ("labels").
    """
    verify_checksum(raw, path)
    try:
        tree = json.loads(raw.decode("utf-8-sig"))
        if isinstance(tree, dict):
            tree.pop(CHECKSUM_KEY, None)  # in another place if a tool rewrote the file
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
        with watching_space(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot be written, since a part of its path is a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else remove it.

    Works for a file or a folder. A full disk raises `NoSpace`, any other failure to write an InputError; both name
    `path` and not the temporary path. Temporaries that killed processes left in the same folder are removed first.
    """
    make_parents(path)
    remove_stale(path.parent)
    temporary = _temporary(path)
    try:
        with watching_space(path):
            yield temporary
            _put(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses this too; report the first error
            shutil.rmtree(temporary, ignore_errors=True) if temporary.is_dir() else temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_within(error.filename, temporary):
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        if isinstance(error, InputError | NoSpace) and str(temporary) in str(error):  # of a file in the folder
            raise type(error)(str(error).replace(str(temporary), str(path))) from None
        raise


def _put(new: Path, path: Path) -> None:
    """Rename `new`, a file or a folder, to `path` once all of it is on the disk; an old folder there is replaced."""
    if not new.is_dir():
        if new.is_file():
            _sync(new)
        return os.replace(new, path)
    for part in (*new.rglob("*"), new):
        _sync(part)
    if path.is_dir() and any(path.iterdir()):
        _exchange(new, path)
        shutil.rmtree(new, ignore_errors=True)
    else:
        os.replace(new, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Wait until a file or a folder's list of files is on the disk."""
    if not path.is_dir():
        with path.open("rb+") as file:  # Windows syncs only files open for writing
            os.fsync(file.fileno())
    elif os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # some network file systems have no such call
            os.fsync(descriptor)
        os.close(descriptor)


def _exchange(new: Path, path: Path) -> None:
    """Exchange two folders: in one step on Linux, else in three; a kill between them is undone by `remove_stale`."""
    with suppress(OSError, AttributeError, TypeError):
        here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if not ctypes.CDLL(None).renameat2(here, os.fsencode(new), here, os.fsencode(path), swap):
            return
    old = new.with_suffix(".old")
    os.rename(path, old)
    os.rename(new, path)
    os.rename(old, new)


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
        free = free_space(path.parent)
        raise NoSpace(f"{path}: the disk is full ({free / 1e6:.0f} MB left); free some and run again") from None


def free_space(folder: Path) -> int:
    """Return the free bytes of the disk on which `folder` is, or would be made."""
    there = folder.absolute()
    return shutil.disk_usage(next(place for place in (there, *there.parents) if place.is_dir())).free


# --- Temporaries: named after the machine and the process that write them ---


@cache
def _machine() -> str:
    """Eight characters for this machine since its start, and this container: where process numbers have a meaning."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text() + str(os.stat("/proc/self/ns/pid").st_ino)
        return hashlib.sha256(f"{socket.gethostname()} {boot}".encode()).hexdigest()[:8]
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _is_stale(left: Path, here: bool, process: str | None) -> bool:
    """Whether nobody writes it any more: its process is gone, or, of another machine, it has not changed for a day."""
    changed = max(path.lstat().st_mtime for path in (left, *left.rglob("*")))
    if not here or process is None:
        return time.time() - changed > _STALE_S
    import psutil  # only here: it takes a while to import

    try:
        return psutil.Process(int(process)).create_time() > changed + 2  # a new process has the number
    except psutil.Error:
        return True


def remove_stale(folder: Path) -> None:
    """Remove what killed processes left in `folder`; before this one's first write there, or before it is confined."""
    machine = _machine()
    if folder in _swept:
        return
    _swept.add(folder)
    for left in list(folder.glob(".*.tmp")) + list(folder.glob(".*.old")):
        found = _TEMPORARY.match(left.name)
        with suppress(OSError):
            if found is None or not _is_stale(left, found[2] == machine, found[3]):
                continue
            if found[4] == "old" and not (folder / found[1]).exists():  # killed while it was replaced
                os.rename(left, folder / found[1])
            else:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def working_folder() -> Iterator[Path]:
    """Yield a new folder among the system's temporary files; removed after the block, or after a kill by the next."""
    root = Path(tempfile.gettempdir())
    remove_stale(root)
    folder = _temporary(root / "ballcast")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
        read = os.fstat(0) if source == "-" else os.stat(source)
        written = path.stat()
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


def write_json(path: Path, content: Any, *, indent: int | None = None, checksum: bool = False) -> None:
    """Write strict JSON; a NaN is a bug of ours, so it raises a ValueError. `checksum`: an object, with one."""
    text = json.dumps(content, indent=indent, allow_nan=False).encode() + b"\n"
    write_bytes(path, add_json_checksum(text) if checksum else text)


def write_pair(folder: Path, weights_name: str, weights: bytes, config_name: str, config: dict[str, Any]) -> None:
    """Write weights and their config into `folder`; the config, with a checksum, contains the hash of the weights."""
    text = json.dumps({**config, KEY: hashlib.sha256(weights).hexdigest()}, indent=1, allow_nan=False).encode()
    write_together({folder / weights_name: weights, folder / config_name: add_json_checksum(text)})


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
            with watching_space(path):
                stack.enter_context(file_lock(lock, busy))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows removes no open file; there the lock's release removes it
                lock.unlink(missing_ok=True)
