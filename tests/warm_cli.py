"""The command line in processes forked from one that has imported everything: as `python -m ballcast`, 2 s sooner.

A command is a process of its own, with its own folder, standard streams and exit code; only the imports are shared.
What depends on the environment when modules are imported (the hub's address, for example) needs a fresh interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PRELOADED = (
    "ballcast.cli",
    "ballcast.data.labels.soccernet",
    "ballcast.features.extract",
    "ballcast.inference.stream_predictor",
    "ballcast.inference.submission",
    "ballcast.inference.torch_runtime",
    "ballcast.inference.tuning",
    "ballcast.report.report",
    "ballcast.training.pretrain",
    "ballcast.training.run",
    "ballcast.workflows.run_report",
)


class WarmCli:
    """The parent of such processes; starts when it is first needed."""

    def __init__(self) -> None:
        self._parent: subprocess.Popen[str] | None = None

    def run(
        self, args: Sequence[str], cwd: Path, env: dict[str, str], stdin: str, timeout: int
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as `subprocess.run` would with text and captured output."""
        if self._parent is None or self._parent.poll() is not None:
            command = [sys.executable, __file__]
            self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            streams = [str(Path(folder) / name) for name in ("stdin", "stdout", "stderr")]
            Path(streams[0]).write_text(stdin)
            order = {"args": list(args), "cwd": str(cwd), "env": env, "streams": streams, "timeout": timeout}
            self._parent.stdin.write(json.dumps(order) + "\n")
            self._parent.stdin.flush()
            code = int(self._parent.stdout.readline())
            out, err = (Path(stream).read_text() for stream in streams[1:])
        return subprocess.CompletedProcess(list(args), code, out, err)

    def close(self) -> None:
        if self._parent is not None and self._parent.stdin is not None:
            self._parent.stdin.close()
            self._parent.wait()


def _child(order: dict) -> None:
    """Be the command: never returns."""
    import atexit
    import signal
    import threading

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(order["timeout"])
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (stream, how) in enumerate(zip(order["streams"], flags, strict=True)):
        os.dup2(os.open(stream, how, 0o600), number)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.path[0] = order["cwd"]  # as `python -m` has it
    sys.argv = ["ballcast", *order["args"]]
    code = 1
    try:
        from ballcast.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            answers.close()
            _child(json.loads(line))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
