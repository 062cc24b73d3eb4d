"""Samples of event feeds: the benchmark's splits, windows in memory, and feature stores of windows on disk."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.core.backbone_config import EVENT_GRID, BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.core.files import replacing
from ballcast.data.events.event_grid import (
    MIRRORED,
    STEPS,
    WIDTHS,
    WINDOWS,
    Detail,
    EventTargets,
    build_grid,
    compute_targets,
    window_ends,
)
from ballcast.data.events.feed import PERIODS, Feed
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import WINDOWS_FILE, Failure, FeatureStore, Header
from ballcast.features.store_writer import StoreWriter

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


# The number goes up when the columns of the grid change: a model reads only the grid it was trained on.
_GRIDS: dict[Detail, str] = {"plain": f"{EVENT_GRID} 1", "rich": f"rich {EVENT_GRID} 1"}
IDENTITIES = {
    detail: BackboneIdentity(hashlib.sha256(f"{name}, {STEPS} × {WIDTHS[detail]}".encode()).hexdigest(), name)
    for detail, name in _GRIDS.items()
}


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
    tick: Callable[[], None] = lambda: None,
) -> EventWindows:
    """Build the windows of feeds in memory.

    Args:
        feeds: the matches.
        every_ms: time between the ends of windows, in each period.
        detail: which columns the grid has.
        scored: whether to make the clips that a scorer needs.
        tick: called after each match.
    """
    sizes = [count_windows(feed, every_ms) for feed in feeds]
    if not sum(sizes):
        raise InputError("no window could be made: the feeds have no period of more than 35 s")
    rows = np.empty((sum(sizes), WINDOWS, STEPS, WIDTHS[detail]), np.float16)
    matches, names, done = [], [], 0
    for feed, size in zip(feeds, sizes, strict=True):
        match = _cut(feed, every_ms, detail, rows[done : done + size])
        names += window_names(feed.match, match.period, match.at_ms)
        matches.append(match.expected)
        done += size
        tick()
    return _samples([rows.reshape(-1, *rows.shape[2:])], matches, names, scored)


def _cut(feed: Feed, every_ms: int, detail: Detail, rows: NDArray[np.float16]) -> _Match:
    """Fill `rows` (S, WINDOWS, STEPS, width) with the match's windows."""
    periods, times, parts, done = [], [], [], 0
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


def write_store(
    out: Path,
    feeds: Iterable[Feed | Failure],
    every_ms: int,
    *,
    detail: Detail = "plain",
    tick: Callable[[], None] = lambda: None,
) -> FeatureStore:
    """Write a feature store of feeds to `out`; its manifest lists failures and matches that are too short."""
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"{out}: is there already; give a new folder for the store")
    with replacing(out) as temporary:
        temporary.mkdir(parents=True)
        writer = StoreWriter(temporary, Header(IDENTITIES[detail], STEPS, WIDTHS[detail]))
        matches: list[_Match] = []
        faults: list[str] = []
        for feed in feeds:
            tick()
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
