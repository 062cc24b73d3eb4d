"""`ballcast predict`: along a video, along an event feed, or for every clip of a feature store."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ballcast.cli.feed import Clips, Kickoff, Lineup, Plot, Table, predict_feed
from ballcast.cli.runtime import Kind, PictureSize, RuntimeKind, changed_emission, load_model
from ballcast.cli.shell import Device, app, frames_progress, new_console, seconds_option, step_progress
from ballcast.core.actions import FPS
from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ballcast.api import Model as LoadedModel
    from ballcast.core.events import Clip, Prediction
    from ballcast.features.store import FeatureStore
    from ballcast.inference.timeline import Targets

Video = Annotated[str | None, typer.Argument(help="A video file of your own; or give --events or --features.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="key=value: mode=slot|class, vector=full|emitted, threshold=0.3, run=1. --features: also "
        "mode=expected, with inflation=4 and reach_ms=1280 in the place of the last three."
    ),
]
Features = Annotated[
    list[Path] | None,
    typer.Option(
        "--features",
        help="A feature store (see `ballcast extract`) instead of a video; several: one for each --model, in order.",
    ),
]
Events = Annotated[
    Path | None, typer.Option("--events", help="A match's event feed instead of a video (see `ballcast events`).")
]
Provider = Annotated[
    str | None,
    typer.Option("--provider", help="--events: its provider, as in `ballcast events`.", show_default="as recognised"),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="A model's folder, or its id on the hub. VIDEO, --events: embedded by default. --features: several.",
    ),
]
Backbone = Annotated[
    str | None, typer.Option("--backbone", help="VIDEO: the backbone the model was trained on, as in `extract`.")
]
Every = Annotated[float | None, seconds_option("VIDEO, --events: seconds between two forecasts.", default="1")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="The file to write. VIDEO: .json, by default the video's name with .anticipation.json. "
        "--events: .json, by default the feed's name with .events.anticipation.json. "
        "--features: .json or .zip, by default results_anticipation.json.",
    ),
]
Osl = Annotated[
    Path | None, typer.Option("--osl", help="VIDEO, --events: also write OSL JSON, one event per prediction.")
]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", help="VIDEO, --events: also write a table: at_ms, label, position_ms, confidence."),
]
Overlay = Annotated[
    Path | None, typer.Option("--overlay", help="VIDEO: write the video with the forecasts below it (.mp4).")
]
Labels = Annotated[
    Path | None,
    typer.Option("--labels", help="--features: Labels-ball.json or the split's folder: its clips, in order."),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", help="--features: of several models, as written by `ballcast tune --out`."),
]


@app.command()
def predict(
    ctx: typer.Context,
    video: Video = None,
    overrides: Overrides = None,
    features: Features = None,
    events: Events = None,
    provider: Provider = None,
    lineup: Lineup = None,
    models: Models = None,
    backbone: Backbone = None,
    every: Every = None,
    out: Out = None,
    osl: Osl = None,
    csv: Csv = None,
    table: Table = None,
    plot: Plot = None,
    clips: Clips = None,
    kickoff: Kickoff = None,
    overlay: Overlay = None,
    labels: Labels = None,
    calibration: CalibrationFile = None,
    device: Device = "auto",
    runtime: Kind = "auto",
    size: PictureSize = None,
) -> None:
    """Anticipate along a video of your own, along a match's event feed, or for every clip of a feature store.

    VIDEO, of any rate and size: one forecast a second from 5 s on, from the last 30 s or as much as there is. Times
    are in milliseconds of the video. A confidence is the probability that the action comes; the threshold is on the
    network's own p_obj, which training inflates: 0.3 there is a probability of 10 %.

    --events: a match's feed of any provider. The embedded model gives the probability of each action within 1 to 5 s,
    at every second and every event; --table, --plot and --clips write them. The periods share one clock.

    --features: writes a submission, with calibrated times and scores if the model was tuned and no key=value is given.

    Examples:

    ballcast predict match.mp4 --model runs/paper/best --backbone my-backbone --overlay overlay.mp4

    ballcast predict --events match.json --table match.csv --plot match.html --clips match.xml

    ballcast predict --features features-a/test --model runs/a/best --features features-b/test --model runs/b/best
    """
    from ballcast.inference.timeline import Targets

    video, changes = _split_arguments(video, overrides)
    _check_options(ctx.params | {"video": video, "features": features or None})
    every_ms = round(1000 * (1.0 if every is None else every))
    if features:
        target = out or Path("results_anticipation.json")
        predict_features(models, features, labels, target, calibration, changes, runtime, device)
    elif events is not None:
        predict_feed(ctx.params | {"every_ms": every_ms}, changes)
    else:
        path, model = Path(str(video)), models[0] if models else None
        targets = Targets(out or Path(f"{path.stem}.anticipation.json"), osl, csv, overlay)
        load = partial(load_model, runtime, model, backbone, device, "predict", size)
        predict_video(path, changes, targets, every_ms, load)


def _split_arguments(video: str | None, overrides: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the video and the key=value changes: without a video, the first argument is a change."""
    changes = list(overrides or ())
    if video is not None and "=" in video and not Path(video).exists():
        return None, [video, *changes]
    return video, changes


