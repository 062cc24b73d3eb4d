"""The official score: mAP at tolerances of 1 to 5 s and without limit, over the ten actions.

The reference works on a grid of 32 bins of 160 ms; labels are binned in doubles as it does, submitted predictions in
whole numbers (`core/grid.py`). A bin holds one event and one prediction, the last in file order.
Events, in time order, each take the best-scored free prediction of their class within half the tolerance (the earliest
of equals). Precision and recall are read at 200 thresholds over all clips; AP is their 11-point interpolation; a class
without events counts as 0. `exact` scores the same way on milliseconds, without the grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.clips import Clip, Prediction
from ballcast.core.errors import InputError
from ballcast.core.grid import GRID_BINS, GRID_FPS, grid_bin, label_bin

TOLERANCES = {"at1": 1, "at2": 2, "at3": 3, "at4": 4, "at5": 5, "atInfty": 11}  # s, the full width; 11 covers all
THRESHOLDS = np.linspace(0, 1, 200)
RECALLS = np.arange(11) / 10

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Average precisions and what they came from; axes: tolerance (6), action (10), threshold (200)."""

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
        """The ranking's number: the mean over the six tolerances."""
        return float(np.mean(self.ap.mean(1)))

    def as_dict(self) -> dict[str, Any]:
        """`at1` … `atInfty`, `avg`, and `per_class` at each tolerance in submission order; fractions."""
        per_class = {name: [float(v) for v in row] for name, row in zip(TOLERANCES, self.ap, strict=True)}
        return {**self.at, "avg": self.avg, "per_class": per_class}


@dataclass(frozen=True)
class Times:
    """Events and predictions of all clips as flat arrays; `time` is a bin or, off the grid, milliseconds."""

    event_clip: NDArray[np.int64]  # (E,)
    event_class: NDArray[np.int64]  # (E,)
    event_time: NDArray[np.int64]  # (E,)
    event_visible: NDArray[np.bool_]  # (E,)
    clip: NDArray[np.int64]  # (P,) predictions, sorted by clip, then time
    time: NDArray[np.int64]  # (P,)
    scores: NDArray[np.float32]  # (P, 10); below zero: does not exist
    half_widths: Floats  # (6,) in the unit of time


def score(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    read: Literal["vector", "label"] = "vector",
    exact: bool = False,
) -> Score:
    """Score `predictions` (by clip name) against the labelled `clips`.

    `read`: every entry of the class vectors, or only label and confidence. `exact`: on milliseconds, not on the grid.
    """
    return _plain(_lay_out(clips, predictions, read, exact))


def score_arrays(
    clips: Sequence[Clip], clip: NDArray[np.int64], position_ms: NDArray[np.int64], scores: NDArray[np.float32]
) -> Score:
    """`score` of predictions as arrays: of which clip (P,), when (P,), and their class vectors (P, 10)."""
    return _plain(lay_flat(clips, clip, position_ms, scores, exact=False))


def _plain(times: Times) -> Score:
    """All predictions and all events counted."""
    matched = match(times)
    return _score(times, matched >= 0, np.ones(matched.shape, bool), np.ones(len(times.event_class), bool))


def score_by_visibility(
    clips: Sequence[Clip],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    read: Literal["vector", "label"] = "vector",
) -> dict[str, Score]:
    """The score over the visible events alone, and over those "not shown" alone, on the grid.

    A prediction that matched an event of the other kind counts neither for nor against. This is ours: the reference
    attributes predictions by an array it fills with the wrong indices.
    """
    times = _lay_out(clips, predictions, read, exact=False)
    matched = match(times)
    found = matched >= 0
    visible = times.event_visible
    is_visible = np.append(visible, False)[matched]  # index -1 (no match) reads the appended False
    return {
        "visible": _score(times, found & is_visible, ~found | is_visible, visible),
        "not shown": _score(times, found & ~is_visible, ~(found & is_visible), ~visible),
    }


