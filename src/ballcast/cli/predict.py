"""`ballcast predict`: along a video, along an event feed, or for every clip of a feature store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ballcast.cli.feed import Clips, Kickoff, Lineup, Plot, Table, predict_feed
from ballcast.cli.predict_video import Begin, End, Html, Strict, predict_videos
from ballcast.cli.runtime import AnyVideo, Kind, PictureSize, RuntimeKind, changed_emission
from ballcast.cli.shell import Device, app, new_console, seconds_option
from ballcast.core.errors import InputError
from ballcast.core.progress import ProgressCallback, progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ballcast.api import Model as LoadedModel
    from ballcast.core.events import Clip, Prediction
    from ballcast.features.store import FeatureStore

Video = Annotated[
    str | None, typer.Argument(help="A video; several, folders of them, or .txt lists. Or --events or --features.")
]
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
    html: Html = None,
    begin: Begin = None,
    end: End = None,
    strict: Strict = False,
    any_video: AnyVideo = False,
    labels: Labels = None,
    calibration: CalibrationFile = None,
    device: Device = "auto",
    runtime: Kind = "auto",
    size: PictureSize = None,
) -> None:
    """Anticipate along a video, along a match's event feed, or for every clip of a feature store.

    VIDEO, of any rate and size: one forecast a second from 5 s on, from the last seconds (30 for the paper's model, 5
    for the embedded one). Times are in milliseconds of the video. Interrupted, it resumes when run again. Of several
    videos, options name folders.

    --events: a match's feed of any provider. The embedded model gives the probability of each action within 1 to 5 s,
    at every second and every event; --table, --plot and --clips write them. The periods share one clock.

    --features: writes a submission, with calibrated times and scores if the model was tuned and no key=value is given.

    Examples:

    ballcast predict match.mp4 --overlay overlay.mp4 --html match.html

    ballcast predict --events match.json --table match.csv --plot match.html --clips match.xml

    ballcast predict --features features-a/test --model runs/a/best --features features-b/test --model runs/b/best
    """
    videos, changes = _split_arguments([*([video] if video is not None else []), *(overrides or ())])
    given = ctx.params | {"video": videos or None, "features": features or None}
    _check_options(given)
    given["every_ms"] = round(1000 * (1.0 if every is None else every))
    if features:
        target = out or Path("results_anticipation.json")
        predict_features(models, features, labels, target, calibration, changes, runtime, device)
    elif events is not None:
        predict_feed(given, changes)
    else:
        predict_videos(videos, given, changes)


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the videos and the key=value changes."""
    changes = [text for text in arguments if "=" in text and not Path(text).exists()]
    return [text for text in arguments if text not in changes], changes


# Options that belong to some kinds of input only, in the order in which they are checked.
_GOES_WITH = {
    "backbone": ("--backbone", "a VIDEO"),
    "overlay": ("--overlay", "a VIDEO"),
    "html": ("--html", "a VIDEO"),
    "begin": ("--from", "a VIDEO"),
    "end": ("--to", "a VIDEO"),
    "strict": ("--strict", "a VIDEO"),
    "any_video": ("--any-video", "a VIDEO"),
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
    used = {name: params[name] not in (None, False) for name in _GOES_WITH}
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
    first = loaded[0].window_model
    with progress_bar(new_console(stderr=True), "clips") as progress:
        if several or len(stores) > 1:
            predictions, about = _predict_together(loaded, sources, stores, clips, calibration, progress)
        else:
            emit = (
                changed_emission(loaded[0].emit, changes, shown=False) if changes or not first.score_mapping else None
            )
            predictions = by_clip(loaded[0].features(stores[0], clips=clips, emit=emit, progress=progress))
            about = (
                f"; 1 model, calibrated on {first.score_mapping.fitted_on}" if first.score_mapping and not emit else ""
            )
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
    progress: ProgressCallback,
) -> "tuple[Mapping[str, Sequence[Prediction]], str]":
    """Predict with several models, or with a calibration from a file; also return a note on how it was done."""
    from ballcast.core.events import Clip
    from ballcast.inference.store_predictor import by_clip, check_ensemble, hashes, open_ensemble, predict_together
    from ballcast.inference.store_predictor import untuned as untuned_mapping
    from ballcast.model.score_mapping import read_score_mapping

    models = [one.window_model for one in loaded]
    check_ensemble(models, sources, stores)
    tuned = read_score_mapping(calibration, hashes(sources)) if calibration else untuned_mapping(models)
    chosen = [Clip(name, labelled=False) for name in stores[0].names] if clips is None else clips
    windows = open_ensemble(models, stores, chosen, selected=clips is not None)
    how = f"calibrated on {tuned.fitted_on}" if tuned.fitted_on else "not tuned"
    made = by_clip(predict_together(models, windows, tuned, progress))
    return made, f"; {len(models)} model{'s' * (len(models) > 1)}, {how}"
