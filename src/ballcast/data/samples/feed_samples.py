"""Samples of event feeds for the event transformer: times T anywhere in the matches, on the device.

A plan draws the times of an epoch on the host, from seed and epoch alone; a step builds tokens and targets from the
table of events. `FeedWindows` are the regular windows that a model is scored on, those of the event grid.

B samples, A actions of all matches, P periods, M actions after T, K slots, C actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import ACTIONS, FPS, HORIZON_MS, OBSERVED_MS
from ballcast.core.errors import InputError
from ballcast.core.event_schema import DETAILS, END_Y, HORIZONS_S, OTHER, ZONES, Y
from ballcast.core.events import GRID_BINS, GRID_STEP, Clip
from ballcast.data.events.event_grid import compute_targets, make_clips, window_ends, window_names
from ballcast.data.events.event_tokens import EARLIEST_MS, PERIOD_MS, EventTable, build_table, detail_flags
from ballcast.data.events.feed import PERIODS, Feed
from ballcast.data.samples.batches import Tensors

LOOKED_AT = 14  # actions after T from which the first 8 distinct ones are taken
C = len(ACTIONS)


@dataclass(frozen=True)
class Match:
    """A match to learn from, and what its provider's feeds lack, by the names of `event_schema.DETAILS`."""

    feed: Feed
    missing: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ training


