"""Fitting a calibration on validation: every choice of a small grid, tried on all classes at once, kept if it holds.

AP is computed class by class, and a class's times and scores depend on no other's; so one scoring of all samples tells
for ten classes what a choice is worth. The samples are cut into `folds` blocks in their order (neighbours, which share
most of what they see, stay together). A choice is good for a class if, chosen on all other folds, it helps in the one
left out, on average; else the class takes what is best for all classes together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.clips import Clip
from ballcast.core.errors import InputError
from ballcast.metrics.average_precision import Score, score_arrays
from ballcast.model.calibration import POSITIONS_MS, Calibration, ClassCalibration, even_knots
from ballcast.model.chances import BIN_MS, Chances, Floats, mean_intensity
from ballcast.model.peaks import find_peaks, shift

FOLDS = 6
LEAST = 50  # events a class must have in all folds together for a choice of its own
INFLATIONS = (1.0, 2.0, 4.0, 8.0)
REACHES_MS = (640, 960, 1280, 1920)
SHIFTS = (0, -1, 1, -2, 2)  # bins

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
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
    clip, bin_ = np.nonzero(scores.any(-1))
    return score_arrays(clips, clip, POSITIONS_MS[bin_], scores[clip, bin_])


def fit(
    answers: Sequence[Chances],
    clips: Sequence[Clip],
    before: Floats,
    *,
    folds: int = FOLDS,
    least: int = LEAST,
    tick: Callable[[int, int], None] = lambda done, all_: None,
) -> Fitted:
    """The calibration of one model, or of several together, from their `answers` for the labelled `clips`.

    `before` (n, 32, C): the scores without it. `tick` is told how many of how many choices are tried.
    """
    if len(clips) < folds:
        raise InputError(f"a calibration is fitted on {folds} or more labelled clips, here are {len(clips)}")
    parts = [slice(*ends) for ends in _ends(len(clips), folds)]
    choices = list(product(INFLATIONS, REACHES_MS, SHIFTS))
    worth = np.empty((len(choices), folds, len(ACTIONS)))  # AP, the mean over the tolerances
    for i, (inflation, reach_ms) in enumerate(product(INFLATIONS, REACHES_MS)):
        intensity = mean_intensity(answers, [inflation] * len(ACTIONS))
        found = find_peaks(intensity, [reach_ms] * len(ACTIONS), Calibration().peaks)
        for j, by in enumerate(SHIFTS):
            moved = np.stack([shift(found[:, :, c], by) for c in range(len(ACTIONS))], axis=-1) if by else found
            worth[i * len(SHIFTS) + j] = _by_fold(clips, [(part, _ranked(moved[part])) for part in parts])
            tick(i * len(SHIFTS) + j + 1, len(choices))
    enough = _events(clips) >= least

    outside = np.empty((folds, len(ACTIONS)))
    for f, part in enumerate(parts):
        others = np.arange(folds) != f
        known = np.ones(len(clips), bool)
        known[part] = False
        built = _build([choices[v] for v in choose(worth[:, others], enough)], answers, known)
        there = built.scores([a[part] for a in answers])
        outside[f] = score_scores(clips[part], there).ap.mean(0)
    calibration = _build([choices[v] for v in choose(worth, enough)], answers, np.ones(len(clips), bool))
    was = _by_fold(clips, [(part, before[part]) for part in parts])
    return Fitted(
        calibration,
        score_scores(clips, before),
        score_scores(clips, calibration.scores(answers)),
        float(was.mean()),
        float(outside.mean()),
    )


def choose(worth: Doubles, enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which choice (C,) each class takes, from what each is worth, (choices, folds, C).

    The best for all classes, except where a class has `enough` (C,) events and its own best holds outside the folds
    it was chosen on: in the mean over folds f, the best of the others beats, in f, the best for all of the others.
    """
    folds = worth.shape[1]
    common = int(worth.mean((1, 2)).argmax())
    chosen = np.full(worth.shape[2], common)
    gain = np.zeros((folds, worth.shape[2]))
    for f in range(folds if folds > 1 else 0):
        rest = np.delete(worth, f, axis=1)
        own, all_ = rest.mean(1).argmax(0), int(rest.mean((1, 2)).argmax())
        gain[f] = np.take_along_axis(worth[:, f], own[None], 0)[0] - worth[all_, f]
    holds = enough & (gain.mean(0) > 0)
    chosen[holds] = worth.mean(1).argmax(0)[holds]
    return chosen


def _build(
    chosen: Sequence[tuple[float, int, int]], answers: Sequence[Chances], known: NDArray[np.bool_]
) -> Calibration:
    """The calibration of these choices, its scores spread as those of the `known` samples (n,) ask for."""
    classes = {
        label: ClassCalibration(inflation, reach_ms, by * BIN_MS)
        for label, (inflation, reach_ms, by) in zip(ACTIONS, chosen, strict=True)
    }
    raw = Calibration(actions=classes).raw([a[known] for a in answers])
    spread = {label: replace(own, knots=even_knots(raw[:, :, c])) for c, (label, own) in enumerate(classes.items())}
    return Calibration(actions=spread)


def _ranked(scores: Floats) -> Floats:
    """Scores (n, 32, C) spread as their own ranks ask for."""
    columns = [ClassCalibration(knots=even_knots(scores[:, :, c])).spread(scores[:, :, c]) for c in range(len(ACTIONS))]
    return np.stack(columns, axis=-1)


def _by_fold(clips: Sequence[Clip], folds: Sequence[tuple[slice, Floats]]) -> Doubles:
    """(folds, C): AP of each class in each fold, a part of the clips and its scores; the mean over the tolerances."""
    return np.stack([score_scores(clips[part], scores).ap.mean(0) for part, scores in folds])


def _ends(count: int, folds: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, count, folds + 1).astype(int).tolist()
    return list(pairwise(edges))


def _events(clips: Sequence[Clip]) -> NDArray[np.int64]:
    return np.bincount([e.action for clip in clips for e in clip.anticipation], minlength=len(ACTIONS))
