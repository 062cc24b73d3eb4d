"""The command line: a command is a function. Heavy imports live inside them, so that `--help` answers at once."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from ballcast import __version__
from ballcast.core.actions import FPS
from ballcast.core.errors import BallcastError, BallcastWarning, InputError
from ballcast.core.hub import SNBAA

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from ballcast.core.recipe import EmitConfig
    from ballcast.features.backbone import Backbone
    from ballcast.features.manifest import Failure
    from ballcast.features.store import FeatureStore
    from ballcast.inference.rolling import RollingAnticipator
    from ballcast.inference.timeline_io import Targets
    from ballcast.model.anticipator import Anticipator

app = typer.Typer(
    name="ballcast",
    help="Anticipate football: from 30 s of broadcast video, the ball actions of the next 5 s.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
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
    repo: Annotated[str, typer.Option(help="The data set on the hub.")] = SNBAA,
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

    with _resumable():
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


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what the demo makes.")] = Path("demo-out"),
) -> None:
    """Run the main job on embedded data: anticipate simulated matches, score, write a submission, draw plots.

    Example: ballcast demo
    """
    from ballcast.demo import run

    run(out, _console())


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
    for place in dict.fromkeys(split.folder.parent for split in splits):  # a table for each resolution
        title = f"{place.name}: actions to anticipate (observed)"
        table = Table(title=title, title_justify="left", title_style="bold")
        table.add_column("")
        here = [split for split in splits if split.folder.parent == place]
        for split in here:
            table.add_column(split.name, justify="right")
        table.add_row("clips", *(str(len(split.clips)) for split in here))
        table.add_row("videos", *(str(split.videos) for split in here), end_section=True)
        counts = [(split.counts("anticipation"), split.counts("observation"), split.labelled) for split in here]
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


Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")]


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A recipe, for example configs/paper.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example train.lr=1e-4.")] = None,
    run: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; an unfinished run there goes on.")] = Path(
        "runs/train"
    ),
    device: Device = "auto",
) -> None:
    """Train an anticipator by a recipe; kill it at any time and run the same command to go on.

    Needs a feature store per split (see `ballcast extract`) below data.features. On several GPUs:
    torchrun --nproc-per-node 4 -m ballcast train …

    Example: ballcast train configs/paper.yaml data.features=features --out runs/paper
    """
    from ballcast.core.config import load
    from ballcast.core.recipe import Recipe
    from ballcast.training import distributed
    from ballcast.training.progress import Display
    from ballcast.training.run import train as train_run

    recipe = load(Recipe, config, overrides or ())
    ranks, chosen = distributed.start(device)
    try:
        display = Display(_console(), recipe.train.epochs, quiet=not ranks.writes)
        with _resumable(), display:
            progress = train_run(recipe, run, device=chosen, ranks=ranks, show=display.show)
    finally:
        distributed.stop(ranks)
    if ranks.writes:
        best = (
            f"best validation mAP {100 * progress.best:.2f} in epoch {progress.best_epoch}"
            if progress.best >= 0
            else "no validation"
        )
        typer.echo(f"{run}: {progress.step} steps, {best}; the model is {run / 'best'}")


@app.command()
def predict(
    video: Annotated[str | None, typer.Argument(help="A video file of your own; or give --features.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value: mode=slot|class, vector=full|emitted, threshold=0.3, run=1."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option("--features", help="A feature store (see `ballcast extract`) instead of a video.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--events", help="A match's event feed instead of a video (see `ballcast events`).")
    ] = None,
    provider: Annotated[str, typer.Option("--provider", help="--events: who delivered it.")] = "wyscout",
    model: Annotated[str | None, typer.Option("--model", help="A model's folder, or its id on the hub.")] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="VIDEO: the backbone the model was trained on, as in `extract`.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.04, help="VIDEO: seconds from one anticipation to the next.")] = 1.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write. VIDEO: .json, by default the video's name with .anticipation.json. "
            "--features: .json or .zip, by default results_anticipation.json.",
        ),
    ] = None,
    osl: Annotated[Path | None, typer.Option("--osl", help="VIDEO: write OSL JSON too, an event a prediction.")] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="VIDEO: write a table too: at_ms, label, position_ms, confidence.")
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option("--overlay", help="VIDEO: write the video with the anticipations below it (.mp4).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="--features: Labels-ball.json or the split's folder: its clips, in order."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Anticipate along a video of your own, along a match's event feed, or every clip of a feature store.

    Along a VIDEO, of any rate and size, an anticipation is made every second from 5 s on, out of the last 30 s or of
    as much as there is. Times are milliseconds of the video. A confidence is the honest chance that the action comes:
    training counts actions 4 times, which inflates the network's own p_obj, and that is undone. The threshold is on the
    network's own p_obj: 0.3 there is an honest 10 %.

    Along --events, the feed of a match, it is the same every second from 30 s of each period on; the periods follow
    each other on one clock, and the file says where each begins.

    From --features comes a submission file, with the network's own scores.

    Examples:

    ballcast predict match.mp4 --model runs/paper/best --backbone my-backbone --overlay seen.mp4

    ballcast predict --events match.json --model runs/events/best --every 1

    ballcast predict --features features/test --model runs/paper/best threshold=0.05
    """
    from ballcast.core.config import from_dict, parse_overrides, to_dict
    from ballcast.core.recipe import EmitConfig
    from ballcast.inference.predictor import check_backbone
    from ballcast.inference.rolling import RollingAnticipator
    from ballcast.inference.timeline_io import Targets
    from ballcast.model.anticipator import Anticipator
    from ballcast.training.distributed import start

    given = list(overrides or ())
    if video is not None and "=" in video and not Path(video).exists():  # without a video the first is an override
        given.insert(0, video)
        video = None
    if sum(given_ is not None for given_ in (video, features, events)) != 1:
        raise InputError("give what to anticipate: either a VIDEO, or --events FILE, or --features STORE")
    if model is None:
        raise InputError(
            "predict needs a model: give --model with the folder or hub id of one made by `ballcast train`"
        )
    anticipator = Anticipator.from_pretrained(model)
    tree = parse_overrides([text.removeprefix("emit.") for text in given])
    emit = from_dict(EmitConfig, {**to_dict(anticipator.emit), **tree})
    chosen = start(device)[1]
    if features is not None:
        for option, value in {"--backbone": backbone, "--osl": osl, "--csv": csv, "--overlay": overlay}.items():
            if value is not None:
                raise InputError(f"{option} goes with a VIDEO, not with --features")
        _predict_store(anticipator, model, features, labels, out or Path("results_anticipation.json"), emit, chosen)
        return
    if labels is not None:
        raise InputError("--labels goes with --features, not with a VIDEO or --events")
    if events is not None:
        if backbone is not None or overlay is not None:
            raise InputError("--backbone and --overlay go with a VIDEO, not with --events")
        targets = Targets(out or Path(f"{events.stem}.anticipation.json"), osl, csv)
        _predict_feed(anticipator, model, events, provider, round(1000 * every), emit, chosen, targets)
        return
    assert video is not None
    if backbone is None:
        raise InputError(
            "predict needs the backbone the model was trained on: give --backbone with its folder or hub id, or with "
            "the published lRomul checkpoint (.pth)"
        )
    path = Path(video)
    targets = Targets(out or Path(f"{path.stem}.anticipation.json"), osl, csv, overlay)
    targets.check(path)
    network = _load_backbone(backbone)
    check_backbone(anticipator, network, model, backbone)
    rolling = RollingAnticipator(anticipator, network, every_ms=round(1000 * every), emit=emit, device=chosen)
    about = {"model": model, "backbone": {"name": network.name, "hash": network.hash}}
    _predict_video(path, rolling, targets, about)


