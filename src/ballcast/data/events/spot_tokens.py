"""Spot tokens: the spots of the last 30 s as one token each, the input of `model/spot_transformer.py`.

Shapes: n spots, S times, N tokens a time, the oldest first; what is missing is padded at the front.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import OBSERVED_MS
from ballcast.core.event_schema import PAD
from ballcast.core.spots import ACTION, CODES, DETAILS, OTHER, SAME, SPOT_TOKENS, UNKNOWN, Ints, Spots


def tokens_before(
    spots: Spots,
    at: Ints,
    flags: NDArray[np.bool_],
    *,
    tokens: int = SPOT_TOKENS,
    observed_ms: int = OBSERVED_MS,
    known_ms: Ints | None = None,
) -> tuple[Ints, NDArray[np.float32]]:
    """Build the tokens of the spots before each time.

    Args:
        spots: of one video, or of several on one clock.
        at: (S,) the times T in ms.
        flags: (S, details) bool: False hides a team, player or confidence.
        tokens: N.
        observed_ms: how far back spots are read.
        known_ms: (n,) when each spot happened, rising, if not at its `position_ms`: one that is reported before T but
            happens after it is not shown.

    Returns:
        Codes (S, N, 4) int64: action (`PAD`: no token), then as `UNKNOWN`, `SAME` or `OTHER` the team and the player
        compared with those of the newest spot, and the player compared with that of the spot before.
        Values (S, N, 2) float32: age in s, confidence.
    """
    clock = spots.position_ms if known_ms is None else known_ms
    before = np.searchsorted(clock, at)
    first = np.searchsorted(clock, at - observed_ms)
    index = before[:, None] - tokens + np.arange(tokens)  # (S, N)
    there = index >= first[:, None]
    if not len(spots):
        codes = np.zeros((len(at), tokens, CODES), np.int64)
        codes[..., ACTION] = PAD
        return codes, _values(np.full(index.shape, observed_ms), np.zeros(index.shape), there & False, observed_ms)
    index = np.where(there, index, 0)
    newest = np.maximum(before - 1, 0)[:, None]
    previous = np.maximum(index - 1, 0)
    has_before = there & (np.arange(tokens) > 0) & np.roll(there, 1, axis=1)
    _, _, has_team, has_player, has_confidence = (flags[:, i, None] for i in range(len(DETAILS)))
    team = _compare(spots.team[index], spots.team[newest], there & has_team)
    player = _compare(spots.player[index], spots.player[newest], there & has_player)
    player_before = _compare(spots.player[index], spots.player[previous], has_before & has_player)
    codes = np.stack([np.where(there, spots.action[index], PAD), team, player, player_before], -1).astype(np.int64)
    confidence = np.where(has_confidence, spots.confidence[index], 1.0)
    return codes, _values(at[:, None] - spots.position_ms[index], confidence, there, observed_ms)


def _compare(one: Ints, other: Ints, known: NDArray[np.bool_]) -> Ints:
    return np.where(known & (one >= 0) & (other >= 0), np.where(one == other, SAME, OTHER), UNKNOWN)


def _values(
    age_ms: NDArray[Any], confidence: NDArray[Any], there: NDArray[np.bool_], observed_ms: int
) -> NDArray[np.float32]:
    age = np.where(there, age_ms.clip(0, observed_ms), observed_ms) / 1000
    return np.stack([age, np.where(there, confidence, 0)], -1).astype(np.float32)
