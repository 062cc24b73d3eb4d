"""`ballcast forecast`: what comes next, from what any action spotter found in a video."""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ballcast.cli.predict_video import SUFFIXES
from ballcast.cli.runtime import Kind, Model, RuntimeKind
from ballcast.cli.shell import Device, app, new_console, seconds_option
from ballcast.core.actions import SHORT_NAMES
from ballcast.core.errors import InputError
from ballcast.core.progress import REAL_TIME, progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ballcast.api import Model as LoadedModel
    from ballcast.core.spots import Spots
    from ballcast.inference.spot_model import SpotModel
    from ballcast.inference.spot_predictor import SpotForecast, SpotForecasts
    from ballcast.inference.timeline import OutputFiles

SpotsFile = Annotated[
    Path,
    typer.Argument(help="What a spotter found, or labels: OSL, SoccerNet or FOOTPASS JSON, or a CSV.", metavar="SPOTS"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="The forecasts as JSON, by default the name of SPOTS with .anticipation.json; of several videos a folder.",
    ),
]
Osl = Annotated[Path | None, typer.Option("--osl", help="Also write OSL JSON, one event per prediction.")]
Csv = Annotated[
    Path | None, typer.Option("--csv", help="Also write the predictions: at_ms, label, position_ms, confidence.")
]
Table = Annotated[
    Path | None,
    typer.Option("--table", help="Also write the probability of each action, a row a forecast (.csv, .parquet)."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a page with the timeline, to share (.html).")]
Video = Annotated[
    Path | None, typer.Option("--video", help="The video of the spots, for --overlay and for pictures on the page.")
]
Overlay = Annotated[
    Path | None, typer.Option("--overlay", help="Write the video with the forecasts below it (.mp4); needs --video.")
]
Submission = Annotated[
    Path | None,
    typer.Option("--submission", help="Only write what comes after the 30 s of each clip (.json, .zip)."),
]
Labels = Annotated[
    Path | None,
    typer.Option("--labels", help="--submission: Labels-ball.json or the split's folder: its clips, in order."),
]
Every = Annotated[float, seconds_option("Seconds between two forecasts.")]
NOTE = (
    "Made from what an action spotter found, by a model that learned from event feeds of professional leagues. "
    "Its probabilities are calibrated on such feeds, not on broadcasts."
)


@app.command()
def forecast(
    spots: SpotsFile,
    out: Out = None,
    osl: Osl = None,
    csv: Csv = None,
    table: Table = None,
    html: Html = None,
    video: Video = None,
    overlay: Overlay = None,
    submission: Submission = None,
    labels: Labels = None,
    every: Every = 1.0,
    model: Model = None,
    device: Device = "auto",
    runtime: Kind = "auto",
) -> None:
    """Forecast the ball actions of the next 5 s from what any action spotter found in a video.

    The embedded model reads classes, times and confidences of the last 30 s, and teams and players if they are there:
    with them it knows who has the ball and forecasts better. Each forecast uses only spots before its time.

    SPOTS is recognised by its content:

    - OSL JSON, as OpenSportsLib writes it, with or without `id`
    - SoccerNet's `results_spotting.json`, or `Labels-ball.json` of games or of clips
    - FOOTPASS (PCBAS) JSON
    - a CSV with the columns time (seconds or 1:02:03.5) or position_ms, label, and if you have them confidence, team,
    player and video; without a header time,label,confidence

    Give the spotter's confidences and its weak spots too, from 0.15 or so: the model weighs them. A class that the
    spotter does not have (often high pass and out) is not forecast. Labels that are none of the ten actions are left
    out and counted.

    SPOTS - reads spots as lines from standard input while a spotter finds them, rows as in a CSV or JSON records, and
    prints a forecast as a line of JSON after each; a line with only a time asks for a forecast at that time.

    Examples:

    ballcast forecast results_spotting.json --table match.csv --html match.html

    ballcast forecast spots.csv --video match.mp4 --overlay overlay.mp4

    ballcast forecast clips.json --submission results_anticipation.zip --labels 224p/test

    my-spotter rtsp://camera/1 | ballcast forecast -
    """
    from ballcast.api import load
    from ballcast.core.embedded import SPOTS
    from ballcast.core.files import check_not_source, check_writable
    from ballcast.data.labels.spots import read_spots

    if str(spots) == "-":
        _follow(model, device, runtime)
        return
    given = {"out": out, "osl": osl, "csv": csv, "table": table, "html": html, "overlay": overlay}
    _check_options(given, video, submission, labels)
    found = read_spots(spots)  # before the model: a fault is noticed at once
    for path in (table, submission):
        if path is not None:
            check_writable(path)
            check_not_source(path, spots)
            if path.is_dir() or (path == table and not path.suffix):
                raise InputError(f"{path}: is no name of a file; end it in {'.zip' if path == submission else '.csv'}")
    several = len(found.videos) > 1
    if several and video is not None:
        raise InputError(f"{spots}: has the spots of {len(found.videos)} videos; --video goes with those of one")
    targets = {one.name: _targets(spots, one.name, given, several=several) for one in found.videos}
    if submission is None:
        for outputs in targets.values():
            outputs.check(video or spots)
    loaded = load(model or SPOTS, runtime=runtime, device=device)
    describe(spots, found.videos, found.left_out)
    if submission is not None:
        _submit(submission, labels, loaded, found.videos)
        return
    with progress_bar(new_console(stderr=True), "forecasts") as progress:
        forecasts = loaded.spots(found.videos, every_ms=round(1000 * every), progress=progress)
        timeline = list(forecasts)
    for name, outputs in targets.items():
        _write(spots, name, outputs, [made for made in timeline if made.video == name], forecasts, video)
    if table is not None:
        from ballcast.inference.spot_predictor import write_spot_table

        write_spot_table(table, timeline)
        typer.echo(f"{table}: {len(timeline)} rows")


def _follow(model: str | None, device: str, runtime: RuntimeKind) -> None:
    """Print a forecast after each line of standard input; a line that is not understood is named and left out."""
    import numpy as np

    from ballcast.api import load
    from ballcast.core.embedded import SPOTS
    from ballcast.data.labels.spots import SpotLines
    from ballcast.inference.spot_predictor import forecasts_at

    network = _network(load(model or SPOTS, runtime=runtime, device=device))
    lines = SpotLines()
    for number, line in enumerate(sys.stdin, start=1):
        try:
            at_ms = lines.read(line)
        except InputError as error:
            typer.secho(f"ballcast: note: line {number}: {error}; left out", fg=typer.colors.YELLOW, err=True)
            continue
        if at_ms is not None:
            for made in forecasts_at(network, lines.spots(), np.array([at_ms])):
                typer.echo(json.dumps(made.to_json()))
                sys.stdout.flush()


def _network(model: "LoadedModel") -> "SpotModel":
    if model.spot_model is None:
        raise InputError(f"{model.name}: does not read spots; leave --model out")
    return model.spot_model


def _check_options(
    given: "Mapping[str, Path | None]", video: Path | None, submission: Path | None, labels: Path | None
) -> None:
    """Raise an InputError for options that have no effect together."""
    if submission is not None:
        used = [name for name, path in given.items() if path is not None]
        if used:
            raise InputError(f"--{used[0]} goes with forecasts along videos, not with --submission; run it separately")
    elif labels is not None:
        raise InputError("--labels goes with --submission; leave it out")
    if given["overlay"] is not None and video is None:
        raise InputError("--overlay needs the video to draw below: give it with --video")
    if video is not None and given["overlay"] is None and given["html"] is None:
        raise InputError("--video is for --overlay or --html; give one of them")


def _targets(spots: Path, name: str, given: "Mapping[str, Path | None]", *, several: bool) -> "OutputFiles":
    """The files to write for the video `name`; of several, each option names a folder."""
    from ballcast.inference.timeline import OutputFiles

    if not several:
        out = given["out"] or Path(f"{spots.stem}.anticipation.json")
        return OutputFiles(out, given["osl"], given["csv"], given["overlay"], given["html"])
    stem = re.sub(r"[/\\:]+", "-", name.strip("/"))

    def place(option: str) -> Path | None:
        folder = given[option]
        if folder is not None and folder.suffix and not folder.is_dir():
            raise InputError(f"{folder}: there are several videos in {spots}; give a folder for their files")
        return None if folder is None else folder / f"{stem}{SUFFIXES[option]}"

    out = place("out") or Path(f"{spots.stem}-anticipation") / f"{stem}{SUFFIXES['out']}"
    return OutputFiles(out, place("osl"), place("csv"), None, place("html"))


def describe(path: Path, videos: "Sequence[Spots]", left_out: "Mapping[str, int]") -> None:
    """Print how many spots there are of each action, what was left out, and what is not forecast."""
    from ballcast.inference.spot_predictor import not_forecast

    counts = [sum(column) for column in zip(*(spots.counts().tolist() for spots in videos), strict=True)]
    of = f" of {len(videos)} videos" if len(videos) > 1 else ""
    shown = ", ".join(f"{n} {name}" for name, n in zip(SHORT_NAMES, counts, strict=True) if n)
    typer.echo(f"{path}: {sum(map(len, videos))} spots{of}: {shown}")
    if left_out:
        typer.echo("left out, none of the ten actions: " + ", ".join(f"{n} {name}" for name, n in left_out.items()))
    if missing := not_forecast(videos):
        names = " and ".join(name.lower() for name in missing)
        merged = "; high passes count as passes" if "HIGH PASS" in missing else ""
        typer.echo(f"{names}: not among the spotter's classes, so not forecast{merged}")


def _submit(path: Path, labels: Path | None, model: "LoadedModel", videos: "Sequence[Spots]") -> None:
    """Write the submission."""
    from ballcast.data.labels.soccernet import read_labels
    from ballcast.inference.spot_predictor import predict_clips
    from ballcast.inference.submission import write_submission

    clips = read_labels(labels) if labels else None
    predictions = predict_clips(_network(model), videos, clips)
    write_submission(path, predictions)
    count = sum(map(len, predictions.values()))
    typer.echo(f"{path}: {len(predictions)} clips, {count} predictions, {count / max(len(predictions), 1):.1f} a clip")


def _write(
    spots: Path,
    name: str,
    targets: "OutputFiles",
    timeline: "list[SpotForecast]",
    forecasts: "SpotForecasts",
    video: Path | None,
) -> None:
    """Write the files of one video."""
    about = {"name": name, **forecasts.about, "note": NOTE}
    source = {"spots": spots.name}
    targets.json.parent.mkdir(parents=True, exist_ok=True)
    if targets.overlay is None:
        targets.write(timeline, video or spots, about, source=source)
    else:
        with progress_bar(new_console(stderr=True), unit=REAL_TIME) as drawn:
            targets.write(timeline, video or spots, about, drawn, source=source)
    if targets.html is not None:
        from ballcast.report.video_page import write_video_page

        write_video_page(targets.html, video, timeline, about, (), name=name, note=_page_note(forecasts))
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} forecasts, {count} predictions")


def _page_note(forecasts: "SpotForecasts") -> str:
    missing = " and ".join(label.lower() for label in forecasts.about["not_forecast"])
    return NOTE + (f" Not forecast, since the spotter does not have them: {missing}." if missing else "")
