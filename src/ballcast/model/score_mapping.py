"""The score mapping that `ballcast tune` fits on validation: from slots to the times and scores of a submission.

The scorer evaluates each class separately, so each class has its own times here (`postprocess.select_times`), or
those that one model emits. They are shifted by the class's systematic error, and the scores are mapped to the scorer's
200 thresholds, which keeps their order. No clip need be left without a prediction. Such a score only ranks predictions
and is not a probability: it is written to submissions and shown nowhere else. Stored as `calibration.json` beside the
weights.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS
from ballcast.core.anticipator_config import EmitConfig, LossConfig
from ballcast.core.config import Record, from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.events import GRID_BINS, Prediction, action_index, geometric_ranks
from ballcast.core.files import read_bytes, read_json, write_json
from ballcast.model.postprocess import (
    BIN_MS,
    PEAKS,
    POSITIONS_MS,
    Floats,
    SlotProbabilities,
    mean_intensity,
    select_times,
    shift,
)

FORMAT = "ballcast-calibration-1"
FILE_NAME = "calibration.json"
REACH_MS = EmitConfig().reach_ms
LEVELS = 190  # of the 200 thresholds; the rest is for scores above all those it was fitted on


class Emission(NamedTuple):
    """What one model emits by its own settings (`EmitConfig`): scores in the scorer's bins, (n, 32, C), 0: nothing."""

    kept: Floats  # above the threshold
    every: Floats  # without a threshold: at least one in every sample

    def select(self, chosen: NDArray[np.bool_]) -> "Emission":
        """Some of the samples, by a mask (n,)."""
        return Emission(self.kept[chosen], self.every[chosen])


@dataclass(frozen=True)
class ClassScoreMapping(Record):
    """The mapping of one action."""

    inflation: float = LossConfig().pos_weight  # factor by which the odds of p_obj are assumed too high
    reach_ms: int = REACH_MS  # σ of the Gaussian weight of actions around a time (see `select_times`)
    shift_ms: int = 0  # added to the times, in whole bins of 160 ms, within the 5 s
    knots: tuple[float, ...] = ()  # scores mapped to 0.005, …, 0.99 in equal steps; none: unchanged

    def __post_init__(self) -> None:
        if not 0 < self.inflation <= 1e6:
            raise InputError(f"inflation {self.inflation} must be above 0 and at most a million")
        if not BIN_MS // 2 <= self.reach_ms <= 1000 * HORIZON_MS:
            raise InputError(f"reach_ms {self.reach_ms} must be at least {BIN_MS // 2}")
        if self.shift_ms % BIN_MS or abs(self.shift_ms) > HORIZON_MS:
            raise InputError(f"shift_ms {self.shift_ms} must be a multiple of {BIN_MS} within {HORIZON_MS}")
        if any(b <= a for a, b in zip(self.knots, self.knots[1:], strict=False)) or len(self.knots) == 1:
            raise InputError("knots must be two or more numbers, each above the one before")
        if self.knots and not 0 < self.knots[0] <= self.knots[-1] <= 1:
            raise InputError("knots are scores, above 0 and at most 1")

    def spread(self, scores: Floats) -> Floats:
        """Map scores of any shape to the new scale, in the same order; 0 (no prediction) stays 0."""
        if not self.knots:
            return scores
        levels = np.linspace(0.005, 0.99, len(self.knots))
        # A last segment for scores above all knots; those below the first knot keep their order too.
        points = np.array([0.0, *self.knots, 2.0])
        return np.interp(scores, points, np.array([0.0, *levels, 1.0])).astype(np.float32)


