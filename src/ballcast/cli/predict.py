"""`ballcast predict`: along a video, along an event feed, or for every clip of a feature store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ballcast.cli.runtime import Kind, PictureSize, changed_emission, open_runtime
from ballcast.cli.shell import Device, app, frames_progress, new_console, seconds_option, step_progress
from ballcast.core.actions import FPS
from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from ballcast.core.events import Clip, Prediction
    from ballcast.data.samples.windows import WindowSet
    from ballcast.features.store import FeatureStore
    from ballcast.inference.runtime import Runtime
    from ballcast.inference.timeline import Targets
    from ballcast.model.anticipator import Anticipator

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
    typer.Option("--provider", help="--events: its provider, as in `ballcast events`.", show_default="wyscout"),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="A model's folder, or its id on the hub. VIDEO: embedded by default. --features: several, averaged.",
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
    models: Models = None,
    backbone: Backbone = None,
    every: Every = None,
    out: Out = None,
    osl: Osl = None,
    csv: Csv = None,
    overlay: Overlay = None,
    labels: Labels = None,
    calibration: CalibrationFile = None,
    device: Device = "auto",
    runtime: Kind = "torch",
    size: PictureSize = None,
) -> None:
    """Anticipate along a video of your own, along a match's event feed, or for every clip of a feature store.

    VIDEO, of any rate and size: one forecast a second from 5 s on, from the last 30 s or as much as there is. Times
    are in milliseconds of the video. A confidence is the probability that the action comes: training weights actions
    4 times, which inflates the network's own p_obj, and this is undone. The threshold is on the network's own p_obj:
    0.3 there is a probability of 10 %.

    --events: one forecast a second from 30 s of each period on. The periods share one clock; the output lists where
    each begins.

    --features: writes a submission file with the network's own scores or, if the model was tuned (see `ballcast tune`)
    and no key=value is given, with calibrated times and scores.

    Examples:

    ballcast predict match.mp4 --model runs/paper/best --backbone my-backbone --overlay overlay.mp4

    ballcast predict --events match.json --model runs/events/best --every 1

    ballcast predict --features features/test --model runs/s0/best --model runs/s1/best --calibration ensemble.json

    ballcast predict --features features-a/test --model runs/a/best --features features-b/test --model runs/b/best

    ballcast predict match.mp4 --model exported --runtime onnx
    """
    from ballcast.inference.timeline import Targets

    video, changes = _split_arguments(video, overrides)
    _check_options(ctx.params | {"video": video})
    every_ms = round(1000 * (1.0 if every is None else every))
    if features:
        predict_features(
            models, features, labels, out or Path("results_anticipation.json"), calibration, changes, device
        )
    elif events is not None:
        targets = Targets(out or Path(f"{events.stem}.events.anticipation.json"), osl, csv)
        predict_feed(models, events, provider or "wyscout", every_ms, changes, device, targets)
    else:
        path, model = Path(str(video)), models[0] if models else None
        targets = Targets(out or Path(f"{path.stem}.anticipation.json"), osl, csv, overlay)
        predict_video(path, changes, targets, every_ms, open_runtime(runtime, model, backbone, device, "predict", size))


def _split_arguments(video: str | None, overrides: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the video and the key=value changes: without a video, the first argument is a change."""
    changes = list(overrides or ())
    if video is not None and "=" in video and not Path(video).exists():
        return None, [video, *changes]
    return video, changes


