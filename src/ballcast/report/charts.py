"""The charts of the report as SVG.

The SVG is written by hand, not by matplotlib: its colours are the page's CSS variables, so that a chart follows the
light or dark theme, and it is 360 units wide with real text, readable on a phone. Each chart has a `title`.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ballcast.core.actions import SHORT_NAMES
from ballcast.metrics.average_precision import TOLERANCES, Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import Reliability, envelope
from ballcast.report.terminal import HEADINGS

WIDTH = 360
LEFT, RIGHT = 34, 352  # ends of the horizontal axis


def class_bars(score: Score, intervals: Intervals | None = None) -> Markup:
    """Draw a bar per action: mean AP; a thin line from its AP within 1 s to that without limit; the event count.

    Args:
        score: of one system.
        intervals: of the score; drawn as a whisker on each bar.
    """
    begin = 112
    end = 318
    row = 23
    ends = intervals.class_avg if intervals else np.zeros((2, len(SHORT_NAMES)))
    top = _ceiling(float(max(score.ap.max(), ends.max())))
    at = lambda value: begin + (end - begin) * value / top  # noqa: E731
    parts: list[Markup] = [_text(begin - 8, 9, "events", anchor="end", class_="quiet")]
    for tick in np.linspace(0, top, 5):
        parts += [_line(at(tick), 14, at(tick), 14 + 10 * row, "grid"), _text(at(tick), 9, f"{100 * tick:.0f}")]
    for c, name in enumerate(SHORT_NAMES):
        y = 14 + c * row
        mean = float(score.ap[:, c].mean())
        parts.append(_text(0, y + 15, name, anchor="start"))
        parts.append(_text(begin - 8, y + 15, str(int(score.events[c])), anchor="end", class_="quiet"))
        if not score.events[c]:
            parts.append(_text(begin + 6, y + 15, "no events", anchor="start", class_="quiet"))
            continue
        parts.append(element("rect", x=begin, y=y + 4, width=max(1.0, at(mean) - begin), height=10, rx=2, fill=_hue(c)))
        if intervals:
            parts.append(_line(at(ends[0, c]), y + 9, at(ends[1, c]), y + 9, "ends"))
        low = at(float(score.ap[0, c]))
        high = at(float(score.ap[-1, c]))
        parts.append(_line(low, y + 18, max(high, low + 1), y + 18, "span"))
        parts.append(_text(WIDTH, y + 15, f"{100 * mean:.1f}", anchor="end"))
    title = ", ".join(f"{n} {100 * score.ap[:, c].mean():.1f}" for c, n in enumerate(SHORT_NAMES) if score.events[c])
    return _chart(14 + 10 * row + 2, f"Mean average precision per action in per cent: {title}", parts)


def step_curve(score: Score, tolerance: int, action: int) -> list[tuple[float, float]]:
    """Corners of a precision-recall curve.

    Args:
        score: of one system.
        tolerance, action: indices into TOLERANCES and ACTIONS.

    Returns:
        (recall, precision), where precision is the best at this recall or beyond. The last corner is on the axis.
    """
    recall, best = envelope(score, tolerance, action)
    corners = [(recall[0], best[0])]
    for r0, p0, r1, p1 in zip(recall, best, recall[1:], best[1:], strict=False):
        corners += [(r0, p1), (r1, p1)] if p1 != p0 else [(r1, p1)]
    return [*corners, (recall[-1], 0.0)]


def precision_recall(score: Score, action: int) -> Markup:
    """Draw one action's curves, one per tolerance; the page highlights the chosen one by its class, t0 … t5."""
    x0 = 24
    x1 = 172
    y0 = 112
    y1 = 22
    at = lambda r, p: f"{x0 + (x1 - x0) * r:.1f},{y0 - (y0 - y1) * p:.1f}"  # noqa: E731
    parts = [_text(x0, 12, SHORT_NAMES[action], anchor="start", class_="name")]
    parts += [_line(x0, y0 - (y0 - y1) * v, x1, y0 - (y0 - y1) * v, "grid") for v in (0, 0.5, 1)]
    parts += [_text(x0 - 4, y0 - (y0 - y1) * v + 4, n, anchor="end", class_="quiet") for v, n in ((0, "0"), (1, "1"))]
    parts += [_text(x0, y0 + 13, "0"), _text(x1, y0 + 13, "1", anchor="end"), _text((x0 + x1) / 2, y0 + 13, "recall")]
    if not score.events[action]:
        parts.append(_text((x0 + x1) / 2, (y0 + y1) / 2, "no events", class_="quiet"))
    for t in range(len(TOLERANCES)) if score.events[action] else ():
        path = " ".join(at(*point) for point in step_curve(score, t, action))
        parts.append(element("polyline", points=path, class_=f"curve t{t}", style=f"--hue: {_hue(action)}"))
        ap = f"AP {100 * score.ap[t, action]:.1f}"
        parts.append(_text(x1, 12, ap, anchor="end", class_=f"ap t{t}"))
    title = ", ".join(f"{h} {100 * score.ap[t, action]:.1f}" for t, h in enumerate(HEADINGS))
    return _chart(128, f"Precision and recall of {SHORT_NAMES[action]}; average precision {title}", parts, width=180)


