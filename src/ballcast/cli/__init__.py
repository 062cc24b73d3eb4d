"""The command line: a module for each family of commands; shared parts are in `shell` and `runtime`.

Heavy imports are inside the command functions, so that `--help` is quick. The order of the imports below is the order
of the commands in `ballcast --help`.
"""

import errno
import io
import os
import sys
import warnings
from importlib.metadata import entry_points
from typing import Any, NoReturn

import typer

from ballcast.cli import demo, data, extract, train, tune, predict, forecast, score  # isort: skip  # noqa: F401
from ballcast.cli import reproduce, live, export  # isort: skip  # noqa: F401
from ballcast.cli.shell import app
from ballcast.core.errors import BallcastError, BallcastWarning, MissingExtra
from ballcast.core.util import set_thread_defaults

__all__ = ["app", "main"]

OF_TRAINING = ("torch", "timm", "tensorboard", "onnx")  # packages of the extra `train`
FULL = "the disk is full; free some and run again"


for _point in entry_points(group="ballcast.commands"):  # modules of other packages, whose import adds commands
    _point.load()


def _fail(message: str) -> NoReturn:
    typer.secho(f"ballcast: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)


def main(*args: Any) -> None:
    """Run the command line. Errors that a user can fix become one sentence on stderr and exit code 2."""
    set_thread_defaults()
    if not sys.stderr.isatty():  # huggingface_hub draws its progress bars into files too
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if isinstance(sys.stdout, io.TextIOWrapper):  # for characters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    default = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if issubclass(category, BallcastWarning):
            typer.secho(f"ballcast: note: {message}", fg=typer.colors.YELLOW, err=True)
        else:
            default(message, category, filename, *rest)

    warnings.showwarning = show  # type: ignore[assignment]
    try:
        app(*args)
    except BallcastError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_TRAINING:
            raise
        _fail(str(MissingExtra(package, "train")))
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _fail(f"{error.filename or 'the system'}: {FULL if full else error.strerror}")
