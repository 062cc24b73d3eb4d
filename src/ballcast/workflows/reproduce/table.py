"""The table: every model in every reading beside the published rows, and what differs from the paper."""

from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from ballcast.core.errors import InputError
from ballcast.core.files import write_bytes, write_json
from ballcast.core.util import print_table
from ballcast.data.labels.soccernet import OFFICIAL_CLIPS
from ballcast.data.samples.windows import PAPER_CLASS_WEIGHTS, PAPER_SAMPLES
from ballcast.features.store import FILE_NAME
from ballcast.metrics.average_precision import TOLERANCES
from ballcast.metrics.bootstrap import interval
from ballcast.report.sections import PUBLISHED
from ballcast.report.terminal import HEADINGS
from ballcast.workflows.reproduce.job import (
    PAPER_EPOCH,
    PUBLISHED_MEANS,
    READINGS,
    RECIPES,
    STATIC_GAIN,
    Reproduction,
)
from ballcast.workflows.reproduce.scores import SCORED, read_scores

KEYS = (*TOLERANCES, "avg")
COLUMNS = ("", "reading", *HEADINGS, "mean", "95 %", "predictions a clip", "published")


def write_table(job: Reproduction) -> None:
    """Print the table, and write it as OUT/table.md and OUT/table.json."""
    scores: dict[str, list[dict[str, Any]]] = {}
    for run in job.runs():
        if run.scores.is_file():
            scores.setdefault(run.recipe, []).append(read_scores(run))
    if not scores:
        raise InputError(f"{job.out}: no run is scored yet; run the step `score` first")
    rows = [
        _row(recipe, reading, split, runs)
        for split in reversed(SCORED)
        for recipe, runs in scores.items()
        for reading in READINGS
    ]
    facts = _facts(job, scores)
    lines = ["# The paper's table, reproduced", ""]
    for split in reversed(SCORED):
        mine = [row for row in rows if row["split"] == split]
        title = f"{split}: mAP (%), {mine[0]['clips']} clips, {mine[0]['events']} actions, {mine[0]['seeds']} seed(s)"
        cells = [_cells(row) for row in mine]
        if split == "test":
            cells += [_published(row.name, row.at, row.avg) for row in PUBLISHED]
        _print(job, title, COLUMNS, cells)
        lines += [f"## {title}", "", *_markdown(COLUMNS, cells), ""]
    notes = _notes(job, scores)
    _print(job, "beside the paper", ("", "paper", "here"), facts)
    lines += ["## Beside the paper", "", *_markdown(("", "paper", "here"), facts), "", *(f"- {n}" for n in notes), ""]
    for note in notes:
        job.log(note)
    write_bytes(job.out / "table.md", "\n".join(lines).encode())
    write_json(job.out / "table.json", {"rows": rows, "beside_the_paper": facts, "notes": notes}, indent=1)
    job.log(f"{job.out / 'table.md'}, {job.out / 'table.json'}: written")


