"""`ballcast demo` and `ballcast doctor`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import Device, app, new_console, resumable


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("demo-out"),
    open_: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the report in a browser; by default if there is a screen."),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Then train a small model for a minute; needs torch.")] = False,
    device: Device = "auto",
) -> None:
    """Run the main job on embedded data: from a simulated match's pixels to scores and a report.

    Needs no network, no GPU and no torch, and about half a minute on two cores. The results stay in OUT; a second call
    reuses them.

    Example: ballcast demo
    """
    from ballcast.workflows.demo import run

    if train:  # first: a missing torch is noticed before the work
        from ballcast.training.distributed import training_device
        from ballcast.workflows.demo_training import train_small
    with resumable():
        report = run(out, new_console(), device=device)
        if train:
            train_small(out, new_console(), device=training_device(device))
    interactive = sys.stdout.isatty() and (sys.platform in ("darwin", "win32") or _has_screen())
    if interactive if open_ is None else open_:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())


def _has_screen() -> bool:
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@app.command()
def doctor(
    folder: Annotated[Path, typer.Argument(help="The folder for your data, to check its free space.")] = Path("."),
) -> None:
    """Check this machine: list what it has, what is missing, and the command that fixes it.

    Exits with 1 if a requirement is missing.

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