def _predict_store(
    model: "Anticipator",
    source: str,
    features: Path,
    labels: Path | None,
    out: Path,
    emit: "EmitConfig",
    device: "torch.device",
) -> None:
    from ballcast.core.clips import Clip
    from ballcast.data.soccernet import read_labels
    from ballcast.features.store import FeatureStore
    from ballcast.inference.predictor import check_fits, predict_store
    from ballcast.inference.submission import write_submission

    store = FeatureStore.open(features)
    check_fits(model, store, source)
    clips = read_labels(labels) if labels else [Clip(name, labelled=False) for name in store.names]
    predictions = predict_store(model, store, clips, emit, device)
    write_submission(out, predictions)
    count = sum(map(len, predictions.values()))
    typer.echo(f"{out}: {len(predictions)} clips, {count} predictions, {count / max(len(predictions), 1):.1f} a clip")


def _predict_feed(
    model: "Anticipator",
    source: str,
    events: Path,
    provider: str,
    every_ms: int,
    emit: "EmitConfig",
    device: "torch.device",
    targets: "Targets",
) -> None:
    from ballcast.data.kloppy_feed import read_match
    from ballcast.inference.feed_timeline import anticipate_feed, check_reads_events
    from ballcast.inference.rolling import pos_weight

    check_reads_events(model, source)
    targets.check(events)
    feed = read_match(events, provider)
    timeline, begins = anticipate_feed(model, feed, every_ms=every_ms, config=emit, device=device)
    about = {"every_ms": every_ms, "model": source, "periods_begin_ms": begins, "pos_weight": pos_weight(model)}
    targets.write(timeline, events, about)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: match {feed.match}, {len(timeline)} moments, {count} predictions")