def _row(recipe: str, reading: str, split: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Make a row over the seeds: means, deviations (fractions), and the interval of the mean over resampled clips."""
    found = [_find(run, split, reading) for run in runs]
    values = np.array([[row[key] for key in KEYS] for row in found])  # (seeds, 7)
    deviation = values.std(0, ddof=1) if len(found) > 1 else np.zeros(len(KEYS))
    return {
        "recipe": recipe,
        "reading": reading,
        "split": split,
        "seeds": len(found),
        "clips": found[0]["clips"],
        "events": found[0]["events"],
        "mean": dict(zip(KEYS, values.mean(0).tolist(), strict=True)),
        "deviation": dict(zip(KEYS, deviation.tolist(), strict=True)),
        "interval": interval(_resampled(found)).tolist(),
        "predictions": float(np.mean([row["predictions"] for row in found])),
        "published": PUBLISHED_MEANS.get((recipe, reading)) if split == "test" else None,
    }


def _resampled(rows: list[dict[str, Any]]) -> np.ndarray:
    """Return the mean over the seeds in each resample of the clips, (R,)."""
    return np.mean([row["resampled"] for row in rows], axis=0)


def _cells(row: dict[str, Any]) -> list[str]:
    at = [f"{100 * row['mean'][key]:.1f}" for key in TOLERANCES]
    mean = f"{100 * row['mean']['avg']:.2f}"
    if row["seeds"] > 1:
        mean += f" ± {100 * row['deviation']['avg']:.2f}"
    published = f"{row['published']:.2f}" if row["published"] is not None else ""
    titles = (RECIPES[row["recipe"]].title, READINGS[row["reading"]].title)
    low, high = (100 * bound for bound in row["interval"])
    return [*titles, *at, mean, f"{low:.1f}–{high:.1f}", f"{row['predictions']:.1f}", published]


def _published(name: str, at: tuple[float, ...] | None, avg: float) -> list[str]:
    tolerances = [f"{value:.1f}" for value in at] if at else [""] * len(TOLERANCES)
    return [name, "published", *tolerances, "", "", "", f"{avg:.2f}"]


def _facts(job: Reproduction, scores: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """List the conditions of the paper beside those here."""
    facts = []
    for split in (s for s in job.splits if (job.features / s / FILE_NAME).is_file()):
        facts.append([f"clips of {split}", f"{OFFICIAL_CLIPS[split]}", f"{len(job.store(split))}"])
    store = job.store("train")
    first = next(iter(scores.values()))[0]
    backbone = store.manifest.header.backbone
    size = store.manifest.resolution
    size_text = f"{size[1]}×{size[0]}" if size else "unknown, or of several sizes"
    weights = first["class_weights"]
    facts += [
        ["backbone", "lRomul's, 15 frames", f"{backbone.name}{f' (fold {backbone.fold})' if backbone.fold else ''}"],
        ["frames", "1280×720", size_text],
        ["features of a window", "33 × 1280", f"{store.snippets} × {store.width}"],
        ["training windows", f"about {PAPER_SAMPLES}", f"{first['samples']}"],
        ["class weights", "{:.2f} to {:.2f}".format(*PAPER_CLASS_WEIGHTS), f"{min(weights):.2f} to {max(weights):.2f}"],
    ]
    for recipe, runs in scores.items():
        epochs = ", ".join(str(run["epoch"]) for run in runs)
        facts.append([f"best epoch, {RECIPES[recipe].title}", str(PAPER_EPOCH) if recipe == "paper" else "", epochs])
    return facts


def _notes(job: Reproduction, scores: dict[str, list[dict[str, Any]]]) -> list[str]:
    """List what a reader of the table must know."""
    notes = [
        f"±: deviation over seeds. 95 %: interval of the mean over seeds, by {job.resamples} resamples of the clips. "
        "[low, high]: likewise, of a difference."
    ]
    notes += [_difference(scores, other) for other in scores if other != "paper" and "paper" in scores]
    for recipe, runs in scores.items():
        useless = sum(not run["tuning"]["helps"] for run in runs)
        if useless:
            title = RECIPES[recipe].title
            notes.append(
                f"tuning did not help {useless} of {len(runs)} seeds of {title} in folds it was not fitted on: untuned."
            )
    if leaks := next(iter(scores.values()))[0]["leaks"]:
        videos = ", ".join(f"{count} videos of {split}" for split, count in leaks.items())
        notes.append(f"the backbone was trained on {videos}: scores on them are too good.")
    if job.overrides:
        notes.append(f"changed for every training: {' '.join(job.overrides)}.")
    if job.quick:
        notes.append("--quick: a few clips and epochs; the numbers say nothing about the models.")
    notes.append("how the paper's open points are read: docs/method.md.")
    return notes


def _difference(scores: dict[str, list[dict[str, Any]]], other: str) -> str:
    """Compare the paper's model with another one on the same resamples of the clips."""
    gains = []
    for split in SCORED:
        pair = [[_find(run, split, "untuned") for run in scores[name]] for name in ("paper", other)]
        gain = 100 * (np.mean([r["avg"] for r in pair[0]]) - np.mean([r["avg"] for r in pair[1]]))
        low, high = (100 * bound for bound in interval(_resampled(pair[0]) - _resampled(pair[1])))
        gains.append(f"{gain:+.2f} [{low:+.2f}, {high:+.2f}] on {split}")
    paper = f"; in the paper {STATIC_GAIN}" if other == "static" else ""
    return f"the paper's model minus {RECIPES[other].title}, untuned: {', '.join(gains)}{paper}."


def _find(run: dict[str, Any], split: str, reading: str) -> dict[str, Any]:
    return next(row for row in run["rows"] if (row["split"], row["reading"]) == (split, reading))


def _print(job: Reproduction, title: str, columns: tuple[str, ...], cells: list[list[str]]) -> None:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for i, heading in enumerate(columns):
        table.add_column(heading, justify="left" if i < 2 else "right")
    for row in cells:
        table.add_row(*map(escape, row))
    print_table(job.console, table)


def _markdown(columns: tuple[str, ...], cells: list[list[str]]) -> list[str]:
    rule = "|".join("---" if i < 2 else "---:" for i in range(len(columns)))
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in cells)]
