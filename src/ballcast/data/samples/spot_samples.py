"""Samples for the spot transformer, from event feeds: labels as broadcasts have them, and a spotter's faults.

A feed's events differ from the labels of broadcasts, where a drive is labelled when a player receives the ball and
keeps it, a block when a player stops the ball just played, a tackle when it wins the ball. `as_broadcast` makes such
labels from a feed with places. `with_faults` makes what a spotter would report of them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.actions import ACTION_INDEX, ACTIONS, HORIZON_MS
from ballcast.core.event_schema import HORIZONS_S, KINDS
from ballcast.core.event_schema import OTHER as NO_ACTION
from ballcast.core.spots import HIGH_PASS, OUT, Spots
from ballcast.data.events.event_tokens import PERIOD_MS
from ballcast.data.events.feed import Feed
from ballcast.data.samples.feed_samples import LOOKED_AT, FeedEvents

PASS, DRIVE, HEADER, THROW_IN, CROSS, SHOT, BLOCK, TACKLE = (
    ACTION_INDEX[label]
    for label in (
        "PASS",
        "DRIVE",
        "HEADER",
        "THROW IN",
        "CROSS",
        "SHOT",
        "BALL PLAYER BLOCK",
        "PLAYER SUCCESSFUL TACKLE",
    )
)
PLAYED = (PASS, HIGH_PASS, CROSS, SHOT)  # what a player does who has the ball at the feet
ACCELERATION = KINDS.index("acceleration")
RESTARTS = tuple(KINDS.index(kind) for kind in ("free kick", "goal kick", "corner", "penalty"))

SPEED = 12.0  # m/s of a ball that is played, and how long it is under way at least and at most
FLIGHT_MS = (500, 3000)
KEPT_MS = 400  # a player who keeps the ball for longer drives
CHAIN_MS = 10_000  # after a longer pause the ball was not received in play
BLOCK_MS = 1500  # a block follows what it stops
WON_MS = 4_000  # within which the team of a tackle plays the ball


def as_broadcast(half: Feed) -> Feed:
    """The actions of one period of a feed, labelled as broadcasts are.

    Drives of the feed are replaced: a player who receives the ball and keeps it drives, once, from when it arrives.
    """
    touches = half.take((half.action != NO_ACTION) & (half.action != OUT))
    keep = np.ones(len(touches), bool)
    extra: list[tuple[int, int]] = []  # time of a drive, and the touch whose player and team it has
    metres = np.nan_to_num((touches.end - touches.start) * np.array([1.05, 0.68], np.float32))
    flight = (np.hypot(*metres.T) / SPEED * 1000).clip(*FLIGHT_MS)
    action, t_ms, player, kind, team = touches.action, touches.t_ms, touches.player, touches.kind, touches.team
    i = 0
    while i < len(touches):
        stop = i + 1
        while stop < len(touches) and player[stop] == player[i] and team[stop] == team[i]:
            stop += 1
        run = range(i, stop)
        driven = [j for j in run if action[j] == DRIVE]
        played = next((j for j in run if action[j] != DRIVE), None)
        end = int(t_ms[played if played is not None else run[-1]])
        keep[driven] = False
        received = int(t_ms[i - 1] + flight[i - 1]) if i and end - t_ms[i - 1] < CHAIN_MS else None
        if played is None:  # the ball was lost: a duel alone is no drive
            at_feet = ACCELERATION in kind[run] or t_ms[stop - 1] - t_ms[i] >= KEPT_MS
        else:
            at_feet = action[played] in PLAYED and kind[played] not in RESTARTS
        if at_feet and received is not None and (driven or end - received >= KEPT_MS):
            extra.append((min(received, max(end - KEPT_MS // 2, int(t_ms[i - 1]) + 1)), i))
        elif driven and at_feet:  # as where the ball was won
            keep[driven[0]] = True
        i = stop
    after = np.append(t_ms[1:] - t_ms[:-1], CHAIN_MS)
    before = np.append(CHAIN_MS, t_ms[1:] - t_ms[:-1])
    other_team = np.append(False, team[1:] != team[:-1])
    stops = other_team & (before < BLOCK_MS)
    keep &= (action != BLOCK) | stops
    wins = (after < WON_MS) & np.append(team[1:] == team[:-1], False) & np.append(action[1:] != TACKLE, False)
    keep &= (action != TACKLE) | (wins & other_team)
    outs = half.take(half.action == OUT)
    drives = touches.take(np.array([j for _, j in extra], np.int64))
    drives = replace(
        drives,
        t_ms=np.array([at for at, _ in extra], np.int64),
        action=np.full(len(extra), DRIVE, np.int8),
        known=np.full(len(extra), DRIVE, np.int8),
    )
    joined = _join([touches.take(keep), drives, outs])
    return joined.take(np.argsort(joined.t_ms, kind="stable"))


def _join(parts: list[Feed]) -> Feed:
    names = [name for name, value in vars(parts[0]).items() if isinstance(value, np.ndarray)]
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **columns)


def broadcast_match(feed: Feed) -> Feed:
    """All periods of a match, labelled as broadcasts are."""
    return _join([as_broadcast(half) for _, half in feed.periods()])


def merge_classes(feed: Feed) -> Feed:
    """The feed in the classes of spotters without high passes and balls out."""
    kept = feed.take(feed.action != OUT)
    return replace(
        kept,
        action=np.where(kept.action == HIGH_PASS, PASS, kept.action).astype(np.int8),
        known=np.where(kept.known == HIGH_PASS, PASS, kept.known).astype(np.int8),
    )


def as_spots(periods: list[Feed]) -> Spots:
    """All actions of periods as spots, on the clock of `event_tokens.build_table`."""
    clock = [number * PERIOD_MS + half.t_ms for number, half in enumerate(periods)]
    action, team, player = (
        np.concatenate([getattr(half, name) for half in periods]).astype(np.int64)
        for name in ("action", "team", "player")
    )
    return Spots(np.concatenate(clock).astype(np.int64), action, np.ones(len(action), np.float32), team, player)


@dataclass(frozen=True)
class Faults:
    """How a spotter fails.

    - `missed`: share of passes and drives that are missed; of the other classes, which are rarer, twice as many.
    - `confused`: share with the class of another action. `doubled`: share reported twice.
    - `invented`: actions per true one that did not happen.
    - `jitter_ms`: deviation of the times. `wrong_player`: share with another player.
    - `right`, `wrong`: the beta distributions of the confidence of right and wrong spots.
    """

    missed: float
    confused: float
    doubled: float
    invented: float
    jitter_ms: float
    wrong_player: float
    right: tuple[float, float]
    wrong: tuple[float, float]


GOOD = Faults(0.1, 0.05, 0.03, 0.08, 120, 0.1, (6.0, 1.5), (2.5, 3.0))
POOR = Faults(0.25, 0.15, 0.12, 0.6, 200, 0.3, (2.5, 1.5), (1.5, 3.0))
LEAST = 0.15  # confidence of a spot that is reported
CONFUSED = {  # with what an action is confused
    PASS: (DRIVE, DRIVE, HIGH_PASS, CROSS, SHOT, HEADER),
    DRIVE: (PASS, PASS, PASS, TACKLE, HEADER),
    HEADER: (PASS, DRIVE, HIGH_PASS, BLOCK),
    HIGH_PASS: (PASS, PASS, CROSS, SHOT),
    THROW_IN: (PASS,),
    CROSS: (PASS, HIGH_PASS, SHOT),
    SHOT: (PASS, CROSS),
    OUT: (PASS, THROW_IN),
    BLOCK: (PASS, TACKLE, DRIVE),
    TACKLE: (DRIVE, BLOCK, PASS),
}


def with_faults(spots: Spots, faults: Faults, rng: np.random.Generator) -> tuple[Spots, NDArray[np.int64]]:
    """What a spotter with these faults reports.

    Args:
        spots: all actions, with the periods of several matches on one clock.
        faults: of the spotter.
        rng: draws them.

    Returns:
        The spots in the order in which they happened, and when each did (n,).
    """
    n = len(spots)
    common = np.isin(spots.action, (PASS, DRIVE))
    seen = rng.random(n) >= np.where(common, 1, 2) * faults.missed
    found = spots.take(seen)
    happened = found.position_ms
    wrong = rng.random(len(found)) < faults.confused
    action = np.where(wrong, _confused(found.action, rng), found.action)
    jitter = rng.normal(0, faults.jitter_ms, len(found))
    found = replace(found, action=action, position_ms=found.position_ms + jitter.astype(np.int64))

    twice = np.flatnonzero(rng.random(len(found)) < faults.doubled)
    again = found.take(twice)
    later = rng.integers(80, 800, len(twice))
    swapped = rng.random(len(twice)) < 0.5
    again = replace(
        again,
        position_ms=again.position_ms + later,
        action=np.where(swapped, _confused(again.action, rng), again.action),
    )
    shift = rng.integers(-3000, 3000, round(faults.invented * n))
    source = rng.integers(0, n, len(shift))
    invented = spots.take(source)
    invented = replace(invented, position_ms=(invented.position_ms + shift), action=_confused(invented.action, rng))
    parts = [found, again, invented]
    happened = np.concatenate([happened, happened[twice] + later, invented.position_ms])
    is_wrong = np.concatenate([wrong, np.ones(len(twice), bool), np.ones(len(shift), bool)])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("position_ms", "action", "team", "player")
    }
    confidence = np.where(is_wrong, rng.beta(*faults.wrong, len(is_wrong)), rng.beta(*faults.right, len(is_wrong)))
    other = rng.random(len(is_wrong)) < faults.wrong_player
    columns["player"] = np.where(other, np.roll(columns["player"], 1), columns["player"])
    columns["team"] = np.where(other & (rng.random(len(other)) < 0.3), 1 - columns["team"], columns["team"])
    reported = Spots(**columns, confidence=confidence.astype(np.float32), details=spots.details)
    order = np.argsort(happened, kind="stable")
    order = order[confidence[order] >= LEAST]
    return reported.take(order), happened[order]


def _confused(action: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Another action that each (n,) is confused with."""
    longest = max(map(len, CONFUSED.values()))
    table = np.array([np.resize(CONFUSED[a], longest * 60) for a in range(len(ACTIONS))])
    return table[action, rng.integers(0, table.shape[1], len(action))]


def came_within(events: FeedEvents, at: Tensor) -> Tensor:
    """Whether each action comes within 1, 2, … 5 s of each time (B,) on the table's clock: (B, C, 5) float."""
    index = torch.searchsorted(events.clock, at)[:, None] + torch.arange(LOOKED_AT, device=at.device)  # (B, M)
    exists = index < len(events.clock)
    index = index.clamp(max=len(events.clock) - 1)
    delay = events.clock[index] - at[:, None]
    found = torch.zeros(len(at), len(HORIZONS_S), len(ACTIONS), device=at.device)
    for i, seconds in enumerate(HORIZONS_S):
        inside = exists & (delay < min(1000 * seconds, HORIZON_MS))
        found[:, i].scatter_reduce_(1, events.action[index], inside.float(), "amax")
    return found.transpose(1, 2)
