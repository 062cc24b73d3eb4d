"""The event grid: a feed's events before a time T as features of 6 windows, and the targets of the 5 s after T.

A window ends at T: observed [T − 30 s, T) as 6 windows of 33 steps, anticipated [T, T + 5 s). Nothing after T leaks in:
where an event ended and whether it was won are shown only once a later event has happened before T; until then its end
is its start. `Feed.unfinished` defines what counts as one event here, such as the two rows of a duel.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.core.event_schema import KINDS, OTHER
from ballcast.core.events import grid_bin
from ballcast.data.events.feed import Feed
from ballcast.data.samples.windows import WINDOW_MS

WINDOWS = OBSERVED_MS // WINDOW_MS
STEPS = 33  # a window

# The columns of a step, used only here.
FLAGS = slice(0, OTHER + 1)  # how many events of each action, and of others, happened in the step
TEAM = OTHER + 1  # +1: the last of these is by the team of the last event before T; −1: by the other; 0: no event
START = slice(TEAM + 1, TEAM + 3)  # where it started, as that team sees the pitch, in [0, 1]; 0.5: unknown, or no event
END = slice(START.stop, START.stop + 2)  # where it ended
ANY = END.stop  # 1 if anything happened
SINCE = ANY + 1  # at every step: time since the last event before T in 5 s, at most 3
WIDTH = SINCE + 1
LONGEST_SINCE = 3.0

# The rich grid shows more, in columns after these.
KIND = slice(WIDTH, WIDTH + len(KINDS) - 1)  # how many events of each kind but the first, which is none
OUTCOME = KIND.stop  # of the last event of the step: 1 accurate or won, −1 not, 0 not known yet, or no event
PLAYER = OUTCOME + 1  # 1 if the last event of the step is by the player of the last event before T
RICH_WIDTH = PLAYER + 1

Detail = Literal["plain", "rich"]
WIDTHS: dict[Detail, int] = {"plain": WIDTH, "rich": RICH_WIDTH}
MIRRORED = (START.start + 1, END.start + 1)  # the columns x that become 1 − x when the pitch is mirrored


def window_ends(half: Feed, every_ms: int) -> NDArray[np.int64]:
    """List the times T of a half's windows, (S,) in ms: from 30 s after its start to 5 s before its last event."""
    return np.arange(OBSERVED_MS, half.t_ms.max() - HORIZON_MS, every_ms)


