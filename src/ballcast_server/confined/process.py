"""What all processes that read files of strangers share: how the server starts them, and how they begin and end.

A process is `python -m MODULE ARGUMENTS`. It imports what it needs, confines itself (`sandbox.py`), and only then opens
the file. Errors are one sentence on stderr, exit code 2.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from ballcast.core.errors import BallcastError

ENVIRONMENT = re.compile(
    r"PATH|PYTHON\w*|VIRTUAL_ENV|(LD|DYLD)_LIBRARY_PATH|LANG|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|WINDIR"
)


def start(module: str, *arguments: str, stdin: int = subprocess.DEVNULL, **variables: str) -> subprocess.Popen[bytes]:
    """Start a process, in the root folder and without the server's tokens and passwords.

    Args:
        module: its main module.
        arguments: of its command line.
        stdin: see `subprocess.Popen`.
        variables: set in its environment.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment() | variables,
        cwd=os.path.abspath(os.sep),
    )


def child_environment() -> dict[str, str]:
    """The variables that Python needs to start: no tokens or passwords, which a hostile file could be after.

    Libraries of linear algebra get one thread: the sandbox is for threads that start in it.
    """
    kept = {name: value for name, value in os.environ.items() if ENVIRONMENT.fullmatch(name.upper())}
    return kept | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run_confined(work: Callable[[], None], *, memory: int, out_of_memory: str = "", lower: bool = True) -> int:
    """Do the work of a process.

    Args:
        work: confines the process, then reads the file.
        memory: bytes that the process may use.
        out_of_memory: the sentence to end with if that is too little; "": crash.
        lower: lower its priority.

    Returns:
        Its exit code.
    """
    limit_memory(memory)
    if lower:
        lower_priority()
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # FFmpeg's messages could fill the pipe
    try:
        work()
    except BallcastError as error:
        os.write(stderr, f"{error}\n".encode())
        return 2
    except BrokenPipeError:  # the server has closed the pipe, or is gone
        os._exit(0)
    except MemoryError:
        if not out_of_memory:
            raise
        os.write(stderr, f"{out_of_memory}\n".encode())
        return 2
    return 0


def limit_memory(most: int) -> None:
    """Bound the memory of this process: by the system, or where it has no such bound, by a thread that watches."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        threading.Thread(target=_watch_memory, args=(most,), name="watch-memory", daemon=True).start()


def _watch_memory(most: int) -> None:
    import psutil

    process = psutil.Process()
    while process.memory_info().rss <= most:
        time.sleep(0.05)
    os._exit(1)  # reported as an error of memory


def lower_priority() -> None:
    """Give requests priority over decoding."""
    if hasattr(os, "nice"):
        os.nice(5)
    elif sys.platform == "win32":
        import psutil

        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
