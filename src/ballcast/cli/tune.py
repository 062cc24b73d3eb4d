"""`ballcast tune`: fit how a model's outputs become predictions, on the validation matches."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ballcast.cli.shell import Device, app, new_console
from ballcast.core.errors import InputError
from ballcast.core.progress import progress_bar

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from ballcast.core.events import Clip
    from ballcast.features.store import FeatureStore
    from ballcast.inference.expected_precision import ExpectedPrecision
    from ballcast.inference.tuning import TuningResult
    from ballcast.model.score_mapping import ScoreMapping

Models = Annotated[
    list[str], typer.Argument(help="The model's folder or hub id; several: an ensemble, calibrated as one.")
]
Features = Annotated[
    list[Path],
    typer.Option(
        "--features",
        help="The validation split's store (`ballcast extract` or `events`); several: one for each model, in order.",
    ),
]
Labels = Annotated[Path | None, typer.Option("--labels", help="Its Labels-ball.json, if the store has none inside.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write; by default calibration.json in the model's folder."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the gain, and write nothing.")]


@app.command()
def tune(
    models: Models,
    features: Features,
    labels: Labels = None,
    out: Out = None,
    dry_run: DryRun = False,
    device: Device = "auto",
) -> None:
    """Fit how a model's outputs become a submission: times and shifts of each class, scores spread for the scorer.

    The times are where most actions of a class are expected or, if that is better, those one model emits itself; a
    clip in which it emits nothing then gets its best predictions.

    Give the validation matches, never those you score in the end. A setting is kept if it also helps in folds it was
    not fitted on; the table shows the score before and after, there too. `ballcast predict --features` then applies
    it. Videos, feeds and live sessions keep showing calibrated probabilities, which the spread scores are not.

    For one model, precision.json beside its weights says how often its predictions of each action come true;
    the server chooses by it what it shows.

    Examples:

    ballcast tune runs/paper/best --features features/valid

    ballcast tune runs/s0/best runs/s1/best runs/s2/best --features features/valid -o ensemble.json

    ballcast tune runs/a/best runs/b/best --features features-a/valid --features features-b/valid -o ensemble.json
    """
    from ballcast.core.files import check_writable
    from ballcast.features.store import FeatureStore
    from ballcast.inference.expected_precision import write_precision
    from ballcast.inference.tuning import record_fit
    from ballcast.model.score_mapping import FILE_NAME, write_score_mapping
    from ballcast.training.distributed import training_device

    if out is None and not dry_run:
        _check_has_folder(models)
    target = out or Path(models[0]) / FILE_NAME
    if not dry_run:
        check_writable(target)
    stores = [FeatureStore.open(path) for path in features]
    fitted, clip_count, precision = _fit(models, stores, labels, training_device(device))
    _print(fitted)
    if precision is not None and not dry_run and Path(models[0]).is_dir():
        typer.echo(f"{write_precision(Path(models[0]), precision, stores[0].path.name)}: written")
    if not fitted.helps:
        typer.echo("it does not help in folds it was not fitted on, so nothing is written")
    elif not dry_run:
        write_score_mapping(target, record_fit(fitted, models, stores, clip_count))
        typer.echo(f"{target}: written")


def _check_has_folder(models: list[str]) -> None:
    """Raise an InputError unless there is one model with a folder, where the calibration goes by default."""
    if len(models) > 1:
        raise InputError("several models have no common folder; give the file to write with --out ensemble.json")
    if not Path(models[0]).is_dir():
        raise InputError(
            f"{models[0]}: no such folder; give the folder of a model made by `ballcast train` or, for a model on the "
            "hub, the file to write with --out"
        )


def _labelled_clips(store: "FeatureStore", labels: Path | None) -> "list[Clip]":
    """Read the labels of a store's clips; a store of event windows has its own, and gives none."""
    from ballcast.data.labels.soccernet import read_labels
    from ballcast.features.store import LABELS

    if store.is_event_grid:
        return []
    path = labels or store.labels
    if path is None:
        raise InputError(f"{store.path}: no {LABELS} in the store; give the labels with --labels")
    clips = read_labels(path)
    if not all(clip.labelled for clip in clips):
        raise InputError(f"{path}: has no labels to fit to; a model is tuned on the validation split")
    return clips


def _fit(
    models: list[str], stores: "list[FeatureStore]", labels: Path | None, device: "torch.device"
) -> "tuple[TuningResult, int, ExpectedPrecision | None]":
    """Fit to the clips of one store for all models or one for each.

    Returns:
        The result, the number of clips, and the expected precision of a single model.
    """
    from ballcast.inference.store_predictor import check_ensemble, open_ensemble
    from ballcast.inference.torch_runtime import TorchRuntime
    from ballcast.inference.tuning import fit, measure_precision, run_emission, run_models, scores_untuned

    clips = _labelled_clips(stores[0], labels)
    loaded = [TorchRuntime.load(model, device=device) for model in models]
    check_ensemble(loaded, models, stores)
    windows = open_ensemble(loaded, stores, clips, selected=labels is not None)
    outputs = run_models(loaded, windows)
    emitted = run_emission(loaded, windows)
    before = scores_untuned(loaded, outputs, emitted)
    with progress_bar(new_console(stderr=True), "settings tried") as progress:
        weight = loaded[0].pos_weight
        fitted = fit(outputs, windows[0].clips, before, pos_weight=weight, emission=emitted, progress=progress)
    precision = measure_precision(loaded[0], windows[0]) if len(loaded) == 1 else None
    return fitted, len(windows[0]), precision


def _print(fitted: "TuningResult") -> None:
    """Print the scores before and after, where it was fitted and where not, and the settings of each action."""
    from ballcast.core.util import print_table
    from ballcast.report.terminal import score_table

    console = new_console()
    print_table(console, score_table({"before": fitted.before, "tuned, where it was fitted": fitted.after}))
    before, after = 100 * fitted.outside_before, 100 * fitted.outside_after
    typer.echo(f"in folds it was not fitted on: {before:.2f} before, {after:.2f} tuned")
    print_table(console, _class_table(fitted.mapping))


def _class_table(fitted: "ScoreMapping") -> "Table":
    from rich.table import Table

    from ballcast.core.actions import SHORT_NAMES

    emitted = fitted.times == "emitted"
    title = "settings of each action; times " + (
        f"as the model emits them, {fitted.fill} in a clip without any" if emitted else "where most are expected"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("action", *(() if emitted else ("odds divided by", "reach (ms)")), "shift (ms)"):
        table.add_column(heading, justify="left" if heading == "action" else "right")
    for name, mapping in zip(SHORT_NAMES, fitted.classes, strict=True):
        how = () if emitted else (f"{mapping.inflation:g}", str(mapping.reach_ms))
        table.add_row(name, *how, f"{mapping.shift_ms:+d}" if mapping.shift_ms else "0")
    return table
