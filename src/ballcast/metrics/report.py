"""Scores as tables for a terminal."""

from collections.abc import Mapping

from rich.table import Table

from ballcast.core.actions import SHORT_NAMES
from ballcast.metrics.average_precision import TOLERANCES, Score

HEADINGS = ("@1s", "@2s", "@3s", "@4s", "@5s", "@∞")


def score_table(rows: Mapping[str, Score], title: str = "mAP (%) at each tolerance") -> Table:
    """A row per system like the paper's table: mAP in per cent at each tolerance, and their mean."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for heading in (*HEADINGS, "Avg"):
        table.add_column(heading, justify="right")
    for name, score in rows.items():
        values = [f"{100 * v:.1f}" for v in score.at.values()]
        table.add_row(name, *values, f"[bold]{100 * score.avg:.2f}[/]")
    return table


def class_table(score: Score) -> Table:
    """A row per action: how many events there were, and AP in per cent at each tolerance."""
    table = Table(title="AP (%) per action", title_justify="left", title_style="bold")
    table.add_column("action")
    table.add_column("events", justify="right")
    for heading in (*HEADINGS, "Avg"):
        table.add_column(heading, justify="right")
    for c, name in enumerate(SHORT_NAMES):
        values = [f"{100 * score.ap[t, c]:.1f}" for t in range(len(TOLERANCES))]
        table.add_row(name, str(score.events[c]), *values, f"[bold]{100 * score.ap[:, c].mean():.1f}[/]")
    return table
