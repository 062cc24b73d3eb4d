"""95 % intervals of the score, by resampling clips with replacement, and of the difference of two systems.

Predictions are matched within their clip, so matching does not depend on the resample: every clip is counted once, and
a resample is a weighted sum of the clips' counts. All resamples are computed as one matrix product, and the average
precision of each from its sums, as the scorer does: a resample with every clip once gives the score itself.

A class without events in a resample counts 0 there, as in the scorer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Prediction
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.metrics.average_precision import (
    THRESHOLDS,
    TOLERANCES,
    Floats,
    Matches,
    average_precision,
    count_class,
    match_all,
    score_of_matches,
)

RESAMPLES = 1000
LEAST_RESAMPLES = 100  # with fewer, two or less lie beyond each end of the interval
LEVEL = 0.95
TOGETHER = 1000  # resamples computed at once, which bounds the memory
GROUPS_TOGETHER = 4096  # groups whose counts are in memory at once
EXACT_FLOAT32 = 2**24  # whole numbers below are exact in float32


@dataclass(frozen=True)
class Intervals:
    """AP of all clips and of each of R resamples; 95 % intervals are their 2.5 % and 97.5 % quantiles."""

    ap: Floats  # (6, 10) tolerance, action; of a difference: second − first
    resampled: Floats  # (R, 6, 10)
    groups: int  # number of clips, or of groups of clips, that were drawn from
    seed: int

    @property
    def at(self) -> Floats:
        """(2, 6): low and high end for the mAP at each tolerance."""
        return interval(self.resampled.mean(2))

    @property
    def avg(self) -> Floats:
        """(2,): for the ranking criterion, the mean over the six tolerances."""
        return interval(self.resampled.mean(2).mean(1))

    @property
    def per_class(self) -> Floats:
        """(2, 6, 10): for each action's AP at each tolerance."""
        return interval(self.resampled)

    @property
    def class_avg(self) -> Floats:
        """(2, 10): for each action's AP, the mean over the tolerances."""
        return interval(self.resampled.mean(1))

    @property
    def above_zero(self) -> float:
        """Share of the resamples whose mean is above 0; of a difference: in which the second system is better."""
        return float((self.resampled.mean((1, 2)) > 0).mean())

    def as_dict(self) -> dict[str, Any]:
        """[low, high] by the names of `Score.as_dict`, as fractions; and level, resamples, groups and seed."""
        return {
            "level": LEVEL,
            "resamples": len(self.resampled),
            "groups": self.groups,
            "seed": self.seed,
            **dict(zip(TOLERANCES, self.at.T.tolist(), strict=True)),
            "avg": self.avg.tolist(),
            "per_class": dict(zip(TOLERANCES, np.moveaxis(self.per_class, 0, -1).tolist(), strict=True)),
        }

    def difference_dict(self) -> dict[str, Any]:
        """A difference by the names of `Score.as_dict`, fractions, with its intervals."""
        return {
            **dict(zip(TOLERANCES, self.ap.mean(1).tolist(), strict=True)),
            "avg": float(self.ap.mean(1).mean()),
            "per_class": dict(zip(TOLERANCES, self.ap.tolist(), strict=True)),
            "above_zero": self.above_zero,
            "intervals": self.as_dict(),
        }


def bootstrap(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    groups: Sequence[object] | None = None,
    read: Literal["vector", "label"] = "vector",
    exact: bool = False,
    progress: ProgressCallback = no_progress,
) -> Intervals:
    """Intervals of `score(clips, predictions)`.

    The same seed, number of resamples and groups give the same resamples whatever the predictions.

    Args:
        clips, predictions, read, exact: as in `score`.
        resamples: R.
        seed: of the random resamples.
        groups: an id per clip, such as its match; whole groups are resampled instead of clips.
        progress: called with steps done and in all.
    """
    matches = match_all(clips, predictions, read=read, exact=exact)
    return bootstrap_matches(matches, len(clips), resamples=resamples, seed=seed, groups=groups, progress=progress)