@dataclass(frozen=True)
class FeedEvents:
    """The periods of the training matches on a device: events, actions to come, and where T may lie.

    - `table`: all events.
    - `clock`, `action`, `team` (A,): of the actions, as in the table.
    - `place` (A, 2): where each starts, in [0, 1] as the acting team sees the pitch; `located` (A,): whether that is
      known.
    - `available` (P, flags) bool: the details that each period's feed has.
    - `begins` (P,): length of all periods before, in ms; `total`: of all periods.
    - `rates` (C,): mean number of each action in 5 s.
    """

    table: EventTable
    clock: Tensor
    action: Tensor
    team: Tensor
    place: Tensor
    located: Tensor
    available: Tensor
    begins: Tensor
    rates: Tensor
    total: int

    @classmethod
    def from_matches(cls, matches: Sequence[Match], device: torch.device) -> "FeedEvents":
        """Build the table of matches; periods of less than 10 s are left out."""
        found = [
            (half, match.missing)
            for match in matches
            for _, half in match.feed.periods()
            if half.t_ms.max() > EARLIEST_MS + HORIZON_MS
        ]
        if not found:
            raise InputError("no match has a period of more than 10 s to learn from")
        periods = [half for half, _ in found]
        acted = [half.take(half.action != OTHER) for half in periods]
        action = np.concatenate([half.action for half in acted]).astype(np.int64)
        place = np.concatenate([half.start for half in acted]) / 100
        lengths = np.array([half.t_ms.max() - HORIZON_MS - EARLIEST_MS for half in periods], np.int64)
        rates = np.bincount(action, minlength=C) * HORIZON_MS / lengths.sum()
        columns: dict[str, NDArray[Any]] = {
            "clock": np.concatenate([i * PERIOD_MS + half.t_ms for i, half in enumerate(acted)]),
            "action": action,
            "team": np.concatenate([half.team for half in acted]).astype(np.int64),
            "place": np.nan_to_num(place, nan=0.5).clip(0, 1).astype(np.float32),
            "located": np.asarray(~np.isnan(place).any(1)),
            "available": np.stack([detail_flags(missing) for _, missing in found]),
            "begins": np.cumsum(lengths) - lengths,
            "rates": rates.clip(1e-4).astype(np.float32),  # an action may not occur at all
        }
        moved = {name: torch.from_numpy(np.ascontiguousarray(column)).to(device) for name, column in columns.items()}
        return cls(on_device(build_table(periods), device), **moved, total=int(lengths.sum()))

    def locate(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Places (B,) in all periods end to end, in ms → times T on the table's clock, and their periods, (B,) each."""
        period = torch.searchsorted(self.begins, at, right=True) - 1
        return period * PERIOD_MS + EARLIEST_MS + at - self.begins[period], period


def on_device(table: EventTable, device: torch.device) -> EventTable:
    """A table of arrays → of tensors on the device."""
    return EventTable(**{name: torch.from_numpy(column).to(device) for name, column in vars(table).items()})


@dataclass
class FeedBatch(Tensors):
    """The draws of a step, or of an epoch with the steps as first axis.

    - `at` (B,) int64: T, as a place in all periods end to end (`FeedEvents.locate`).
    - `mirrored` (B,) bool: whether the sample is mirrored, left for right.
    - `shown` (B, flags) bool: the details that are not hidden.
    """

    at: Tensor
    mirrored: Tensor
    shown: Tensor


def plan_feed_epoch(
    total: int,
    *,
    steps: int,
    batch: int,
    mirror: float,
    masked: float,
    hidden: float,
    rng: np.random.Generator,
) -> FeedBatch:
    """Draw an epoch: times evenly over all periods.

    Args:
        total: length of all periods, in ms.
        steps, batch: of the epoch.
        mirror: probability that a sample is mirrored.
        masked: probability that details are hidden from a sample.
        hidden: probability that each detail is.
        rng: what is drawn depends on nothing else.

    Returns:
        The draws, (steps, B, …) each.
    """
    shape = (steps, batch)
    at = rng.integers(0, total, shape)
    mirrored = rng.random(shape) < mirror
    poor = rng.random((*shape, 1)) < masked
    lost = rng.random((*shape, len(DETAILS))) < hidden
    return FeedBatch(torch.from_numpy(at), torch.from_numpy(mirrored), torch.from_numpy(~(poor & lost)))


@dataclass(frozen=True)
class FeedTargets:
    """What comes in the 5 s after T.

    - `classes` (B, K) int64: the actions in order; −1: none.
    - `team` (B, K): 0: that of the last event before T; 1: the other.
    - `bins` (B, K): of the scorer's 32.
    - `zones` (B, K): where it starts, seen by the team of the last event, row by row along the pitch; −1: unknown.
    - `counts` (B, C, 32): the actions of each class in each bin.
    """

    classes: Tensor
    team: Tensor
    bins: Tensor
    zones: Tensor
    counts: Tensor


def targets_after(events: FeedEvents, at: Tensor, slots: int) -> FeedTargets:
    """Find the first actions of the 5 s after each time (B,), as `event_grid.compute_targets` does.

    Two of one class in one bin count once: the first.
    """
    begin = torch.searchsorted(events.clock, at)
    index = begin[:, None] + torch.arange(LOOKED_AT, device=at.device)  # (B, M)
    exists = index < len(events.clock)
    index = index.clamp(max=len(events.clock) - 1)
    delay = events.clock[index] - at[:, None]
    inside = exists & (delay < HORIZON_MS)
    bins = torch.where(inside, delay * FPS // (1000 * GRID_STEP), 0)
    action = events.action[index]
    key = action * GRID_BINS + bins
    earlier = torch.ones(LOOKED_AT, LOOKED_AT, dtype=torch.bool, device=at.device).tril(-1)
    repeated = ((key[:, :, None] == key[:, None, :]) & inside[:, None, :] & earlier).any(-1)
    kept = inside & ~repeated
    rank = kept.cumsum(1) - 1
    chosen = (rank[..., None] == torch.arange(slots, device=at.device)) & kept[..., None]  # (B, M, K)

    def of(column: Tensor) -> Tensor:
        return (chosen * column[..., None]).sum(1)

    before = (torch.searchsorted(events.table.clock, at) - 1).clamp(min=0)
    same = events.team[index] == events.table.team[before][:, None]
    place = torch.where(same[..., None], events.place[index], 1 - events.place[index])
    along = (place[..., 0] * ZONES[0]).long().clamp(max=ZONES[0] - 1)
    across = (place[..., 1] * ZONES[1]).long().clamp(max=ZONES[1] - 1)
    zone = torch.where(events.located[index], along * ZONES[1] + across, -1)
    real = chosen.any(1)
    counts = torch.zeros(len(at), C * GRID_BINS, device=at.device)
    counts = counts.scatter_add(1, key, (kept & (rank < slots)).float())
    return FeedTargets(
        torch.where(real, of(action), -1),
        of((~same).long()),
        of(bins),
        torch.where(real, of(zone), -1),
        counts.unflatten(1, (C, GRID_BINS)),
    )


def mirror(values: Tensor, targets: FeedTargets, mirrored: Tensor) -> tuple[Tensor, FeedTargets]:
    """Exchange left and right of the samples that are `mirrored` (B,): in the tokens' values (B, N, 5) and in zones."""
    flip = mirrored[:, None]
    columns = list(values.unbind(-1))
    for across in (Y, END_Y):
        columns[across] = torch.where(flip, 1 - columns[across], columns[across])
    zones = targets.zones
    opposite = zones // ZONES[1] * ZONES[1] + ZONES[1] - 1 - zones % ZONES[1]
    zones = torch.where(flip & (zones >= 0), opposite, zones)
    return torch.stack(columns, -1), FeedTargets(targets.classes, targets.team, targets.bins, zones, targets.counts)


# --------------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class FeedWindows:
    """The S windows of matches that a model is scored on: from 30 s of each period on, as those of the event grid.

    - `table`: the events, numpy arrays.
    - `at` (S,) int64: the times T on the table's clock.
    - `available` (S, flags) bool: the details that the feed has.
    - `names`, `clips`: of the windows, with their labels.
    """

    table: EventTable
    at: NDArray[np.int64]
    available: NDArray[np.bool_]
    names: list[str]
    clips: list[Clip]

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def from_matches(cls, matches: Sequence[Match], every_ms: int) -> "FeedWindows":
        """The windows of matches, `every_ms` from one to the next."""
        periods: list[Feed] = []
        at, available = [], []
        names: list[str] = []
        clips: list[Clip] = []
        for match in matches:
            for name, half in match.feed.periods():
                ends = window_ends(half, every_ms)
                targets = compute_targets(half, ends)
                of_period = window_names(match.feed.match, np.full(len(ends), PERIODS.index(name)), ends)
                at.append(len(periods) * PERIOD_MS + ends)
                available.append(np.tile(detail_flags(match.missing), (len(ends), 1)))
                names += of_period
                clips += make_clips(of_period, targets.classes, targets.position_ms)
                periods.append(half)
        if not names:
            raise InputError("no match has a period of more than 35 s to be scored on")
        return cls(build_table(periods), np.concatenate(at), np.concatenate(available), names, clips)

    def came_within(self) -> NDArray[np.bool_]:
        """Whether each action comes within 1, 2, … 5 s of each window's end, (S, C, 5)."""
        came = np.zeros((len(self), C, len(HORIZONS_S)), bool)
        for i, clip in enumerate(self.clips):
            for event in clip.anticipation:
                came[i, event.action] |= event.position_ms - OBSERVED_MS < 1000 * np.array(HORIZONS_S)
        return came