# Options that belong to some kinds of input only, in the order in which they are checked.
_GOES_WITH = {
    "backbone": ("--backbone", "a VIDEO"),
    "overlay": ("--overlay", "a VIDEO"),
    "size": ("--size", "a VIDEO"),
    "provider": ("--provider", "--events"),
    "lineup": ("--lineup", "--events"),
    "table": ("--table", "--events"),
    "plot": ("--plot", "--events"),
    "clips": ("--clips", "--events"),
    "kickoff": ("--kickoff", "--events"),
    "every": ("--every", "a VIDEO or --events"),
    "osl": ("--osl", "a VIDEO or --events"),
    "csv": ("--csv", "a VIDEO or --events"),
    "labels": ("--labels", "--features"),
    "calibration": ("--calibration", "--features"),
    "models": ("a second --model", "--features"),
}


def _check_options(params: dict[str, Any]) -> None:
    """Raise an InputError unless there is exactly one input and every option given has an effect on it."""
    kinds = {"video": "a VIDEO", "events": "--events", "features": "--features"}
    given = [kind for name, kind in kinds.items() if params[name] is not None]
    if len(given) != 1:
        raise InputError("give what to anticipate: either a VIDEO, or --events FILE, or --features STORE")
    used = {name: params[name] is not None for name in _GOES_WITH}
    used |= {"models": len(params["models"] or ()) > 1}
    for name, (option, goes_with) in _GOES_WITH.items():
        if used[name] and given[0] not in goes_with:
            raise InputError(f"{option} goes with {goes_with}, not with {given[0]}")


def _given(models: list[str] | None) -> list[str]:
    if not models:
        raise InputError(
            "predict needs a model: give --model with the folder or hub id of one made by `ballcast train`"
        )
    return models


def predict_features(
    models: list[str] | None,
    features: list[Path],
    labels: Path | None,
    out: Path,
    calibration: Path | None,
    changes: list[str],
    runtime: RuntimeKind,
    device: str,
) -> None:
    """Write a submission for the clips of a store: by one model as it is, by a tuned one, or by several together.

    `features`: one store for all models, or one for each.
    """
    from ballcast.api import load
    from ballcast.core.files import check_writable
    from ballcast.data.labels.soccernet import read_labels
    from ballcast.features.store import FeatureStore
    from ballcast.inference.store_predictor import by_clip
    from ballcast.inference.submission import write_submission

    sources = _given(models)
    several = len(sources) > 1 or calibration is not None
    if several and changes:
        raise InputError(f"{changes[0]} is for one model; leave it out with several models or --calibration")
    check_writable(out)
    stores = [FeatureStore.open(path) for path in features]
    clips = read_labels(labels) if labels else None
    loaded = [load(source, runtime=runtime, device=device) for source in sources]
    first = loaded[0].windows
    with step_progress(new_console(stderr=True), "clips") as progress:
        if several or len(stores) > 1:
            predictions, about = _predict_together(loaded, sources, stores, clips, calibration, progress)
        else:
            emit = changed_emission(loaded[0].emit, changes, shown=False) if changes or not first.calibration else None
            predictions = by_clip(loaded[0].features(stores[0], clips=clips, emit=emit, progress=progress))
            about = f"; 1 model, calibrated on {first.calibration.fitted_on}" if first.calibration and not emit else ""
    write_submission(out, predictions)
    count = sum(map(len, predictions.values()))
    per_clip = count / max(len(predictions), 1)
    typer.echo(f"{out}: {len(predictions)} clips, {count} predictions, {per_clip:.1f} a clip{about}")


