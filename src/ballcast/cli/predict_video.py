"""`ballcast predict VIDEO …`: forecasts along videos; an interrupted run resumes when it is run again."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ballcast.cli.runtime import changed_emission, load_model
from ballcast.cli.shell import new_console
from ballcast.core.actions import ACTION_INDEX, FPS, SHORT_NAMES
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.progress import REAL_TIME, progress_bar

if TYPE_CHECKING:
    from ballcast.api import Model as LoadedModel
    from ballcast.core.events import Forecast, Gap
    from ballcast.inference.timeline import OutputFiles
    from ballcast.video.file import VideoFile

Begin = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="VIDEO: the first forecast, in seconds or as 1:02:03.")
]
End = Annotated[str | None, typer.Option("--to", metavar="TIME", help="VIDEO: the last forecast, likewise.")]
Html = Annotated[
    Path | None, typer.Option("--html", help="VIDEO: also write a page with the video's timeline, to share (.html).")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="VIDEO: stop at damage; by default continue after it and list the gap.")
]
SUFFIXES = {"out": ".anticipation.json", "osl": ".osl.json", "csv": ".csv", "overlay": ".overlay.mp4", "html": ".html"}
HIGHLIGHTS = 3  # that are printed


@dataclass(frozen=True)
class Options:
    """How to forecast: `load` gives the model, `changes` are key=value, times are in ms."""

    load: "Callable[[], LoadedModel]"
    changes: list[str]
    every_ms: int
    begin_ms: int
    end_ms: int | None
    strict: bool
    any_video: bool


def predict_videos(videos: Sequence[str], given: Mapping[str, Any], changes: list[str]) -> None:
    """Write the forecasts along each video; `given`: the options of `predict` by name, and `every_ms`."""
    paths = list_videos(videos)
    model = given["models"][0] if given["models"] else None
    load = partial(load_model, given["runtime"], model, given["backbone"], given["device"], "predict", given["size"])
    begin_ms = 0 if given["begin"] is None else parse_time(given["begin"], "--from")
    end_ms = None if given["end"] is None else parse_time(given["end"], "--to")
    if end_ms is not None and end_ms < max(begin_ms, 5000):
        raise InputError(
            "--to lies before --from, or before the first forecast, which is made at 5 s; give a later one"
        )
    several = len(paths) > 1 or any(Path(name).is_dir() or _is_list(name) for name in videos)
    targets = {path: _targets(path, given, several=several, names=paths) for path in paths}
    for path, outputs in targets.items():
        outputs.check(path)
    options = Options(cache(load), changes, given["every_ms"], begin_ms, end_ms, given["strict"], given["any_video"])
    failed = []
    for path, outputs in targets.items():
        try:
            predict_video(path, outputs, options)
        except BallcastError as error:
            if not several:
                raise
            failed.append(path)
            typer.secho(f"ballcast: {error}", fg=typer.colors.RED, err=True)
    if failed:
        raise InputError(f"{len(failed)} of {len(paths)} videos failed, the first {failed[0]}; the others are done")


def list_videos(given: Sequence[str]) -> list[Path]:
    """The videos named: files, folders of videos (with those inside), and .txt lists with a path on each line."""
    from ballcast.core.files import read_bytes
    from ballcast.core.util import natural
    from ballcast.video.container import is_video

    found: dict[Path, None] = {}
    for name in given:
        path = Path(name)
        if path.is_dir():
            inside = sorted((p for p in path.rglob("*") if is_video(p)), key=lambda p: natural(str(p)))
            if not inside:
                raise InputError(f"{path}: has no videos in it; give a video, or a folder of them")
            found |= dict.fromkeys(inside)
        elif _is_list(name):
            lines = read_bytes(path, "list of videos").decode(errors="replace").splitlines()
            listed = [path.parent / line.strip() for line in lines if line.strip()]
            if not listed:
                raise InputError(f"{path}: names no videos; write one path on each line")
            found |= dict.fromkeys(listed)
        else:
            found[path] = None
    return list(found)


def _is_list(name: str) -> bool:
    return name.endswith(".txt") and Path(name).is_file()


def parse_time(text: str, option: str) -> int:
    """Milliseconds of "90", "90.5", "1:30" or "1:02:03.5"."""
    if not re.fullmatch(r"(\d+:)?(\d+:)?\d+(\.\d+)?", text):
        raise InputError(f"{option} {text}: is not a time; give seconds, or 1:02:03")
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return round(1000 * seconds)


def _targets(path: Path, given: Mapping[str, Any], *, several: bool, names: Sequence[Path]) -> "OutputFiles":
    """The files to write for a video; of several, each option names a folder."""
    from ballcast.inference.timeline import OutputFiles

    stem = path.stem
    if sum(other.stem == stem for other in names) > 1:
        stem = f"{path.parent.name}-{stem}"

    def place(name: str) -> Path | None:
        chosen: Path | None = given[name]
        if chosen is not None and several:
            if chosen.suffix and not chosen.is_dir():
                raise InputError(f"--{name} {chosen}: there are several videos; give a folder for their files")
            return chosen / f"{stem}{SUFFIXES[name]}"
        return chosen

    out = place("out") or Path(f"{stem}{SUFFIXES['out']}")
    return OutputFiles(out, place("osl"), place("csv"), place("overlay"), place("html"))


def predict_video(path: Path, targets: "OutputFiles", options: Options) -> None:
    """Write the forecasts along one video; Ctrl-C keeps those that are made."""
    from ballcast.core.config import to_dict
    from ballcast.inference.partial_timeline import PartialTimeline
    from ballcast.video.file import VideoFile
    from ballcast.video.luma import fitted, show_size

    video = VideoFile(path, strict=options.strict)  # before the model, which takes seconds: noticed at once
    model = options.load()
    emit = changed_emission(model.emit, options.changes, shown=True)
    seen_by = model.new_runtime()
    if (scaled := fitted(video.size, seen_by.picture_size, colour=seen_by.backbone.colour)) != video.size:
        typer.echo(f"frames of {show_size(video.size)} are scaled to {show_size(scaled)}")
    now = path.stat()
    key = {"video": str(path), "bytes": now.st_size, "changed": now.st_mtime_ns, "emit": to_dict(emit), **seen_by.about}
    key |= {"size": scaled, "every_ms": options.every_ms, "from": options.begin_ms, "to": options.end_ms}
    key |= {"strict": options.strict, "any_video": options.any_video}
    with PartialTimeline(targets.json, key) as part:
        timeline, gaps, about = _forecast(video, model, emit, options, part)
        for gap in gaps:
            typer.secho(f"{path}: no forecasts {gap}", fg=typer.colors.YELLOW, err=True)
        _write(path, targets, timeline, gaps, about, options)
    part.remove()
    count = sum(len(forecast.predictions) for forecast in timeline)
    typer.echo(f"{targets.json}: {len(timeline)} forecasts, {count} predictions; the model: {about['origin']}")
    _print_summary(timeline, options.every_ms)


def _forecast(
    video: "VideoFile", model: "LoadedModel", emit: Any, options: Options, part: Any
) -> "tuple[list[Forecast], list[Gap], dict[str, Any]]":
    """Make the forecasts that `part` does not have yet; returns all, the gaps, and what made them."""
    from ballcast.core.events import Gap

    kept: list[Forecast | Gap] = list(part.kept)
    last = max((item.at_ms for item in kept if not isinstance(item, Gap)), default=None)
    if last is not None:
        typer.echo(f"{video.path}: {len(kept)} forecasts and gaps are kept from a run that was interrupted")
    began = time.perf_counter()
    first = None
    frames = 0

    def keep(item: "Forecast | Gap") -> None:
        part.append([item])
        kept.append(item)

    def keep_gap(gap: Gap) -> None:
        if last is None or gap.begin_ms >= last:  # else it is of the earlier run
            keep(gap)

    with progress_bar(new_console(stderr=True), unit=REAL_TIME) as advance:

        def progress(done: int, total: int | None) -> None:
            nonlocal first, frames
            first = done - FPS if first is None else first
            frames = done
            advance(done, total)

        forecasts = model.video(
            video,
            every_ms=options.every_ms,
            emit=emit,
            begin_ms=options.begin_ms if last is None else last + 1,
            end_ms=options.end_ms,
            resumed=last is not None,
            strict=options.strict,
            any_video=options.any_video,
            progress=progress,
            on_gap=keep_gap,
        )
        try:
            with forecasts:
                for forecast in () if part.complete else forecasts:
                    keep(forecast)
        except KeyboardInterrupt:
            words = f"stopped at {frames / FPS:.0f} s of {video.path}; run the same command again to resume"
            typer.secho(f"ballcast: {words}", fg=typer.colors.YELLOW, err=True)
            raise typer.Exit(130) from None
    if not part.complete:
        part.finish()
        seconds = time.perf_counter() - began
        length = (frames - max(0, first or 0)) / FPS
        typer.echo(f"{length:.1f} s of video in {seconds:.1f} s: {length / seconds:.1f} × real time")
    gaps = [item for item in kept if isinstance(item, Gap)]
    return [item for item in kept if not isinstance(item, Gap)], gaps, forecasts.about


def _write(
    path: Path,
    targets: "OutputFiles",
    timeline: "list[Forecast]",
    gaps: "list[Gap]",
    about: dict[str, Any],
    options: Options,
) -> None:
    """Write all files of a video."""
    if targets.overlay is None:
        targets.write(timeline, path, about, gaps=gaps)
    else:  # drawing may take as long again
        with progress_bar(new_console(stderr=True), unit=REAL_TIME) as drawn:
            targets.write(timeline, path, about, drawn, gaps=gaps, part=(options.begin_ms, options.end_ms))
    if targets.html is not None:
        from ballcast.report.video_page import write_video_page

        write_video_page(targets.html, path, timeline, about, gaps)


def _print_summary(timeline: "list[Forecast]", every_ms: int) -> None:
    """Print how many of each action were expected, and the most confident predictions."""
    from ballcast.core.events import clock
    from ballcast.core.timeline_summary import summarise

    found = summarise(timeline, every_ms, HIGHLIGHTS)
    if not found.highlights:
        return
    counts = {SHORT_NAMES[ACTION_INDEX[label]]: round(n) for label, n in found.expected.items() if round(n)}
    if counts:
        typer.echo(f"expected along the video: {', '.join(f'{name} {n}' for name, n in counts.items())}")
    typer.echo("most confident:")
    for highlight in found.highlights:
        best = highlight.best
        name = SHORT_NAMES[ACTION_INDEX[best.label]]
        typer.echo(f"  {clock(best.position_ms):>9}  {name} {100 * best.confidence:.0f} %")