def _predict_video(path: Path, rolling: "RollingAnticipator", targets: "Targets", about: dict[str, Any]) -> None:
    import time

    from ballcast.inference.rolling import anticipate_video
    from ballcast.video.decode import VideoFile

    began = time.perf_counter()
    try:
        with VideoFile(path) as video, _frames_progress(_console(stderr=True), real_time=True) as progress:
            timeline = anticipate_video(video, rolling, progress)
    except KeyboardInterrupt:
        said = f"ballcast: stopped at {rolling.frames / FPS:.0f} s of {path}; nothing was written"
        typer.secho(said, fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    seconds, length = time.perf_counter() - began, rolling.frames / FPS
    targets.write(timeline, path, {"every_ms": rolling.every_ms, **about, "pos_weight": rolling.pos_weight})
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} moments, {count} predictions")
    typer.echo(f"{length:.1f} s of video in {seconds:.1f} s: {length / seconds:.1f} × real time")


@app.command()
def ablate(
    config: Annotated[Path, typer.Argument(help="The recipe the variants start from.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for all variants.")] = None,
    variants: Annotated[
        Path | None,
        typer.Option("--variants", help="YAML: name → list of overrides (default: the paper's ablations and more)."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs a variant.")] = 3,
    run: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for all runs; finished ones are not repeated.")
    ] = Path("runs/ablation"),
    json_: Annotated[Path | None, typer.Option("--json", help="Write the numbers here.")] = None,
    device: Device = "auto",
) -> None:
    """Train and score variants of a recipe, several seeds each, and print one table: mean ± deviation.

    Variants that differ only in emission share one training.

    Example: ballcast ablate configs/paper.yaml data.features=features --seeds 3
    """
    from ballcast.core.files import write_json
    from ballcast.training.ablate import ablate as run_ablation
    from ballcast.training.ablate import read_variants, table
    from ballcast.training.distributed import start

    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("ablate is one process; start it without torchrun, or several with a list of variants each")
    console = _console()
    with _resumable():
        rows = run_ablation(
            config,
            overrides or [],
            read_variants(variants),
            seeds,
            run,
            start(device)[1],
            lambda text: console.print(text, soft_wrap=True),
        )
    console.print(table(rows, seeds))
    if json_:
        write_json(json_, {row.name: row.as_dict() for row in rows}, indent=1)


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
    if out.suffix != ".zip":
        raise InputError(f"{out}: the server takes a zip; give --out a name that ends in .zip")
    systems = [read_submission(path, hand_in=True) for path in predictions]
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
    for _ in range(4):
        table.add_column(overflow="fold")
    signs = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]–[/]"}
    for finding in findings:
        table.add_row(signs[finding.ok], finding.what, escape(finding.detail), escape(finding.mend))
    _console().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


