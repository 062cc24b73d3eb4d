"""How near the actions of simulated matches are to those of others: how many there are, and how long between them."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from rich.table import Table

from ballcast.core.actions import ACTIONS, SHORT_NAMES
from ballcast.data.labels.games import Match

PAIRS = 12  # the commonest of all


def count_table(theirs: Sequence[Match], ours: Sequence[Match]) -> Table:
    """Actions a match, by kind."""
    table = Table("action", "theirs", "ours", title="actions a match")
    for action in (*ACTIONS, None):
        means = [np.mean([sum(action in (None, e.label) for e in m.events) for m in side]) for side in (theirs, ours)]
        table.add_row(action or "all", *(f"{mean:.1f}" for mean in means))
    return table


def gap_table(theirs: Sequence[Match], ours: Sequence[Match]) -> Table:
    """For the commonest pairs of actions that follow each other: how many a match, and the time between them in s."""
    gaps = [find_gaps(side) for side in (theirs, ours)]
    table = Table("one after the other", "theirs", "10 %", "median", "ours", "10 %", "median", title="gaps in s")
    means = {
        pair: max(len(g[pair]) / len(s) for g, s in zip(gaps, (theirs, ours), strict=True))
        for pair in {**gaps[0], **gaps[1]}
    }
    for pair in sorted(means, key=lambda pair: (-means[pair], pair))[:PAIRS]:
        cells = []
        for side, found in zip((theirs, ours), gaps, strict=True):
            values = np.array(found[pair]) / 1000
            cells += [f"{len(values) / len(side):.1f}"]
            cells += [f"{np.quantile(values, q):.1f}" if len(values) else "" for q in (0.1, 0.5)]
        table.add_row(pair, *cells)
    return table


def find_gaps(matches: Sequence[Match]) -> dict[str, list[int]]:
    """The ms between actions that follow each other, by what they are and whether by the same team."""
    gaps: dict[str, list[int]] = defaultdict(list)
    for match in matches:
        for a, b in pairwise(match.events):
            whose = "same team" if a.team == b.team else "other team"
            gaps[f"{SHORT_NAMES[a.action]}, {SHORT_NAMES[b.action]}, {whose}"].append(b.position_ms - a.position_ms)
    return gaps
