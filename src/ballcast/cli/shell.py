"""Shared by all commands: the application, options, consoles, progress bars."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ballcast import __version__
from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


app = typer.Typer(
    name="ballcast",
    help="Anticipate football: from broadcast video or an event feed, the ball actions of the next 5 s.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
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


data_app = typer.Typer(help="Check, convert, import and publish data.", no_args_is_help=True)
app.add_typer(data_app, name="data")


Labels = Annotated[Path, typer.Option("--labels", help="Labels-ball.json of the split, or the split's folder.")]


Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option("--device", help="Where torch computes; mps: Apple's GPU.")
]


def number(value: float | None) -> float | None:
    """Refuse NaN, which an option's bounds let through: it is neither below the minimum nor above the maximum."""
    if value != value:
        raise typer.BadParameter("nan is not a number of seconds")
    return value


def seconds_option(text: str, *, most: float = 3600, default: str | None = None) -> Any:
    """Make an option in seconds, at least one frame.

    Args:
        text: the help.
        most: the maximum.
        default: shown in the help of an option whose default is None.
    """
    return typer.Option(min=0.04, max=most, callback=number, help=text, show_default=default or True)


def new_console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def require_one_process(command: str) -> None:
    """Raise an InputError if torchrun started several processes."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError(f"{command} runs as one process on one GPU; start it without torchrun")


@contextmanager
def resumable() -> Iterator[None]:
    """On Ctrl-C, print how to resume and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.secho("ballcast: stopped; run the same command again to resume", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
