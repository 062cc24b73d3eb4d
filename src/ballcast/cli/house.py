"""`ballcast demo` and `ballcast doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import app, new_console


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what the demo makes.")] = Path("demo-out"),
) -> None:
    """Run the main job on embedded data: anticipate simulated matches, score, write a submission, draw plots.

    Example: ballcast demo
    """
    from ballcast.demo import run

    run(out, new_console())


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
        table.add_row(signs[finding.ok], finding.what, escape(finding.detail), escape(finding.mend))
    new_console().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)
