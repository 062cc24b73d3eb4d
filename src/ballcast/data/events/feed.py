"""One match as a feed of events, and the rules by which a provider's events become the ten actions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, SHORT_NAMES
from ballcast.core.checks import show
from ballcast.core.errors import InputError
from ballcast.core.event_schema import OTHER

LEFT_OUT = -1  # index of records that are no events of the match, such as line-ups
Record = Mapping[str, str | Iterable[str]]  # a provider's event: key → value, or the values of a list such as tags
Wanted = Mapping[str, tuple[str, ...]]  # key → the values that fit; all keys must fit, an empty table fits everything

Duel = Literal["", "ground", "air", "loose"]
_INDEX = {**ACTION_INDEX, "OTHER": OTHER, "LEFT OUT": LEFT_OUT}
DUELS: tuple[Duel, ...] = ("", "ground", "air", "loose")


def fits(when: Wanted, record: Record) -> bool:
    """Whether the record has one of the wanted values for every key."""
    for key, wanted in when.items():
        value = record.get(key, ())
        if not any(v in wanted for v in ((value,) if isinstance(value, str) else value)):
            return False
    return True


@dataclass(frozen=True)
class Rule:
    """One row of a provider's table.

    - `action`: one of the ten, "OTHER", or "LEFT OUT".
    - `when`: the values the record must have.
    - `until_later`: the action that is known until a later event has happened. Needed where `when` depends on how the
      event ended; by default `action`.
    - `duel`: the kind of duel of which this is one of two rows.
    """

    action: str
    when: Wanted
    until_later: str = ""
    duel: Duel = ""

    def fits(self, record: Record) -> bool:
        return fits(self.when, record)


@dataclass(frozen=True, slots=True)
class EventMeaning:
    """An event as indices: its action, the action known until a later event, its duel (0: none), its kind.

    `outcome`: 1 accurate or won, −1 not, 0 unknown.
    """

    action: int
    known: int
    duel: int
    kind: int = 0
    outcome: int = 0


def apply_rules(rules: Iterable[Rule], record: Record) -> EventMeaning:
    """Apply the first rule that fits the record; without one the event is OTHER."""
    for rule in rules:
        if rule.fits(record):
            action = _INDEX[rule.action]
            known = _INDEX[rule.until_later] if rule.until_later else action
            return EventMeaning(action, known, DUELS.index(rule.duel))
    return EventMeaning(OTHER, OTHER, 0)


PERIODS = ("1H", "2H", "E1", "E2")  # halves and extra time
SHOOT_OUT = len(PERIODS)  # penalties at the end: no open play, left out
DUEL_MS = 5_000  # the two rows of a duel may be this far apart
LONGEST_MS = 6 * 3_600_000  # of a period, with every interruption
_TACKLE, _DRIVE, _OUT = (ACTION_INDEX[label] for label in ("PLAYER SUCCESSFUL TACKLE", "DRIVE", "OUT"))


@dataclass(frozen=True)
class Feed:
    """E events of one match, by period and time, in the provider's order where both are equal.

    - `period` (E,) int8: index in `PERIODS`; `t_ms` (E,) int64: ms from the period's start.
    - `team` (E,) int8: 0 or 1.
    - `action` (E,) int8: the action, or OTHER; `known` (E,) int8: the action known until a later event.
    - `duel` (E,) int8: the kind of duel of which this is one of two rows; 0: none.
    - `kind` (E,) int8: index in `KINDS`; `outcome` (E,) int8: 1 accurate or won, −1 not, 0 unknown.
    - `player` (E,) int64: the acting player; −1: unknown.
    - `start`, `end` (E, 2) float32: x and y in per cent of the pitch as the acting team sees it, attacking from left to
      right; NaN: unknown.
    - `goal` (E,) int8: 1 if the event is a goal for the acting team, −1 an own goal, else 0; for display, never input.
    - `teams`: the names of both teams, or their ids.
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
    goal: NDArray[np.int8]
    teams: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self.t_ms)

    def take(self, chosen: Any) -> "Feed":
        """Select the events `chosen`, an index or a mask, in that order."""
        kept = ("match", "competition", "teams")
        columns = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name not in kept}
        return replace(self, **columns)

    def periods(self) -> Iterator[tuple[str, "Feed"]]:
        """Yield the name and the events of each period played."""
        for number in np.unique(self.period):
            yield PERIODS[number], self.take(self.period == number)

    def checked(self) -> "Feed":
        """Sort the events and drop those left out; a DRIVE at the time of a won tackle becomes OTHER."""
        if not len(self):
            raise InputError(f"match {self.match}: the feed has no events")
        _check_times(self.match, int(self.t_ms.min()), int(self.t_ms.max()))
        feed = self.take(np.lexsort((self.t_ms, self.period)))  # stable: equal times stay as delivered
        feed = feed.take((feed.action != LEFT_OUT) & (feed.period != SHOOT_OUT))
        if not len(feed):
            raise InputError(f"match {self.match}: none of its events is one of the game; is this the right provider?")
        time = feed.period.astype(np.int64) << 40 | feed.t_ms
        won = np.isin(time, time[feed.action == _TACKLE])
        return replace(feed, action=np.where(won & (feed.action == _DRIVE), np.int8(OTHER), feed.action))

    def counts(self) -> dict[str, int]:
        """How many events of each action there are, and of "other"."""
        found = np.bincount(self.action, minlength=OTHER + 1).tolist()
        return dict(zip((*SHORT_NAMES, "other"), found, strict=True))

    def unfinished(self) -> NDArray[np.int64]:
        """For each event of one period, in order: the first event whose end is not known before its own, (E,) indices.

        That is the event itself, or the first of
        - the events at the same time,
        - the two rows of a duel: providers write them up to seconds apart, and both end where the next event starts, so
          the second row does not count as a later event that reveals the end of the first,
        - an event and the OUT it led to: a duel's end is where the ball comes back into play, which is still to come.
        """
        gap = np.diff(self.t_ms)
        twin = (self.duel[1:] == self.duel[:-1]) & (self.duel[1:] > 0) & (self.team[1:] != self.team[:-1])
        joined = (gap == 0) | (twin & (gap <= DUEL_MS)) | (self.action[1:] == _OUT)
        return np.maximum.accumulate(np.where(np.append(False, joined)[: len(self)], 0, np.arange(len(self))))


