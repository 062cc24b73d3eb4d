"""Scores as pictures: precision and recall of each action, and AP per action."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ballcast.core.actions import SHORT_NAMES
from ballcast.core.files import replacing
from ballcast.metrics.average_precision import Score
from ballcast.metrics.diagnosis import envelope
from ballcast.metrics.report import HEADINGS

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
