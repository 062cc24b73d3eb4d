"""Fit a score mapping on validation, by grid search with cross-validation.

AP is computed class by class, and a class's times and scores do not depend on other classes, so one scoring of all
samples evaluates a choice for all ten classes. The samples are split into `folds` blocks in their order, so that
overlapping neighbours stay together. A class leaves the untuned choice only if its best choice improves the mean over
the folds by more than twice its standard error: AP is noisy enough for the best of many to be luck. The whole mapping
is evaluated by fitting it without each fold and scoring it there.
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
from ballcast.model.postprocess import BIN_MS, Floats, SlotProbabilities, mean_intensity, select_times, shift
from ballcast.model.score_mapping import LEVELS, POSITIONS_MS, REACH_MS, ClassScoreMapping, ScoreMapping, even_knots

FOLDS = 4
LEAST = 50  # events a class must have in all folds together to be tuned
INFLATIONS = (1.0, 0.5, 0.25)  # relative to the loss's pos_weight
REACHES_MS = (REACH_MS, 640, 960, 1920)
SHIFTS = (0, -1, 1)  # bins; the first choice of all three is the untuned one

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class TuningResult:
    """A score mapping, and mAP (fractions) before and after: of all samples, and of folds it was not fitted on."""

    calibration: ScoreMapping
    before: Score
    after: Score
    outside_before: float  # mean over the folds
    outside_after: float

    @property
    def helps(self) -> bool:
        """Whether it improves the folds that it was not fitted on."""
        return self.outside_after > self.outside_before


def score_scores(clips: Sequence[Clip], scores: Floats) -> Score:
    """The official score of scores (n, 32, C) in the scorer's bins; 0: no prediction."""
    return score_of_matches(match_scores(clips, scores))


def match_scores(clips: Sequence[Clip], scores: Floats) -> Matches:
    """The matches that `score_scores` counts."""
    return match_arrays(clips, *_flat(scores))


def _flat(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """The bins with any score as predictions: clip (P,), position in ms (P,), class vectors (P, C)."""
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
    """Fit the score mapping of a model or an ensemble.

    Args:
        outputs: of each model, for the n labelled clips.
        clips: their labels.
        before: (n, 32, C) the scores without the mapping.
        pos_weight: of the models' loss.
        folds: blocks of the cross-validation.
        least: events a class must have to be tuned.
        tick: called with the choices tried and in all.
    """
    if len(clips) < folds:
        raise InputError(f"a calibration is fitted on {folds} or more labelled clips, here are {len(clips)}")
    fold_of = np.arange(len(clips)) * folds // len(clips)  # (n,)
    own = [fold_of == f for f in range(folds)]
    groups = [np.ones(len(clips), bool), *(~fold for fold in own), *own]  # all, all but one fold, one fold
    inflations = [pos_weight * part for part in INFLATIONS]
    choices = list(product(inflations, REACHES_MS, SHIFTS))
    ap = _evaluate(outputs, clips, np.stack(groups), inflations, tick)
    enough = _events(clips) >= least

    fold_ap = ap[:, 1 + folds :]  # (choices, folds, C)
    outside = []
    for f, fold in enumerate(own):
        best = choose(ap[:, 1 + f], np.delete(fold_ap, f, axis=1), enough)
        built = _build([choices[v] for v in best], outputs, ~fold)
        outside.append(_class_ap(clips, fold, built.scores([a[fold] for a in outputs])))
    calibration = _build([choices[v] for v in choose(ap[:, 0], fold_ap, enough)], outputs, groups[0])
    was = [_class_ap(clips, fold, before[fold]) for fold in own]
    return TuningResult(
        calibration,
        score_scores(clips, before),
        score_scores(clips, calibration.scores(outputs)),
        float(np.mean(was)),
        float(np.mean(outside)),
    )


def _evaluate(
    outputs: Sequence[SlotProbabilities],
    clips: Sequence[Clip],
    groups: NDArray[np.bool_],
    inflations: Sequence[float],
    tick: Callable[[int, int], None],
) -> Doubles:
    """(choices, groups, C): AP, the mean over the tolerances, of each choice in each group of clips (groups, n)."""
    pairs = list(product(inflations, REACHES_MS))
    ap = np.empty((len(pairs) * len(SHIFTS), len(groups), len(ACTIONS)))
    for i, (inflation, reach_ms) in enumerate(pairs):
        intensity = mean_intensity(outputs, [inflation] * len(ACTIONS))
        found = select_times(intensity, [reach_ms] * len(ACTIONS), ScoreMapping().peaks)
        for j, by in enumerate(SHIFTS, start=i * len(SHIFTS)):
            moved = np.stack([shift(found[:, :, c], by) for c in range(len(ACTIONS))], axis=-1)
            ap[j] = ranked_ap(clips, *_flat(moved), groups, levels=LEVELS)
            tick(j + 1, len(ap))
    return ap


def choose(whole: Doubles, folds: Doubles, enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Choose for each class: the first choice, unless the best one is significantly better.

    Args:
        whole: (choices, C) AP of all samples.
        folds: (choices, folds, C) AP of each fold of them.
        enough: (C,) bool, whether the class has enough events to be tuned.

    Returns:
        (C,) the index of the best choice where it beats the first in the folds by more than twice the standard error
        of their mean, else 0.
    """
    best = whole.argmax(0)
    gain = np.take_along_axis(folds, best[None, None], 0)[0] - folds[0]  # (folds, C)
    error = gain.std(0, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    return np.where(enough & (gain.mean(0) > 2 * error), best, 0)


def _build(
    chosen: Sequence[tuple[float, int, int]], outputs: Sequence[SlotProbabilities], known: NDArray[np.bool_]
) -> ScoreMapping:
    """The score mapping of the chosen (inflation, reach, shift), with knots from the samples `known` (n,)."""
    classes = {
        label: ClassScoreMapping(inflation, reach_ms, by * BIN_MS)
        for label, (inflation, reach_ms, by) in zip(ACTIONS, chosen, strict=True)
    }
    raw = ScoreMapping(actions=classes).raw([a[known] for a in outputs])
    spread = {label: replace(own, knots=even_knots(raw[:, :, c])) for c, (label, own) in enumerate(classes.items())}
    return ScoreMapping(actions=spread)


def _class_ap(clips: Sequence[Clip], group: NDArray[np.bool_], scores: Floats) -> Doubles:
    """(C,): AP of the clips in `group` (n,), the mean over the tolerances; `scores` are of these clips only."""
    chosen = [clip for clip, inside in zip(clips, group, strict=True) if inside]
    return score_scores(chosen, scores).ap.mean(0)


def _events(clips: Sequence[Clip]) -> NDArray[np.int64]:
    return np.bincount([e.action for clip in clips for e in clip.anticipation], minlength=len(ACTIONS))
