"""Fit a score mapping on validation, by grid search with cross-validation.

Two kinds of times are fitted: the expected ones of each class, and, for one model, those it emits itself; the kind
that is better in folds it was not fitted on is taken.

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
from ballcast.core.events import Clip, Prediction
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import FeatureStore
from ballcast.inference.expected_precision import ExpectedPrecision, chance_within_5s, fit_precision
from ballcast.inference.runtime import Runtime, TrainedModel
from ballcast.inference.store_predictor import emission as emission_of
from ballcast.inference.store_predictor import hashes, slots_of_windows, untuned
from ballcast.metrics.average_precision import Matches, Score, match_arrays, score_of_matches
from ballcast.metrics.ranked import ranked_ap
from ballcast.model.postprocess import BIN_MS, Floats, SlotProbabilities, emit, mean_intensity, select_times, shift
from ballcast.model.score_mapping import (
    LEVELS,
    POSITIONS_MS,
    REACH_MS,
    ClassScoreMapping,
    Emission,
    ScoreMapping,
    even_knots,
)

FOLDS = 4
LEAST = 50  # events a class must have in all folds together to be tuned
INFLATIONS = (1.0, 0.5, 0.25)  # relative to the loss's pos_weight
REACHES_MS = (REACH_MS, 640, 960, 1920)
SHIFTS = (0, -1, 1, -2, 2, -3, 3)  # bins; the first choice of all three is the untuned one
FILLS = (1, 0, 2, 4)  # predictions of a clip in which a model emits nothing; the first unless another is better

Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]
Choice = tuple[float, int, int]  # inflation, reach in ms, shift in bins


@dataclass(frozen=True)
class TuningResult:
    """A score mapping, and mAP (fractions) before and after: of all samples, and of folds it was not fitted on."""

    mapping: ScoreMapping
    before: Score
    after: Score
    outside_before: float  # mean over the folds
    outside_after: float

    @property
    def helps(self) -> bool:
        """Whether it improves the folds that it was not fitted on."""
        return self.outside_after > self.outside_before


def run_models(models: Sequence[Runtime], windows: Sequence[WindowSet]) -> list[SlotProbabilities]:
    """The outputs of each model for every sample of its windows, in order."""
    return [
        SlotProbabilities.join([SlotProbabilities.from_slots(slots) for slots in slots_of_windows(model, samples)])
        for model, samples in zip(models, windows, strict=True)
    ]


def measure_precision(model: Runtime, windows: WindowSet) -> ExpectedPrecision:
    """Measure the precision of what a model shows for labelled windows, with its own settings (`EmitConfig.shown`)."""
    predictions: list[list[Prediction]] = []
    chance: list[Floats] = []
    for slots in slots_of_windows(model, windows):
        predictions += emit(slots, model.emit.shown, pos_weight=model.pos_weight)
        chance.append(chance_within_5s(slots, model.pos_weight))
    events = [clip.anticipation for clip in windows.clips]
    return fit_precision(list(zip(predictions, events, strict=True)), np.concatenate(chance))


def run_emission(models: Sequence[Runtime], windows: Sequence[WindowSet]) -> Emission | None:
    """What one model emits by its own settings for every sample, in order; None for several."""
    if len(models) > 1:
        return None
    parts = [emission_of(slots, models[0].emit) for slots in slots_of_windows(models[0], windows[0])]
    return Emission(*map(np.concatenate, zip(*parts, strict=True)))


def scores_untuned(
    models: Sequence[TrainedModel], outputs: Sequence[SlotProbabilities], emitted: Emission | None
) -> Floats:
    """The scores of a submission without tuning, (n, 32, C) in the scorer's bins; 0 where nothing is predicted.

    Args:
        models, outputs: of `run_models`.
        emitted: of `run_emission`.
    """
    return emitted.kept if emitted else untuned(models).scores(outputs)


def record_fit(
    fitted: TuningResult, sources: Sequence[str], stores: Sequence[FeatureStore], samples: int
) -> ScoreMapping:
    """Add weight hashes, store and figures to a fitted score mapping.

    Args:
        fitted: the result of tuning.
        sources: folders or hub ids of the models.
        stores: the features it was fitted on.
        samples: their number.
    """
    figures = {
        "samples": float(samples),
        "before": fitted.before.avg,
        "after": fitted.after.avg,
        "outside_before": fitted.outside_before,
        "outside_after": fitted.outside_after,
    }
    backbones = dict.fromkeys(store.manifest.header.backbone.name for store in stores)
    about = f"{stores[0].path.name}, features by {' and '.join(backbones)}"
    return replace(fitted.mapping, weights=hashes(sources), fitted_on=about, figures=figures)


def score_bins(clips: Sequence[Clip], scores: Floats) -> Score:
    """The official score of scores (n, 32, C) in the scorer's bins; 0: no prediction."""
    return score_of_matches(match_bins(clips, scores))


