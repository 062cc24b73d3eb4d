"""The report's sections: a heading, what is drawn, and a note that says how to read it."""

from collections.abc import Mapping, Sequence

import numpy as np

from ballcast.core.actions import ACTIONS
from ballcast.inference.page.charts import class_bars, histogram, line_chart, precision_recall, reliability_chart
from ballcast.inference.page.markup import Child, Markup, tag
from ballcast.inference.page.tables import confusion_table, score_table
from ballcast.metrics.average_precision import Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import Reliability
from ballcast.metrics.published import PUBLISHED
from ballcast.metrics.report import HEADINGS

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
