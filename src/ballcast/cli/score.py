"""`ballcast eval` and `ballcast submit`: score predictions, and write the file for the challenge's server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ballcast.cli.shell import Labels, app, new_console
from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ballcast.core.events import Clip

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PREDICTIONS", help="results_anticipation.json, or its zip; two to compare them."),
]
PredictionsOption = Annotated[
    list[Path] | None, typer.Option("--predictions", help="The same as an option; twice to compare two.")
]
Read = Annotated[
    Literal["vector", "label"], typer.Option(help="Score the class vectors, or only label and confidence.")
]
Exact = Annotated[bool, typer.Option("--exact", help="Score on milliseconds instead of the 160 ms grid.")]
Bootstrap = Annotated[
    int | None,
    typer.Option(
        "--bootstrap",
        help="Resample the clips this many times for 95 % intervals of all numbers.",
        show_default="1000 for two files and for --report, else no intervals",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the resamples.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the numbers here, as fractions.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", help="Write a report here: one HTML file with all of it and more.")
]
Videos = Annotated[
    Path | None, typer.Option("--videos", help="--report: the split's folder with the clips' videos, for film strips.")
]


@app.command("eval")
def evaluate(
    labels: Labels,
    files: Files = None,
    predictions: PredictionsOption = None,
    read: Read = "vector",
    exact: Exact = False,
    bootstrap: Bootstrap = None,
    seed: Seed = 0,
    json_: Json = None,
    report: ReportFile = None,
    videos: Videos = None,
) -> None:
    """Score predictions exactly as the reference scorer does, or compare those of two systems.

    Prints mAP at 1 to 5 s and without limit, their mean (the ranking), AP per action, and the score by visibility.

    For two files, prints the difference, second − first, with its 95 % interval; both are scored on the same resamples.

    The report also shows calibration, timing errors, a confusion matrix, and the best and the worst clips; with their
    videos, as film strips.

    Examples:

    ballcast eval --labels test/Labels-ball.json --predictions results_anticipation.zip --bootstrap 1000

    ballcast eval old.zip new.zip --labels snbaa/224p/test

    ballcast eval --labels snbaa/224p/test --predictions results_anticipation.zip --report report.html
    """
    from ballcast.cli.evaluation import Options, compare, evaluate_one

    paths = [*(files or ()), *(predictions or ())]
    if len(paths) not in (1, 2):
        raise InputError(f"{len(paths)} files of predictions; give one to score it, or two to compare them")
    if videos and not report:
        raise InputError("--videos goes with --report, which shows them as film strips")
    options = Options(labels, paths, read, exact, bootstrap, seed, json_)
    if len(paths) == 1:
        evaluate_one(options, report, videos)
    elif report:
        raise InputError("--report shows one system; give one file of predictions")
    else:
        compare(options)


SubmitFiles = Annotated[
    list[Path] | None, typer.Argument(help="results_anticipation.json (or zip); several with --merge.")
]
SplitLabels = Annotated[
    Path | None, typer.Option("--labels", help="Labels-ball.json or the split's folder: its clips, in order.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The zip to write.")]
Check = Annotated[Path | None, typer.Option("--check", help="Write nothing: list every defect of this file.")]
Merge = Annotated[bool, typer.Option("--merge", help="Average the predictions of several systems.")]


@app.command()
def submit(
    predictions: SubmitFiles = None,
    labels: SplitLabels = None,
    out: Out = Path("results_anticipation.zip"),
    check: Check = None,
    merge: Merge = False,
) -> None:
    """Write the zip for the challenge's server, check one, or average several systems into one.

    Entries of a clip that fall into one 160 ms bin, of which the scorer would keep only the last, are merged.

    Examples:

    ballcast submit results_anticipation.json --labels 224p/challenge

    ballcast submit --check results_anticipation.zip --labels 224p/challenge

    ballcast submit --merge a.json b.json c.json --labels 224p/test -o ensemble.zip
    """
    from ballcast.data.labels.soccernet import read_labels

    clips = read_labels(labels) if labels else None
    if check:
        if predictions or merge:
            raise InputError("--check looks at one file and writes nothing; submit the others with a separate command")
        _check_file(check, clips)
        return
    if not predictions:
        raise InputError("give the predictions to submit, for example: ballcast submit results_anticipation.json")
    if len(predictions) > 1 and not merge:
        raise InputError(f"{len(predictions)} files of predictions; average them with --merge, or give one")
    if out.suffix != ".zip":
        raise InputError(f"{out}: the server takes a zip; give --out a name that ends in .zip")
    _write_zip(predictions, clips, labels or predictions[0], out)


def _check_file(path: Path, clips: "Sequence[Clip] | None") -> None:
    """Print every defect of a submission; exit with 1 if there is one."""
    from ballcast.inference.submission import check_submission

    if clips is None:
        raise InputError("--check needs --labels: the split's Labels-ball.json or its folder")
    console = new_console()
    defects = check_submission(path, clips)
    for defect in defects:
        console.print(str(defect), style="red", markup=False, soft_wrap=True)
    typer.echo(f"{path}: {len(defects)} defect(s)" if defects else f"{path}: ready to submit")
    if defects:
        raise typer.Exit(1)


def _write_zip(paths: "Sequence[Path]", clips: "Sequence[Clip] | None", reference: Path, out: Path) -> None:
    """Average the systems and write the zip, its clips in the order of the labels.

    Args:
        paths: files of predictions, one per system.
        clips: of the labels; None: those of the first file.
        reference: the file that gives the clips, for error messages.
        out: the zip to write.
    """
    from ballcast.inference.submission import merge_systems, read_submission, require_same_clips, write_submission

    systems = [read_submission(path, hand_in=True) for path in paths]
    order = [clip.name for clip in clips] if clips is not None else list(systems[0])
    for path, system in zip(paths, systems, strict=True):
        require_same_clips(system, order, path, reference)
    merged = merge_systems(systems) if len(systems) > 1 else systems[0]
    write_submission(out, {name: merged[name] for name in order})
    entries = sum(len(merged[name]) for name in order)
    typer.echo(f"{out}: {len(order)} clips, {entries} predictions")
