"""The official score: mAP at tolerances of 1 to 5 s and without limit, over the ten actions.

The reference uses a grid of 32 bins of 160 ms; labels are binned in doubles as it does, predictions in whole numbers
(`core/events.py`). A bin holds one event and one prediction, the last in file order. Events, in order of time, are
each matched with the best-scored free prediction of their class within half the tolerance (the earliest of equals).
Precision and recall are computed at 200 thresholds over all clips; AP is their 11-point interpolation; a class without
events counts as 0. `exact` scores the same way on milliseconds, without the grid.

Shapes: 6 tolerances, 10 actions, 200 thresholds, E events, P predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import GRID_BINS, GRID_FPS, Clip, Prediction, grid_bin, label_bin

TOLERANCES = {"at1": 1, "at2": 2, "at3": 3, "at4": 4, "at5": 5, "atInfty": 11}  # full width in s; 11 covers all
THRESHOLDS = np.linspace(0, 1, 200)
RECALLS = np.arange(11) / 10

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Average precision as a fraction, and its precision-recall curves; axes: tolerance, action, threshold."""

    ap: Floats  # (6, 10)
    precision: Floats  # (6, 10, 200)
    recall: Floats  # (6, 10, 200)
    events: NDArray[np.int64]  # (10,) events counted per action

    @property
    def at(self) -> dict[str, float]:
        """mAP at each tolerance, a fraction."""
        return {name: float(value) for name, value in zip(TOLERANCES, self.ap.mean(1), strict=True)}

    @property
    def avg(self) -> float:
        """The challenge's ranking criterion: the mean over the six tolerances."""
        return float(np.mean(self.ap.mean(1)))

    def as_dict(self) -> dict[str, Any]:
        """`at1` … `atInfty`, `avg`, and `per_class` at each tolerance in submission order; fractions."""
        per_class = {name: [float(v) for v in row] for name, row in zip(TOLERANCES, self.ap, strict=True)}
        return {**self.at, "avg": self.avg, "per_class": per_class}


@dataclass(frozen=True)
class FlatClips:
    """Events and predictions of all clips as flat arrays; `time` is a bin or, off the grid, milliseconds."""

    event_clip: NDArray[np.int64]  # (E,)
    event_class: NDArray[np.int64]  # (E,)
    event_time: NDArray[np.int64]  # (E,)
    event_visible: NDArray[np.bool_]  # (E,)
    clip: NDArray[np.int64]  # (P,) predictions, sorted by clip, then time
    time: NDArray[np.int64]  # (P,)
    scores: NDArray[np.float32]  # (P, 10); below zero: does not exist
    half_widths: Floats  # (6,) in the unit of time


@dataclass(frozen=True)
class Matches:
    """Which predictions and events count for a score; found within each clip, independently of the others."""

    times: FlatClips
    true: NDArray[np.bool_]  # (6, P, 10) the prediction was matched with an event
    counted: NDArray[np.bool_]  # (6 or 1, P, 10) the prediction counts; 1: the same at all tolerances
    events: NDArray[np.bool_]  # (E,) the event counts


def score(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    read: Literal["vector", "label"] = "vector",
    exact: bool = False,
) -> Score:
    """Compute the official score.

    Args:
        clips: labelled clips.
        predictions: by clip name; clips without any have none.
        read: use every entry of the class vectors, or only label and confidence.
        exact: score on milliseconds instead of the grid.

    Returns:
        AP and its curves.
    """
    return score_of_matches(match_all(clips, predictions, read=read, exact=exact))


def score_arrays(
    clips: Sequence[Clip], clip: NDArray[np.int64], position_ms: NDArray[np.int64], scores: NDArray[np.float32]
) -> Score:
    """`score` of predictions given as arrays.

    Args:
        clips: labelled clips.
        clip: (P,) index of each prediction's clip.
        position_ms: (P,) from the clip's start.
        scores: (P, 10) class vectors.
    """
    return score_of_matches(match_arrays(clips, clip, position_ms, scores))


def match_all(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    read: Literal["vector", "label"] = "vector",
    exact: bool = False,
) -> Matches:
    """The matches that `score` counts."""
    return _plain(_flatten_predictions(clips, predictions, read, exact))


def match_arrays(
    clips: Sequence[Clip], clip: NDArray[np.int64], position_ms: NDArray[np.int64], scores: NDArray[np.float32]
) -> Matches:
    """The matches that `score_arrays` counts."""
    return _plain(flatten_arrays(clips, clip, position_ms, scores, exact=False))


