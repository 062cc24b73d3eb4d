"""`ballcast predict`: along a video, along a feed, or every clip of a store; what each of them does is beside it."""

from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.predict_work import along_feed, along_video, of_models, of_store
from ballcast.cli.runtime import Kind, PictureSize, changed_emission, open_runtime
from ballcast.cli.shell import Device, app, seconds_option
from ballcast.core.errors import InputError


@app.command()
def predict(
    video: Annotated[
        str | None, typer.Argument(help="A video file of your own; or give --events or --features.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="key=value: mode=slot|class, vector=full|emitted, threshold=0.3, run=1. --features: also "
            "mode=expected, with inflation=4 and reach_ms=1280 in the place of the last three."
        ),
    ] = None,
    features: Annotated[
        Path | None, typer.Option("--features", help="A feature store (see `ballcast extract`) instead of a video.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--events", help="A match's event feed instead of a video (see `ballcast events`).")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("--provider", help="--events: who delivered it, as in `ballcast events`.", show_default="wyscout"),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="A model's folder, or its id on the hub. VIDEO: embedded by default. --features: several, averaged.",
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="VIDEO: the backbone the model was trained on, as in `extract`.")
    ] = None,
    every: Annotated[
        float | None, seconds_option("VIDEO, --events: seconds from one anticipation to the next.", default="1")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write. VIDEO: .json, by default the video's name with .anticipation.json. "
            "--events: .json, by default the feed's name with .events.anticipation.json. "
            "--features: .json or .zip, by default results_anticipation.json.",
        ),
    ] = None,
    osl: Annotated[
        Path | None, typer.Option("--osl", help="VIDEO, --events: write OSL JSON too, an event a prediction.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="VIDEO, --events: write a table too: at_ms, label, position_ms, confidence."),
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option("--overlay", help="VIDEO: write the video with the anticipations below it (.mp4).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="--features: Labels-ball.json or the split's folder: its clips, in order."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="--features: of several models, as `ballcast tune --out` wrote it."),
    ] = None,
    device: Device = "auto",
    runtime: Kind = "torch",
    size: PictureSize = None,
) -> None:
    """Anticipate along a video of your own, along a match's event feed, or every clip of a feature store.

    Along a VIDEO, of any rate and size, an anticipation is made every second from 5 s on, out of the last 30 s or of
    as much as there is. Times are milliseconds of the video. A confidence is the honest chance that the action comes:
    training counts actions 4 times, which inflates the network's own p_obj, and that is undone. The threshold is on the
    network's own p_obj: 0.3 there is an honest 10 %.

    Along --events, the feed of a match, it is the same every second from 30 s of each period on; the periods follow
    each other on one clock, and the file says where each begins.

    From --features comes a submission file, with the network's own scores or, if the model was tuned (see `ballcast
    tune`) and nothing else is asked for by key=value, with calibrated times and scores.

    Examples:

    ballcast predict match.mp4 --model runs/paper/best --backbone my-backbone --overlay seen.mp4

    ballcast predict --events match.json --model runs/events/best --every 1

    ballcast predict --features features/test --model runs/paper/best threshold=0.05

    ballcast predict --features features/test --model runs/s0/best --model runs/s1/best --calibration ensemble.json

    ballcast predict match.mp4 --model exported --runtime onnx
    """
    from ballcast.inference.timeline import Targets

    given = list(overrides or ())
    if video is not None and "=" in video and not Path(video).exists():  # without a video the first is an override
        given.insert(0, video)
        video = None
    if sum(given_ is not None for given_ in (video, features, events)) != 1:
        raise InputError("give what to anticipate: either a VIDEO, or --events FILE, or --features STORE")
    kind = "a VIDEO" if video is not None else "--events" if events is not None else "--features"
    model = models[0] if models else None
    _require_use(
        kind,
        {
            "--runtime onnx": (runtime == "onnx", "a VIDEO"),
            "--backbone": (backbone is not None, "a VIDEO"),
            "--overlay": (overlay is not None, "a VIDEO"),
            "--size": (size is not None, "a VIDEO"),
            "--provider": (provider is not None, "--events"),
            "--every": (every is not None, "a VIDEO or --events"),
            "--osl": (osl is not None, "a VIDEO or --events"),
            "--csv": (csv is not None, "a VIDEO or --events"),
            "--labels": (labels is not None, "--features"),
            "--calibration": (calibration is not None, "--features"),
            "a second --model": (len(models or ()) > 1, "--features"),
        },
    )
    every_ms = round(1000 * (1.0 if every is None else every))
    if video is not None:
        path, new = Path(video), open_runtime(runtime, model, backbone, device, "predict", size)
        targets = Targets(out or Path(f"{path.stem}.anticipation.json"), osl, csv, overlay)
        along_video(path, given, targets, every_ms, new)
        return
    if model is None:
        raise InputError(
            "predict needs a model: give --model with the folder or hub id of one made by `ballcast train`"
        )
    from ballcast.model.anticipator import Anticipator
    from ballcast.training.engine import start

    anticipator = Anticipator.from_pretrained(model)
    emit = changed_emission(anticipator.emit, given, shown=features is None)
    chosen = start(device)[1]
    if features is not None:
        target = out or Path("results_anticipation.json")
        if len(models or ()) > 1 or calibration is not None or (anticipator.calibration is not None and not given):
            if given:
                raise InputError(
                    f"{given[0]} says how a model alone is read; leave it out with several or --calibration"
                )
            of_models(models or [], features, labels, target, calibration, chosen)
            return
        of_store(anticipator, model, features, labels, target, emit, chosen)
        return
    assert events is not None
    targets = Targets(out or Path(f"{events.stem}.events.anticipation.json"), osl, csv)
    along_feed(anticipator, model, events, provider or "wyscout", every_ms, emit, chosen, targets)


def _require_use(kind: str, options: dict[str, tuple[bool, str]]) -> None:
    """An InputError for an option that would do nothing along this `kind`: option → (whether given, what it is for)."""
    for option, (given, goes_with) in options.items():
        if given and kind not in goes_with:
            raise InputError(f"{option} goes with {goes_with}, not with {kind}")