@dataclass(frozen=True, slots=True)
class Row:
    """One event as read; `team` and `player` are the provider's ids, positions as in `Feed` or None."""

    period: int
    t_ms: int
    team: str
    meaning: EventMeaning
    start: tuple[float, float] | None
    end: tuple[float, float] | None
    player: str = ""  # unknown
    goal: int = 0  # as in `Feed`


def _check_times(match: str, first: int, last: int) -> None:
    """Check the first and last time of a feed, in ms from the period's start."""
    if first < 0:
        raise InputError(f"match {match}: an event is {show(-first)} ms before its period's start")
    if last > LONGEST_MS:
        raise InputError(
            f"match {match}: an event is {show(last)} ms after its period's start; are the times in seconds?"
        )


def team_numbers(match: str, teams: NDArray[Any]) -> NDArray[np.int8]:
    """Number the acting teams: the provider's ids (E,) → 0 and 1."""
    distinct, number = np.unique(teams, return_inverse=True)
    if len(distinct) > 2:
        raise InputError(f"match {match}: events of {len(distinct)} teams, a match has two")
    return number.astype(np.int8)


def player_numbers(players: NDArray[Any]) -> NDArray[np.int64]:
    """Number the acting players: the provider's ids (E,) → 0, 1, …; −1 (unknown) where the id is "", "0" or 0."""
    distinct, number = np.unique(players, return_inverse=True)
    unknown = np.isin(distinct, ("", "0") if distinct.dtype.kind == "U" else (0,))
    return np.where(unknown[number], -1, number).astype(np.int64)


def team_names(teams: NDArray[Any], names: Mapping[str, str]) -> tuple[str, str]:
    """The names of both teams in the order of their numbers, by the provider's ids; an id without a name stays."""
    found = [str(names.get(str(team)) or team) for team in np.unique(teams)]
    first, second = [*found, "", ""][:2]
    return first, second


def feed_of(match: str, competition: str, rows: Iterable[Row], names: Mapping[str, str] | None = None) -> Feed:
    """Make the feed of a match from its events; `names`: of the teams, by the provider's ids."""
    listed = list(rows)
    if listed:  # before they are cast to 64 bits
        _check_times(match, min(row.t_ms for row in listed), max(row.t_ms for row in listed))
    nowhere = (float("nan"),) * 2
    return Feed(
        match,
        competition,
        np.array([row.period for row in listed], np.int8),
        np.array([row.t_ms for row in listed], np.int64),
        team_numbers(match, ids := np.array([row.team for row in listed])),
        np.array([row.meaning.action for row in listed], np.int8),
        np.array([row.meaning.known for row in listed], np.int8),
        np.array([row.meaning.duel for row in listed], np.int8),
        np.array([row.meaning.kind for row in listed], np.int8),
        np.array([row.meaning.outcome for row in listed], np.int8),
        player_numbers(np.array([row.player for row in listed], str)),
        np.array([row.start or nowhere for row in listed], np.float32).reshape(-1, 2),
        np.array([row.end or nowhere for row in listed], np.float32).reshape(-1, 2),
        np.array([row.goal for row in listed], np.int8),
        team_names(ids, names or {}),
    ).checked()
