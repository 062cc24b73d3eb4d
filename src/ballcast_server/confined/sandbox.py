"""A sandbox for processes that read files of strangers: only the files they need, no network, no other processes.

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
from errno import ENOSYS, EPERM
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
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | EPERM, 0x00050000 | ENOSYS
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = (
    0,
    4,
    16,
    24,
)  # where they lie in what a filter reads; the lower half of 64 bits
_X32 = 0x40000000  # the same system calls again, under other numbers

# Machine → its name for audits, the number of seccomp, and its column in `_REFUSED`.
_MACHINES = {"x86_64": (0xC000003E, 317, 0), "aarch64": (0xC00000B7, 277, 1)}
_REFUSED: dict[str, tuple[int, int | None]] = {  # system call → its number on x86-64 and on ARM; None: it has none
    "socket": (41, 198),
    "socketpair": (53, 199),
    "execve": (59, 221),
    "execveat": (322, 281),
    # child processes: threads are allowed, by `_CLONE`
    "fork": (57, None),
    "vfork": (58, None),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # other processes: their signals and memory, priorities and cores
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
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "kcmp": (312, 272),
    "get_robust_list": (274, 100),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "setrlimit": (160, 164),
    # rights, owners, times and attributes of files, which Landlock does not know
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # System V's shared memory, semaphores and queues, and the queues of POSIX
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
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
    "personality": (135, 92),
    "syslog": (103, 116),
}
_CLONE, _CLONE3, _PRLIMIT, _SOCKET = (56, 220), (435, 435), (302, 261), (41, 198)
_CLONE_THREAD = 0x10000
_INTERNET, _INTERNET_6, _RAW = 2, 10, 3  # families and a type of sockets
_OF_PROGRAMS = ("execve", "execveat", "fork", "vfork", "kill")  # what starting and ending one takes
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime")
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
_NAMES = ("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services", "ssl", "pki", "ca-certificates")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


def confine(
    *, read: Iterable[Path], write: Iterable[Path] = (), network: bool = False, programs: Iterable[Path] = ()
) -> None:
    """Confine this process, for good, to what Python needs, `read` and `write`; what is open stays open.

    Refused, with a PermissionError: all other files, sockets, starting programs and processes, whatever would reach
    other processes, and changing the rights and times of any file. The rules
    for files hold for this thread and those it starts; so call this before there are others.

    Args:
        read: files, and folders with all below them, that may be read.
        write: folders in which files may be read, made, changed and removed.
        network: connections over TCP and UDP are allowed, and the files that find the addresses of names.
        programs: that may be started, and ended by signals; they are confined, too.
    """
    programs = list(programs)
    if _machine() is None:
        return
    _call(_libc().prctl, _NO_NEW_PRIVS, 1, 0, 0, 0)
    if version := _landlock_version():
        if network:
            read = [
                *read,
                *(Path("/etc", name) for name in _NAMES),
                Path("/usr/share/ca-certificates"),
                Path("/run/systemd/resolve"),
            ]
        _restrict_files(version, read, write, programs, network=network)
    if _has_seccomp():
        _refuse_calls(network=network, programs=bool(programs))


def missing() -> str:
    """What the sandbox lacks on this machine, in a few words; "": nothing."""
    if _machine() is None:
        return f"{platform.system()} on {platform.machine()} has none that ballcast uses"
    lacks = [] if _landlock_version() else ["the files (no Landlock; Linux 5.13 and later have it)"]
    lacks += [] if _has_seccomp() else ["the network and programs (no seccomp)"]
    return f"this kernel does not keep them from {' or '.join(lacks)}" if lacks else ""


def _restrict_files(
    version: int, read: Iterable[Path], write: Iterable[Path], programs: list[Path], *, network: bool
) -> None:
    known = (1 << _ALL_RIGHTS.get(version, 16)) - 1
    rules = _Ruleset(known, _TCP if version >= 4 and not network else 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_libc().syscall, _CREATE_RULESET, ctypes.byref(rules), size, 0)
    try:
        for path in (*_python_files(), *map(Path, _LIBRARIES), *map(Path, _DEVICES), *read):
            _allow(ruleset, path, _READ | _LIST)
        _allow(ruleset, Path("/dev/null"), _READ | _WRITE)
        for path in (*programs, *map(Path, _LOADERS)) if programs else ():
            _allow(ruleset, path, _READ | _EXECUTE)
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
            rights &= _READ | _WRITE | _TRUNCATE | _EXECUTE
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


def _refuse_calls(*, network: bool, programs: bool) -> None:
    """Install a filter for all threads that refuses the system calls of `_REFUSED`, processes and limits of others."""
    refused = dict(_REFUSED)
    for name in (*(("socket", "socketpair") if network else ()), *(_OF_PROGRAMS if programs else ())):
        del refused[name]
    machine = _machine()
    assert machine is not None
    audit, seccomp, column = machine
    special = [  # system call → what is done instead of refusing it; the last line of a block answers if no other does
        # Its arguments lie in memory, where no filter sees them; without it, glibc takes clone.
        (_CLONE3, [(_RETURN, 0, 0, _UNKNOWN)]),
        (_PRLIMIT, [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _REFUSE)]),  # 0: itself
    ]
    if not programs:
        thread = [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _REFUSE)]
        special.append((_CLONE, thread))
    if network:  # TCP and UDP, over IPv4 and IPv6
        family = [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, _INTERNET), (_EQUAL, 0, 3, _INTERNET_6)]
        kind = [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_AND, 0, 0, 0xF), (_EQUAL, 0, 1, _RAW), (_RETURN, 0, 0, _REFUSE)]
        special.append((_SOCKET, [*family, *kind]))
    tests = [(_EQUAL, number) for row in refused.values() if (number := row[column]) is not None]
    if column == 0:
        tests.append((_AT_LEAST, _X32))
    blocks: list[tuple[int, int, int, int]] = []
    for numbers, block in special:
        blocks += [(_EQUAL, 0, len(block) + 1, numbers[column]), *block, (_RETURN, 0, 0, _ALLOW)]
    # A test that holds jumps to the last line, which refuses; so does another machine's system call.
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(tests) + len(blocks) + 2, audit), (_LOAD, 0, 0, _NUMBER)]
    code += [(test, len(tests) - i + len(blocks), 0, number) for i, (test, number) in enumerate(tests)]
    code += [*blocks, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    raw = b"".join(struct.pack("=HBBI", *line) for line in code)
    program = _Filter(len(code), raw)
    if other := _call(_libc().syscall, seccomp, _SET_FILTER, _ALL_THREADS, ctypes.byref(program)):
        raise OSError(EPERM, f"the sandbox cannot be set up: thread {other} already has a filter")


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
