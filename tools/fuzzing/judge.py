"""One spoilt file driven through a target: what, if anything, went wrong that a user must never meet.

Allowed are success and a `BallcastError` of one short printable line. A finding is anything else: another exception, a
hang, a temporary file left behind, a file written although the work failed.
"""

import contextlib
import io
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import BallcastError
from tools.fuzzing.target import Target

LONGEST = 1500  # characters of a message; paths and quoted values take their share


@dataclass(frozen=True)
class Finding:
    """What went wrong: `where` identifies the fault, `what` describes it."""

    target: str
    where: str
    what: str


class Hang(BaseException):
    """Not an Exception, so that no code of ours takes it for a fault of the file."""


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(target: Target, raw: bytes, work: Path, how: str = "drive") -> Finding | None:
    """Drive the spoilt file; `how`: by the readers ("drive"), the command line in this process, or a real one."""
    shutil.rmtree(work, ignore_errors=True)
    out = work / "out"
    out.mkdir(parents=True)
    path = work / f"case{target.suffix}"
    path.write_bytes(raw)
    name = type(target).__name__
    if how != "drive":
        arguments = target.command(path, out)
        if not arguments:
            how = "drive"
    seconds = target.seconds * (6 if how == "process" else 3 if how == "command" else 1)
    began = time.monotonic()
    try:
        with at_most(seconds):
            if how == "drive":
                failed = _drive(target, path, out)
            elif how == "command":
                failed = _command(arguments)
            else:
                failed = _process(arguments, work)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Finding(name, _where(error), f"{how}: {type(error).__name__}: {str(error)[:300]}")
    if time.monotonic() - began > 2 * seconds:  # an alarm that rang where nobody heard it
        return Finding(name, "hang", f"{how}: took {time.monotonic() - began:.0f} s")
    if left := [p for p in out.rglob("*") if p.name.endswith(".tmp")]:
        return Finding(name, "left", f"{how}: temporary file left behind: {left[0].relative_to(out)}")
    if failed and how == "command" and (files := [p for p in out.iterdir() if p.is_file()]):
        return Finding(name, "half", f"{how}: failed, but wrote {files[0].name}")
    return None


def _drive(target: Target, path: Path, out: Path) -> bool:
    """Whether it was refused, in the way it should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target.drive(path, out)
        except BallcastError as error:
            check_message(str(error))
            return True
        except OSError as error:  # the command line makes one sentence of these
            if error.filename is None and error.strerror is None:
                raise
            return True
    return False


def check_message(message: str) -> None:
    """Raise an AssertionError unless it is one short printable line."""
    if "\n" in message or not message.isprintable():
        raise AssertionError(f"a message that is not one printable line: {message!r}")
    if len(message) > LONGEST:
        raise AssertionError(f"a message of {len(message)} characters: {message[:200]!r}")
    message.encode()


def _command(arguments: list[str]) -> bool:
    from ballcast.cli import main

    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: object = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), warnings.catch_warnings():
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    return _check_end(code, errors)


def _check_end(code: object, stderr: io.TextIOWrapper) -> bool:
    stderr.seek(0)
    errors = stderr.read()
    if code not in (0, 1, 2, None):
        raise AssertionError(f"exit code {code}")
    lines = [line for line in errors.splitlines() if line.startswith("ballcast: ") and "note:" not in line]
    if code == 2 and len(lines) != 1:
        raise AssertionError(f"exit code 2 with {len(lines)} sentences: {errors[-300:]!r}")
    return code == 2


def _process(arguments: list[str], work: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "ballcast", *arguments],
        cwd=work,
        capture_output=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    errors = io.TextIOWrapper(io.BytesIO(done.stderr), "utf-8", errors="replace")
    if b"Traceback" in done.stderr:
        raise AssertionError(f"a traceback: {done.stderr[-300:]!r}")
    return _check_end(done.returncode, errors)


def _where(error: BaseException) -> str:
    """The innermost line of ours that the error came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/ballcast/" in f.filename]
    place = f"{frames[-1].filename.rpartition('/ballcast/')[2]}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {place}"


def shorten(raw: bytes, same: Callable[[bytes], bool], tries: int = 150) -> bytes:
    """A shorter file with the same fault, by leaving out pieces of it."""
    size = len(raw) // 2
    while size and tries:
        at = 0
        while at < len(raw) and tries:
            tries -= 1
            shorter = raw[:at] + raw[at + size :]
            if same(shorter):
                raw = shorter
            else:
                at += size
        size //= 2
    return raw