# Options that belong to some kinds of input only, in the order in which they are checked.
_GOES_WITH = {
    "runtime": ("--runtime onnx", "a VIDEO"),
    "backbone": ("--backbone", "a VIDEO"),
    "overlay": ("--overlay", "a VIDEO"),
    "size": ("--size", "a VIDEO"),
    "provider": ("--provider", "--events"),
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
    given = [kind for name, kind in kinds.items() if params[name] not in (None, [])]
    if len(given) != 1:
        raise InputError("give what to anticipate: either a VIDEO, or --events FILE, or --features STORE")
    used = {name: params[name] is not None for name in _GOES_WITH}
    used |= {"runtime": params["runtime"] == "onnx", "models": len(params["models"] or ()) > 1}
    for name, (option, goes_with) in _GOES_WITH.items():
        if used[name] and given[0] not in goes_with:
            raise InputError(f"{option} goes with {goes_with}, not with {given[0]}")


def _first_model(models: list[str] | None) -> str:
    if not models:
        raise InputError(
            "predict needs a model: give --model with the folder or hub id of one made by `ballcast train`"
        )
    return models[0]


def predict_features(
    models: list[str] | None,
    features: list[Path],
    labels: Path | None,
    out: Path,
    calibration: Path | None,
    changes: list[str],
    device: str,
) -> None:
    """Write a submission for the clips of a store: by one model as it is, by a tuned one, or by several together.

    `features`: one store for all models, or one for each.
    """
    from ballcast.core.files import check_writable
    from ballcast.features.store import FeatureStore
    from ballcast.inference.predictor import check_fits, load_models, open_ensemble, predict_store
    from ballcast.inference.submission import write_submission
    from ballcast.model.anticipator import Anticipator
    from ballcast.training.engine import start

    source = _first_model(models)
    model = Anticipator.from_pretrained(source)
    emit, chosen = changed_emission(model.emit, changes, shown=False), start(device)[1]
    several = len(models or ()) > 1 or calibration is not None
    if several and changes:
        raise InputError(f"{changes[0]} is for one model; leave it out with several models or --calibration")
    check_writable(out)
    stores = [FeatureStore.open(path) for path in features]
    store, clips = stores[0], _clips(stores[0], labels)
    if several or len(stores) > 1 or (model.calibration is not None and not changes):
        loaded = load_models(models or [], stores)
        windows = open_ensemble(loaded, stores, clips, selected=labels is not None)
        predictions, about = _predict_together(models or [], loaded, windows, calibration, chosen)
    else:
        check_fits(model, store, source)
        predictions, about = predict_store(model, store, clips, emit, chosen), ""
    write_submission(out, predictions)
    count = sum(map(len, predictions.values()))
    per_clip = count / max(len(predictions), 1)
    typer.echo(f"{out}: {len(predictions)} clips, {count} predictions, {per_clip:.1f} a clip{about}")


def _clips(store: "FeatureStore", labels: Path | None) -> "list[Clip]":
    """Return the clips to predict: those of the labels, in their order, or all of the store."""
    from ballcast.core.events import Clip
    from ballcast.data.labels.soccernet import read_labels

    return read_labels(labels) if labels else [Clip(name, labelled=False) for name in store.names]


def _predict_together(
    sources: list[str],
    models: "list[Anticipator]",
    windows: "list[WindowSet]",
    calibration: Path | None,
    device: "torch.device",
) -> "tuple[Mapping[str, Sequence[Prediction]], str]":
    """Predict with several models, or with a tuned one; also return a note on how it was done."""
    from ballcast.inference.predictor import hashes, predict_together, untuned
    from ballcast.model.score_mapping import read_score_mapping

    if calibration is not None:
        tuned = read_score_mapping(calibration, hashes(sources))
    else:
        tuned = (models[0].calibration if len(models) == 1 else None) or untuned(models)
    how = f"calibrated on {tuned.fitted_on}" if tuned.fitted_on else "not tuned"
    return predict_together(models, windows, tuned, device), f"; {len(models)} model{'s' * (len(models) > 1)}, {how}"


def predict_feed(
    models: list[str] | None,
    events: Path,
    provider: str,
    every_ms: int,
    changes: list[str],
    device: str,
    targets: "Targets",
) -> None:
    """Write the forecasts along a match's events, by a model that was trained on feeds."""
    from ballcast.data.events.kloppy_feed import read_match, warn_missing_kinds
    from ballcast.inference.feed_predictor import anticipate_feed, check_reads_events, detail_of
    from ballcast.model.anticipator import Anticipator
    from ballcast.training.engine import start

    source = _first_model(models)
    model = Anticipator.from_pretrained(source)
    emit, chosen = changed_emission(model.emit, changes, shown=True), start(device)[1]
    check_reads_events(model, source)
    targets.check(events)
    feed = read_match(events, provider)
    if detail_of(model) == "rich":
        warn_missing_kinds(events, provider)
    with step_progress(new_console(stderr=True), "forecasts") as progress:
        timeline, begins = anticipate_feed(
            model, feed, every_ms=every_ms, config=emit, device=chosen, progress=progress
        )
    about = {"every_ms": every_ms, "model": source, "periods_begin_ms": begins, "pos_weight": model.pos_weight}
    targets.write(timeline, events, about)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: match {feed.match}, {len(timeline)} forecasts, {count} predictions")


def predict_video(
    path: Path, changes: list[str], targets: "Targets", every_ms: int, new_runtime: "Callable[[], Runtime]"
) -> None:
    """Write the forecasts along a video, computed by any runtime; Ctrl-C leaves no file behind."""
    import time

    from ballcast.inference.rolling import RollingAnticipator, anticipate_video
    from ballcast.video.file import VideoFile
    from ballcast.video.luma import fitted, show_size

    runtime = new_runtime()
    emit = changed_emission(runtime.emit, changes, shown=True)
    targets.check(path)
    rolling = RollingAnticipator(runtime, every_ms=every_ms, emit=emit)
    began = time.perf_counter()
    try:
        with VideoFile(path) as video, frames_progress(new_console(stderr=True), real_time=True) as progress:
            if (scaled := fitted(video.size, runtime.picture_size, colour=rolling.colour)) != video.size:
                typer.echo(f"frames of {show_size(video.size)} are scaled to {show_size(scaled)}")
            timeline = anticipate_video(video, rolling, progress)
    except KeyboardInterrupt:
        message = f"ballcast: stopped at {rolling.frames / FPS:.0f} s of {path}; nothing was written"
        typer.secho(message, fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    seconds, length = time.perf_counter() - began, rolling.frames / FPS
    about = {"every_ms": rolling.every_ms, **runtime.about, "pos_weight": rolling.pos_weight}
    if targets.overlay is None:
        targets.write(timeline, path, about)
    else:  # drawing may take as long again
        with frames_progress(new_console(stderr=True), real_time=True) as drawn:
            targets.write(timeline, path, about, drawn)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} forecasts, {count} predictions")
    typer.echo(f"{length:.1f} s of video in {seconds:.1f} s: {length / seconds:.1f} × real time")