def match_bins(clips: Sequence[Clip], scores: Floats) -> Matches:
    """The matches that `score_bins` counts."""
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
    emission: Emission | None = None,
    folds: int = FOLDS,
    least: int = LEAST,
    progress: ProgressCallback = no_progress,
) -> TuningResult:
    """Fit the score mapping of a model or an ensemble.

    Args:
        outputs: of each model, for the n labelled clips.
        clips: their labels.
        before: (n, 32, C) the scores without the mapping.
        pos_weight: of the models' loss.
        emission: what the one model emits by its own settings; None for an ensemble: only expected times are tried.
        folds: blocks of the cross-validation.
        least: events a class must have to be tuned.
        progress: called with the choices tried and in all.
    """
    if len(clips) < folds:
        raise InputError(f"a calibration is fitted on {folds} or more labelled clips, here are {len(clips)}")
    fold_of = np.arange(len(clips)) * folds // len(clips)  # (n,)
    parts = [fold_of == f for f in range(folds)]
    groups = np.stack(
        [np.ones(len(clips), bool), *(~fold for fold in parts), *parts]
    )  # all, all but one fold, one fold
    inflations = [pos_weight * part for part in INFLATIONS]
    expected = _Search(
        list(product(inflations, REACHES_MS, SHIFTS)),
        _evaluate(outputs, clips, groups, inflations, progress),
        lambda chosen, known: _build(chosen, outputs, known),
        lambda mapping, fold: mapping.scores([a[fold] for a in outputs]),
    )
    searches = [expected]
    if emission is not None:
        searches.append(_search_emission(emission, clips, groups, pos_weight))
    enough = _events(clips) >= least
    outside, search = max(
        ((search.outside(clips, parts, enough), search) for search in searches), key=lambda pair: pair[0]
    )
    mapping = search.build(search.choices(0, np.arange(folds), enough), groups[0])
    was = [_class_ap(clips, fold, before[fold]) for fold in parts]
    return TuningResult(
        mapping,
        score_bins(clips, before),
        score_bins(clips, search.apply(mapping, groups[0])),
        float(np.mean(was)),
        outside,
    )


@dataclass(frozen=True)
class _Search:
    """A grid of choices, (inflation, reach in ms, shift in bins) each, and how well they do.

    - `ap` (choices, 1 + 2 folds, C): AP of all clips, of all but one fold, of one fold.
    - `build`: a mapping from the choice of each class and the known clips (n,).
    - `apply`: the scores of the clips of a mask by a mapping.
    """

    grid: list[Choice]
    ap: Doubles
    build: Callable[[Sequence[Choice], Mask], ScoreMapping]
    apply: Callable[[ScoreMapping, Mask], Floats]

    def choices(self, group: int, folds: NDArray[np.int64], enough: Mask) -> list[Choice]:
        """The choice of each class, by the AP of a group of clips and of the folds in it."""
        first = 1 + (self.ap.shape[1] - 1) // 2
        best = choose(self.ap[:, group], self.ap[:, first + folds], enough)
        return [self.grid[v] for v in best]

    def outside(self, clips: Sequence[Clip], parts: Sequence[Mask], enough: Mask) -> float:
        """The mean over the folds of the mAP of a mapping that is built without the fold."""
        scores = []
        for f, fold in enumerate(parts):
            others = np.delete(np.arange(len(parts)), f)
            mapping = self.build(self.choices(1 + f, others, enough), ~fold)
            scores.append(_class_ap(clips, fold, self.apply(mapping, fold)))
        return float(np.mean(scores))


