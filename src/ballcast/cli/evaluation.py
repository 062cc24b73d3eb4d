"""The work of `ballcast eval`: score one file of predictions, or compare two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from ballcast.cli.shell import new_console
from ballcast.core.errors import InputError
from ballcast.core.events import Clip
from ballcast.core.files import check_not_source, check_writable, write_json
from ballcast.core.progress import progress_bar
from ballcast.core.util import print_table
from ballcast.data.labels.soccernet import read_labels
from ballcast.features.store import LABELS
from ballcast.inference.submission import Predictions, read_submission, require_same_clips
from ballcast.metrics.average_precision import Matches, Score, match_all, match_by_visibility, score_of_matches
from ballcast.metrics.bootstrap import RESAMPLES, Intervals, bootstrap_matches, check_bootstrap, difference
from ballcast.metrics.diagnosis import per_clip
from ballcast.report.terminal import class_difference_table, class_table, score_table


@dataclass(frozen=True)
class Options:
    """The options of `eval` that one and two files share."""

    labels: Path
    predictions: Sequence[Path]
    read: Literal["vector", "label"]
    exact: bool
    bootstrap: int | None  # resamples
    seed: int
    json: Path | None


def evaluate_one(options: Options, report: Path | None, videos: Path | None) -> None:
    """Score one file: print tables and, where a path is given, write JSON and a report."""
    _check_targets(options, report)
    if report:
        check_writable(report)
    clips, (predicted,) = _read(options)
    matches = {"all": match_all(clips, predicted, read=options.read, exact=options.exact)}
    if not options.exact and any(not event.visible for clip in clips for event in clip.anticipation):
        matches |= match_by_visibility(clips, predicted, read=options.read)
    rows = {name: score_of_matches(found) for name, found in matches.items()}
    result = rows["all"]
    intervals: dict[str, Intervals] = {}
    if options.bootstrap is not None:
        intervals = _intervals(matches, len(clips), options)
    console = new_console()
    events = int(result.events.sum())
    typer.echo(f"{len(clips)} clips, {events} events, {per_clip(predicted):.1f} predictions a clip")
    if intervals:
        typer.echo(f"[low, high]: 95 % intervals of {options.bootstrap} resamples of the clips")
    print_table(console, score_table(rows, intervals=intervals))
    print_table(console, class_table(result, intervals.get("all")))
    if options.json:
        more = {"intervals": intervals["all"].as_dict()} if intervals else {}
        write_json(options.json, {**result.as_dict(), **more}, indent=1)
    if report:
        if not intervals and len(clips) > 1:
            intervals = _intervals({"all": matches["all"]}, len(clips), options)
        _write_report(report, options, clips, predicted, rows, intervals.get("all"), videos)


def _write_report(
    path: Path,
    options: Options,
    clips: Sequence[Clip],
    predicted: Predictions,
    rows: Mapping[str, Score],
    intervals: Intervals | None,
    videos: Path | None,
) -> None:
    """Write the HTML report; `videos`: the split's folder, by default that of the labels."""
    from ballcast.report.film_strip import footage_in
    from ballcast.report.report import Report, write_report

    (source,) = options.predictions
    labels = options.labels
    footage = footage_in(videos or (labels if labels.is_dir() else labels.parent))
    if videos and not footage:
        raise InputError(f"{videos}: has no clips' videos; give the folder that holds clip_1, clip_2, …")
    page = Report(
        f"{source.name} against {labels.name}",
        clips,
        predicted,
        rows["all"],
        "all events",
        intervals=intervals,
        others={name: row for name, row in rows.items() if name != "all"},
        facts={"predictions": str(source), "labels": str(labels)},
        footage=footage,
    )
    write_report(path, page)
    typer.echo(f"wrote {path}")


def compare(options: Options) -> None:
    """Score two files on the same resamples: print tables of both and of their difference, and write JSON."""
    _check_targets(options)
    clips, systems = _read(options)
    names = [f"{number}: {path}" for number, path in zip(("first", "second"), options.predictions, strict=True)]
    matches = {
        name: match_all(clips, predicted, read=options.read, exact=options.exact)
        for name, predicted in zip(names, systems, strict=True)
    }
    rows = {name: score_of_matches(found) for name, found in matches.items()}
    intervals = _intervals(matches, len(clips), options)
    first, second = (intervals[name] for name in names)
    gain = difference(first, second)
    console = new_console()
    resamples = len(gain.resampled)
    typer.echo(f"{len(clips)} clips; [low, high]: 95 % intervals of {resamples} resamples of the clips, paired")
    print_table(console, score_table(rows, intervals=intervals, difference=gain))
    print_table(console, class_difference_table(rows[names[0]], gain))
    low, high = 100 * gain.avg
    verdict = "" if low > 0 or high < 0 else "; the interval contains 0, so these clips do not show which is better"
    average = 100 * (rows[names[1]].avg - rows[names[0]].avg)
    typer.echo(
        f"difference of the mean mAP: {average:+.2f} points, 95 % interval {low:.2f} to {high:.2f}, "
        f"above 0 in {100 * gain.above_zero:.1f} % of the resamples{verdict}"
    )
    if options.json:
        content = {
            key: {"predictions": str(path), **rows[name].as_dict(), "intervals": intervals[name].as_dict()}
            for key, path, name in zip(("first", "second"), options.predictions, names, strict=True)
        }
        write_json(options.json, {**content, "difference": gain.difference_dict()}, indent=1)


def _check_targets(options: Options, *more: Path | None) -> None:
    for target in filter(None, (options.json, *more)):
        for source in (*options.predictions, options.labels, options.labels / LABELS):
            check_not_source(target, source)


def _read(options: Options) -> tuple[list[Clip], list[Predictions]]:
    labels = options.labels
    clips = read_labels(labels)
    if not all(clip.labelled for clip in clips):
        raise InputError(f"{labels}: has no labels to score against; the challenge split is scored by the server")
    if options.bootstrap is not None or len(options.predictions) > 1:
        check_bootstrap(len(clips), options.bootstrap if options.bootstrap is not None else RESAMPLES)
    systems = []
    for path in options.predictions:
        systems.append(read_submission(path, read=options.read))
        require_same_clips(systems[-1], [clip.name for clip in clips], path, labels)
    return list(clips), systems


def _intervals(matches: Mapping[str, Matches], clips: int, options: Options) -> dict[str, Intervals]:
    """Compute the intervals of each system, by its name, on the same resamples."""
    resamples = options.bootstrap if options.bootstrap is not None else RESAMPLES
    found = {}
    with progress_bar(new_console(stderr=True), "resampling") as progress:
        for i, (name, matched) in enumerate(matches.items()):
            found[name] = bootstrap_matches(
                matched,
                clips,
                resamples=resamples,
                seed=options.seed,
                progress=lambda done, total, i=i: progress(i * total + done, len(matches) * total),
            )
    return found