def match_by_visibility(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    read: Literal["vector", "label"] = "vector",
) -> dict[str, Matches]:
    """The matches over the "visible" events only, and over the "not shown" events only, on the grid.

    A prediction matched with an event of the other kind is ignored. This differs from the reference, which attributes
    predictions by an array that it fills with the wrong indices. Arguments as in `score`.
    """
    times = _flatten_predictions(clips, predictions, read, exact=False)
    matched = match(times)
    found = matched >= 0
    visible = times.event_visible
    is_visible = np.append(visible, False)[matched]  # index -1 (no match) reads the appended False
    return {
        "visible": Matches(times, found & is_visible, ~found | is_visible, visible),
        "not shown": Matches(times, found & ~is_visible, ~(found & is_visible), ~visible),
    }


def _plain(times: FlatClips) -> Matches:
    """Matches in which all predictions and all events count."""
    return Matches(
        times, match(times) >= 0, np.ones((1, *times.scores.shape), bool), np.ones(len(times.event_class), bool)
    )


def _flatten_predictions(
    clips: Sequence[Clip], predictions: Mapping[str, Sequence[Prediction]], read: str, exact: bool
) -> FlatClips:
    """`flatten_arrays` of predictions by clip name."""
    predicted = [(i, p) for i, clip in enumerate(clips) for p in predictions.get(clip.name, ())]
    clip = np.array([i for i, _ in predicted], np.int64)
    ms = np.array([p.position_ms for _, p in predicted], np.int64)
    vectors = [p.vector if read == "vector" else _label_only(p) for _, p in predicted]
    with np.errstate(over="ignore"):  # a score beyond float32 is infinite, as in the reference
        scores = np.array(vectors, np.float32).reshape(-1, len(ACTIONS))
    return flatten_arrays(clips, clip, ms, scores, exact)


def flatten_arrays(
    clips: Sequence[Clip], clip: NDArray[np.int64], ms: NDArray[np.int64], scores: NDArray[np.float32], exact: bool
) -> FlatClips:
    """Events and predictions (as in `score_arrays`) as sorted flat arrays, one per bin unless `exact`."""
    events = [(i, e.action, e.position_ms, e.visible) for i, clip_ in enumerate(clips) for e in clip_.anticipation]
    event_clip, event_class, event_ms, visible = np.array(events, np.int64).reshape(-1, 4).T
    if exact:
        event_time = event_ms
        time = ms
        unit = 1000.0
        event_kept = np.arange(len(events))
        kept = np.arange(len(clip))
    else:
        event_time = label_bin(event_ms)
        time = grid_bin(ms)
        unit = GRID_FPS
        _require_on_grid(event_time, event_clip, event_ms, clips, "event")
        _require_on_grid(time, clip, ms, clips, "prediction")
        event_kept = _last_in_bin(event_clip, event_time)
        kept = _last_in_bin(clip, time)
    event_kept = event_kept[np.lexsort((event_time[event_kept], event_clip[event_kept]))]
    kept = kept[np.lexsort((time[kept], clip[kept]))]
    return FlatClips(
        event_clip[event_kept],
        event_class[event_kept],
        event_time[event_kept],
        visible[event_kept].astype(bool),
        clip[kept],
        time[kept],
        scores[kept] - np.float32(1e-6),
        np.array(list(TOLERANCES.values())) * unit / 2,
    )


def _label_only(prediction: Prediction) -> tuple[float, ...]:
    return Prediction(prediction.label, prediction.position_ms, prediction.confidence).vector


def _require_on_grid(
    bins: NDArray[np.int64], owner: NDArray[np.int64], ms: NDArray[np.int64], clips: Sequence[Clip], what: str
) -> None:
    outside = np.flatnonzero((bins < 0) | (bins >= GRID_BINS))
    if outside.size:
        first = outside[0]
        raise InputError(f"{clips[owner[first]].name}: {what} at {ms[first]} ms is outside 30000–35000")


