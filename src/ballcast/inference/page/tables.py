"""The report's tables: scores beside the published ones, and what was taken for what."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import SHORT_NAMES
from ballcast.inference.page.markup import Markup, tag
from ballcast.metrics.average_precision import Floats, Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import NOTHING
from ballcast.metrics.published import Published
from ballcast.metrics.report import HEADINGS


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
