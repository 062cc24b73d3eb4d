"""The report's sections and tables: a heading, what is drawn, and a note that says how to read it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, SHORT_NAMES
from ballcast.metrics.average_precision import Floats, Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import NOTHING, Reliability
from ballcast.report.charts import class_bars, histogram, line_chart, precision_recall, reliability_chart
from ballcast.report.markup import Child, Markup, tag
from ballcast.report.terminal import HEADINGS


class Published(NamedTuple):
    """A row of somebody's table: mAP at 1, 2, 3, 4, 5 s and without limit (None: not told), and their mean."""

    name: str
    at: tuple[float, ...] | None
    avg: float


PUBLISHED = (
    Published("the paper, SN-BAA test", (5.6, 13.2, 17.2, 20.6, 22.9, 25.6), 17.9),
    Published("the paper, SN-BAA challenge", (5.5, 12.2, 15.8, 18.6, 20.9, 24.4), 16.5),
    Published("FAANTRA, SN-BAA test server", None, 18.05),
)


def score_table(rows: Mapping[str, Score], published: Sequence[Published], intervals: Intervals | None) -> Markup:
    """A row a system in per cent, the report's own first, with its intervals; below them what others have published."""
    heads = [tag("th", text, scope="col") for text in ("", *HEADINGS, "mean")]
    ours = [
        _row(name, [100 * v for v in score.at.values()], 100 * score.avg, class_="own" if i == 0 else None)
        for i, (name, score) in enumerate(rows.items())
    ]
    if intervals:
        cells = [tag("td", interval_text(ends)) for ends in (*intervals.at.T, intervals.avg)]
        ours.insert(1, tag("tr", tag("th", "95 % interval", scope="row"), cells, class_="interval"))
    theirs = [_row(p.name, p.at or (None,) * len(HEADINGS), p.avg, class_="published") for p in published]
    table = tag(
        "table",
        tag("thead", tag("tr", heads)),
        tag("tbody", ours),
        tag("tbody", theirs),
        class_="scores",
    )
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label="Scores")


def _row(name: str, values: Sequence[float | None], mean: float, class_: str | None) -> Markup:
    cells = [tag("td", "–" if v is None else f"{v:.1f}") for v in values]
    return tag("tr", tag("th", name, scope="row"), cells, tag("td", f"{mean:.2f}", class_="mean"), class_=class_)


def interval_text(ends: Floats) -> str:
    """Low and high (2,) in per cent: "16.2–19.5"."""
    return f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f}"


def confusion_table(counts: NDArray[np.int64]) -> Markup:
    """(11, 11) counts as a table: rows what was anticipated, columns what came, darker the more of the column."""
    names = [*SHORT_NAMES, "nothing"]
    came = counts.sum(0, keepdims=True)
    share = np.divide(counts, came, out=np.zeros(counts.shape), where=came > 0)
    heads = [tag("th", tag("span", name), scope="col") for name in names]
    rows = []
    for i, name in enumerate([*SHORT_NAMES, "missed"]):
        cells = []
        for j, other in enumerate(names):
            n, said = int(counts[i, j]), f"anticipated {name}, came {other}"
            if i == NOTHING and j == NOTHING:
                cells.append(tag("td", class_="none"))
                continue
            style = f"--share: {100 * share[i, j]:.0f}%"
            cells.append(
                tag("td", str(n) if n else "", style=style, class_="same" if i == j else None, title=f"{said}: {n}")
            )
        rows.append(tag("tr", tag("th", name, scope="row"), cells))
    table = tag(
        "table",
        tag("thead", tag("tr", tag("td", "anticipated ↓ came →", class_="corner"), heads)),
        tag("tbody", rows),
        class_="confusion",
    )
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label="What was taken for what")


CHOSEN = 4  # the tolerance the curves show first: 5 s


