"""Scores as tables for a terminal, and as pictures."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from ballcast.core.actions import SHORT_NAMES
from ballcast.core.files import replacing
from ballcast.metrics.average_precision import Floats, Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import envelope

HEADINGS = ("@1s", "@2s", "@3s", "@4s", "@5s", "@∞")


def score_table(
    rows: Mapping[str, Score],
    title: str = "mAP (%) at each tolerance",
    *,
    intervals: Mapping[str, Intervals] | None = None,
    difference: Intervals | None = None,
) -> Table:
    """A row per system like the paper's table: mAP in per cent at each tolerance, and their mean.

    intervals: of the rows by their names, printed below the numbers. difference: of two rows, a row of its own.
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
        own = (None, None) if at is None or avg is None else (at[:, :, c], avg[:, c])
        table.add_row(name, str(score.events[c]), *_cells(ap[:, c], *own, decimals=1, sign=sign))
    return table


def _table(title: str, name: str, *more: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(name)
    for heading in (*more, *HEADINGS, "Avg"):
        table.add_column(heading, justify="right")
    return table


def _cells(values: Floats, at: Floats | None, avg: Floats | None, *, decimals: int, sign: str = "") -> list[str]:
    """Values (6,) and, with so many decimals, their mean, in per cent; below them [low, high] of (2, 6) and (2,)."""
    texts = [f"{100 * v:{sign}.1f}" for v in values] + [f"[bold]{100 * values.mean():{sign}.{decimals}f}[/]"]
    if at is None or avg is None:
        return texts
    ends = [*at.T, avg]
    places = [1] * len(values) + [decimals]
    below = [f"[{100 * low:.{d}f}, {100 * high:.{d}f}]" for (low, high), d in zip(ends, places, strict=True)]
    return [f"{text}\n{interval}" for text, interval in zip(texts, below, strict=True)]


matplotlib.use("Agg")  # files only: no display is needed
INK, GRID = "#1d2733", "#d7dde3"
SHADES = ("#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08306b")  # one per tolerance, light to dark


def draw(score: Score, folder: Path) -> list[Path]:
    """Write `precision_recall.png` and `per_class.png` into `folder`; gives their paths."""
    figures = {"precision_recall.png": _precision_recall(score), "per_class.png": _per_class(score)}
    paths = []
    for name, figure in figures.items():
        path = folder / name
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=140, facecolor="white")
        paths.append(path)
    return paths


def _precision_recall(score: Score) -> Figure:
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    axes = figure.subplots(2, 5, sharex=True, sharey=True)
    for c, axis in enumerate(axes.flat):
        for t, heading in enumerate(HEADINGS):
            recall, best = envelope(score, t, c)
            down = ([*recall, recall[-1]], [*best, 0])  # beyond the last recall there is nothing
            axis.plot(*down, color=SHADES[t], lw=1.6, label=heading, drawstyle="steps-pre")
        if not score.events[c]:
            axis.text(0.5, 0.5, "no events", ha="center", va="center", color="#8a97a5", fontsize=9)
        axis.set_title(f"{SHORT_NAMES[c]} ({score.events[c]} events)", fontsize=10, color=INK)
        axis.set(xlim=(0, 1), ylim=(0, 1.02))
        _calm(axis)
    figure.supxlabel("recall", fontsize=10, color=INK)
    figure.supylabel("precision (the best at this recall or beyond)", fontsize=10, color=INK)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def _per_class(score: Score) -> Figure:
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(HEADINGS)
    for t, heading in enumerate(HEADINGS):
        places = np.arange(len(SHORT_NAMES)) + (t - 2.5) * width
        axis.bar(places, 100 * score.ap[t], width, color=SHADES[t], label=heading)
    names = [f"{name}\n{n}" for name, n in zip(SHORT_NAMES, score.events, strict=True)]
    axis.set_xticks(range(len(names)), names, fontsize=9)
    axis.set_ylabel("AP (%)", color=INK)
    axis.set_title(
        f"AP per action and tolerance, number of events below; mAP {100 * score.avg:.2f}", color=INK, loc="left"
    )
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    _calm(axis)
    axis.grid(axis="x", visible=False)
    return figure


def _calm(axis: "matplotlib.axes.Axes") -> None:
    axis.grid(color=GRID, lw=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(GRID)
    axis.tick_params(colors=INK, labelsize=8)