def reliability_chart(found: Reliability) -> Markup:
    """Draw confidence against the share that came true, with 95 % intervals; below it the number of predictions."""
    y0 = 190
    y1 = 10
    base = 262
    tall = 50
    x = lambda p: LEFT + (RIGHT - LEFT) * p  # noqa: E731
    y = lambda p: y0 - (y0 - y1) * p  # noqa: E731
    parts = [_line(LEFT, y(v), RIGHT, y(v), "grid") for v in (0, 0.25, 0.5, 0.75, 1)]
    parts += [_text(LEFT - 5, y(v) + 4, f"{100 * v:.0f} %", anchor="end") for v in (0, 0.5, 1)]
    parts += [
        _text(x(v), y0 + 14, f"{100 * v:.0f} %", anchor=a) for v, a in ((0, "start"), (0.5, "middle"), (1, "end"))
    ]
    parts.append(_line(x(0), y(0), x(1), y(1), "ideal"))
    most = max(1, int(found.count.max()))
    for i, count in enumerate(found.count):
        if not count:
            continue
        left = x(i / len(found.count)) + 1.5
        wide = (RIGHT - LEFT) / len(found.count) - 3
        height = max(1.0, tall * count / most)
        parts.append(element("rect", x=left, y=base - height, width=wide, height=height, class_="bar"))
        parts.append(_text(left + wide / 2, base + 12, str(int(count))))
        middle = x(float(found.confidence[i]))
        parts.append(_line(middle, y(float(found.low[i])), middle, y(float(found.high[i])), "whisker"))
        parts.append(element("circle", cx=middle, cy=y(float(found.hits[i])), r=4.5, class_="dot"))
    title = f"Confidence against the share that came true; expected calibration error {100 * found.error:.1f} per cent"
    return _chart(base + 16, title, parts)


def histogram(errors_ms: NDArray[np.int64], step_ms: int = 250, most_ms: int = 5_000) -> Markup:
    """Draw how early (left) or late (right) correct predictions were, in steps of `step_ms`."""
    edges = np.arange(-most_ms - step_ms / 2, most_ms + step_ms, step_ms)
    counts, _ = np.histogram(np.clip(errors_ms, -most_ms, most_ms), edges)
    y0 = 170
    y1 = 14
    x = lambda ms: LEFT + (RIGHT - LEFT) * (ms - edges[0]) / (edges[-1] - edges[0])  # noqa: E731
    most = max(1, int(counts.max()))
    parts = [_line(LEFT, y0, RIGHT, y0, "axis"), _text(LEFT - 5, y1 + 4, str(most), anchor="end")]
    parts.append(_line(LEFT, y1, RIGHT, y1, "grid"))
    for left, count in zip(edges, counts, strict=False):
        if count:
            height = max(1.0, (y0 - y1) * count / most)
            parts.append(
                element(
                    "rect",
                    x=x(left) + 0.5,
                    y=y0 - height,
                    width=x(left + step_ms) - x(left) - 1,
                    height=height,
                    class_="bar",
                )
            )
    parts.append(_line(x(0), y1 - 6, x(0), y0, "now"))
    for ms in range(-most_ms, most_ms + 1, 1_000):
        second = ms // 1000
        parts.append(_text(x(ms), y0 + 14, f"{second:+d}".replace("-", "−") if second else "0"))
    parts += [_text(LEFT, y0 + 30, "← too early", anchor="start"), _text(RIGHT, y0 + 30, "too late →", anchor="end")]
    parts.append(_text(x(0), y0 + 30, "seconds"))
    return _chart(y0 + 36, "How early or late correct predictions were, in seconds", parts)