def difference(first: Intervals, second: Intervals) -> Intervals:
    """second − first, two systems on the same clips and resamples."""
    if (first.resampled.shape, first.groups, first.seed) != (second.resampled.shape, second.groups, second.seed):
        raise ValueError("the two have different resamples; use the same clips, resamples, seed and groups")
    return Intervals(second.ap - first.ap, second.resampled - first.resampled, first.groups, first.seed)


def bootstrap_matches(
    matches: Matches,
    clips: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    groups: Sequence[object] | None = None,
    progress: ProgressCallback = no_progress,
) -> Intervals:
    """Intervals of `score_of_matches(matches)`; `clips`: their number; the rest as in `bootstrap`."""
    names: dict[object, int] = {}
    group = np.array([names.setdefault(g, len(names)) for g in (range(clips) if groups is None else groups)], np.int64)
    if len(group) != clips:
        raise ValueError(f"{len(group)} group ids for {clips} clips")
    check_bootstrap(len(names), resamples)
    rng = np.random.default_rng(seed)
    steps = -(-resamples // TOGETHER) * len(ACTIONS)
    done = 0
    resampled = []
    for begin in range(0, resamples, TOGETHER):
        weights = _draw(rng, min(TOGETHER, resamples - begin), len(names))
        parts = []
        for ap in _resampled_ap(matches, group, weights):
            parts.append(ap)
            done += 1
            progress(done, steps)
        resampled.append(np.stack(parts, -1))  # (R, 6, 10)
    return Intervals(score_of_matches(matches).ap, np.concatenate(resampled), len(names), seed)


def check_bootstrap(groups: int, resamples: int) -> None:
    """Raise an InputError if there are too few groups or resamples for an interval."""
    if resamples < LEAST_RESAMPLES:
        raise InputError(f"{resamples} resamples give no 95 % interval; take at least {LEAST_RESAMPLES}, better 1000")
    if groups < 2:
        raise InputError(f"an interval comes from resampling clips, and there is only {groups}; it takes two or more")


def _draw(rng: np.random.Generator, resamples: int, groups: int) -> NDArray[np.int64]:
    """(R, groups): how often each group is drawn in each resample."""
    rows = (np.bincount(rng.integers(0, groups, groups), minlength=groups) for _ in range(resamples))
    return np.stack(list(rows))


def _resampled_ap(matches: Matches, group: NDArray[np.int64], weights: NDArray[np.int64]) -> Iterator[Floats]:
    """Yield the AP (R, 6) of each action in turn, in resamples given as weights (R, groups)."""
    times = matches.times
    owner = group[times.clip]
    groups = weights.shape[1]
    event_owner = group[times.event_clip[matches.events]]
    event_class = times.event_class[matches.events]
    for action in range(len(ACTIONS)):
        n_events = weights @ np.bincount(event_owner[event_class == action], minlength=groups)  # (R,)
        found, predicted = _weighted_counts(matches, action, owner, weights)
        yield average_precision(found, predicted, n_events[:, None])[2]


def _weighted_counts(
    matches: Matches, action: int, owner: NDArray[np.int64], weights: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """True positives (R, 6, 200) and all predictions (R, 6 or 1, 200) of an action that reach each threshold."""
    tolerances = len(matches.true)
    columns = (tolerances + len(matches.counted)) * len(THRESHOLDS)
    most = int(weights.max(initial=0)) * len(owner)  # no sum is larger
    kind = np.float32 if most < EXACT_FLOAT32 else np.float64
    sums = np.zeros((len(weights), columns), kind)
    for begin in range(0, weights.shape[1], GROUPS_TOGETHER):
        block = weights[:, begin : begin + GROUPS_TOGETHER]
        found, predicted = count_class(matches, action, owner - begin, block.shape[1])
        counts = np.concatenate([found, predicted], 1).reshape(block.shape[1], columns)
        sums += block.astype(kind) @ counts.astype(kind)
    split = sums.reshape(len(weights), -1, len(THRESHOLDS))
    return split[:, :tolerances], split[:, tolerances:]


def interval(values: Floats) -> Floats:
    """(2, …): low and high end of values (R, …)."""
    return np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
