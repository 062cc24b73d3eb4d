"""`ballcast tune`: what the validation matches teach about a model's times and scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ballcast.cli.shell import Device, app, new_console
from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ballcast.model.calibration import Calibration


@app.command()
def tune(
    models: Annotated[
        list[str], typer.Argument(help="The model's folder or hub id; several: an ensemble, calibrated as one.")
    ],
    features: Annotated[
        Path, typer.Option("--features", help="The validation split's store (`ballcast extract` or `events`).")
    ],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Its Labels-ball.json, if the store has none inside.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write; by default calibration.json in the model's folder."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would gain, and write nothing.")] = False,
    device: Device = "auto",
) -> None:
    """Fit how a model's answers become a submission: times of each class's own, shifts, scores spread for the scorer.

    Everything is fitted on validation matches, never on those you score in the end. A choice is kept if it holds in
    folds that had no say in it; the table tells the score before and after, there too. `ballcast predict --features`
    applies it from then on. What is shown to people (videos, feeds, live) stays as it is: honest chances, which the
    spread scores are not.

    Examples:

    ballcast tune runs/paper/best --features features/valid

    ballcast tune runs/s0/best runs/s1/best runs/s2/best --features features/valid -o ensemble.json
    """
    from rich.progress import Progress

    from ballcast.core.files import check_writable
    from ballcast.core.util import print_table
    from ballcast.data.labels.soccernet import read_labels
    from ballcast.features.store import LABELS, FeatureStore
    from ballcast.inference.predictor import answer, calibration_of, load_models, open_windows, scores_untuned
    from ballcast.inference.tuning import fit
    from ballcast.model.calibration import FILE_NAME, write_calibration
    from ballcast.report.terminal import score_table
    from ballcast.training.engine import start

    if out is None and not dry_run:
        if len(models) > 1:
            raise InputError("say with --out where the calibration of several models goes, like -o ensemble.json")
        if not Path(models[0]).is_dir():
            raise InputError(
                f"{models[0]}: no such folder; give that of a model of `ballcast train`, or, of a model on the hub, "
                "say with --out where its calibration goes"
            )
    target = out or Path(models[0]) / FILE_NAME
    if not dry_run:
        check_writable(target)
    store = FeatureStore.open(features)
    clips = []
    if not store.manifest.header.backbone.is_event_grid:
        found = labels or store.labels
        if found is None:
            raise InputError(f"{store.path}: no {LABELS} in the store; say where the labels are with --labels")
        clips = read_labels(found)
        if not all(clip.labelled for clip in clips):
            raise InputError(f"{found}: has no labels to fit to; a model is tuned on the validation split")
    loaded = load_models(models, store)
    windows = open_windows(store, clips, loaded[0].config.windows)
    chosen = start(device)[1]
    outputs = answer(loaded, windows, chosen)
    before = scores_untuned(loaded, windows, chosen)
    console = new_console()
    with Progress(console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task("choices tried", total=None)
        fitted = fit(
            outputs,
            windows.clips,
            before,
            pos_weight=loaded[0].pos_weight,
            tick=lambda done, all_: bar.update(task, completed=done, total=all_),
        )
    print_table(console, score_table({"before": fitted.before, "tuned, where it was fitted": fitted.after}))
    typer.echo(
        f"in folds that had no say: {100 * fitted.outside_before:.2f} before, {100 * fitted.outside_after:.2f} tuned"
    )
    print_table(console, _class_table(fitted.calibration))
    if not fitted.helps:
        typer.echo("it does not help where it was not fitted, so nothing is written")
    elif not dry_run:
        tuned = calibration_of(fitted, models, store, len(windows))
        write_calibration(target, tuned)
        typer.echo(f"{target}: written")


def _class_table(calibration: "Calibration") -> "Table":
    from rich.table import Table

    from ballcast.core.actions import SHORT_NAMES

    table = Table(title="what was chosen for each action", title_justify="left", title_style="bold")
    for heading in ("action", "odds divided by", "reach (ms)", "shift (ms)"):
        table.add_column(heading, justify="left" if heading == "action" else "right")
    for name, own in zip(SHORT_NAMES, calibration.classes, strict=True):
        table.add_row(name, f"{own.inflation:g}", str(own.reach_ms), f"{own.shift_ms:+d}" if own.shift_ms else "0")
    return table
