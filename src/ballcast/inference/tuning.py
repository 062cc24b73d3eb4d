"""Fitting a calibration on validation: every choice of a small grid, tried on all classes at once, kept if it holds.

AP is computed class by class, and a class's times and scores depend on no other's; so one scoring of all samples tells
for ten classes what a choice is worth. The samples are cut into `folds` blocks in their order (neighbours, which share
most of what they see, stay together). A class leaves the untuned choice only where its best one helps in the folds, one
by one, by more than twice the standard error: AP is noisy enough for the best of many to be luck. What the whole is
worth is measured by fitting it again without each fold, and scoring it there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip
from ballcast.metrics.average_precision import Matches, Score, match_arrays, score_of_matches
from ballcast.metrics.ranked import ranked_ap
from ballcast.model.calibration import LEVELS, POSITIONS_MS, REACH_MS, Calibration, ClassCalibration, even_knots
from ballcast.model.postprocess import BIN_MS, Floats, SlotProbabilities, find_peaks, mean_intensity, shift

FOLDS = 4
LEAST = 50  # events a class must have in all folds together for a choice of its own
INFLATIONS = (1.0, 0.5, 0.25)  # of what the loss did
REACHES_MS = (REACH_MS, 640, 960, 1920)
SHIFTS = (0, -1, 1)  # bins; the first choice of all three is the untuned one

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class TuningResult:
    """A calibration, and mAP (fractions) before and after: of all samples, and of folds that had no say in it."""

    calibration: Calibration
    before: Score
    after: Score
    outside_before: float  # mean over the folds
    outside_after: float

    @property
    def helps(self) -> bool:
        """Whether it is better where it was not fitted, which is what counts."""
        return self.outside_after > self.outside_before


def score_scores(clips: Sequence[Clip], scores: Floats) -> Score:
    """The official score of scores (n, 32, C) of the scorer's bins; 0: nothing is said."""
    return score_of_matches(match_scores(clips, scores))


def match_scores(clips: Sequence[Clip], scores: Floats) -> Matches:
    """The matches that `score_scores` counts."""
    return match_arrays(clips, *_flat(scores))


def _flat(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Of which clip (P,), when (P,), class vectors (P, C): all bins of which anything is said."""
    clip, bin_ = np.nonzero(scores.any(-1))
    return clip, POSITIONS_MS[bin_], scores[clip, bin_]


def fit(
    outputs: Sequence[SlotProbabilities],
    clips: Sequence[Clip],
    before: Floats,
    *,
    pos_weight: float,
    folds: int = FOLDS,
    least: int = LEAST,
    tick: Callable[[int, int], None] = lambda done, all_: None,
) -> TuningResult:
    """The calibration of one model, or of several together, from their `answers` for the labelled `clips`.

    `before` (n, 32, C): the scores without it. `pos_weight`: what the models' loss inflated their objectness by.
    `least`: events a class must have for a choice of its own. `tick` is told how many of how many choices are tried.
    """
    if len(clips) < folds:
        raise InputError(f"a calibration is fitted on {folds} or more labelled clips, here are {len(clips)}")
    fold_of = np.arange(len(clips)) * folds // len(clips)  # (n,)
    own = [fold_of == f for f in range(folds)]
    groups = [np.ones(len(clips), bool), *(~fold for fold in own), *own]  # all, all but one fold, one fold
    inflations = [pos_weight * part for part in INFLATIONS]
    choices = list(product(inflations, REACHES_MS, SHIFTS))
    worth = np.empty((len(choices), len(groups), len(ACTIONS)))  # AP, the mean over the tolerances
    for i, (inflation, reach_ms) in enumerate(product(inflations, REACHES_MS)):
        intensity = mean_intensity(outputs, [inflation] * len(ACTIONS))
        found = find_peaks(intensity, [reach_ms] * len(ACTIONS), Calibration().peaks)
        for j, by in enumerate(SHIFTS, start=i * len(SHIFTS)):
            moved = np.stack([shift(found[:, :, c], by) for c in range(len(ACTIONS))], axis=-1)
            worth[j] = ranked_ap(clips, *_flat(moved), np.stack(groups), levels=LEVELS)
            tick(j + 1, len(choices))
    enough = _events(clips) >= least

    alone = worth[:, 1 + folds :]  # (choices, folds, C)
    outside = []
    for f, fold in enumerate(own):
        best = choose(worth[:, 1 + f], np.delete(alone, f, axis=1), enough)
        built = _build([choices[v] for v in best], outputs, ~fold)
        outside.append(_class_ap(clips, fold, built.scores([a[fold] for a in outputs])))
    calibration = _build([choices[v] for v in choose(worth[:, 0], alone, enough)], outputs, groups[0])
    was = [_class_ap(clips, fold, before[fold]) for fold in own]
    return TuningResult(
        calibration,
        score_scores(clips, before),
        score_scores(clips, calibration.scores(outputs)),
        float(np.mean(was)),
        float(np.mean(outside)),
    )


def choose(whole: Doubles, folds: Doubles, enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which choice (C,) each class takes, from what each is worth on some samples, and in the folds of these.

    `whole` (choices, C), `folds` (choices, folds, C). The first, except where a class has `enough` (C,) events and its
    best one beats the first in the folds by more than twice the standard error of their mean.
    """
    best = whole.argmax(0)
    gain = np.take_along_axis(folds, best[None, None], 0)[0] - folds[0]  # (folds, C)
    error = gain.std(0, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    return np.where(enough & (gain.mean(0) > 2 * error), best, 0)


def _build(
    chosen: Sequence[tuple[float, int, int]], outputs: Sequence[SlotProbabilities], known: NDArray[np.bool_]
) -> Calibration:
    """The calibration of these choices, its scores spread as those of the `known` samples (n,) ask for."""
    classes = {
        label: ClassCalibration(inflation, reach_ms, by * BIN_MS)
        for label, (inflation, reach_ms, by) in zip(ACTIONS, chosen, strict=True)
    }
    raw = Calibration(actions=classes).raw([a[known] for a in outputs])
    spread = {label: replace(own, knots=even_knots(raw[:, :, c])) for c, (label, own) in enumerate(classes.items())}
    return Calibration(actions=spread)


def _class_ap(clips: Sequence[Clip], group: NDArray[np.bool_], scores: Floats) -> Doubles:
    """(C,): AP of the clips in `group` (n,) with their scores, the mean over the tolerances."""
    chosen = [clip for clip, inside in zip(clips, group, strict=True) if inside]
    return score_scores(chosen, scores).ap.mean(0)


def _events(clips: Sequence[Clip]) -> NDArray[np.int64]:
    return np.bincount([e.action for clip in clips for e in clip.anticipation], minlength=len(ACTIONS))
