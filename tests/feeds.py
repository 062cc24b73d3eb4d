"""Feeds for tests: Wyscout rows made up, and written as version 2 files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.data.events.feed import Feed
from ballcast.data.events.wyscout import read_v2

KINDS = (  # event, sub_event: every row of the mapping
    *(
        ("Pass", name)
        for name in ("Simple pass", "Smart pass", "Hand pass", "High pass", "Launch", "Head pass", "Cross")
    ),
    *(
        ("Duel", name)
        for name in ("Air duel", "Ground attacking duel", "Ground defending duel", "Ground loose ball duel")
    ),
    *(("Others on the ball", name) for name in ("Acceleration", "Touch", "Clearance")),
    *(
        ("Free Kick", name)
        for name in ("Goal kick", "Throw in", "Corner", "Free kick cross", "Free kick shot", "Penalty")
    ),
    ("Free Kick", "Free Kick"),
    ("Shot", "Shot"),
    ("Interruption", "Ball out of the field"),
    ("Foul", "Foul"),
)
OUTCOMES = (101, 701, 702, 703, 1801, 1802)  # goal; lost, neutral, won; accurate, not


def event(
    seconds: float, team: int, kind: tuple[str, str], tags: Any = (), at: Any = ((50, 50), (60, 40))
) -> dict[str, Any]:
    return {
        "eventName": kind[0],
        "subEventName": kind[1],
        "tags": [{"id": tag} for tag in tags],
        "positions": [{"x": x, "y": y} for x, y in at],
        "teamId": team,
        "playerId": 1 + round(1000 * seconds) % 3,
        "matchId": 7,
        "matchPeriod": "1H",
        "eventSec": seconds,
    }


def made_up(seconds: float, seed: int) -> list[dict[str, Any]]:
    """Events of a half, some at the same time, as every kind, each ending where the next one starts."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.choice([0, 40, 700, 1500, 4000], int(seconds), p=[0.15, 0.1, 0.3, 0.3, 0.15])) / 1000
    times = times[times < seconds]
    places = rng.integers(0, 101, (len(times) + 1, 2)).tolist()
    rows = []
    for i, t in enumerate(times):
        tags = rng.choice(OUTCOMES, 2, replace=False).tolist() + ([1401] if rng.random() < 0.2 else [])
        kind = KINDS[rng.integers(len(KINDS))]
        rows.append(event(float(t), 10 + int(rng.integers(2)), kind, tags, (places[i], places[i + 1])))
    return rows


def feed(rows: list[dict[str, Any]], folder: Path) -> Feed:
    path = folder / "match.json"
    path.write_text(json.dumps({"events": rows}))
    return read_v2(path)