def _last_in_bin(clip: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of the last entry, in file order, of each (clip, bin)."""
    key = (clip * GRID_BINS + time)[::-1]
    _, first_from_end = np.unique(key, return_index=True)
    return len(key) - 1 - first_from_end


def match(times: FlatClips) -> NDArray[np.int64]:
    """Match events with predictions at every tolerance.

    Vectorised: every (clip, class) with events is a group; round r matches the r-th event of all groups at once.

    Returns:
        (6, P, 10): for each tolerance, prediction and class, the index of the matched event, or −1.
    """
    matched = np.full((len(times.half_widths), *times.scores.shape), -1, np.int64)
    if not len(times.event_class) or not len(times.time):
        return matched
    groups, group_of = np.unique(times.event_clip * len(ACTIONS) + times.event_class, return_inverse=True)
    clip = groups // len(ACTIONS)
    action = groups % len(ACTIONS)

    # The predictions of each group's clip, padded to the longest: (G, L) places in the flat arrays.
    start = np.searchsorted(times.clip, clip)
    stop = np.searchsorted(times.clip, clip, side="right")
    longest = int((stop - start).max())
    if not longest:
        return matched
    place = start[:, None] + np.arange(longest)  # (G, L)
    real = place < stop[:, None]
    place = np.where(real, place, 0)
    scores = np.where(real, times.scores[place, action[:, None]], -1)  # (G, L)
    free = np.broadcast_to(scores >= 0, (len(times.half_widths), *scores.shape)).copy()  # (6, G, L)

    order = np.argsort(group_of, kind="stable")  # events sorted by group, in time order within
    first = np.searchsorted(group_of[order], np.arange(len(groups)))
    count = np.diff(np.append(first, len(order)))
    tolerance = np.arange(len(times.half_widths))[:, None]
    for rank in range(int(count.max())):
        chosen = np.flatnonzero(count > rank)  # (g,) groups that still have an event
        event = order[first[chosen] + rank]  # (g,)
        distance = np.abs(times.time[place[chosen]] - times.event_time[event][:, None])  # (g, L)
        near = distance <= times.half_widths[:, None, None]  # (6, g, L)
        candidate = np.where(near & free[:, chosen], scores[chosen], -1)
        best = candidate.argmax(-1)  # (6, g) the earliest of equals
        hit = np.take_along_axis(candidate, best[..., None], -1)[..., 0] >= 0
        t = np.broadcast_to(tolerance, best.shape)[hit]
        g = np.broadcast_to(chosen, best.shape)[hit]
        free[t, g, best[hit]] = False
        matched[t, place[g, best[hit]], action[g]] = np.broadcast_to(event, best.shape)[hit]
    return matched


def score_of_matches(matches: Matches) -> Score:
    """The score over all clips."""
    one_owner = np.zeros(len(matches.times.clip), np.int64)
    counts = [count_class(matches, action, one_owner, 1) for action in range(len(ACTIONS))]
    found, predicted = (np.concatenate([c[i] for c in counts]).swapaxes(0, 1) for i in (0, 1))  # (6 or 1, 10, 200)
    events = np.bincount(matches.times.event_class[matches.events], minlength=len(ACTIONS))
    precision, recall, ap = average_precision(found, predicted, events)
    return Score(ap, precision, recall, events)


def count_class(
    matches: Matches, action: int, owner: NDArray[np.int64], owners: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the predictions of an action that reach each threshold, separately for each owner (such as a clip).

    Args:
        matches: of all clips.
        action: index of the class.
        owner: (P,) the owner each prediction is counted for; outside 0 … owners − 1: none.
        owners: number of owners.

    Returns:
        True positives (owners, 6, 200) and all predictions (owners, 6 or 1, 200).
    """
    exists = np.flatnonzero((matches.times.scores[:, action] >= 0) & (owner >= 0) & (owner < owners))
    scores = matches.times.scores[exists, action].astype(np.float64)
    reached = np.searchsorted(THRESHOLDS, scores, side="right") - 1  # the last threshold it reaches
    place = owner[exists] * len(THRESHOLDS) + reached
    counted = matches.counted[:, exists, action]
    true = counted & matches.true[:, exists, action]

    def counts(masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        rows = [np.bincount(place[mask], minlength=owners * len(THRESHOLDS)) for mask in masks]
        ends = np.stack(rows, 0).reshape(len(rows), owners, len(THRESHOLDS)).swapaxes(0, 1)
        return ends[..., ::-1].cumsum(-1)[..., ::-1]  # a prediction that reaches a threshold reaches those below

    return counts(true), counts(counted)


def average_precision(
    found: NDArray[Any], predicted: NDArray[Any], events: NDArray[Any]
) -> tuple[Floats, Floats, Floats]:
    """Precision and recall at n thresholds, and the 11-point AP.

    Args:
        found: (…, n) true positives that reach each threshold, the lowest threshold first.
        predicted: (…, n) all predictions that do. events: (…,). They are broadcast.

    Returns:
        Precision (…, n), recall (…, n), AP (…,); 0 where there is no prediction or no event.
    """
    found, predicted = np.broadcast_arrays(found.astype(np.float64), predicted.astype(np.float64))
    total = np.broadcast_to(events[..., None], found.shape)
    precision = np.divide(found, predicted, out=np.zeros(found.shape), where=predicted > 0)
    recall = np.divide(found, total, out=np.zeros(found.shape), where=total > 0)
    return precision, recall, interpolated_precision(precision, recall).mean(-1)


def interpolated_precision(precision: Floats, recall: Floats) -> Floats:
    """The best precision at recalls of at least 0, 0.1, … 1, whose mean is the 11-point AP.

    Args:
        precision, recall: (…, n) each, recall not rising along the last axis.

    Returns:
        (…, 11), 0 where a recall is not reached.
    """
    # Points that reach a recall come first, so the best precision among them is a running maximum.
    best = np.concatenate([np.zeros((*precision.shape[:-1], 1)), np.maximum.accumulate(precision, -1)], -1)
    reached = np.stack([(recall >= level).sum(-1) for level in RECALLS], -1)  # (…, 11)
    return np.take_along_axis(best, reached, -1)
