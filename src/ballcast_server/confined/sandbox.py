"""A sandbox for processes that read files of strangers: no network, no programs, and only the files they need.

    import everything_that_is_used
    confine(read=[video], write=[folder])
    open_and_decode(video)

On Linux (x86-64 and ARM, 64 bits), by Landlock for files and a seccomp filter for the rest; both without any rights.
Elsewhere, and on kernels without them, `confine` does what it can, and `missing` names what it cannot.
"""

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable
from errno import EPERM
from functools import cache
from pathlib import Path

import ballcast

# Landlock, linux/landlock.h: the system calls have these numbers on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_FILE, _TRUNCATE = 1 << 5, 1 << 8, 1 << 14
_ALL_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # version → how many rights on files it knows; 16 since version 5
_TCP = 0b11  # bind and connect
_SCOPED = 0b11  # sockets of an abstract name, and signals, to processes outside the sandbox

# seccomp, linux/seccomp.h and linux/filter.h.
_NO_NEW_PRIVS, _GET_SECCOMP = 38, 21  # of prctl
_SET_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | EPERM
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_X32 = 0x40000000  # the same system calls again, under other numbers

# Machine → its name for audits, the number of seccomp, and its column in `_REFUSED`.
_MACHINES = {"x86_64": (0xC000003E, 317, 0), "aarch64": (0xC00000B7, 277, 1)}
_REFUSED = {  # system call → its number on x86-64 and on ARM
    "socket": (41, 198),
    "socketpair": (53, 199),
    "execve": (59, 221),
    "execveat": (322, 281),
    # other processes
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),  # abort() ends the process without it, too
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    # what could pass by the filter, or is a large part of the kernel that no decoder needs
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
}
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


def confine(*, read: Iterable[Path], write: Iterable[Path] = ()) -> None:
    """Confine this process, for good, to what Python needs, `read` and `write`; what is open stays open.

    Refused, with a PermissionError: all other files, sockets, starting programs, signals to other processes. The rules
    for files hold for this thread and those it starts; so call this before there are others.

    Args:
        read: files, and folders with all below them, that may be read.
        write: folders in which files may be read, made, changed and removed.
    """
    if _machine() is None:
        return
    _call(_libc().prctl, _NO_NEW_PRIVS, 1, 0, 0, 0)
    if version := _landlock_version():
        _restrict_files(version, read, write)
    if _has_seccomp():
        _refuse_calls()


def missing() -> str:
    """What the sandbox lacks on this machine, in a few words; "": nothing."""
    if _machine() is None:
        return f"{platform.system()} on {platform.machine()} has none that ballcast uses"
    lacks = [] if _landlock_version() else ["the files (no Landlock; Linux 5.13 and later have it)"]
    lacks += [] if _has_seccomp() else ["the network and programs (no seccomp)"]
    return f"this kernel does not keep them from {' or '.join(lacks)}" if lacks else ""


def _restrict_files(version: int, read: Iterable[Path], write: Iterable[Path]) -> None:
    known = (1 << _ALL_RIGHTS.get(version, 16)) - 1
    rules = _Ruleset(known, _TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_libc().syscall, _CREATE_RULESET, ctypes.byref(rules), size, 0)
    try:
        for path in (*_python_files(), *map(Path, _LIBRARIES), *map(Path, _DEVICES), *read):
            _allow(ruleset, path, _READ | _LIST)
        _allow(ruleset, Path("/dev/null"), _READ | _WRITE)
        for path in write:
            _allow(ruleset, path, (_READ | _LIST | _WRITE | _MAKE_FILE | _REMOVE_FILE | _TRUNCATE) & known)
        _call(_libc().syscall, _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Allow rights on a file, or on a folder and all below it; nothing if it is missing."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not path.is_dir():
            rights &= _READ | _WRITE | _TRUNCATE
        rule = _Rule(rights, place)
        _call(_libc().syscall, _ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    finally:
        os.close(place)


def _python_files() -> list[Path]:
    """Folders of the interpreter, of installed packages and of our two. Not all of sys.path, which may hold "/"."""
    paths = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {Path(prefix) / "lib" for prefix in (sys.prefix, sys.base_prefix)}
    paths |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return [*paths, Path(ballcast.__file__).parent, Path(__file__).parent]


def _refuse_calls() -> None:
    """Install a filter for all threads that refuses the system calls of `_REFUSED`."""
    machine = _machine()
    assert machine is not None
    audit, seccomp, column = machine
    tests = [(_EQUAL, numbers[column]) for numbers in _REFUSED.values()]
    if column == 0:
        tests.append((_AT_LEAST, _X32))
    # A test that holds jumps to the last line, which refuses; so does another machine's system call.
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(tests) + 2, audit), (_LOAD, 0, 0, 0)]
    code += [(test, len(tests) - i, 0, number) for i, (test, number) in enumerate(tests)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    raw = b"".join(struct.pack("=HBBI", *line) for line in code)
    program = _Filter(len(code), raw)
    if thread := _call(_libc().syscall, seccomp, _SET_FILTER, _ALL_THREADS, ctypes.byref(program)):
        raise OSError(EPERM, f"the sandbox cannot be set up: thread {thread} already has a filter")


def _machine() -> tuple[int, int, int] | None:
    """The numbers of this machine; None: it has no sandbox that is known here."""
    return _MACHINES.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _landlock_version() -> int:
    """The version of the kernel's Landlock; 0: it has none."""
    return max(0, _libc().syscall(_CREATE_RULESET, None, 0, 1))


@cache
def _has_seccomp() -> bool:
    return _libc().prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0


def _call(function: "ctypes._NamedFuncPointer", *arguments: object) -> int:
    """Call a function of the system; an OSError if it fails."""
    result: int = function(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the sandbox cannot be set up: {os.strerror(error)}")
    return result