@dataclass(frozen=True)
class ScoreMapping(Record):
    """The mapping of all actions, and what it was fitted on.

    - `times`: expected: where most actions of each class are expected; emitted: what one model emits (`Emission`).
    - `peaks`: expected times per class and sample.
    - `fill`: emitted times: number of predictions to emit, the best ones, where none passes the threshold.
    - `actions`: by label; others have the defaults.
    - `weights`: SHA-256 of the `model.safetensors` it belongs to, of each model of an ensemble in order.
    - `fitted_on`: the store of the samples; `figures`: their number, and mAP before and after.
    """

    times: Literal["expected", "emitted"] = "expected"
    peaks: int = PEAKS
    fill: int = 0
    actions: dict[str, ClassScoreMapping] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    fitted_on: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for label in self.actions:
            action_index(label)
        if not 1 <= self.peaks <= GRID_BINS:
            raise InputError(f"peaks {self.peaks} must be between 1 and {GRID_BINS}")
        if not 0 <= self.fill <= GRID_BINS:
            raise InputError(f"fill {self.fill} must be between 0 and {GRID_BINS}")
        if self.times == "emitted" and len(self.weights) > 1:
            raise InputError("times 'emitted' are those of one model, not of several")

    @cached_property
    def classes(self) -> list[ClassScoreMapping]:
        """The mappings of the C actions in submission order."""
        return [self.actions.get(label, ClassScoreMapping()) for label in ACTIONS]

    @classmethod
    def untuned(cls, pos_weight: float) -> "ScoreMapping":
        """The mapping of models that were not tuned: only the inflation by their loss's `pos_weight` is undone."""
        return cls(actions={label: ClassScoreMapping(inflation=pos_weight) for label in ACTIONS})

    def raw(self, outputs: Sequence[SlotProbabilities]) -> Floats:
        """Scores before they are mapped: the probability that each time is matched, 0 where nothing is predicted.

        Args:
            outputs: of each model of the ensemble, for the same n samples.

        Returns:
            (n, 32, C).
        """
        intensity = mean_intensity(outputs, [c.inflation for c in self.classes])
        return self.shifted(select_times(intensity, [c.reach_ms for c in self.classes], self.peaks))

    def shifted(self, scores: Floats) -> Floats:
        """Scores (n, 32, C) with each class moved by its `shift_ms`."""
        moves = [mapping.shift_ms // BIN_MS for mapping in self.classes]
        return np.stack([shift(scores[:, :, c], by) for c, by in enumerate(moves)], axis=-1)

    def spread(self, scores: Floats) -> Floats:
        """Scores (n, 32, C) with each class on its new scale."""
        return np.stack([mapping.spread(scores[:, :, c]) for c, mapping in enumerate(self.classes)], axis=-1)

    def scores(self, outputs: Sequence[SlotProbabilities], emission: Emission | None = None) -> Floats:
        """The scores of a submission, (n, 32, C), 0 where nothing is predicted.

        Args:
            outputs: as in `raw`; read if the times are expected ones.
            emission: of the one model; read if the times are those it emits.
        """
        if self.times == "expected":
            return self.spread(self.raw(outputs))
        if emission is None:
            raise InputError("this calibration is of what one model emits, and cannot be applied to several")
        kept, every = (self.spread(self.shifted(part)) for part in emission)
        return fill_empty(kept, every, self.fill)

    def predict(self, outputs: Sequence[SlotProbabilities], emission: Emission | None = None) -> list[list[Prediction]]:
        """The predictions of each of n samples in order of time: one for each bin with any score."""
        predictions = []
        for sample in self.scores(outputs, emission):  # (32, C)
            bins = np.flatnonzero(sample.any(-1))
            predictions.append([Prediction.from_scores(int(POSITIONS_MS[b]), sample[b].tolist()) for b in bins])
        return predictions


def fill_empty(kept: Floats, every: Floats, count: int) -> Floats:
    """Give samples without any score in `kept` (n, 32, C) the `count` bins of `every` with the highest scores."""
    empty = ~kept.any((1, 2))
    if not count or not empty.any():
        return kept
    candidates = every[empty]  # (m, 32, C)
    best = candidates.max(-1)  # (m, 32)
    rank = (-best).argsort(-1, kind="stable").argsort(-1)  # 0: the bin with the highest score
    filled = kept.copy()
    filled[empty] = np.where((rank < count)[..., None], candidates, np.float32(0))
    return filled


def even_knots(scores: NDArray[np.floating[Any]]) -> tuple[float, ...]:
    """The knots that spread scores evenly over the scorer's thresholds, by rank (`geometric_ranks`).

    Needs no labels, so it cannot overfit.

    Args:
        scores: any shape; those above 0 are used.

    Returns:
        Rising knots; none if there are fewer than two distinct scores.
    """
    best_first = np.sort(scores[scores > 0])[::-1]
    if len(best_first) < 2:
        return ()
    ranks = geometric_ranks(len(best_first), LEVELS) - 1
    knots = sorted({float(f"{value:.6g}") for value in best_first[ranks]})
    return tuple(knots) if len(knots) > 1 else ()


def weights_hash(path: Path) -> str:
    """SHA-256 of a weights file, as `ScoreMapping.weights` holds it."""
    return hashlib.sha256(read_bytes(path, "model's weights")).hexdigest()


def write_score_mapping(path: Path, mapping: ScoreMapping) -> None:
    """Write `calibration.json`."""
    write_json(path, {"format": FORMAT, **to_dict(mapping)}, indent=1, checksum=True)


def read_score_mapping(path: Path, weights: Sequence[str]) -> ScoreMapping:
    """Read a `calibration.json`; an InputError unless it was fitted to the models with the hashes `weights`."""
    tree = read_json(path, "calibration")
    if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
        raise InputError(
            f"{path}: not a calibration (its format is not {FORMAT!r}); make it again with `ballcast tune`"
        )
    mapping = from_dict(ScoreMapping, tree, where=str(path))
    if list(mapping.weights) != list(weights):
        raise InputError(
            f"{path}: was fitted to other weights than these; run `ballcast tune` again, or delete the file"
        )
    return mapping