def build_grid(
    half: Feed, at_ms: NDArray[np.int64], steps: int = STEPS, detail: Detail = "plain"
) -> NDArray[np.float16]:
    """Build the grid of what is known before each time.

    Args:
        half: the events of one period.
        at_ms: (S,) the times T, in ms from the period's start.
        steps: steps a window.
        detail: which columns.

    Returns:
        (S, WINDOWS, steps, WIDTHS[detail]).
    """
    # The order in which simultaneous events are delivered may reveal who won; this order does not.
    half = half.take(np.lexsort((*half.start.T, half.team, -half.known, half.t_ms)))
    before = np.searchsorted(half.t_ms, at_ms)  # (S,) events before T
    first = np.searchsorted(half.t_ms, at_ms - OBSERVED_MS)
    s, e = _pairs(first, before)  # (P,) each: sample and event, in order
    last = np.maximum(before - 1, 0)
    ended = e < half.unfinished()[last][s]
    cells = WINDOWS * steps
    cell = s * cells + (half.t_ms[e] - at_ms[s] + OBSERVED_MS) * cells // OBSERVED_MS  # sorted, since s and time are

    grid = np.zeros((len(at_ms) * cells, WIDTHS[detail]), np.float16)
    grid[:, START] = grid[:, END] = 0.5
    shown = np.where(ended, half.action[e], half.known[e])
    flag, count = np.unique(cell * (OTHER + 1) + shown, return_counts=True)
    grid[flag // (OTHER + 1), flag % (OTHER + 1)] = count
    if detail == "rich":
        flag, count = np.unique(cell * len(KINDS) + half.kind[e], return_counts=True)
        which, kind = np.divmod(flag, len(KINDS))
        grid[which[kind > 0], KIND.start - 1 + kind[kind > 0]] = count[kind > 0]
    latest = np.flatnonzero(np.append(cell[1:] != cell[:-1], True)[: len(cell)])  # the last event of each step
    cell, s, e, ended = cell[latest], s[latest], e[latest], ended[latest]
    same = half.team[e] == half.team[last[s]]
    grid[cell, TEAM] = np.where(same, 1, -1)
    grid[cell, START] = _seen(half.start[e], same)
    grid[cell, END] = _seen(np.where(ended[:, None], half.end[e], half.start[e]), same)
    grid[cell, ANY] = 1
    if detail == "rich":
        grid[cell, OUTCOME] = np.where(ended, half.outcome[e], 0)
        player = half.player[e]
        grid[cell, PLAYER] = (player >= 0) & (player == half.player[last[s]])
    since = np.where(before > 0, (at_ms - half.t_ms[last]) / WINDOW_MS, LONGEST_SINCE)
    grid[:, SINCE] = np.repeat(np.minimum(since, LONGEST_SINCE), cells)
    return grid.reshape(len(at_ms), WINDOWS, steps, WIDTHS[detail])


def _seen(place: NDArray[np.float32], same: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Turn (n, 2) per cent in the acting team's view into [0, 1] in the last event's team's view; 0.5: unknown."""
    turned = np.where(same[:, None], place, 100 - place) / 100
    return np.nan_to_num(turned, nan=0.5)


@dataclass(frozen=True)
class EventTargets:
    """The targets of S windows, and the last action before each, which baselines use.

    - `classes`, `position_ms` (S, 8): the events of the 5 s to come, as in `WindowSet`.
    - `presence` (S, steps, C) uint8: the actions of the last 5 s, at their step and the two beside it.
    - `last` (S,): the last action before T, −1 if there is none; `since_ms` (S,): how long before T it was.
    """

    classes: NDArray[np.int64]
    position_ms: NDArray[np.int64]
    presence: NDArray[np.uint8]
    last: NDArray[np.int64]
    since_ms: NDArray[np.int64]


def compute_targets(half: Feed, at_ms: NDArray[np.int64], steps: int = STEPS) -> EventTargets:
    """Compute the targets after each time T of `at_ms` (S,) in ms, from the events of one period."""
    acted = half.take(half.action != OTHER)
    s, e = _pairs(np.searchsorted(acted.t_ms, at_ms), np.searchsorted(acted.t_ms, at_ms + HORIZON_MS))
    position = acted.t_ms[e] - at_ms[s] + OBSERVED_MS
    # Two events of one class in one bin count once: the first.
    key = (s * OBSERVED_MS + grid_bin(position)) * len(ACTIONS) + acted.action[e]
    once = np.sort(np.unique(key, return_index=True)[1])
    s, e, position = s[once], e[once], position[once]
    rank = np.arange(len(s)) - np.searchsorted(s, s)
    kept = rank < MAX_EVENTS
    classes = np.full((len(at_ms), MAX_EVENTS), -1, np.int64)
    position_ms = np.full((len(at_ms), MAX_EVENTS), OBSERVED_MS, np.int64)
    classes[s[kept], rank[kept]] = acted.action[e[kept]]
    position_ms[s[kept], rank[kept]] = position[kept]

    presence = np.zeros((len(at_ms), steps, len(ACTIONS)), np.uint8)
    s, e = _pairs(np.searchsorted(acted.t_ms, at_ms - WINDOW_MS), np.searchsorted(acted.t_ms, at_ms))
    step = (acted.t_ms[e] - at_ms[s] + WINDOW_MS) * steps // WINDOW_MS
    for beside in (-1, 0, 1):
        presence[s, np.clip(step + beside, 0, steps - 1), acted.action[e]] = 1
    return EventTargets(classes, position_ms, presence, *_last_action(half, at_ms))


def _last_action(half: Feed, at_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the last action before each T, as known by then, (S,), −1: none; and the time since, (S,) in ms."""
    before = np.searchsorted(half.t_ms, at_ms)
    number = np.arange(len(half))
    # The newest event that is an action for good, and the newest that is one as far as it is known.
    final = np.maximum.accumulate(np.where(half.action != OTHER, number, -1))
    known = np.maximum.accumulate(np.where(half.known != OTHER, number, -1))
    unfinished = half.unfinished()[np.maximum(before - 1, 0)]
    newest = np.where(before > 0, known[before - 1], -1)
    open_ = newest >= unfinished
    settled = np.where((before > 0) & (unfinished > 0), final[unfinished - 1], -1)
    chosen = np.where(open_, newest, settled)
    action = np.where(open_, half.known[chosen], half.action[chosen]).astype(np.int64)
    return np.where(chosen >= 0, action, -1), np.where(chosen >= 0, at_ms - half.t_ms[chosen], OBSERVED_MS)


def _pairs(first: NDArray[np.int64], stop: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List all pairs (s, e) with first[s] ≤ e < stop[s], in order."""
    count = np.maximum(stop - first, 0)
    s = np.repeat(np.arange(len(first)), count)
    e = np.arange(len(s)) + np.repeat(first - (np.cumsum(count) - count), count)
    return s, e