def _predict_together(
    loaded: "list[LoadedModel]",
    sources: list[str],
    stores: "list[FeatureStore]",
    clips: "list[Clip] | None",
    calibration: Path | None,
    progress: "Callable[[int, int], None]",
) -> "tuple[Mapping[str, Sequence[Prediction]], str]":
    """Predict with several models, or with a calibration from a file; also return a note on how it was done."""
    from ballcast.core.events import Clip
    from ballcast.inference.store_predictor import by_clip, check_ensemble, forecast_together, hashes, open_ensemble
    from ballcast.inference.store_predictor import untuned as untuned_mapping
    from ballcast.model.score_mapping import read_score_mapping

    models = [one.windows for one in loaded]
    check_ensemble(models, sources, stores)
    tuned = read_score_mapping(calibration, hashes(sources)) if calibration else untuned_mapping(models)
    chosen = [Clip(name, labelled=False) for name in stores[0].names] if clips is None else clips
    windows = open_ensemble(models, stores, chosen, selected=clips is not None)
    how = f"calibrated on {tuned.fitted_on}" if tuned.fitted_on else "not tuned"
    made = by_clip(forecast_together(models, windows, tuned, progress))
    return made, f"; {len(models)} model{'s' * (len(models) > 1)}, {how}"


def predict_video(
    path: Path, changes: list[str], targets: "Targets", every_ms: int, load_model: "Callable[[], LoadedModel]"
) -> None:
    """Write the forecasts along a video; Ctrl-C leaves no file behind."""
    import time

    from ballcast.video.file import VideoFile
    from ballcast.video.luma import fitted, show_size

    targets.check(path)
    video = VideoFile(path)  # before the model, which takes seconds: a missing file is noticed at once
    model = load_model()
    emit = changed_emission(model.emit, changes, shown=True)
    seen_by = model.new_runtime()
    if (scaled := fitted(video.size, seen_by.picture_size, colour=seen_by.config.colour)) != video.size:
        typer.echo(f"frames of {show_size(video.size)} are scaled to {show_size(scaled)}")
    began, frames = time.perf_counter(), 0
    try:
        with frames_progress(new_console(stderr=True), real_time=True) as advance:

            def progress(done: int, total: int | None) -> None:
                nonlocal frames
                frames = done
                advance(done, total)

            with model.video(video, every_ms=every_ms, emit=emit, progress=progress) as forecasts:
                timeline = tuple(forecasts)
    except KeyboardInterrupt:
        message = f"ballcast: stopped at {frames / FPS:.0f} s of {path}; nothing was written"
        typer.secho(message, fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    seconds, length = time.perf_counter() - began, frames / FPS
    about = forecasts.about
    if targets.overlay is None:
        targets.write(timeline, path, about)
    else:  # drawing may take as long again
        with frames_progress(new_console(stderr=True), real_time=True) as drawn:
            targets.write(timeline, path, about, drawn)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} forecasts, {count} predictions")
    typer.echo(f"{length:.1f} s of video in {seconds:.1f} s: {length / seconds:.1f} × real time")
