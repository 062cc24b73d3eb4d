"""Scores as tables for a terminal."""

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from ballcast.core.actions import SHORT_NAMES
from ballcast.metrics.average_precision import Floats, Score
from ballcast.metrics.bootstrap import Intervals

HEADINGS = ("@1s", "@2s", "@3s", "@4s", "@5s", "@∞")


def score_table(
    rows: Mapping[str, Score],
    title: str = "mAP (%) at each tolerance",
    *,
    intervals: Mapping[str, Intervals] | None = None,
    difference: Intervals | None = None,
) -> Table:
    """A row per system like the paper's table: mAP in per cent at each tolerance, and their mean.

    intervals: of the rows by their names, printed below the numbers. difference: of two rows, printed as a further row.
    """
    table = _table(title, "")
    for name, score in rows.items():
        found = (intervals or {}).get(name)
        at, avg = (found.at, found.avg) if found else (None, None)
        table.add_row(escape(name), *_cells(score.ap.mean(1), at, avg, decimals=2))
    if difference:
        cells = _cells(difference.ap.mean(1), difference.at, difference.avg, decimals=2, sign="+")
        table.add_row("difference, second − first", *cells)
    return table


def class_table(score: Score, intervals: Intervals | None = None) -> Table:
    """A row per action: how many events there were, and AP in per cent at each tolerance."""
    return _class_table("AP (%) per action", score, score.ap, intervals, sign="")


def class_difference_table(score: Score, difference: Intervals) -> Table:
    """A row per action: the difference of two systems' AP in points; `score`: of either, for the events."""
    title = "Difference of AP per action, second − first, in points"
    return _class_table(title, score, difference.ap, difference, sign="+")


def _class_table(title: str, score: Score, ap: Floats, intervals: Intervals | None, sign: str) -> Table:
    table = _table(title, "action", "events")
    at, avg = (intervals.per_class, intervals.class_avg) if intervals else (None, None)
    for c, name in enumerate(SHORT_NAMES):
        intervals_of_class = (None, None) if at is None or avg is None else (at[:, :, c], avg[:, c])
        table.add_row(name, str(score.events[c]), *_cells(ap[:, c], *intervals_of_class, decimals=1, sign=sign))
    return table


def _table(title: str, name: str, *more: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(name)
    for heading in (*more, *HEADINGS, "Avg"):
        table.add_column(heading, justify="right")
    return table


def _cells(values: Floats, at: Floats | None, avg: Floats | None, *, decimals: int, sign: str = "") -> list[str]:
    """Values (6,) and their mean in per cent, the mean with `decimals`; below them [low, high] of (2, 6) and (2,)."""
    texts = [f"{100 * v:{sign}.1f}" for v in values] + [f"[bold]{100 * values.mean():{sign}.{decimals}f}[/]"]
    if at is None or avg is None:
        return texts
    ends = [*at.T, avg]
    places = [1] * len(values) + [decimals]
    below = [f"[{100 * low:.{d}f}, {100 * high:.{d}f}]" for (low, high), d in zip(ends, places, strict=True)]
    return [f"{text}\n{interval}" for text, interval in zip(texts, below, strict=True)]
