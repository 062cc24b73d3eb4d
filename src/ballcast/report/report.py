"""The report put together: from a system's predictions to one HTML file.

write_report(Path("report.html"), Report("Test matches", clips, predictions, score(clips, predictions)))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.events import Clip, Prediction
from ballcast.core.files import write_bytes
from ballcast.metrics.average_precision import Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import (
    Pair,
    confusion,
    hits,
    pair_all,
    per_clip,
    quality,
    ranked,
    reliability,
    timing_errors,
)
from ballcast.report import sections
from ballcast.report.film_strip import Footage, film_strip
from ballcast.report.markup import Markup, tag
from ballcast.report.sections import interval_text

REACH_MS = 2_500  # within 2.5 s is a hit: the official score's widest tolerance with a limit, 5 s across

Predictions = Mapping[str, Sequence[Prediction]]


@dataclass(frozen=True)
class History:
    """How a training went, a value an epoch: the loss, and the validation's mean mAP (NaN: not scored)."""

    loss: Sequence[float]
    score: Sequence[float]
    best: int  # the epoch whose model is reported, counted from 1


@dataclass(frozen=True)
class Report:
    """What a report is made of.

    title, name: of the report, and of the system in the table. clips: with labels. predictions: as `score` read them.
    shown: the same with confidences that are calibrated chances, for all that is not the score; by default
    `predictions`. intervals: of the score, by `bootstrap`. others: scores of other systems on the same clips. footage:
    of clips, as far as there is any. facts: what else to tell, as name and value. history: of a training.
    """

    title: str
    clips: Sequence[Clip]
    predictions: Predictions
    score: Score
    name: str = "this system"
    shown: Predictions | None = None
    intervals: Intervals | None = None
    others: Mapping[str, Score] = field(default_factory=dict)
    footage: Mapping[str, Footage] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    history: History | None = None
    strips: int = 3  # of the best clips, and as many of the worst


def write_report(path: Path, report: Report, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write the page to `path`. `progress` hears of the film strips, which take the time: done, total."""
    write_bytes(path, render(report, progress).encode())


def render(report: Report, progress: Callable[[int, int], None] = lambda done, total: None) -> str:
    """The whole page."""
    near = pair_all(report.clips, report.shown or report.predictions, reach_ms=REACH_MS)
    pairs = [p for found in near.values() for p in found]
    alike = pair_all(report.clips, report.shown or report.predictions, reach_ms=10**9, across=False)
    errors = timing_errors(p for found in alike.values() for p in found)
    trust = reliability(*hits(pairs))
    past = report.history
    middle = [
        sections.scores({report.name: report.score, **report.others}, report.intervals),
        sections.history(past.loss, past.score, past.best) if past else None,
        sections.classes(report.score, report.intervals),
        sections.curves(report.score),
        sections.section(
            "Honesty and timing",
            tag("div", sections.honesty(trust), sections.timing(errors), class_="pair"),
        ),
        sections.confusion(confusion(pairs)),
        _films(report, near, progress),
    ]
    tiles = _tiles(report, trust.error if trust else float("nan"), errors)
    body = [
        _masthead(),
        tag("main", _hero(report, tiles), middle),
        _footer(),
        tag("script", _asset("script.js")),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{report.title} · ballcast"),
        tag("style", Markup(palette.css()), _asset("style.css")),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def _masthead() -> Markup:
    toggle = tag("button", "Dark", type="button", id="theme", aria_label="Switch between light and dark")
    return tag("header", tag("span", "ballcast", class_="mark-name"), tag("span", "report", class_="quiet"), toggle)


def _hero(report: Report, tiles: Sequence[tuple[str, str]]) -> Markup:
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in report.facts.items()]
    ends = f"95 % interval {interval_text(report.intervals.avg)}" if report.intervals else None
    return tag(
        "section",
        tag("h1", report.title),
        tag(
            "div",
            tag(
                "p",
                tag("strong", f"{100 * report.score.avg:.1f}"),
                tag("span", "mAP, mean of six tolerances, %"),
                tag("span", ends) if ends else None,
                class_="big",
            ),
            tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles], class_="tiles"),
            class_="hero",
        ),
        tag("dl", facts, class_="facts") if facts else None,
    )


def _tiles(report: Report, error: float, errors: np.ndarray) -> list[tuple[str, str]]:
    events = int(report.score.events.sum())
    tiles = [("clips", f"{len(report.clips)}"), ("actions that came", f"{events}")]
    tiles.append(("predictions a clip", f"{per_clip(report.predictions):.1f}"))
    tiles.append(("calibration error", "–" if error != error else f"{100 * error:.1f} %"))
    tiles.append(("typical time error", f"{np.median(np.abs(errors)) / 1000:.1f} s" if len(errors) else "–"))
    return tiles


def _films(report: Report, near: Mapping[str, Sequence[Pair]], progress: Callable[[int, int], None]) -> Markup | None:
    order = ranked(near, REACH_MS)
    best = [name for name in order[: report.strips] if quality(near[name], REACH_MS) > 0]
    worst = [name for name in order[::-1][: report.strips] if name not in best]
    chosen = {"Seen coming": best, "Not seen coming": worst}
    total, done = sum(map(len, chosen.values())), 0
    clips = {clip.name: clip for clip in report.clips}
    groups = []
    for heading, names in chosen.items():
        strips = []
        for name in names:
            note = f"{100 * quality(near[name], REACH_MS):.0f} of 100"
            strips.append(film_strip(clips[name], near[name], report.footage.get(name), note))
            done += 1
            progress(done, total)
        if strips:
            groups += [tag("h3", heading), *strips]
    if not groups:
        return None
    note = (
        "The clips anticipated best and worst, by how many actions were right and how near, of all said and all that "
        "came. Up to now is what was seen; a ✓ is the right action within 2.5 s; numbers are confidences in per cent."
    )
    return sections.section("Best and worst clips", sections.note(note), groups)


def _footer() -> Markup:
    return tag("footer", f"ballcast {__version__}. This file is complete in itself: keep it, send it, print it.")


def _asset(name: str) -> Markup:
    """A file of this package as it is."""
    return Markup((files(__package__) / name).read_text("utf-8"))
