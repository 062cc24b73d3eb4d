"""What `ballcast predict` does: along a video, along a match's feed, for the clips of a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ballcast.cli.runtime import changed_emission
from ballcast.cli.shell import frames_progress, new_console
from ballcast.core.actions import FPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from ballcast.core.anticipator_config import EmitConfig
    from ballcast.core.events import Clip, Prediction
    from ballcast.features.store import FeatureStore
    from ballcast.inference.runtime import Runtime
    from ballcast.inference.timeline import Targets
    from ballcast.model.anticipator import Anticipator


def of_store(
    model: "Anticipator",
    source: str,
    features: Path,
    labels: Path | None,
    out: Path,
    emit: "EmitConfig",
    device: "torch.device",
) -> None:
    """A submission by one model (of `source`), as it is."""
    from ballcast.core.files import check_writable
    from ballcast.features.store import FeatureStore
    from ballcast.inference.predictor import check_fits, predict_store
    from ballcast.inference.submission import write_submission

    check_writable(out)
    store = FeatureStore.open(features)
    check_fits(model, store, source)
    predictions = predict_store(model, store, _clips(store, labels), emit, device)
    write_submission(out, predictions)
    typer.echo(_written(out, predictions))


def _clips(store: "FeatureStore", labels: Path | None) -> "list[Clip]":
    """Those to predict: of the labels, in their order, or all of the store."""
    from ballcast.core.events import Clip
    from ballcast.data.labels.soccernet import read_labels

    return read_labels(labels) if labels else [Clip(name, labelled=False) for name in store.names]


def _written(out: Path, predictions: "Mapping[str, Sequence[Prediction]]") -> str:
    count = sum(map(len, predictions.values()))
    return f"{out}: {len(predictions)} clips, {count} predictions, {count / max(len(predictions), 1):.1f} a clip"


def of_models(
    sources: list[str], features: Path, labels: Path | None, out: Path, calibration: Path | None, device: "torch.device"
) -> None:
    """A submission by several models together, or by one that was tuned."""
    from ballcast.core.files import check_writable
    from ballcast.features.store import FeatureStore
    from ballcast.inference.predictor import hashes, load_models, open_windows, predict_together, untuned
    from ballcast.inference.submission import write_submission
    from ballcast.model.score_mapping import read_score_mapping

    check_writable(out)
    store = FeatureStore.open(features)
    models = load_models(sources, store)
    if calibration is not None:
        tuned = read_score_mapping(calibration, hashes(sources))
    else:
        tuned = (models[0].calibration if len(models) == 1 else None) or untuned(models)
    windows = open_windows(store, _clips(store, labels), models[0].config.windows)
    predictions = predict_together(models, windows, tuned, device)
    write_submission(out, predictions)
    how = f"calibrated on {tuned.fitted_on}" if tuned.fitted_on else "not tuned"
    typer.echo(f"{_written(out, predictions)}; {len(models)} model{'s' * (len(models) > 1)}, {how}")


def along_feed(
    model: "Anticipator",
    source: str,
    events: Path,
    provider: str,
    every_ms: int,
    emit: "EmitConfig",
    device: "torch.device",
    targets: "Targets",
) -> None:
    """A timeline of a match's events, by a model (of `source`) that was trained on feeds."""
    from rich.progress import Progress

    from ballcast.data.events.kloppy_feed import read_match, warn_missing_kinds
    from ballcast.inference.feed_predictor import anticipate_feed, check_reads_events, detail_of

    check_reads_events(model, source)
    targets.check(events)
    feed = read_match(events, provider)
    if detail_of(model) == "rich":
        warn_missing_kinds(events, provider)
    console = new_console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("moments", total=None)
        timeline, begins = anticipate_feed(
            model,
            feed,
            every_ms=every_ms,
            config=emit,
            device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    about = {"every_ms": every_ms, "model": source, "periods_begin_ms": begins, "pos_weight": model.pos_weight}
    targets.write(timeline, events, about)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: match {feed.match}, {len(timeline)} moments, {count} predictions")


def along_video(
    path: Path,
    overrides: list[str],
    targets: "Targets",
    every_ms: int,
    new_runtime: "Callable[[], Runtime]",
) -> None:
    """A timeline of a video, by whatever runtime; Ctrl-C leaves nothing behind."""
    import time

    from ballcast.inference.rolling import RollingAnticipator, anticipate_video
    from ballcast.video.file import VideoFile
    from ballcast.video.luma import fitted, show_size

    runtime = new_runtime()
    emit = changed_emission(runtime.emit, overrides, shown=True)
    targets.check(path)
    rolling = RollingAnticipator(runtime, every_ms=every_ms, emit=emit)
    began = time.perf_counter()
    try:
        with VideoFile(path) as video, frames_progress(new_console(stderr=True), real_time=True) as progress:
            if (seen := fitted(video.size, runtime.picture_size)) != video.size:
                typer.echo(f"pictures of {show_size(video.size)} are scaled to {show_size(seen)}")
            timeline = anticipate_video(video, rolling, progress)
    except KeyboardInterrupt:
        said = f"ballcast: stopped at {rolling.frames / FPS:.0f} s of {path}; nothing was written"
        typer.secho(said, fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    seconds, length = time.perf_counter() - began, rolling.frames / FPS
    about = {"every_ms": rolling.every_ms, **runtime.about, "pos_weight": rolling.pos_weight}
    if targets.overlay is None:
        targets.write(timeline, path, about)
    else:  # which may take as long again
        with frames_progress(new_console(stderr=True), real_time=True) as drawn:
            targets.write(timeline, path, about, drawn)
    count = sum(len(made.predictions) for made in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} moments, {count} predictions")
    typer.echo(f"{length:.1f} s of video in {seconds:.1f} s: {length / seconds:.1f} × real time")
