"""Commands that score predictions and hand them in."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ballcast.cli.shell import Labels, app, new_console
from ballcast.core.errors import InputError


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
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a report here: one HTML file with all of it and more.")
    ] = None,
    videos: Annotated[
        Path | None,
        typer.Option("--videos", help="--report: the split's folder with the clips' videos, for film strips."),
    ] = None,
) -> None:
    """Score predictions exactly as the reference scorer does.

    Prints mAP at 1 to 5 s and without limit, their mean (the ranking), AP per action, and the score by visibility.

    The report also tells whether the confidences are honest and the times right, what was taken for what, and shows the
    best and the worst clips; with their videos, as film strips.

    Examples:

    ballcast eval --labels test/Labels-ball.json --predictions results_anticipation.zip

    ballcast eval --labels snbaa/224p/test --predictions results_anticipation.zip --report report.html
    """
    from ballcast.core.files import check_not_source, check_writable, write_json
    from ballcast.core.terminal import print_table
    from ballcast.data.soccernet import read_labels
    from ballcast.features.store import LABELS
    from ballcast.inference.submission import read_submission, require_same_clips
    from ballcast.metrics.average_precision import score, score_by_visibility
    from ballcast.metrics.diagnosis import per_clip
    from ballcast.metrics.report import class_table, score_table

    for target in filter(None, (json_, report)):
        for source in (predictions, labels, labels / LABELS):
            check_not_source(target, source)
    if report:
        check_writable(report)
    elif videos:
        raise InputError("--videos goes with --report, which shows them as film strips")
    clips = read_labels(labels)
    if not all(clip.labelled for clip in clips):
        raise InputError(f"{labels}: has no labels to score against; the challenge split is scored by the server")
    predicted = read_submission(predictions, read=read)
    require_same_clips(predicted, [clip.name for clip in clips], predictions, labels)
    result = score(clips, predicted, read=read, exact=exact)
    rows = {"all": result}
    if not exact and any(not event.visible for clip in clips for event in clip.anticipation):
        rows |= score_by_visibility(clips, predicted, read=read)
    console = new_console()
    said = f"{per_clip(predicted):.1f} predictions a clip"
    typer.echo(f"{len(clips)} clips, {int(result.events.sum())} events, {said}")
    print_table(console, score_table(rows))
    print_table(console, class_table(result))
    if json_:
        write_json(json_, result.as_dict(), indent=1)
    if plots:
        from ballcast.metrics.plots import draw

        for path in draw(result, plots):
            typer.echo(f"drew {path}")
    if report:
        from ballcast.inference.page.film import footage_in
        from ballcast.inference.page.report import Report, write_report

        footage = footage_in(videos or (labels if labels.is_dir() else labels.parent))
        if videos and not footage:
            raise InputError(f"{videos}: has no clips' videos; give the folder that holds clip_1, clip_2, …")
        others = {name: row for name, row in rows.items() if name != "all"}
        facts = {"predictions": str(predictions), "labels": str(labels)}
        title = f"{predictions.name} against {labels.name}"
        page = Report(title, clips, predicted, result, "all events", others=others, facts=facts, footage=footage)
        write_report(report, page)
        typer.echo(f"wrote {report}")


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
    from ballcast.data.soccernet import read_labels
    from ballcast.inference.submission import (
        check_submission,
        merge_systems,
        read_submission,
        require_same_clips,
        write_submission,
    )

    console = new_console()
    clips = read_labels(labels) if labels else None
    if check:
        if predictions or merge:
            raise InputError("--check looks at one file and writes nothing; hand the others in by a call of their own")
        if clips is None:
            raise InputError("--check needs --labels: the split's Labels-ball.json or its folder")
        defects = check_submission(check, clips)
        for defect in defects:
            console.print(str(defect), style="red", markup=False, soft_wrap=True)
        typer.echo(f"{check}: {len(defects)} defect(s)" if defects else f"{check}: ready to hand in")
        if defects:
            raise typer.Exit(1)
        return
    if not predictions:
        raise InputError("give the predictions to hand in, for example: ballcast submit results_anticipation.json")
    if len(predictions) > 1 and not merge:
        raise InputError(f"{len(predictions)} files of predictions; average them with --merge, or give one")
    if out.suffix != ".zip":
        raise InputError(f"{out}: the server takes a zip; give --out a name that ends in .zip")
    systems = [read_submission(path, hand_in=True) for path in predictions]
    order = [clip.name for clip in clips] if clips is not None else list(systems[0])
    for path, system in zip(predictions, systems, strict=True):
        require_same_clips(system, order, path, labels or predictions[0])
    merged = merge_systems(systems) if len(systems) > 1 else systems[0]
    write_submission(out, {name: merged[name] for name in order})
    entries = sum(len(merged[name]) for name in order)
    typer.echo(f"{out}: {len(order)} clips, {entries} predictions")