def _search_emission(emission: Emission, clips: Sequence[Clip], groups: Mask, pos_weight: float) -> _Search:
    """The search of shifts for what a model emits; the number of predictions that fill a clip is fitted with them."""
    ap = np.stack([ranked_ap(clips, *_flat(_move(emission.kept, by)), groups, levels=LEVELS) for by in SHIFTS])

    def build(chosen: Sequence[Choice], known: Mask) -> ScoreMapping:
        inside = [clip for clip, k in zip(clips, known, strict=True) if k]
        part = emission.select(known)
        mapping = replace(_classes(chosen), times="emitted")
        mapping = _spread(mapping, mapping.shifted(part.kept))
        filled = [replace(mapping, fill=count) for count in FILLS]
        if part.kept.any((1, 2)).all():
            return filled[0]
        return max(filled, key=lambda m: score_bins(inside, m.scores((), part)).avg)  # of equal ones the first

    return _Search(
        [(pos_weight, REACH_MS, by) for by in SHIFTS], ap, build, lambda m, fold: m.scores((), emission.select(fold))
    )


def _evaluate(
    outputs: Sequence[SlotProbabilities],
    clips: Sequence[Clip],
    groups: Mask,
    inflations: Sequence[float],
    progress: ProgressCallback,
) -> Doubles:
    """(choices, groups, C): AP, the mean over the tolerances, of each choice in each group of clips (groups, n)."""
    pairs = list(product(inflations, REACHES_MS))
    ap = np.empty((len(pairs) * len(SHIFTS), len(groups), len(ACTIONS)))
    for i, (inflation, reach_ms) in enumerate(pairs):
        intensity = mean_intensity(outputs, [inflation] * len(ACTIONS))
        found = select_times(intensity, [reach_ms] * len(ACTIONS), ScoreMapping().peaks)
        for j, by in enumerate(SHIFTS, start=i * len(SHIFTS)):
            ap[j] = ranked_ap(clips, *_flat(_move(found, by)), groups, levels=LEVELS)
            progress(j + 1, len(ap))
    return ap


def _move(scores: Floats, by: int) -> Floats:
    """Scores (n, 32, C) with every class moved by a number of bins."""
    return np.stack([shift(scores[:, :, c], by) for c in range(scores.shape[-1])], axis=-1)


def choose(whole: Doubles, folds: Doubles, enough: Mask) -> NDArray[np.int64]:
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


def _build(chosen: Sequence[Choice], outputs: Sequence[SlotProbabilities], known: Mask) -> ScoreMapping:
    """The mapping to expected times by the choice of each class, with knots from the samples `known` (n,)."""
    mapping = _classes(chosen)
    return _spread(mapping, mapping.raw([a[known] for a in outputs]))


def _classes(chosen: Sequence[Choice]) -> ScoreMapping:
    """The mapping with the chosen inflation, reach and shift of each class, without knots."""
    classes = {
        label: ClassScoreMapping(inflation, reach_ms, by * BIN_MS)
        for label, (inflation, reach_ms, by) in zip(ACTIONS, chosen, strict=True)
    }
    return ScoreMapping(actions=classes)


def _spread(mapping: ScoreMapping, raw: Floats) -> ScoreMapping:
    """The mapping with knots that spread the scores `raw` (n, 32, C)."""
    spread = {
        label: replace(of_class, knots=even_knots(raw[:, :, c]))
        for c, (label, of_class) in enumerate(mapping.actions.items())
    }
    return replace(mapping, actions=spread)


def _class_ap(clips: Sequence[Clip], group: Mask, scores: Floats) -> Doubles:
    """(C,): AP of the clips in `group` (n,), the mean over the tolerances; `scores` are of these clips only."""
    chosen = [clip for clip, inside in zip(clips, group, strict=True) if inside]
    return score_bins(chosen, scores).ap.mean(0)


def _events(clips: Sequence[Clip]) -> NDArray[np.int64]:
    return np.bincount([e.action for clip in clips for e in clip.anticipation], minlength=len(ACTIONS))
