"""Event tokens: a feed's events of the last 30 s as one token each, and what a provider's feed leaves out.

The input of `model/event_transformer.py`. The same function builds tokens with numpy, for one match, and with torch,
for training on a GPU. Nothing after T is shown, by the rules of `event_grid`: where an event ended, and what depends on
how it ended, is shown only once a later event has happened before T (`Feed.unfinished`).

Shapes: E events in a table, S times, N tokens a time, the oldest first; what is missing is padded at the front.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, OBSERVED_MS
from ballcast.core.event_schema import CODES, DETAILS, GROUPS, KINDS, OTHER, PAD, RENAMED, TOKENS
from ballcast.data.events.feed import Feed

EARLIEST_MS = 5_000  # of a period: samples of training and forecasts begin there
PERIOD_MS = 1 << 32  # more than any period lasts: the clock of a table puts its periods this far apart


@dataclass(frozen=True)
class EventTable:
    """Events of one or more periods as columns, numpy arrays or torch tensors, each period's in order of time.

    - `clock` (E,) int64: number of the period · `PERIOD_MS` + time in ms; rising.
    - `team`, `action`, `known`, `kind`, `outcome`, `player` (E,) int64 as in `Feed`.
    - `unfinished` (E,) int64: index of the first event that ends only when this one does.
    - `place` (E, 4) float32: start and end in [0, 1] as the acting team sees the pitch; 0.5 where unknown.
    - `located` (E,) int64: 1 if the start is known.
    """

    clock: Any
    team: Any
    action: Any
    known: Any
    kind: Any
    outcome: Any
    player: Any
    unfinished: Any
    place: Any
    located: Any


def build_table(periods: Sequence[Feed]) -> EventTable:
    """Build the table of some periods (`Feed.halves`), numbered from 0 in this order."""
    columns: dict[str, list[NDArray[Any]]] = {}
    count = 0
    for number, given in enumerate(periods):
        # The order in which simultaneous events are delivered may reveal who won; this order does not.
        half = given.take(np.lexsort((*given.start.T, given.team, -given.known, given.t_ms)))
        unknown = np.isnan(half.end).any(1, keepdims=True)
        place = np.concatenate([half.start, np.where(unknown, half.start, half.end)], 1) / 100
        of_period = {name: getattr(half, name) for name in ("team", "action", "known", "kind", "outcome", "player")}
        of_period |= {"clock": number * PERIOD_MS + half.t_ms, "unfinished": half.unfinished() + count}
        of_period |= {"place": np.nan_to_num(place, nan=0.5).clip(0, 1), "located": ~np.isnan(half.start).any(1)}
        for name, column in of_period.items():
            columns.setdefault(name, []).append(column)
        count += len(half)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    whole = {name: column.astype(np.float32 if name == "place" else np.int64) for name, column in joined.items()}
    return EventTable(**whole)


def tokens_before(
    xp: Any, table: EventTable, at: Any, *, tokens: int = TOKENS, observed_ms: int = OBSERVED_MS
) -> tuple[Any, Any]:
    """Build the tokens of what is known before each time.

    Args:
        xp: numpy or torch, whichever the table is made of.
        table: the events.
        at: (S,) int64, the times T on the table's clock.
        tokens: N.
        observed_ms: how far back events are shown.

    Returns:
        Codes (S, N, 7) int64: action as known at T (`PAD`: no token), kind, outcome + 1 (1: not known), whether team
        and player are those of the last event before T, whether the event has ended, whether its place is known.
        Values (S, N, 5) float32: start and end as the last event's team sees the pitch, and the age in s.
    """
    before = xp.searchsorted(table.clock, at)  # (S,) events before T
    first = xp.searchsorted(table.clock, at - observed_ms)
    reach = xp.arange(tokens) if xp is np else xp.arange(tokens, device=at.device)
    index = before[:, None] - tokens + reach  # (S, N)
    there = index >= first[:, None]
    index = xp.where(there, index, 0)
    last = xp.where(before > 0, before - 1, 0)
    ended = index < table.unfinished[last][:, None]
    player = table.player[index]
    same = table.team[index] == table.team[last][:, None]
    codes = [
        xp.where(there, xp.where(ended, table.action[index], table.known[index]), PAD),
        table.kind[index],
        xp.where(ended, table.outcome[index], 0) + 1,
        same,
        (player >= 0) & (player == table.player[last][:, None]),
        ended,
        table.located[index],
    ]
    place = table.place[index]  # (S, N, 4)
    start = place[..., :2]
    end = place[..., 2:]
    place = xp.concatenate([start, xp.where(ended[..., None], end, start)], -1)
    place = xp.where(same[..., None], place, 1 - place)
    place = xp.where(there[..., None], place, 0.5)
    age = (at[:, None] - table.clock[index]) / 1000
    values = xp.concatenate([place, xp.where(there, age, observed_ms / 1000)[..., None]], -1)
    whole, real = (np.int64, np.float32) if xp is np else (xp.int64, xp.float32)
    return xp.stack([_cast(xp, code, whole) for code in codes], -1), _cast(xp, values, real)


def _cast(xp: Any, array: Any, kind: Any) -> Any:
    return array.astype(kind) if xp is np else array.to(kind)


def hide(xp: Any, codes: Any, values: Any, available: Any) -> tuple[Any, Any]:
    """Hide the details that a feed lacks, as its tokens would look.

    Args:
        xp: numpy or torch.
        codes: (S, N, 7), values: (S, N, 5), as from `tokens_before`.
        available: (S, flags) bool, in the order of `DETAILS`: False hides.

    Returns:
        Codes and values of the poorer feed. A duel that is neither available nor an action is missing.
    """
    flag = {name: ~available[:, i, None] for i, name in enumerate(DETAILS)}  # (S, 1) each: to be hidden
    action, kind, outcome, team, player, ended, located = (codes[..., i] for i in range(CODES))
    for name, kinds in GROUPS.items():
        numbers = [KINDS.index(k) for k in kinds]
        found = flag[name] & (kind >= min(numbers)) & (kind <= max(numbers))
        found = found & sum((kind == n for n in numbers[1:]), kind == numbers[0])
        if name == "duels":
            action = xp.where(found & (action == OTHER), PAD, action)
        kind = xp.where(found, 0, kind)
    for name, instead in RENAMED.items():
        to = PAD if instead is None else ACTION_INDEX.get(instead, OTHER)
        action = xp.where(flag[name] & (action == ACTION_INDEX[name]), to, action)
    outcome = xp.where(flag["outcome"], 1, outcome)
    player = xp.where(flag["player"], 0, player)
    no_end = flag["end"]
    start = values[..., :2]
    end = values[..., 2:4]
    end = xp.where(no_end[..., None], start, end)
    values = xp.concatenate([start, end, values[..., 4:]], -1)
    return xp.stack([action, kind, outcome, team, player, ended, located], -1), values


def detail_flags(missing: Sequence[str]) -> NDArray[np.bool_]:
    """(flags,) bool in the order of `DETAILS`, False for the names in `missing`."""
    unknown = set(missing) - set(DETAILS)
    assert not unknown, f"no such flags: {unknown}"
    return np.array([name not in missing for name in DETAILS])