@app.command("extract")
def extract_features(
    source: Annotated[Path, typer.Argument(help="A split of SN-BAA, a folder of videos, or one video.")],
    out: Annotated[Path, typer.Argument(help="The feature store to make, or to go on with.")],
    backbone: Annotated[
        str | None, typer.Option(help="A backbone's folder or hub id, or a published lRomul checkpoint (.pth).")
    ] = None,
    every: Annotated[
        int,
        typer.Option(
            min=1, help="Frames from one 5 s window to the next: 125 is the task's own grid, 25 one a second."
        ),
    ] = 125,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on CPUs, decoding threads beside GPUs; default: the cores.")
    ] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where the network runs.")] = "auto",
) -> None:
    """Turn videos into features, once, so that training reads numbers instead of pixels.

    If it stops, for whatever reason, run the same command again: it goes on from where it was, and the store comes out
    the same byte for byte. A video that has changed since is done again. Videos that cannot be read are listed at the
    end and in the store; the others are done, and the exit code is 1.

    Labels-ball.json in the source is copied into the store.

    Example: ballcast extract ~/snbaa/224p/train features/train --backbone my-backbone --every 25
    """
    if backbone is None:
        raise InputError(
            "extract needs a backbone: give --backbone with the folder or hub id of a ballcast backbone, or with a "
            "published lRomul checkpoint (.pth)"
        )
    from ballcast.features.extract import extract

    network, console = _load_backbone(backbone), _console(stderr=True)
    with _resumable(), _frames_progress(console) as progress:
        report = extract(
            source, out, network, every=every, engine=engine, device=device, workers=workers, progress=progress
        )
    store = report.store
    windows = sum(shard.entries * shard.windows for shard in store.manifest.shards)
    typer.echo(f"{out}: {len(store)} videos, {windows} windows of {store.clips} × {store.width}")
    if report.frames:
        speed = report.frames / report.seconds
        share = f"the network waited for frames {100 * report.waiting:.0f} % of the time"
        typer.echo(f"{report.frames} frames in {report.seconds:.0f} s: {speed:.0f} a second, {share}")
    for failure in report.failed:
        console.print(f"failed: {failure.reason}", style="red", markup=False, soft_wrap=True)
    if report.failed:
        raise typer.Exit(1)


def _load_backbone(source: str) -> "Backbone":
    from ballcast.features.backbone import Backbone

    return Backbone.load(source)


@contextmanager
def _frames_progress(console: "Console", *, real_time: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with frames a second (or × real time) and the time left; silent where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    speed = "{task.fields[times]:.1f} × real time," if real_time else "{task.fields[speed]:.0f} a second,"
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(f"frames, {speed}"))
    with Progress(
        *columns, TimeRemainingColumn(), TextColumn("left"), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, speed=0.0, times=0.0)

        def advance(done: int, total: int | None) -> None:
            rate = bar.tasks[task].speed or 0.0
            bar.update(task, completed=done, total=total, speed=rate, times=rate / FPS)

        yield advance