def _lay_out(clips: Sequence[Clip], predictions: Mapping[str, Sequence[Prediction]], read: str, exact: bool) -> Times:
    predicted = [(i, p) for i, clip in enumerate(clips) for p in predictions.get(clip.name, ())]
    clip = np.array([i for i, _ in predicted], np.int64)
    ms = np.array([p.position_ms for _, p in predicted], np.int64)
    vectors = [p.vector if read == "vector" else _label_only(p) for _, p in predicted]
    with np.errstate(over="ignore"):  # a score beyond float32 is infinite, to the reference too
        scores = np.array(vectors, np.float32).reshape(-1, len(ACTIONS))
    return lay_flat(clips, clip, ms, scores, exact)


def lay_flat(
    clips: Sequence[Clip], clip: NDArray[np.int64], ms: NDArray[np.int64], scores: NDArray[np.float32], exact: bool
) -> Times:
    """Events of the clips and predictions, as in `score_arrays`, ready to be matched: one a bin, by clip and time."""
    events = [(i, e.action, e.position_ms, e.visible) for i, clip_ in enumerate(clips) for e in clip_.anticipation]
    event_clip, event_class, event_ms, visible = np.array(events, np.int64).reshape(-1, 4).T
    if exact:
        event_time, time, unit = event_ms, ms, 1000.0
        event_kept, kept = np.arange(len(events)), np.arange(len(clip))
    else:
        event_time, time, unit = label_bin(event_ms), grid_bin(ms), GRID_FPS
        _require_on_grid(event_time, event_clip, event_ms, clips, "event")
        _require_on_grid(time, clip, ms, clips, "prediction")
        event_kept, kept = _last_in_bin(event_clip, event_time), _last_in_bin(clip, time)
    event_kept = event_kept[np.lexsort((event_time[event_kept], event_clip[event_kept]))]
    kept = kept[np.lexsort((time[kept], clip[kept]))]
    return Times(
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


def match(times: Times) -> NDArray[np.int64]:
    """(6, P, 10): for each tolerance, prediction and class, the event it took, or −1.

    Every (clip, class) with events is a group; round r lets the r-th event of all groups choose at once.
    """
    matched = np.full((len(times.half_widths), *times.scores.shape), -1, np.int64)
    if not len(times.event_class) or not len(times.time):
        return matched
    groups, group_of = np.unique(times.event_clip * len(ACTIONS) + times.event_class, return_inverse=True)
    clip, action = groups // len(ACTIONS), groups % len(ACTIONS)

    # The predictions of each group's clip, padded to the longest: (G, L) places in the flat arrays.
    start, stop = np.searchsorted(times.clip, clip), np.searchsorted(times.clip, clip, side="right")
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
        t, g = np.broadcast_to(tolerance, best.shape)[hit], np.broadcast_to(chosen, best.shape)[hit]
        free[t, g, best[hit]] = False
        matched[t, place[g, best[hit]], action[g]] = np.broadcast_to(event, best.shape)[hit]
    return matched


def _score(times: Times, true: NDArray[np.bool_], counted: NDArray[np.bool_], events: NDArray[np.bool_]) -> Score:
    """Average precision from which predictions are true and which count, (6, P, 10) each, and which events do (E,)."""
    n_events = np.bincount(times.event_class[events], minlength=len(ACTIONS))
    shape = (len(times.half_widths), len(ACTIONS))
    predicted, found = (np.zeros((*shape, len(THRESHOLDS))) for _ in range(2))
    for action in range(len(ACTIONS)):
        exists = times.scores[:, action] >= 0
        scores = times.scores[exists, action].astype(np.float64)
        for tolerance in range(len(times.half_widths)):
            use = counted[tolerance, exists, action]
            hit = use & true[tolerance, exists, action]
            predicted[tolerance, action] = _at_least(scores[use])
            found[tolerance, action] = _at_least(scores[hit])
    precision = np.divide(found, predicted, out=np.zeros_like(found), where=predicted > 0)
    total = np.broadcast_to(n_events[None, :, None], found.shape)
    recall = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
    reached = recall[..., None] >= RECALLS  # (6, 10, 200, 11)
    ap = np.where(reached, precision[..., None], 0).max(2).mean(-1)
    return Score(ap, precision, recall, n_events)


def _at_least(scores: Floats) -> NDArray[np.int64]:
    """How many scores reach each threshold, (200,)."""
    return len(scores) - np.searchsorted(np.sort(scores), THRESHOLDS, side="left")
