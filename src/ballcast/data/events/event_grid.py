"""The event grid: event feeds as an input of the paper's model, in memory and as feature stores on disk.

A window ends at a time T: observed [T − 30 s, T) as 6 windows of 33 steps, anticipated [T, T + 5 s). Nothing after T
leaks in: where an event ended and whether it was won are shown only once a later event has happened before T; until
then its end is its start. `Feed.unfinished` defines what counts as one event here, such as the two rows of a duel.

The times T of the benchmark, its splits and the targets after T are also those of the event transformer.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.core.backbone_config import EVENT_GRID, BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.core.event_schema import KINDS, OTHER
from ballcast.core.events import Clip, Event, grid_bin
from ballcast.core.files import replacing
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.data.events.feed import PERIODS, Feed
from ballcast.data.samples.windows import WINDOW_MS, WindowSet
from ballcast.features.store import WINDOWS_FILE, Failure, FeatureStore, Header
from ballcast.features.store_writer import StoreWriter

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

# The number goes up when the columns of the grid change: a model reads only the grid it was trained on.
_GRIDS: dict[Detail, str] = {"plain": f"{EVENT_GRID} 1", "rich": f"rich {EVENT_GRID} 1"}
IDENTITIES = {
    detail: BackboneIdentity(hashlib.sha256(f"{name}, {STEPS} × {WIDTHS[detail]}".encode()).hexdigest(), name)
    for detail, name in _GRIDS.items()
}

# --------------------------------------------------------------------------------------------------- grid and targets


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


# --------------------------------------------------------------------------------------------- the benchmark's splits


Size = Literal["small", "full"]
EVERY_MS = {"train": 7_000, "valid": 11_000, "test": 11_000}  # from one window's end to the next one's
MATCHES = {  # matches of each split of the benchmark
    "small": {"train": 264, "valid": 36, "test": 60},
    "full": {"train": 1301, "valid": 145, "test": 380},
}
TESTED = "England"


def split_matches(feeds: Sequence[Feed], size: Size) -> dict[str, list[Feed]]:
    """Split the matches of the five leagues.

    England is for testing; of the other four leagues every tenth match id, sorted, is for validation, the rest for
    training. `small` draws 300 of these and 60 of England's, always the same.

    Returns:
        Split → matches, in file order for `full`, in the order drawn for `small`.
    """
    by_id = {int(feed.match): feed for feed in feeds}
    tested = np.array([int(f.match) for f in feeds if f.competition == TESTED])
    others = np.array([int(f.match) for f in feeds if f.competition != TESTED])
    validation = np.sort(others)[::10]
    if size == "small":
        rng = np.random.default_rng(0)
        others, tested = rng.permutation(others)[:300], rng.permutation(tested)[:60]
    chosen = np.isin(others, validation)
    splits = {"train": others[~chosen], "valid": others[chosen], "test": tested}
    counts = {name: len(ids) for name, ids in splits.items()}
    if counts != MATCHES[size]:
        raise InputError(f"the table gives {counts} matches, the benchmark has {MATCHES[size]}; is it the whole table?")
    return {name: [by_id[int(i)] for i in ids] for name, ids in splits.items()}


# -------------------------------------------------------------------------------------------------- windows in memory


@dataclass(frozen=True)
class EventWindows:
    """Samples, and the last action before each with the time since, the inputs of a Markov baseline."""

    windows: WindowSet
    last: NDArray[np.int64]  # (S,), −1: none
    since_ms: NDArray[np.int64]  # (S,)


@dataclass(frozen=True)
class _Match:
    """The windows of one match: their ends `at_ms` (S,) in `period` (S,), and their targets."""

    period: NDArray[np.int8]
    at_ms: NDArray[np.int64]
    expected: EventTargets


def count_windows(feed: Feed, every_ms: int) -> int:
    """Count the windows of a match."""
    return sum(len(window_ends(half, every_ms)) for _, half in feed.periods())


def build_windows(
    feeds: Sequence[Feed],
    every_ms: int,
    *,
    detail: Detail = "plain",
    scored: bool = True,
    progress: ProgressCallback = no_progress,
) -> EventWindows:
    """Build the windows of feeds in memory.

    Args:
        feeds: the matches.
        every_ms: time between the ends of windows, in each period.
        detail: which columns the grid has.
        scored: whether to make the clips that a scorer needs.
        progress: called after each match.
    """
    sizes = [count_windows(feed, every_ms) for feed in feeds]
    if not sum(sizes):
        raise InputError("no window could be made: the feeds have no period of more than 35 s")
    rows = np.empty((sum(sizes), WINDOWS, STEPS, WIDTHS[detail]), np.float16)
    matches = []
    names = []
    done = 0
    for feed, size in zip(feeds, sizes, strict=True):
        match = _cut(feed, every_ms, detail, rows[done : done + size])
        names += window_names(feed.match, match.period, match.at_ms)
        matches.append(match.expected)
        done += size
        progress(len(matches), len(feeds))
    return _samples([rows.reshape(-1, *rows.shape[2:])], matches, names, scored)


def _cut(feed: Feed, every_ms: int, detail: Detail, rows: NDArray[np.float16]) -> _Match:
    """Fill `rows` (S, WINDOWS, STEPS, width) with the match's windows."""
    periods = []
    times = []
    parts = []
    done = 0
    for name, half in feed.periods():
        at_ms = window_ends(half, every_ms)
        rows[done : done + len(at_ms)] = build_grid(half, at_ms, detail=detail)
        periods.append(np.full(len(at_ms), PERIODS.index(name), np.int8))
        times.append(at_ms)
        parts.append(compute_targets(half, at_ms))
        done += len(at_ms)
    return _Match(np.concatenate(periods), np.concatenate(times), _join(parts))


