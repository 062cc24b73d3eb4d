"""`ballcast demo` and `ballcast doctor`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import Device, app, new_console, resumable


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what the demo makes.")] = Path("demo-out"),
    open_: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the report in a browser; by default where there is a screen."),
    ] = None,
    device: Device = "auto",
) -> None:
    """See it work on embedded data: from a simulated match's pixels to scores and a report; then a minute of training.

    Needs no network, no GPU and less than five minutes on two cores. What it makes stays in OUT, and a second call goes
    on from there.

    Example: ballcast demo
    """
    from ballcast.training.engine import start
    from ballcast.workflows.demo import run

    with resumable():
        report = run(out, new_console(), device=start(device)[1])
    seen = sys.stdout.isatty() and (sys.platform in ("darwin", "win32") or _has_screen())
    if seen if open_ is None else open_:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())


def _has_screen() -> bool:
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@app.command()
def doctor(
    folder: Annotated[Path, typer.Argument(help="Where your data will go, for its free space.")] = Path("."),
) -> None:
    """Say what this machine has, what is missing, and the command that mends it.

    Exits with 1 if something needed is missing.

    Example: ballcast doctor /data
    """
    from rich.markup import escape
    from rich.table import Table

    from ballcast.inference.doctor import examine

    findings = examine(folder)
    table = Table(show_header=False, box=None)
    for _ in range(4):
        table.add_column(overflow="fold")
    signs = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]–[/]"}
    for finding in findings:
        table.add_row(signs[finding.ok], finding.what, escape(finding.detail), escape(finding.fix))
    new_console().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)
