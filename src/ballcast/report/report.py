"""The report: from a system's predictions to one HTML file, laid out by `page.html.j2`.

write_report(Path("report.html"), Report("Test matches", clips, predictions, score(clips, predictions)))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.actions import ACTIONS
from ballcast.core.events import Clip, Prediction
from ballcast.core.files import write_bytes
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.metrics.average_precision import Score
from ballcast.metrics.bootstrap import Intervals
from ballcast.metrics.diagnosis import (
    Pair,
    are_probabilities,
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
from ballcast.report.charts import class_bars, precision_recall
from ballcast.report.film_strip import FilmStrip, Footage, film_strip
from ballcast.report.terminal import HEADINGS

REACH_MS = 2_500  # within 2.5 s is a hit: the official score's widest tolerance with a limit, 5 s across
RARE = 20  # fewer events of an action make its numbers rough
CHOSEN = 4  # index of the tolerance whose curves the page highlights first: 5 s

TEMPLATES = Environment(
    loader=PackageLoader("ballcast.report", "."),
    autoescape=True,  # no clip or file name can break the page
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

Predictions = Mapping[str, Sequence[Prediction]]


@dataclass(frozen=True)
class History:
    """A training's values per epoch: the loss, and the validation's mean mAP (NaN: not scored)."""

    loss: Sequence[float]
    score: Sequence[float]
    best: int  # the epoch whose model is reported, counted from 1


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    Args:
        title: of the report.
        clips: with labels.
        predictions: by clip, as `score` read them.
        score: of the predictions.
        name: of the system in the score table.
        shown: the predictions with calibrated probabilities as confidences, for everything but the score; by default
            `predictions`.
        intervals: of the score, from `bootstrap`.
        others: scores of other systems on the same clips.
        footage: videos by clip, as far as there are any.
        facts: further facts, as name and value.
        history: of a training.
        strips: number of film strips of the best clips, and as many of the worst.
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
    strips: int = 3


def write_report(path: Path, report: Report, progress: ProgressCallback = no_progress) -> None:
    """Write the page to `path`; `progress` is called after each film strip, which take the time: done, total."""
    write_bytes(path, render(report, progress).encode())


def render(report: Report, progress: ProgressCallback = no_progress) -> str:
    """Return the whole page as HTML; `progress` as in `write_report`."""
    near = pair_all(report.clips, report.shown or report.predictions, reach_ms=REACH_MS)
    pairs = [p for found in near.values() for p in found]
    alike = pair_all(report.clips, report.shown or report.predictions, reach_ms=10**9, across=False)
    errors = timing_errors(p for found in alike.values() for p in found)
    probabilities = are_probabilities(*hits(pairs))
    calibration = reliability(*hits(pairs)) if probabilities else None
    past = report.history
    return TEMPLATES.get_template("page.html.j2").render(
        report=report,
        version=__version__,
        style=Markup(palette.css()) + asset("style.css"),
        script=asset("script.js"),
        headline=sections.headline(report.score, report.intervals),
        probabilities=probabilities,
        tiles=_tiles(report, calibration.error if calibration else float("nan"), errors),
        headings=HEADINGS,
        scores=sections.score_rows({report.name: report.score, **report.others}, report.intervals),
        history=sections.history(past.loss, past.score, past.best) if past else None,
        class_bars=class_bars(report.score, report.intervals),
        class_rows=sections.class_rows(report.score),
        rare_count=int(((report.score.events > 0) & (report.score.events < RARE)).sum()),
        chosen=CHOSEN,
        curves=[precision_recall(report.score, action) for action in range(len(ACTIONS))],
        calibration=sections.calibration(calibration),
        timing=sections.timing(errors),
        confusion=sections.confusion_table(confusion(pairs)),
        films=_films(report, near, progress, probabilities=probabilities),
    )


def _tiles(report: Report, error: float, errors_ms: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return the figures beside the score as (name, value)."""
    return [
        ("clips", f"{len(report.clips)}"),
        ("actions that came", f"{int(report.score.events.sum())}"),
        ("predictions a clip", f"{per_clip(report.predictions):.1f}"),
        ("calibration error", "– (ranks)" if error != error else f"{100 * error:.1f} %"),
        ("typical time error", f"{np.median(np.abs(errors_ms)) / 1000:.1f} s" if len(errors_ms) else "–"),
    ]


def _films(
    report: Report, near: Mapping[str, Sequence[Pair]], progress: ProgressCallback, *, probabilities: bool
) -> list[tuple[str, list[FilmStrip]]]:
    """Return the film strips of the best and the worst clips, by heading."""
    order = ranked(near, REACH_MS)
    best = [name for name in order[: report.strips] if quality(near[name], REACH_MS) > 0]
    worst = [name for name in order[::-1][: report.strips] if name not in best]
    clips = {clip.name: clip for clip in report.clips}
    total = len(best) + len(worst)
    done = 0
    groups = []
    for heading, names in (("Seen coming", best), ("Not seen coming", worst)):
        strips = []
        for name in names:
            note = f"{100 * quality(near[name], REACH_MS):.0f} of 100"
            footage = report.footage.get(name)
            strips.append(film_strip(clips[name], near[name], footage, note, percent=probabilities))
            done += 1
            progress(done, total)
        if strips:
            groups.append((heading, strips))
    return groups


def asset(name: str) -> Markup:
    """Read a file of this package, to be put into the page unchanged."""
    return Markup((files(__package__) / name).read_text("utf-8"))