def _join(parts: Sequence[EventTargets]) -> EventTargets:
    names = ("classes", "position_ms", "presence", "last", "since_ms")
    return EventTargets(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def window_names(match: str, period: NDArray[np.int8], at_ms: NDArray[np.int64]) -> list[str]:
    """ "2499719-1H+37000": the match, the period, and T in ms."""
    return [f"{match}-{PERIODS[p]}+{t}" for p, t in zip(period.tolist(), at_ms.tolist(), strict=True)]


def _samples(
    rows: list[NDArray[np.float16]], parts: Sequence[EventTargets], names: list[str], scored: bool
) -> EventWindows:
    all_ = _join(parts)
    clips = make_clips(names, all_.classes, all_.position_ms) if scored else []
    index = np.arange(len(names) * WINDOWS).reshape(-1, WINDOWS)
    windows = WindowSet(rows, index, all_.classes, all_.position_ms, all_.presence, names, clips, mirrored=MIRRORED)
    return EventWindows(windows, all_.last, all_.since_ms)


def make_clips(names: Sequence[str], classes: NDArray[np.int64], position_ms: NDArray[np.int64]) -> list[Clip]:
    """Make the clips that predictions are scored against; they need no observed events."""
    clips = []
    for name, kinds, times in zip(names, classes.tolist(), position_ms.tolist(), strict=True):
        coming = (Event(ACTIONS[c], t) for c, t in zip(kinds, times, strict=True) if c >= 0)
        clips.append(Clip(name, anticipation=tuple(coming)))
    return clips


# ----------------------------------------------------------------------------------------------------- feature stores


def write_store(
    out: Path,
    feeds: Iterable[Feed | Failure],
    every_ms: int,
    *,
    detail: Detail = "plain",
    progress: ProgressCallback = no_progress,
) -> FeatureStore:
    """Write a feature store of feeds to `out`; its manifest lists failures and matches that are too short."""
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"{out}: is there already; give a new folder for the store")
    with replacing(out) as temporary:
        temporary.mkdir(parents=True)
        writer = StoreWriter(temporary, Header(IDENTITIES[detail], STEPS, WIDTHS[detail]))
        matches: list[_Match] = []
        faults: list[str] = []
        for done, feed in enumerate(feeds, 1):
            progress(done, None)
            if not isinstance(feed, Failure) and not (size := count_windows(feed, every_ms)):
                feed = Failure(feed.match, f"match {feed.match}: no period of more than 35 s")
            if isinstance(feed, Failure):
                faults.append(feed.reason)
                writer.fail(feed.name, feed.reason)
            else:
                rows = np.empty((size, WINDOWS, STEPS, WIDTHS[detail]), np.float16)
                matches.append(_cut(feed, every_ms, detail, rows))
                writer.add(feed.match, rows.reshape(-1, *rows.shape[2:]), source=feed.competition, size=0, mtime_ns=0)
        if not matches:
            raise InputError(f"{out}: not one match could be used: {faults[0] if faults else 'there is none'}")
        _write_labels(temporary / WINDOWS_FILE, matches)
        writer.finish()
        if out.exists():
            out.rmdir()  # an empty folder was given
    return FeatureStore.open(out)


