"""The contents of the report's sections: numbers and texts, which `page.html.j2` lays out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ballcast.core.actions import SHORT_NAMES
from ballcast.metrics.average_precision import Floats, Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import NOTHING, Reliability
from ballcast.report.charts import histogram, line_chart, reliability_chart
from ballcast.report.terminal import HEADINGS


class Published(NamedTuple):
    """A row of a published table, in per cent: mAP at 1 to 5 s and without limit (None: unknown), and the mean."""

    name: str
    at: tuple[float, ...] | None
    avg: float


PUBLISHED = (
    Published("the paper, SN-BAA test", (5.6, 13.2, 17.2, 20.6, 22.9, 25.6), 17.9),
    Published("the paper, SN-BAA challenge", (5.5, 12.2, 15.8, 18.6, 20.9, 24.4), 16.5),
    Published("FAANTRA, SN-BAA test server", None, 18.05),
)


RANKS = (
    "The confidences are not probabilities: on average they are far above the share that came. Scores of "
    "ballcast tune are ranks, made for their order, so this page does not show them as per cent."
)


class ScoreRow(NamedTuple):
    """A row of the score table; `css`: its class."""

    name: str
    cells: list[str]
    mean: str
    css: str = ""


def score_rows(rows: Mapping[str, Score], intervals: Intervals | None) -> list[list[ScoreRow]]:
    """Format the score table in per cent.

    Args:
        rows: scores by system, the report's own first.
        intervals: of the first score.

    Returns:
        The rows of these systems, and those of the published ones.
    """
    ours = [_row(name, list(score.at.values()), score.avg) for name, score in rows.items()]
    ours[0] = ours[0]._replace(css="own")
    if intervals:
        cells = [interval_text(ends) for ends in intervals.at.T]
        ours.insert(1, ScoreRow("95 % interval", cells, interval_text(intervals.avg), css="interval"))
    unknown = ["–"] * len(HEADINGS)
    theirs = [
        ScoreRow(p.name, [f"{v:.1f}" for v in p.at] if p.at else unknown, f"{p.avg:.2f}", css="published")
        for p in PUBLISHED
    ]
    return [ours, theirs]


def _row(name: str, at: Sequence[float], avg: float) -> ScoreRow:
    return ScoreRow(name, [f"{100 * v:.1f}" for v in at], f"{100 * avg:.2f}")


def interval_text(ends: Floats) -> str:
    """Format low and high (2,) in per cent: "16.2–19.5"."""
    return f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f}"


SURE = 0.1  # an interval this narrow, as a share of the score on either side, lets the score stand alone


def headline(score: Score, intervals: Intervals | None) -> dict[str, str]:
    """The largest figure of the page: the score if its interval is narrow, else the interval itself.

    Returns:
        `figure`; `what` it is; `beside`: the other of the two, or nothing.
    """
    what = "mAP, mean of six tolerances, %"
    point = f"{100 * score.avg:.1f}"
    if intervals is None:
        return {"figure": point, "what": what, "beside": "too few clips for an interval"}
    low, high = intervals.avg
    if high - low <= 2 * SURE * score.avg:
        return {"figure": point, "what": what, "beside": f"95 % interval {interval_text(intervals.avg)}"}
    return {
        "figure": interval_text(intervals.avg),
        "what": f"{what}: 95 % interval",
        "beside": f"{point} on these clips, too few to be sure",
    }


def class_rows(score: Score) -> list[ScoreRow]:
    """The average precision of each action at each tolerance, in per cent."""
    return [
        _row(name, score.ap[:, c].tolist(), float(score.ap[:, c].mean()))
        for c, name in enumerate(SHORT_NAMES)
        if score.events[c]
    ]


def history(loss: Sequence[float], score: Sequence[float], best: int) -> list[tuple[str, Markup]]:
    """Draw loss and validation mAP of a training, a value per epoch; `best` is counted from 1.

    Returns:
        (caption, chart) of each; no chart of the mAP if no epoch was scored.
    """
    charts = [("Training loss", line_chart(loss, "Training loss"))]
    if any(v == v for v in score):
        chart = line_chart(score, "Validation mAP", best=best, percent=True)
        charts.append((f"Validation mAP (%), best in epoch {best}", chart))
    return charts


def calibration(found: Reliability | None) -> dict[str, Any]:
    """Draw confidence against the share that came true; None: the confidences are not probabilities, but ranks.

    Returns:
        `chart` and `note`, or `otherwise`: why there is no chart.
    """
    if found is None or not found.count.sum():
        reason = "Unknown: there are no predictions." if found is not None else RANKS
        return {"chart": None, "note": "", "otherwise": reason}
    note = (
        "Across: the confidence of a prediction. Upwards: how often its action came within 2.5 s of its time. On the "
        f"dashed line the two agree; on average they are {100 * found.error:.1f} points apart. Lines: 95 % "
        "intervals. Below: the number of predictions."
    )
    return {"chart": reliability_chart(found), "note": note, "otherwise": ""}


def timing(errors_ms: NDArray[np.int64]) -> dict[str, Any]:
    """Draw the time errors of correct predictions, in ms, late ones positive; returns the same as `calibration`."""
    if not len(errors_ms):
        return {"chart": None, "note": "", "otherwise": "Unknown: no anticipated action came."}
    half = 100 * float((np.abs(errors_ms) <= 500).mean())
    lean = float(np.median(errors_ms)) / 1000
    leaning = (
        "neither early nor late" if abs(lean) < 0.05 else f"{abs(lean):.1f} s too {'late' if lean > 0 else 'early'}"
    )
    note = (
        f"Predicted minus actual time of the {len(errors_ms)} predictions whose action came, each with the nearest. "
        f"{half:.0f} % are within half a second; the median is {leaning}."
    )
    return {"chart": histogram(errors_ms), "note": note, "otherwise": ""}


def confusion_table(counts: NDArray[np.int64]) -> dict[str, Any]:
    """Format a confusion matrix.

    Args:
        counts: (11, 11): rows are predictions, columns events; the last of each is "none".

    Returns:
        `columns`: names, and `rows`: (name, cells); a cell has text, share of its column in per cent, title.
    """
    columns = [*SHORT_NAMES, "nothing"]
    came = counts.sum(0, keepdims=True)
    share = np.divide(counts, came, out=np.zeros(counts.shape), where=came > 0)
    rows: list[tuple[str, list[dict[str, Any] | None]]] = []
    for i, name in enumerate([*SHORT_NAMES, "missed"]):
        cells: list[dict[str, Any] | None] = [
            {
                "text": str(counts[i, j]) if counts[i, j] else "",
                "share": f"{100 * share[i, j]:.0f}",
                "same": i == j,
                "title": f"anticipated {name}, came {other}: {counts[i, j]}",
            }
            for j, other in enumerate(columns)
        ]
        if i == NOTHING:
            cells[NOTHING] = None  # no prediction and no event: not counted
        rows.append((name, cells))
    return {"columns": columns, "rows": rows}
