"""`ballcast reproduce`: the paper's table from SN-BAA, and the commands of a challenge entry."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from ballcast.cli.shell import Device, app, new_console, require_one_process, resumable
from ballcast.core.errors import InputError
from ballcast.core.progress import FRAMES, progress_bar

SnbaaFolder = Annotated[
    Path | None,
    typer.Argument(
        metavar="SNBAA", help="SN-BAA's folder; with --password it is downloaded there. Without it: --list."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="key=value for every training, for example train.epochs=20.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder for all output.", show_default="runs/reproduce; --quick: …-quick"),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="The paper's is lRomul's ball_tuning_001.pth; or a folder, or a hub id.",
        show_default="pre-train one on the training games",
    ),
]
Resolution = Annotated[
    Literal["224p", "720p"] | None,
    typer.Option(help="Of the videos.", show_default="what is there; 720p with a .pth, else 224p"),
]
Recipes = Annotated[
    str | None,
    typer.Option(
        help="The models, separated by commas.", show_default="paper,static,faantra; --list: paper,faantra-ws,e2e"
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Trainings of each model.")]
Only = Annotated[
    str | None,
    typer.Option(
        help="Steps, separated by commas: data, backbone, features, train, score, submit, table.", show_default="all"
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Print the plan with times and disk space, and do nothing.")]
ListEntry = Annotated[
    bool,
    typer.Option(
        "--list",
        help="Print the commands of a challenge entry with each of the recipes paper, faantra-ws and e2e, with "
        "their times on one H200, and do nothing.",
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="8 clips of each split and 2 epochs: check that everything works.")
]
Password = Annotated[
    str | None,
    typer.Option(help="Of the archives, to download missing data; or set SOCCERNET_PASSWORD.", show_default=False),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Of the extraction, as in `ballcast extract`; default: the cores.")
]


@app.command()
def reproduce(
    snbaa: SnbaaFolder = None,
    overrides: Overrides = None,
    out: Out = None,
    backbone: Backbone = None,
    resolution: Resolution = None,
    recipes: Recipes = None,
    seeds: Seeds = 3,
    only: Only = None,
    plan: Plan = False,
    list_entry: ListEntry = False,
    quick: Quick = False,
    password: Password = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Reproduce the paper's table from SN-BAA, with one command.

    Checks the data, extracts features, trains the paper's model, its static queries and FAANTRA with several seeds,
    scores valid and test in every reading, writes the zips for the servers, and prints the table: our rows beside the
    published ones, deviations over seeds, 95 % intervals over clips, and what differs from the paper.

    First it prints the plan: what is left to do, the time on this machine and the disk space. Stop it at any time and
    run the same command again to resume. On finished work it prints the table.

    The paper uses lRomul's published backbone at 720p: give it with --backbone. Its training games overlap with
    SN-BAA's valid and test games; without --backbone one is pre-trained on the training games only.

    Examples:

    ballcast reproduce snbaa --backbone ball_tuning_001.pth --out runs/paper-table

    ballcast reproduce --recipes paper,faantra-ws,e2e
    """
    from ballcast.training.distributed import training_device
    from ballcast.workflows.reproduce.job import RECIPES, Reproduction
    from ballcast.workflows.reproduce.steps import reproduce as run_steps

    if list_entry or snbaa is None:
        return _list_entries(recipes, snbaa or Path("snbaa"))
    require_one_process("reproduce")
    job = Reproduction(
        data=snbaa,
        out=out or Path("runs/reproduce-quick" if quick else "runs/reproduce"),
        console=new_console(),
        device=training_device(device),
        frames=lambda: progress_bar(new_console(stderr=True), unit=FRAMES),
        backbone=backbone,
        resolution=resolution,
        recipes=_listed(recipes, "--recipes", RECIPES),
        seeds=seeds,
        quick=quick,
        overrides=tuple(overrides or ()),
        password=_secret(password),
        workers=workers,
    )
    with resumable():
        run_steps(job, _listed(only, "--only", ()), plan=plan)


def _secret(password: str | None) -> Callable[[], str] | None:
    """The archives' password from the option or the environment, if there is one."""
    secret = password or os.environ.get("SOCCERNET_PASSWORD")
    return (lambda: secret) if secret else None


def _list_entries(recipes: str | None, snbaa: Path) -> None:
    """Print the commands of a challenge entry with each recipe."""
    from ballcast.workflows.reproduce.entry import ENTRIES, entry_lines

    typer.echo("\n".join(entry_lines(_listed(recipes, "--recipes", ENTRIES), str(snbaa))))


def _listed(text: str | None, option: str, default: Iterable[str]) -> tuple[str, ...]:
    """The names in an option's value, each once; `default` if it was not given."""
    if text is None:
        return tuple(default)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InputError(f"{option} is empty; give names separated by commas, or leave it out")
    return names
