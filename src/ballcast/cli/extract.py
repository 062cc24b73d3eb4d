"""Commands that make feature stores: from videos, and from event feeds."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ballcast.cli.runtime import PictureSize
from ballcast.cli.shell import Device, app, new_console, resumable, seconds_option
from ballcast.core.errors import InputError
from ballcast.core.progress import FRAMES, MATCHES, progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from ballcast.data.events.feed import Feed
    from ballcast.features.extract import Report as Extraction
    from ballcast.features.store import Failure, FeatureStore


VideoSource = Annotated[Path, typer.Argument(help="A split of SN-BAA, a folder of videos, or one video.")]
Out = Annotated[Path, typer.Argument(help="The feature store to make, or to resume.")]
Backbone = Annotated[
    str | None, typer.Option(help="Required: a backbone's folder or hub id, or a published lRomul checkpoint (.pth).")
]
EveryFrames = Annotated[
    int,
    typer.Option(min=1, help="Frames from one 5 s window to the next: 125 is the task's own grid, 25 one a second."),
]
Engine = Annotated[Literal["local", "ray"], typer.Option(help="Processes of ours, or Ray on this machine.")]
Cluster = Annotated[
    str | None, typer.Option(help="A running Ray cluster, such as 10.0.0.1:6379; all its machines must see the videos.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes on CPUs, decoding processes beside GPUs; default: the cores.")
]
Decoder = Annotated[
    Literal["cpu", "cuda", "auto"],
    typer.Option(
        help="Decode on the CPU, with the GPU's NVDEC (which does not report damaged frames), or auto: with both, if a "
        "measurement at the start shows that it helps."
    ),
]
Pad = Annotated[
    int, typer.Option(min=0, max=125, help="Frames that may be missing at a clip's end; black ones replace them.")
]
Mirrored = Annotated[
    bool, typer.Option("--mirrored", help="Exchange left and right: a second store, to average predictions over both.")
]


@app.command("extract")
def extract_features(
    source: VideoSource,
    out: Out,
    backbone: Backbone = None,
    every: EveryFrames = 125,
    engine: Engine = "local",
    workers: Workers = None,
    device: Device = "auto",
    decoder: Decoder = "cpu",
    size: PictureSize = None,
    pad: Pad = 25,
    mirrored: Mirrored = False,
    cluster: Cluster = None,
) -> None:
    """Extract features of videos, once, so that training reads numbers instead of pixels.

    If it stops, run the same command again: it resumes, and the store is the same byte for byte. A video that has
    changed since is extracted again. Videos that cannot be read are listed at the end and in the store; the others are
    extracted, and the exit code is 1.

    Frames are scaled to the size the backbone was trained at (--size), as in `predict`, `live` and `serve`; a backbone
    without a recorded size gives a warning. The store records the size.

    A clip of SN-BAA that lacks up to --pad frames at its end is padded with black ones, listed, and recorded in the
    store; a clip that lacks more fails. Labels-ball.json in the source is copied into the store.

    Examples:

    ballcast extract ~/snbaa/224p/train features/train --backbone my-backbone --every 25

    ballcast extract ~/snbaa/720p/test features/test --backbone ball_tuning_001.pth
    """
    if backbone is None:
        raise InputError(
            "extract needs a backbone: give --backbone with the folder or hub id of a ballcast backbone, or with a "
            "published lRomul checkpoint (.pth)"
        )
    from ballcast.features.backbone import Backbone as BackboneNetwork
    from ballcast.features.extract import extract

    network = BackboneNetwork.load(backbone)
    console = new_console(stderr=True)
    with resumable(), progress_bar(console, unit=FRAMES) as progress:
        report = extract(
            source,
            out,
            network,
            every=every,
            engine=engine,
            device=device,
            workers=workers,
            decoder=decoder,
            size=size,
            pad=pad,
            mirrored=mirrored,
            cluster=cluster,
            progress=progress,
        )
    _print_extraction(report, console)
    _list_failed(console, report.failed)


def _print_extraction(report: "Extraction", console: "Console") -> None:
    """Print what the store holds, the padded clips, and the speed."""
    from ballcast.video.luma import show_size

    store = report.store
    windows = sum(shard.entries * shard.windows for shard in store.manifest.shards)
    size = store.manifest.resolution
    frames = f"frames of {show_size(size)}" if size else "frames of several sizes"
    prepared = store.manifest.header.preprocessing
    frames += ", mirrored" if prepared and prepared.mirrored else ""
    typer.echo(f"{store.path}: {len(store)} videos, {windows} windows of {store.snippets} × {store.width}, {frames}")
    for entry in store.manifest.entries:
        if entry.padded:
            console.print(f"padded: {entry.name}: {entry.padded} black frame(s) at its end", markup=False)
    if report.frames:
        speed = report.frames / report.seconds
        share = f"the network waited for frames {100 * report.waiting:.0f} % of the time"
        typer.echo(f"{report.frames} frames in {report.seconds:.0f} s: {speed:.0f} a second, {share}")
        if report.decoders:
            typer.echo(f"decoding: {report.decoders}")


def _list_failed(console: "Console", failed: "Sequence[Failure]") -> None:
    """Print every failure; exit with 1 if there is one."""
    for failure in failed:
        console.print(f"failed: {failure.reason}", style="red", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


FeedSource = Annotated[Path, typer.Argument(help="The parquet table, a match's file, or a folder of matches.")]
FeedOut = Annotated[Path, typer.Argument(help="The feature store to make; with --split, the folder of three.")]
Provider = Annotated[
    str | None,
    typer.Option(
        help="parquet, or through kloppy: wyscout, statsbomb, opta, statsperform, sportec, datafactory.",
        show_default="as recognised",
    ),
]
Split = Annotated[
    Literal["small", "full"] | None,
    typer.Option(help="The benchmark's train, valid and test matches of the parquet table of five leagues."),
]
EverySeconds = Annotated[
    float | None, seconds_option("Seconds from one window to the next; --split has its own.", default="7")
]
Detail = Annotated[
    Literal["plain", "rich"],
    typer.Option(
        help="plain: the columns of the benchmark; rich: kinds of events, outcomes and players too (the recipe best)."
    ),
]


@app.command()
def events(
    source: FeedSource,
    out: FeedOut,
    provider: Provider = None,
    split: Split = None,
    every: EverySeconds = None,
    detail: Detail = "plain",
) -> None:
    """Convert event feeds to feature stores, so that the model is trained on events instead of pixels.

    A window holds the 30 s before a prediction on the video model's grid, 6 × 33 steps, and nothing after it.
    A match that cannot be read is listed at the end and in the store; the others are converted, and the exit code is 1.

    The provider is recognised from the files. Second files that some deliver (F7, MA1, line-ups, match information) are
    found by name or by the match's id. Counts of each action are printed, and what the feed lacks.
    If --split stops, run the same command again: finished splits are kept.

    Examples:

    ballcast events wyscout_leagues.parquet stores/small --split small

    ballcast train events data.features=stores/small -o runs/events

    ballcast events open-data/events stores/mine --provider statsbomb --every 5
    """
    from ballcast.data.events.event_grid import EVERY_MS, split_matches, write_store
    from ballcast.data.events.feed_files import recognise
    from ballcast.data.events.kloppy_feed import match_files, read_folder
    from ballcast.data.events.wyscout import iterate_table, read_table
    from ballcast.features.store import FILE_NAME, FeatureStore

    provider = provider or ("parquet" if split else recognise(source))
    console = new_console(stderr=True)
    failed: list[Failure] = []
    if split is not None:
        if provider != "parquet":
            raise InputError("--split goes with the parquet table")
        if every is not None:
            raise InputError("--every does not go with --split: the benchmark has its own; leave one out")
        splits = split_matches(read_table(source), split)
        record = _begin_splits(out, list(splits), {"split": split, "detail": detail}, source)
        for name, feeds in splits.items():
            if (out / name / FILE_NAME).is_file():
                store = FeatureStore.open(out / name)  # finished before a kill
            else:
                with progress_bar(console, name, unit=MATCHES, total=len(feeds)) as progress:
                    store = write_store(out / name, feeds, EVERY_MS[name], detail=detail, progress=progress)
            failed += store.manifest.failed
            typer.echo(_describe_events(store))
        record.unlink()
    else:
        found = iterate_table(source) if provider == "parquet" else read_folder(source, provider, rich=detail == "rich")
        every_ms = round(1000 * (7.0 if every is None else every))
        counts = Counter[str]()
        total = None if provider == "parquet" else len(match_files(source, provider))
        with progress_bar(console, unit=MATCHES, total=total) as progress:
            store = write_store(out, _counted(found, counts), every_ms, detail=detail, progress=progress)
        failed += store.manifest.failed
        typer.echo(_describe_events(store))
        _describe_counts(source, provider, counts)
    _list_failed(console, failed)


def _counted(found: "Iterable[Feed | Failure]", counts: "Counter[str]") -> "Iterator[Feed | Failure]":
    """Pass feeds on, and count their events by action."""
    from ballcast.data.events.feed import Feed

    for feed in found:
        if isinstance(feed, Feed):
            counts.update(feed.counts())
        yield feed


def _describe_counts(source: Path, provider: str, counts: "Counter[str]") -> None:
    """Print how many events of each action there were, and what the feed lacks."""
    from ballcast.cli.feed import describe_feed
    from ballcast.data.events.kloppy_feed import match_files, missing_details

    missing = () if provider == "parquet" else missing_details(match_files(source, provider)[0], provider)
    describe_feed(provider, counts, missing)


def _begin_splits(out: Path, names: list[str], options: dict[str, str], source: Path) -> Path:
    """Record that the splits `names` are being made of this table; a record of a killed run must be the same.

    Without a record none of the splits may be there. Returns the record's file, to be removed at the end.
    """
    from ballcast.core.files import read_json, write_json

    record = out / ".events.json"
    table = source.stat()
    wanted = {**options, "size": table.st_size, "mtime_ns": table.st_mtime_ns}
    if not record.is_file():
        if there := [name for name in names if (out / name).exists()]:
            raise InputError(f"{out / there[0]}: is there already; give a new folder for the store")
        write_json(record, wanted, checksum=True)
    elif read_json(record, "record of the conversion") != wanted:
        raise InputError(f"{out}: was begun with another table or other options; give a new folder, or remove this one")
    return record


def _describe_events(store: "FeatureStore") -> str:
    from ballcast.data.events.event_grid import WINDOWS

    samples = sum(shard.entries * shard.windows for shard in store.manifest.shards) // WINDOWS
    return f"{store.path}: {len(store)} matches, {samples} windows of {WINDOWS} × {store.snippets} × {store.width}"