def line_chart(values: Sequence[float], what: str, *, best: int | None = None, percent: bool = False) -> Markup:
    """Draw a value per epoch, from epoch 1 on; `best` (counted from 1) is marked. NaN is left out."""
    known = [(i + 1, v) for i, v in enumerate(values) if v == v]
    low = 0.0 if percent else min(v for _, v in known)
    high = max(max(v for _, v in known), low + 1e-9)
    y0 = 170
    y1 = 14
    x = lambda epoch: LEFT + (RIGHT - LEFT) * (epoch - 1) / max(1, len(values) - 1)  # noqa: E731
    y = lambda value: y0 - (y0 - y1) * (value - low) / (high - low)  # noqa: E731
    show = lambda value: f"{100 * value:.1f}" if percent else f"{value:.2f}"  # noqa: E731
    parts = [_line(LEFT, y(v), RIGHT, y(v), "grid") for v in (low, (low + high) / 2, high)]
    parts += [_text(LEFT - 5, y(v) + 4, show(v), anchor="end") for v in (low, (low + high) / 2, high)]
    points = " ".join(f"{x(e):.1f},{y(v):.1f}" for e, v in known)
    parts.append(element("polyline", points=points, class_="line"))
    for epoch, value in known:
        if epoch == best or len(known) == 1:
            parts.append(element("circle", cx=x(epoch), cy=y(value), r=4.5, class_="dot"))
    middle = (1 + len(values)) // 2
    ends = [(1, "start"), (len(values), "end"), *([(middle, "middle")] if len(values) > 4 else [])]
    parts += [_text(x(e), y0 + 14, str(e), anchor=a) for e, a in (ends if len(values) > 1 else ends[:1])]
    parts.append(_text((LEFT + RIGHT) / 2, y0 + 28, "epoch"))
    title = f"{what} in each epoch, from {show(known[0][1])} to {show(known[-1][1])}"
    return _chart(y0 + 34, title + (f"; the best is epoch {best}" if best else ""), parts)


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Build an SVG element.

    Args:
        name: of the element.
        children: escaped unless they are `Markup`.
        attributes: `class_` loses its underscore, other underscores become hyphens; None is left out.
    """
    opening = Markup("<") + name
    for key, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else number(value)
            opening += Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown)
    if not children:
        return opening + Markup("/>")
    return opening + Markup(">") + Markup("").join(children) + Markup("</{}>").format(name)


def number(value: float) -> str:
    """Format a coordinate: two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _chart(height: float, title: str, parts: Sequence[Markup], width: int = WIDTH) -> Markup:
    view = f"0 0 {width} {number(height)}"
    return element("svg", element("title", title), *parts, viewBox=view, role="img", class_="chart")


def _text(x: float, y: float, text: str, *, anchor: str = "middle", class_: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _line(x0: float, y0: float, x1: float, y1: float, class_: str) -> Markup:
    return element("line", x1=x0, y1=y0, x2=x1, y2=y1, class_=class_)


def _hue(action: int) -> str:
    return f"var(--action-{action})"


def _ceiling(value: float) -> float:
    """The first of 0.1, 0.2, 0.4, 0.6, 0.8, 1 that is not below `value`."""
    return next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if value <= top), 1.0)