def scores(rows: Mapping[str, Score], intervals: Intervals | None = None) -> Markup:
    """Every system's score, the report's own first and with its intervals, beside the published ones."""
    drawn = f" 95 % of {len(intervals.resampled)} resamples of the clips lie in the interval." if intervals else ""
    return section(
        "Scores",
        score_table(rows, PUBLISHED, intervals),
        note(
            "mAP in per cent at each tolerance (its full width in seconds) and their mean, as the official scorer "
            f"counts.{drawn} The rows below the line were published on SN-BAA: they compare only with scores on the "
            "same clips."
        ),
    )


def history(loss: Sequence[float], score: Sequence[float], best: int) -> Markup:
    """How a training went: loss and validation mAP, a value an epoch; `best` is counted from 1."""
    charts = [figure("Training loss", line_chart(loss, "Training loss"))]
    if any(v == v for v in score):
        drawn = line_chart(score, "Validation mAP", best=best, percent=True)
        charts.append(figure(f"Validation mAP (%), best in epoch {best}", drawn))
    return section("Training", tag("div", charts, class_="pair"))


def classes(score: Score, intervals: Intervals | None = None) -> Markup:
    few = [int(n) for n in score.events if 0 < n < 20]
    warning = f" {len(few)} of the actions came fewer than 20 times: their numbers are rough." if few else ""
    return section(
        "Action by action",
        tag("div", class_bars(score, intervals), class_="narrow"),
        note(
            "Bar: average precision in per cent, the mean of the six tolerances. Thin line: from within 1 s (left) to "
            "any time in the 5 s (right)." + (" Whisker: 95 % interval of the bar." if intervals else "") + warning
        ),
    )


def curves(score: Score) -> Markup:
    choices = [
        tag("label", tag("input", type="radio", name="tolerance", value=t, checked=t == CHOSEN), tag("span", heading))
        for t, heading in enumerate(HEADINGS)
    ]
    return section(
        "Precision and recall",
        tag("fieldset", tag("legend", "tolerance"), choices, class_="choice"),
        tag("div", [precision_recall(score, c) for c in range(len(ACTIONS))], class_="curves", data_tolerance=CHOSEN),
        note(
            "Upwards: the share of predictions that come true, the best at this recall or beyond. The thin lines "
            "are the other tolerances."
        ),
    )


def honesty(trust: Reliability | None) -> Markup:
    """Confidence against what came; None: the confidences are no chances."""
    caption = "Are the confidences honest?"
    if trust is None:
        return figure(caption, tag("p", "Cannot be told: they are not chances between 0 and 1."))
    if not trust.count.sum():
        return figure(caption, tag("p", "Cannot be told: there are no predictions."))
    return figure(
        caption,
        reliability_chart(trust),
        note(
            "Across: how sure a prediction was. Upwards: how often its action came within 2.5 s of its time. On the "
            f"dashed line the two agree; on average they are {100 * trust.error:.1f} points apart. Lines: 95 % "
            "intervals. Below: how many predictions."
        ),
    )


def timing(errors: np.ndarray) -> Markup:
    caption = "Is the time right?"
    if not len(errors):
        return figure(caption, tag("p", "Cannot be told: no anticipated action came."))
    half = 100 * float((np.abs(errors) <= 500).mean())
    lean = float(np.median(errors)) / 1000
    leaning = (
        "neither early nor late" if abs(lean) < 0.05 else f"{abs(lean):.1f} s too {'late' if lean > 0 else 'early'}"
    )
    return figure(
        caption,
        histogram(errors),
        note(
            f"Predicted minus actual time of the {len(errors)} predictions whose action came, each with the nearest. "
            f"{half:.0f} % are within half a second; the median is {leaning}."
        ),
    )


def confusion(table: np.ndarray) -> Markup:
    return section(
        "What was taken for what",
        confusion_table(table),
        note(
            "Each prediction with what came within 2.5 s of its time: the same action if there is one, else the "
            "nearest that no other prediction stands for. The deeper the colour, the larger the share of what came."
        ),
    )


def section(heading: str, *content: Child) -> Markup:
    return tag("section", tag("h2", heading), *content)


def figure(caption: str, *content: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), content)


def note(words: str) -> Markup:
    return tag("p", words, class_="note")
