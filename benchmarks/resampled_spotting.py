"""The mean AP of spotting over games that are resampled, for its intervals."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Event
from ballcast.metrics.spotting import Floats, Peaks, average_precisions, match_peaks, of_class


def resampled_spotting(
    games: Sequence[tuple[Sequence[Event], Peaks]],
    weights: NDArray[np.int64],
    *,
    tolerance_ms: float = 1000,
    least: int = 5,
) -> Floats:
    """Mean 11-point AP of resampled games (R,): as `spotting_score(…).avg`, with games counted several times or not.

    Args:
        games, tolerance_ms: as of `spotting_score`.
        weights: (R, G), how often each game counts.
        least: actions a class must have in all games, each once, to be part of the means; in a resample without any
            its AP is 0.
    """
    columns = []
    for action in range(len(ACTIONS)):
        times = [np.array([e.position_ms for e in events if e.action == action], float) for events, _ in games]
        counts = np.array([len(own) for own in times])
        if counts.sum() < least:
            continue
        found = [of_class(peaks, action) for _, peaks in games]
        true = [match_peaks([own], [peaks], tolerance_ms) for own, peaks in zip(times, found, strict=True)]
        score = np.concatenate([np.sort(scores)[::-1] for _, scores in found])
        game = np.repeat(np.arange(len(games)), [len(own) for own in true])
        order = np.argsort(-score, kind="stable")
        true_of = np.concatenate(true)[order]
        game = game[order]
        columns.append([average_precisions(np.repeat(true_of, w[game]), max(int(w @ counts), 1))[0] for w in weights])
    return np.mean(columns, 0) if columns else np.zeros(len(weights))