def _write_labels(path: Path, matches: Sequence[_Match]) -> None:
    expected = _join([match.expected for match in matches])
    np.savez(
        path,
        entry=np.repeat(np.arange(len(matches), dtype=np.int32), [len(match.at_ms) for match in matches]),
        period=np.concatenate([match.period for match in matches]),
        at_ms=np.concatenate([match.at_ms for match in matches]).astype(np.int32),
        classes=expected.classes.astype(np.int8),
        offset_ms=(expected.position_ms - OBSERVED_MS).astype(np.int16),
        presence=np.packbits(expected.presence.reshape(len(expected.presence), -1), axis=1),
        last=expected.last.astype(np.int8),
        since_ms=expected.since_ms.astype(np.int32),
    )


_COLUMNS = {  # of that file, with their types
    **{"entry": "int32", "period": "int8", "at_ms": "int32", "classes": "int8", "offset_ms": "int16"},
    **{"presence": "uint8", "last": "int8", "since_ms": "int32"},
}


def read_store(store: FeatureStore, *, scored: bool = True) -> EventWindows:
    """Read the samples of a store of event windows; the rows stay on disk until they are used."""
    path = store.path / WINDOWS_FILE
    columns = _read_labels(path, len(store))
    bits = np.unpackbits(columns["presence"], axis=1, count=STEPS * len(ACTIONS))
    expected = EventTargets(
        columns["classes"].astype(np.int64),
        columns["offset_ms"].astype(np.int64) + OBSERVED_MS,
        bits.reshape(-1, STEPS, len(ACTIONS)),
        columns["last"].astype(np.int64),
        columns["since_ms"].astype(np.int64),
    )
    entry, period, at_ms = columns["entry"], columns["period"], columns["at_ms"]
    begin = np.searchsorted(entry, np.arange(len(store) + 1))
    names: list[str] = []
    for name, part in zip(store.names, map(slice, begin[:-1], begin[1:]), strict=True):
        names += window_names(name, period[part], at_ms[part])
    rows = [block.reshape(-1, *block.shape[2:]) for block in store.rows]
    if len(names) * WINDOWS != sum(map(len, rows)):
        raise InputError(f"{path}: {len(names)} samples do not fit the features; make the store again")
    return _samples(rows, [expected], names, scored)


def _read_labels(path: Path, matches: int) -> dict[str, NDArray[Any]]:
    """Read the arrays that `_write_labels` wrote for S samples of `matches` matches; check type, shape and range."""
    again = "make the store again with `ballcast events`"
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: np.asarray(file[name]) for name in file.files}
    except Exception as error:  # a damaged file can raise almost anything in zipfile and numpy
        raise InputError(f"{path}: cannot be read ({str(error)[:200]}); {again}") from None
    if missing := [name for name in _COLUMNS if name not in columns]:
        raise InputError(f"{path}: has no '{missing[0]}'; {again}")
    S = len(columns["at_ms"]) if columns["at_ms"].ndim else 0
    places = {"classes": MAX_EVENTS, "offset_ms": MAX_EVENTS, "presence": -(-STEPS * len(ACTIONS) // 8)}
    highest = {"entry": matches - 1, "period": len(PERIODS) - 1, "classes": len(ACTIONS) - 1, "last": len(ACTIONS) - 1}
    highest["offset_ms"] = HORIZON_MS
    for name, dtype in _COLUMNS.items():
        array = columns[name]
        if array.dtype != dtype or array.shape != ((S, places[name]) if name in places else (S,)):
            raise InputError(f"{path}: '{name}' is {array.dtype} of shape {array.shape}, which does not fit; {again}")
        least = -1 if name in ("classes", "last") else 0
        if name in highest and S and not least <= array.min() <= array.max() <= highest[name]:
            raise InputError(f"{path}: '{name}' is out of range; {again}")
    if (np.diff(columns["entry"]) < 0).any():
        raise InputError(f"{path}: the matches are not in order; {again}")
    return columns
