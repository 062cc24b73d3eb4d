"""A process that a hostile file has taken over: it tries what attackers are after, and prints what succeeded.

`python tests/server/confined/sandbox_attack.py WHERE GIVEN`; WHERE is "free", "confined", "network", "programs",
or the process of the server whose work is replaced by the attack: "decoder", "renders", "feeds".
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attempts(given: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """What is tried, by name; each succeeds in a process that is not confined."""
    secret = Path(given["secret"])
    server = ("127.0.0.1", given["port"])
    return {
        "password file": Path("/etc/passwd").read_bytes,
        "another job's video": secret.read_bytes,
        "the same on a thread": lambda: on_a_thread(secret.read_bytes),
        "own environment": Path("/proc/self/environ").read_bytes,
        "the server's environment": Path(f"/proc/{os.getppid()}/environ").read_bytes,
        "list": lambda: os.listdir(secret.parent),
        "write": Path(f"{secret}.new").touch,
        "truncate": lambda: os.truncate(f"{secret}.old", 1),
        "remove": lambda: os.unlink(f"{secret}.old"),
        "TCP": lambda: send(socket.AF_INET, socket.SOCK_STREAM, server),
        "UDP": lambda: send(socket.AF_INET, socket.SOCK_DGRAM, server),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
        "unix socket": lambda: send(socket.AF_UNIX, socket.SOCK_STREAM, given["unix"]),
        "program": lambda: subprocess.run(["/bin/true"], check=True),
        "program in place": run_in_place,
        "signal": lambda: os.kill(os.getppid(), signal.SIGCONT),
        "fork": fork,
        "limits of the server": lambda: limit(os.getppid()),
        "priority of the server": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), priority(os.getppid())),
        "cores of the server": lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)),
        "rights of a file": lambda: os.chmod(secret, 0o600),
        "rights of its own file": lambda: os.chmod(given["own"], 0o600),
        "owner of a file": lambda: os.chown(secret, -1, -1),
        "times of a file": lambda: os.utime(secret),
        "shared memory": lambda: system_v("shmget", 0, 4096, 0o1600),
        "semaphores": lambda: system_v("semget", 0, 1, 0o1600),
        "queue": lambda: system_v("msgget", 0, 0o1600),
        "signal to a thread": lambda: signal.pthread_kill(threading.get_ident(), 0),  # by tgkill
    }


def on_a_thread(call: Callable[[], object]) -> None:
    done: list[object] = []
    threading.excepthook = lambda _: None
    thread = threading.Thread(target=lambda: done.append(call()))
    thread.start()
    thread.join()
    if not done:
        raise PermissionError


def send(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as connection:
        connection.connect(address)
        connection.send(b"secret")


def run_in_place() -> None:
    child = os.fork()
    if not child:
        try:
            os.execv("/bin/true", ["true"])
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise PermissionError


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def limit(process: int) -> None:
    resource.prlimit(process, resource.RLIMIT_NOFILE, resource.prlimit(process, resource.RLIMIT_NOFILE))


def priority(process: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, process)


def system_v(call: str, *arguments: int) -> None:
    """Get something that is shared by its number, and remove it again."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = getattr(libc, call)(*arguments)
    if number < 0:
        raise OSError(ctypes.get_errno(), call)
    remove = getattr(libc, f"{call[:3]}ctl")
    remove(number, 0, 0, None) if call == "semget" else remove(number, 0, None)


def attack(given: dict[str, Any]) -> list[str]:
    done = []
    for name, attempt in attempts(given).items():
        try:
            attempt()
        except PermissionError:
            continue
        done.append(name)
    return done


def main(where: str, given: dict[str, Any]) -> None:
    def taken(*_: object, **__: object) -> Any:
        sys.stdout.write(json.dumps(attack(given)))
        sys.stdout.flush()
        os._exit(0)

    if where == "decoder":
        from ballcast.video import pitch
        from ballcast_server.confined import decoder

        pitch.frames_and_scenes = taken
        decoder.main(given["arguments"])
    elif where == "renders":
        from ballcast.video import overlay
        from ballcast_server.confined import rendering

        overlay.write_overlay = taken
        rendering.main(given["arguments"])
    elif where == "feeds":
        from ballcast.data.events import kloppy_feed
        from ballcast_server.confined import feeds

        kloppy_feed.open_feed = taken
        feeds.main(given["arguments"])
    elif where == "network":
        from ballcast_server.confined.sandbox import confine

        confine(read=[], network=True)
    elif where == "programs":
        from ballcast_server.confined.sandbox import confine

        program = Path(given["program"]).resolve()
        confine(read=[], network=True, programs=[program])
        with subprocess.Popen([program, "100"]) as running:
            running.kill()
        assert running.returncode == -signal.SIGKILL
    elif where == "confined":
        from ballcast_server.confined.sandbox import confine

        confine(read=[Path(given["own"])], write=[Path(given["out"])])
        import decimal  # what was not imported before

        assert decimal.Decimal(1)
        assert Path(given["own"]).read_text() == "own"
        first, second = Path(given["out"], "a"), Path(given["out"], "b")
        first.write_text("x")
        first.rename(second)
        second.write_text("y")
        assert os.listdir(given["out"]) == ["b"]
        second.unlink()
    taken()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
