"""The command line: a command is a function. Heavy imports live inside them, so that `--help` answers at once.

A module for each kind of work; what they share is in `shell`. Their order here is the order of `ballcast --help`.
"""

import io
import os
import sys
import warnings
from typing import Any, NoReturn

import typer

from ballcast.cli import demo, data, extract, train, tune, predict, score  # isort: skip  # noqa: F401
from ballcast.cli import reproduce, live, serve, export  # isort: skip  # noqa: F401
from ballcast.cli.shell import app
from ballcast.core.errors import BallcastError, BallcastWarning

__all__ = ["app", "main"]


def _fail(message: str) -> NoReturn:
    typer.secho(f"ballcast: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)


def main(*args: Any) -> None:
    """Entry point: errors a user can mend are one sentence on stderr and exit code 2; warnings are one sentence too."""
    if not sys.stderr.isatty():  # the hub's library draws its bars into files too
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a sign or a file's name that it cannot encode is written out
        sys.stdout.reconfigure(errors="backslashreplace")
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if issubclass(category, BallcastWarning):
            typer.secho(f"ballcast: note: {message}", fg=typer.colors.YELLOW, err=True)
        else:
            shown(message, category, filename, *rest)

    warnings.showwarning = show  # type: ignore[assignment]
    try:
        app(*args)
    except BallcastError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        _fail(f"{error.filename or 'the system'}: {error.strerror}")