@app.command()
def events(
    source: Annotated[Path, typer.Argument(help="The parquet table, a match's file, or a folder of matches.")],
    out: Annotated[Path, typer.Argument(help="The feature store to make; with --split, the folder of three.")],
    provider: Annotated[
        str,
        typer.Option(help="parquet, or through kloppy: wyscout, statsbomb, opta, statsperform, sportec, datafactory."),
    ] = "parquet",
    split: Annotated[
        Literal["small", "full"] | None,
        typer.Option(help="The benchmark's train, valid and test matches of the parquet table of five leagues."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.04, help="Seconds from one window to the next; not with --split.")] = 7,
) -> None:
    """Turn event feeds into feature stores, so that the model is trained on what happened instead of pixels.

    A window shows the 30 s before a moment on the video model's grid, 6 × 33 steps, and nothing of what came after.
    A match that cannot be read is listed at the end and in the store; the others are done, and the exit code is 1.

    Second files a provider needs are found by name: events/1.json and lineups/1.json, f24.xml and f7.xml.

    Examples:

    ballcast events wyscout_leagues.parquet stores/small --split small

    ballcast train configs/events.yaml data.features=stores/small -o runs/events

    ballcast events open-data/events stores/mine --provider statsbomb --every 5
    """
    from ballcast.data.event_windows import write_store
    from ballcast.data.kloppy_feed import match_files, read_folder
    from ballcast.data.leagues import EVERY_MS, divide
    from ballcast.data.wyscout import iterate_table, read_table

    console = _console(stderr=True)
    failed: list[Failure] = []
    if split is not None:
        if provider != "parquet":
            raise InputError("--split goes with the parquet table")
        for name, feeds in divide(read_table(source), split).items():
            with _match_progress(console, name, len(feeds)) as tick:
                store = write_store(out / name, feeds, EVERY_MS[name], tick=tick)
            failed += store.manifest.failed
            typer.echo(_about_events(store))
    else:
        found = iterate_table(source) if provider == "parquet" else read_folder(source, provider)
        total = None if provider == "parquet" else len(match_files(source, provider))
        with _match_progress(console, "", total) as tick:
            store = write_store(out, found, round(1000 * every), tick=tick)
        failed += store.manifest.failed
        typer.echo(_about_events(store))
    for failure in failed:
        console.print(f"failed: {failure.reason}", style="red", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _about_events(store: "FeatureStore") -> str:
    from ballcast.data.event_grid import WINDOWS

    samples = sum(shard.entries * shard.windows for shard in store.manifest.shards) // WINDOWS
    return f"{store.path}: {len(store)} matches, {samples} windows of {WINDOWS} × {store.clips} × {store.width}"


@contextmanager
def _match_progress(console: "Console", name: str, total: int | None) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("matches,"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


@data_app.command("import")
def data_import(
    source: Annotated[
        Path, typer.Argument(help="Folder of clip_1.npy, …: (windows, clips, width), or windows in a row.")
    ],
    out: Annotated[Path, typer.Argument(help="The feature store to make.")],
    name: Annotated[str, typer.Option("--name", help="The backbone that made them; stores of one name may be mixed.")],
    clips: Annotated[int, typer.Option(min=1, help="Clips a window, for files of (windows · clips, width).")] = 33,
    every: Annotated[int, typer.Option(min=1, help="Frames from one window to the next.")] = 125,
) -> None:
    """Make a feature store of features computed elsewhere.

    A Labels-ball.json among the files is copied into the store, and every clip it names must be there.

    Example: ballcast data import my-features/train features/train --name videomae-b
    """
    from ballcast.data.soccernet import read_labels
    from ballcast.features.importer import import_npy
    from ballcast.features.store import LABELS

    labelled = (source / LABELS).is_file()
    expected = [clip.name for clip in read_labels(source / LABELS)] if labelled else []
    store = import_npy(source, out, name=name, clips=clips, every=every, expected=expected)
    typer.echo(f"{out}: {len(store)} clips, {len(store.window_starts)} windows of {store.clips} × {store.width}")


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.secho("ballcast: stopped; run the same command again to go on", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None


def _fail(message: str) -> NoReturn:
    typer.secho(f"ballcast: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)


def main(*args: Any) -> None:
    """Entry point: errors a user can mend are one sentence on stderr and exit code 2; warnings are one sentence too."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if issubclass(category, BallcastWarning):
            typer.secho(f"ballcast: note: {message}", fg=typer.colors.YELLOW, err=True)
        else:
            shown(message, category, filename, *rest)

    warnings.showwarning = show  # type: ignore[assignment]
    try:
        app(*args)
    except BallcastError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        _fail(f"{error.filename or 'the system'}: {error.strerror}")
