"""AP by rank, for many groups of clips at once: evaluates a choice of times independently of the scale of its scores.

The official score evaluates at 200 thresholds. A score mapping spreads scores over them by rank, so precision and
recall at those ranks give the same AP. Predictions are matched within their clip, hence only once for all groups.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.events import Clip, geometric_ranks
from ballcast.metrics.average_precision import Floats, flatten_arrays, interpolated_precision, match


def ranked_ap(
    clips: Sequence[Clip],
    clip: NDArray[np.int64],
    position_ms: NDArray[np.int64],
    scores: NDArray[np.float32],
    groups: NDArray[np.bool_],
    *,
    levels: int,
) -> Floats:
    """AP by rank of each group of clips.

    Args:
        clips, clip, position_ms, scores: labels and predictions as in `score_arrays`.
        groups: (groups, clips) bool, the clips of each group.
        levels: number of ranks to evaluate at (`geometric_ranks`).

    Returns:
        (groups, classes): the mean over the tolerances; 0 without events.
    """
    times = flatten_arrays(clips, clip, position_ms, scores, exact=False)
    hit = match(times) >= 0  # (6, P, C)
    result = np.zeros((len(groups), scores.shape[-1]))
    for c in range(scores.shape[-1]):
        exists = np.flatnonzero(times.scores[:, c] >= 0)
        order = exists[np.argsort(-times.scores[exists, c], kind="stable")]
        owner = times.clip[order]
        hits = hit[:, order, c]
        event_clip = times.event_clip[times.event_class == c]
        for g, group in enumerate(groups):
            inside = group[owner]
            events = int(group[event_clip].sum())
            ranks = geometric_ranks(int(inside.sum()), levels)
            if events and len(ranks):
                found = hits[:, inside].cumsum(1, dtype=np.int64)[:, ranks - 1]  # (6, ranks)
                falling = np.s_[:, ::-1]  # from the last rank to the first, recall does not rise
                result[g, c] = interpolated_precision((found / ranks)[falling], (found / events)[falling]).mean()
    return result
