"""Forecasts along a match's event feed, as rows that an analyst reads: probabilities of each action, by team."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, SHORT_NAMES
from ballcast.core.event_schema import HORIZONS_S, ZONES
from ballcast.core.events import Forecast
from ballcast.core.util import strongest_apart

SHOWN_S = (1, 2, 3, 5)  # the horizons of the table's columns
SHOT = ACTION_INDEX["SHOT"]
EITHER = 2  # index of both teams together
MINUTES = {"1H": 0, "2H": 45, "E1": 90, "E2": 105}  # the match's clock at the begin of each period


@dataclass(frozen=True, slots=True)
class FeedForecast(Forecast):
    """A forecast at one time of a feed.

    - `period`, `period_ms`: the period and the time in it. `at_ms` counts on one clock, see `MatchSummary.begins`.
    - `event`: the short name of the action that has just begun ("other" for none of the ten); "": a forecast between.
    - `team`: number of the team of the last event.
    - `chance` (3, 10, 5): the probability of each action within 1, 2, … 5 s by team 0, by team 1, by either.
    - `zones` (12, 8): where the next action happens, as `team` sees the pitch, attacking to the right; sums to 1.
    """

    period: str = "1H"
    period_ms: int = 0
    event: str = ""
    team: int = 0
    chance: NDArray[np.float32] = field(default_factory=lambda: np.zeros((3, 10, 5), np.float32))
    zones: NDArray[np.float32] = field(default_factory=lambda: np.zeros(ZONES, np.float32))

    def within(self, action: int, seconds: int, team: int = EITHER) -> float:
        """The probability of an action within 1 to 5 s."""
        return float(self.chance[team, action, HORIZONS_S.index(seconds)])

    def to_json(self) -> dict[str, Any]:
        """`Forecast.to_json`, with the period, the event, and the probability of each action within 5 s."""
        further = {"period": self.period, "period_ms": self.period_ms, "event": self.event}
        chance = {name: round(self.within(i, 5), 5) for i, name in enumerate(SHORT_NAMES)}
        return Forecast.to_json(self) | further | {"within_5s": chance}

    @property
    def next_place(self) -> tuple[float, float]:
        """The expected place of the next action in per cent of the pitch, as `team` sees it."""
        along, across = ((np.arange(n) + 0.5) * 100 / n for n in ZONES)
        return float(self.zones.sum(1) @ along), float(self.zones.sum(0) @ across)


@dataclass(frozen=True)
class Shot:
    """A shot of the feed: time on the forecasts' clock, the team's number; `goal` 1: a goal, −1: an own goal."""

    at_ms: int
    team: int
    goal: int


@dataclass(frozen=True)
class MatchSummary:
    """What is known of a match besides its forecasts.

    - `teams`: names by number. `begins`: the begin of each period on the forecasts' clock, in ms.
    - `counts`: events of each action. `missing_details`: what the feed lacks.
    """

    match: str
    provider: str
    teams: tuple[str, str]
    begins: Mapping[str, int]
    shots: tuple[Shot, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    missing_details: tuple[str, ...] = ()

    def clock(self, at_ms: int) -> str:
        """The match's clock at a time of the forecasts' clock: "1H 12:34", minutes as on the scoreboard."""
        period = max((name for name, begin in self.begins.items() if begin <= at_ms), key=self.begins.__getitem__)
        seconds = (at_ms - self.begins[period]) // 1000
        return f"{period} {MINUTES[period] + seconds // 60}:{seconds % 60:02d}"


@dataclass(frozen=True)
class ShotChance:
    """A peak of the probability of a shot within 5 s: who would shoot, how likely, and whether a shot came."""

    at_ms: int
    team: int
    probability: float
    shot: bool
    goal: bool


def columns() -> tuple[str, ...]:
    """The names of the table's columns."""
    actions = tuple(f"{name.replace(' ', '_')}_{s}s" for name in SHORT_NAMES for s in SHOWN_S)
    shots = tuple(f"shot_{s}s_team_{number}" for number in (1, 2) for s in SHOWN_S)
    return (
        *("match", "period", "minute", "second", "period_s", "at_ms", "event", "team", "team_1", "team_2"),
        *actions,
        *shots,
        *("next_x", "next_y"),
    )


def table_rows(forecasts: Sequence[FeedForecast], match: MatchSummary) -> Iterator[tuple[Any, ...]]:
    """The table: a row for each forecast, in the order of `columns`; probabilities to five digits."""
    shown = [HORIZONS_S.index(s) for s in SHOWN_S]
    for forecast in forecasts:
        seconds = forecast.period_ms // 1000
        clock = (MINUTES[forecast.period] + seconds // 60, seconds % 60)
        actions = forecast.chance[EITHER][:, shown].round(5).reshape(-1).tolist()
        shots = forecast.chance[:EITHER, SHOT][:, shown].round(5).reshape(-1).tolist()
        place = [round(value, 1) for value in forecast.next_place]
        yield (
            match.match,
            forecast.period,
            *clock,
            forecast.period_ms / 1000,
            forecast.at_ms,
            forecast.event,
            match.teams[forecast.team],
            *match.teams,
            *(round(value, 5) for value in actions),
            *(round(value, 5) for value in shots),
            *place,
        )


APART_MS = 15_000  # two chances are at least this far apart


def shot_chances(forecasts: Sequence[FeedForecast], match: MatchSummary, count: int = 12) -> list[ShotChance]:
    """The times at which a shot was most likely, the most likely first."""
    chosen = strongest_apart(
        forecasts,
        count,
        APART_MS,
        strength=lambda forecast: forecast.within(SHOT, 5),
        time_ms=lambda forecast: forecast.at_ms,
    )
    found: list[ShotChance] = []
    for forecast in chosen:
        team = int(forecast.chance[0, SHOT, -1] < forecast.chance[1, SHOT, -1])
        came = [shot for shot in match.shots if forecast.at_ms <= shot.at_ms < forecast.at_ms + 5_000]
        goal = any(shot.goal for shot in came)
        found.append(ShotChance(forecast.at_ms, team, forecast.within(SHOT, 5), bool(came), goal))
    return found
