"""One match as a feed: what happened, when, where and by which team, in columns, whoever delivered it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.errors import InputError
from ballcast.core.records import show
from ballcast.data.rules import LEFT_OUT, OTHER, Meaning

PERIODS = ("1H", "2H", "E1", "E2")  # halves and extra time
SHOOT_OUT = len(PERIODS)  # penalties at the end: no open play, left out
DUEL_MS = 5_000  # the two rows of a duel may be this far apart
LONGEST_MS = 6 * 3_600_000  # of a period, with every interruption
_TACKLE, _DRIVE, _OUT = (ACTION_INDEX[label] for label in ("PLAYER SUCCESSFUL TACKLE", "DRIVE", "OUT"))


@dataclass(frozen=True)
class Feed:
    """E events of one match, by period and time, in the provider's order where both are equal.

    - `period` (E,) int8: place in `PERIODS`; `t_ms` (E,) int64: ms from the period's start.
    - `team` (E,) int8: 0 or 1.
    - `action` (E,) int8: the action, or OTHER; `known` (E,) int8: as far as it may be told until a later event.
    - `duel` (E,) int8: the kind of duel this is one of the two rows of; 0: none.
    - `kind` (E,) int8: place in `rules.KINDS`; `outcome` (E,) int8: 1 accurate or won, −1 not, 0 not told.
    - `player` (E,) int64: a number for who acted; −1: not told.
    - `start`, `end` (E, 2) float32: x and y in per cent of the pitch as the acting team sees it, attacking from left to
      right; NaN: not told.
    """

    match: str
    competition: str
    period: NDArray[np.int8]
    t_ms: NDArray[np.int64]
    team: NDArray[np.int8]
    action: NDArray[np.int8]
    known: NDArray[np.int8]
    duel: NDArray[np.int8]
    kind: NDArray[np.int8]
    outcome: NDArray[np.int8]
    player: NDArray[np.int64]
    start: NDArray[np.float32]
    end: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.t_ms)

    def take(self, chosen: Any) -> "Feed":
        """The events `chosen`, an index or a mask, in that order."""
        columns = {
            f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name not in ("match", "competition")
        }
        return replace(self, **columns)

    def halves(self) -> Iterator[tuple[str, "Feed"]]:
        """The name and the events of each period played."""
        for number in np.unique(self.period):
            yield PERIODS[number], self.take(self.period == number)

    def checked(self) -> "Feed":
        """Itself in order, without what is left out; a DRIVE at the time of a won tackle is no action any more."""
        if not len(self):
            raise InputError(f"match {self.match}: the feed has no events")
        _check_times(self.match, int(self.t_ms.min()), int(self.t_ms.max()))
        feed = self.take(np.lexsort((self.t_ms, self.period)))  # stable: equal times stay as delivered
        feed = feed.take((feed.action != LEFT_OUT) & (feed.period != SHOOT_OUT))
        if not len(feed):
            raise InputError(f"match {self.match}: none of its events is one of the game; is this the right provider?")
        moment = feed.period.astype(np.int64) << 40 | feed.t_ms
        won = np.isin(moment, moment[feed.action == _TACKLE])
        return replace(feed, action=np.where(won & (feed.action == _DRIVE), np.int8(OTHER), feed.action))

    def unfinished(self) -> NDArray[np.int64]:
        """(E,) for each event of a single period in order, the first of those that are over only when it is.

        That is itself, or the first of
        - the events at the same time,
        - the two rows of a duel: providers write them up to seconds apart, and both end where the next event starts, so
          the second is no later event that would make the end of the first one known,
        - an event and the OUT it led to: a duel's end is where the ball comes back into play, which is still to come.
        """
        gap = np.diff(self.t_ms)
        twin = (self.duel[1:] == self.duel[:-1]) & (self.duel[1:] > 0) & (self.team[1:] != self.team[:-1])
        joined = (gap == 0) | (twin & (gap <= DUEL_MS)) | (self.action[1:] == _OUT)
        return np.maximum.accumulate(np.where(np.append(False, joined)[: len(self)], 0, np.arange(len(self))))


@dataclass(frozen=True, slots=True)
class Row:
    """One event on its way into a feed; `team` and `player` are the provider's ids, positions as in `Feed` or None."""

    period: int
    t_ms: int
    team: str
    meaning: Meaning
    start: tuple[float, float] | None
    end: tuple[float, float] | None
    player: str = ""  # not told


def _check_times(match: str, first: int, last: int) -> None:
    """First and last time of a feed, in ms from the period's start."""
    if first < 0:
        raise InputError(f"match {match}: an event is {show(-first)} ms before its period's start")
    if last > LONGEST_MS:
        raise InputError(
            f"match {match}: an event is {show(last)} ms after its period's start; are the times in seconds?"
        )


def team_numbers(match: str, teams: NDArray[Any]) -> NDArray[np.int8]:
    """(E,) the providers' ids of the acting teams → 0 and 1."""
    distinct, number = np.unique(teams, return_inverse=True)
    if len(distinct) > 2:
        raise InputError(f"match {match}: events of {len(distinct)} teams, a match has two")
    return number.astype(np.int8)


def player_numbers(players: NDArray[Any]) -> NDArray[np.int64]:
    """(E,) the providers' ids of the acting players → 0, 1, …; −1 where the id is "", "0" or 0: not told."""
    distinct, number = np.unique(players, return_inverse=True)
    untold = np.isin(distinct, ("", "0") if distinct.dtype.kind == "U" else (0,))
    return np.where(untold[number], -1, number).astype(np.int64)


def feed_of(match: str, competition: str, rows: Iterable[Row]) -> Feed:
    """The feed of a match read event by event."""
    listed = list(rows)
    if listed:  # before they become numbers of 64 bits
        _check_times(match, min(row.t_ms for row in listed), max(row.t_ms for row in listed))
    nowhere = (float("nan"),) * 2
    return Feed(
        match,
        competition,
        np.array([row.period for row in listed], np.int8),
        np.array([row.t_ms for row in listed], np.int64),
        team_numbers(match, np.array([row.team for row in listed])),
        np.array([row.meaning.action for row in listed], np.int8),
        np.array([row.meaning.known for row in listed], np.int8),
        np.array([row.meaning.duel for row in listed], np.int8),
        np.array([row.meaning.kind for row in listed], np.int8),
        np.array([row.meaning.outcome for row in listed], np.int8),
        player_numbers(np.array([row.player for row in listed], str)),
        np.array([row.start or nowhere for row in listed], np.float32).reshape(-1, 2),
        np.array([row.end or nowhere for row in listed], np.float32).reshape(-1, 2),
    ).checked()
