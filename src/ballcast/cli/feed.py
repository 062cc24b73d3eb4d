"""`ballcast predict --events`: forecasts along a match's event feed, as tables, pictures and clip lists."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ballcast.cli.runtime import changed_emission
from ballcast.cli.shell import new_console
from ballcast.core.errors import InputError
from ballcast.core.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ballcast.core.feed_forecast import FeedForecast
    from ballcast.inference.forecasts import FeedForecasts

Lineup = Annotated[
    Path | None,
    typer.Option("--lineup", help="--events: the second file (F7, MA1, line-ups) where it is not beside the first."),
]
Table = Annotated[
    Path | None,
    typer.Option("--table", help="--events: the probabilities of each action, a row a forecast (.csv, .parquet)."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="--events: the match as a page (.html), and a picture beside it (.png).")
]
Clips = Annotated[
    Path | None, typer.Option("--clips", help="--events: the most likely shots as a list (Sportscode .xml).")
]
Kickoff = Annotated[
    str | None, typer.Option("--kickoff", help="--clips: when each period begins in the video: 1H=12.5,2H=3925.")
]
SHOWN = 8  # chances that are printed


def predict_feed(given: dict[str, Any], changes: list[str]) -> None:
    """Write the forecasts along a match's events: by the embedded model, or by one that was trained on feeds.

    Args:
        given: the options of `predict` by name, and `every_ms`.
        changes: key=value.
    """
    from ballcast.api import load
    from ballcast.core.embedded import EVENTS
    from ballcast.core.files import check_not_source, check_writable
    from ballcast.data.events.feed_files import read_head
    from ballcast.inference.forecasts import FeedForecasts
    from ballcast.inference.timeline import OutputFiles

    events, models = given["events"], given["models"]
    targets = OutputFiles(given["out"] or Path(f"{events.stem}.events.anticipation.json"), given["osl"], given["csv"])
    targets.check(events)
    read_head(events)  # before the model, which takes seconds: a missing file is noticed at once
    wanted: dict[str, Path] = {name: given[name] for name in ("table", "plot", "clips") if given[name] is not None}
    for path in wanted.values():
        check_writable(path)
        check_not_source(path, events)
    model = load(models[0] if models else EVENTS, runtime=given["runtime"], device=given["device"])
    grids = model.event_model is None
    if grids and wanted:
        raise InputError(f"--{next(iter(wanted))} is for the embedded model of event feeds; leave --model out")
    emit = changed_emission(model.emit, changes, shown=True) if grids else None
    if changes and not grids:
        raise InputError(f"{changes[0]} is for models of `ballcast train`; leave it out, or give one with --model")
    with progress_bar(new_console(stderr=True), "forecasts") as progress:
        where = {"provider": given["provider"] or "auto", "lineup": given["lineup"], "every_ms": given["every_ms"]}
        forecasts = model.feed(events, **where, emit=emit, progress=progress)
        timeline = tuple(forecasts)
    targets.write(timeline, events, forecasts.about, source={"events": events.name})
    count = sum(len(forecast.predictions) for forecast in timeline)
    typer.echo(f"{targets.json}: match {forecasts.about['match']}, {len(timeline)} forecasts, {count} predictions")
    if isinstance(forecasts, FeedForecasts):
        _write_extras(forecasts, timeline, wanted, given["kickoff"])  # type: ignore[arg-type]


def _write_extras(
    forecasts: "FeedForecasts", timeline: "tuple[FeedForecast, ...]", wanted: dict[str, Path], kickoff: str | None
) -> None:
    """Write table, page and list, and print counts and the most likely shots."""
    from ballcast.core.feed_forecast import shot_chances
    from ballcast.inference.feed_tables import read_kickoffs, write_clips, write_table

    match = forecasts.match
    chosen = shot_chances(timeline, match)
    kickoffs = read_kickoffs(kickoff, match.begins) if kickoff is not None else None
    for name, path in wanted.items():
        if name == "plot":
            from ballcast.report.feed_page import write_feed_page

            pictures = write_feed_page(path, timeline, match, chosen)
            typer.echo(f"{path}: the match as a page; {pictures}: as a picture")
        elif name == "clips":
            write_clips(path, chosen, match, kickoffs)
            typer.echo(f"{path}: {len(chosen)} clips")
        else:
            write_table(path, timeline, match)
            typer.echo(f"{path}: {len(timeline)} rows")
    describe_feed(match.provider, match.counts, match.missing_details)
    for chance in chosen[:SHOWN]:
        came = "goal" if chance.goal else "shot" if chance.shot else ""
        text = f"{match.teams[chance.team]}: shot within 5 s {100 * chance.probability:.0f} %"
        typer.echo(f"{match.clock(chance.at_ms):>9}  {text}  {came}".rstrip())


def describe_feed(provider: str, counts: "Mapping[str, int]", missing: "Sequence[str]") -> None:
    """Print "wyscout, 1770 events: 542 pass, 281 drive, …", and what the provider's feeds lack."""
    numbers = ", ".join(f"{number} {name}" for name, number in counts.items())
    typer.echo(f"{provider}, {sum(counts.values())} events: {numbers}")
    if missing:
        typer.echo(f"{provider} lacks, or counts differently: {', '.join(missing).lower()}")
