"""The command line: a command is a function. Heavy imports live inside them, so that `--help` answers at once."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from ballcast import __version__
from ballcast.core.errors import BallcastError, InputError

if TYPE_CHECKING:
    from rich.console import Console

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


data_app = typer.Typer(help="Look at, convert and import data.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Labels = Annotated[Path, typer.Option("--labels", help="Labels-ball.json of the split, or the split's folder.")]


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


@app.command()
def download(
    splits: Annotated[
        list[str] | None, typer.Argument(help="train, valid, test, challenge; none means all four.")
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder to unpack to.")] = Path("snbaa"),
    resolution: Annotated[str, typer.Option(help="224p (398×224) or 720p (1280×720, much larger).")] = "224p",
    keep_zips: Annotated[bool, typer.Option("--keep-zips", help="Keep the zips beside what they held.")] = False,
    repo: Annotated[str, typer.Option(help="The data set on the hub.")] = "SoccerNet/ActionAnticipation",
    retries: Annotated[int, typer.Option(min=0, help="Times in a row a cut connection is taken up again.")] = 5,
) -> None:
    """Fetch SN-BAA from the Hugging Face hub, check it and unpack it.

    The archives are encrypted; their password comes with SoccerNet's NDA (https://www.soccer-net.org/data).
    Give it in SOCCERNET_PASSWORD, or when asked.

    If it stops, for whatever reason, run the same command again: it goes on from where it was.
    HF_ENDPOINT and HF_TOKEN (or `hf auth login`) are honoured.

    Example: ballcast download valid test --to ~/snbaa
    """
    from ballcast.data.download import download as fetch_and_unpack

    fetch_and_unpack(
        splits or [],
        to,
        password=_soccernet_password,
        resolution=resolution,
        repo_id=repo,
        keep_zips=keep_zips,
        retries=retries,
        say=typer.echo,
    )


def _soccernet_password() -> str:
    """From SOCCERNET_PASSWORD, else asked for without showing it."""
    given = os.environ.get("SOCCERNET_PASSWORD")
    if not given and not sys.stdin.isatty():
        raise InputError(
            "the archives need a password: set SOCCERNET_PASSWORD to the one that came with SoccerNet's NDA"
        )
    return given or typer.prompt("Password of the archives (it comes with SoccerNet's NDA)", hide_input=True)


@data_app.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(help="Where SN-BAA was unpacked: its root, a resolution or one split.")],
) -> None:
    """Count clips and actions per split, and name every defect with its place.

    Exits with 1 if there are defects.

    Example: ballcast data check ~/snbaa
    """
    from rich.table import Table

    from ballcast.core.actions import SHORT_NAMES
    from ballcast.data.soccernet import check

    console, splits = _console(), check(folder)
    table = Table(title="Actions to anticipate (observed, in brackets)", title_justify="left", title_style="bold")
    table.add_column("")
    for split in splits:
        table.add_column(f"{split.folder.parent.name}/{split.name}", justify="right")
    table.add_row("clips", *(str(len(split.clips)) for split in splits))
    table.add_row("videos", *(str(split.videos) for split in splits), end_section=True)
    counts = [(split.counts("anticipation"), split.counts("observation"), split.labelled) for split in splits]
    for c, name in enumerate(SHORT_NAMES):
        table.add_row(name, *(f"{a[c]} ({o[c]})" if labelled else "no labels" for a, o, labelled in counts))
    console.print(table)
    defects = [defect for split in splits for defect in split.defects]
    for defect in defects:
        console.print(str(defect), style="red", markup=False, soft_wrap=True)
    console.print(f"{len(defects)} defect(s)" if defects else "no defects")
    if defects:
        raise typer.Exit(1)


@data_app.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(help="Labels-ball.json, results_anticipation.json (or zip), or OSL JSON.")],
    target: Annotated[Path, typer.Argument(help="File to write.")],
) -> None:
    """Turn labels or predictions into OSL JSON v2, and OSL JSON back into what it came from.

    Example: ballcast data convert results_anticipation.json osl.json
    """
    from ballcast.inference.convert import convert

    typer.echo(f"{target}: {convert(source, target)}")


@app.command("eval")
def evaluate(
    labels: Labels,
    predictions: Annotated[Path, typer.Option("--predictions", help="results_anticipation.json, or its zip.")],
    read: Annotated[
        Literal["vector", "label"], typer.Option(help="Score the class vectors, or only label and confidence.")
    ] = "vector",
    exact: Annotated[bool, typer.Option("--exact", help="Score on milliseconds instead of the 160 ms grid.")] = False,
    json_: Annotated[Path | None, typer.Option("--json", help="Write the numbers here, as fractions.")] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Draw precision-recall and per-class plots here.")
    ] = None,
) -> None:
    """Score predictions exactly as the reference scorer does.

    Prints mAP at 1 to 5 s and without limit, their mean (the ranking), AP per action, and the score by visibility.

    Example: ballcast eval --labels test/Labels-ball.json --predictions results_anticipation.zip
    """
    from ballcast.core.errors import InputError
    from ballcast.core.files import write_json
    from ballcast.data.soccernet import read_labels
    from ballcast.inference.submission import read_submission, require_same_clips
    from ballcast.metrics.average_precision import score, score_by_visibility
    from ballcast.metrics.report import class_table, score_table

    clips = read_labels(labels)
    if not all(clip.labelled for clip in clips):
        raise InputError(f"{labels}: has no labels to score against; the challenge split is scored by the server")
    predicted = read_submission(predictions, read=read)
    require_same_clips(predicted, [clip.name for clip in clips], predictions, labels)
    result = score(clips, predicted, read=read, exact=exact)
    rows = {"all": result}
    if not exact and any(not event.visible for clip in clips for event in clip.anticipation):
        rows |= score_by_visibility(clips, predicted, read=read)
    console = _console()
    per_clip = sum(map(len, predicted.values())) / max(len(predicted), 1)
    console.print(f"{len(clips)} clips, {int(result.events.sum())} events, {per_clip:.1f} predictions a clip")
    console.print(score_table(rows))
    console.print(class_table(result))
    if json_:
        write_json(json_, result.as_dict(), indent=1)
    if plots:
        from ballcast.metrics.plots import draw

        for path in draw(result, plots):
            console.print(f"drew {path}", soft_wrap=True)


@app.command()
def submit(
    predictions: Annotated[
        list[Path] | None, typer.Argument(help="results_anticipation.json (or zip); several with --merge.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels-ball.json or the split's folder: its clips, in order.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The zip to write.")] = Path("results_anticipation.zip"),
    check: Annotated[
        Path | None, typer.Option("--check", help="Write nothing: name every defect of this file.")
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Average the predictions of several systems.")] = False,
) -> None:
    """Write the zip for the challenge's server, check one, or average several systems into one.

    Entries of a clip that fall into one 160 ms bin, of which the scorer would keep only the last, are merged.

    Examples:

    ballcast submit results_anticipation.json --labels 224p/challenge

    ballcast submit --check results_anticipation.zip --labels 224p/challenge

    ballcast submit --merge a.json b.json c.json --labels 224p/test -o ensemble.zip
    """
    from ballcast.core.errors import InputError
    from ballcast.data.soccernet import read_labels
    from ballcast.inference.submission import (
        check_submission,
        merge_systems,
        read_submission,
        require_same_clips,
        write_submission,
    )

    console = _console()
    clips = read_labels(labels) if labels else None
    if check:
        if clips is None:
            raise InputError("--check needs --labels: the split's Labels-ball.json or its folder")
        defects = check_submission(check, clips)
        for defect in defects:
            console.print(str(defect), style="red", markup=False, soft_wrap=True)
        console.print(f"{check}: {len(defects)} defect(s)" if defects else f"{check}: ready to hand in", soft_wrap=True)
        if defects:
            raise typer.Exit(1)
        return
    if not predictions:
        raise InputError("give the predictions to hand in, for example: ballcast submit results_anticipation.json")
    if len(predictions) > 1 and not merge:
        raise InputError(f"{len(predictions)} files of predictions; average them with --merge, or give one")
    systems = [read_submission(path) for path in predictions]
    order = [clip.name for clip in clips] if clips is not None else list(systems[0])
    for path, system in zip(predictions, systems, strict=True):
        require_same_clips(system, order, path, labels or predictions[0])
    merged = merge_systems(systems) if len(systems) > 1 else systems[0]
    write_submission(out, {name: merged[name] for name in order})
    entries = sum(len(merged[name]) for name in order)
    console.print(f"{out}: {len(order)} clips, {entries} predictions", soft_wrap=True)


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
    signs = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]–[/]"}
    for finding in findings:
        table.add_row(signs[finding.ok], finding.what, escape(finding.detail), escape(finding.mend))
    _console().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


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
