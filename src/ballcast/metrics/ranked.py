"""AP by rank, for many groups of clips at once: what a choice of times is worth, whatever scale its scores have.

The official score reads scores at 200 thresholds; spread over these by rank, as a calibration does, they are read at
certain ranks. So the precision and recall of those ranks tell the same, and since clips do not touch each other, the
predictions are matched once for all groups.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.events import Clip, geometric_ranks
from ballcast.metrics.average_precision import RECALLS, Floats, lay_flat, match


def ranked_ap(
    clips: Sequence[Clip],
    clip: NDArray[np.int64],
    position_ms: NDArray[np.int64],
    scores: NDArray[np.float32],
    groups: NDArray[np.bool_],
    *,
    levels: int,
) -> Floats:
    """(groups, classes): AP, the mean over the tolerances, of predictions as in `score_arrays`; 0 without events.

    `groups` (groups, clips): which clips each holds.
    """
    times = lay_flat(clips, clip, position_ms, scores, exact=False)
    hit = match(times) >= 0  # (6, P, C)
    result = np.zeros((len(groups), scores.shape[-1]))
    for c in range(scores.shape[-1]):
        exists = np.flatnonzero(times.scores[:, c] >= 0)
        order = exists[np.argsort(-times.scores[exists, c], kind="stable")]
        owner, hits = times.clip[order], hit[:, order, c]
        event_clip = times.event_clip[times.event_class == c]
        for g, group in enumerate(groups):
            inside, events = group[owner], int(group[event_clip].sum())
            ranks = geometric_ranks(int(inside.sum()), levels)
            if events and len(ranks):
                found = hits[:, inside].cumsum(1, dtype=np.int64)[:, ranks - 1]  # (6, ranks)
                reached = (found / events)[..., None] >= RECALLS  # (6, ranks, 11)
                result[g, c] = np.where(reached, (found / ranks)[..., None], 0).max(1).mean()
    return result
