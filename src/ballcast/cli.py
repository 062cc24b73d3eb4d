"""The command line: a command is a function. Heavy imports live inside them, so that `--help` answers at once."""

import sys
from typing import Any, NoReturn

import typer

from ballcast import __version__
from ballcast.core.errors import BallcastError

app = typer.Typer(
    name="ballcast",
    help="Anticipate football: from 30 s of broadcast video, the ball actions of the next 5 s.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ballcast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def _fail(message: str) -> NoReturn:
    typer.secho(f"ballcast: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)


def main(*args: Any) -> None:
    """Entry point: errors a user can mend are one sentence on stderr and exit code 2."""
    try:
        app(*args)
    except BallcastError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        _fail(f"{error.filename or 'the system'}: {error.strerror}")
    except KeyboardInterrupt:
        typer.secho("ballcast: stopped; what was done is kept", fg=typer.colors.YELLOW, err=True)
        sys.exit(130)
