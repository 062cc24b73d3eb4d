"""What `ballcast tune` learns on validation: how expected actions become the times and scores of a submission.

The scorer reads every bin's score of every class on its own, so each class has times of its own here: the places where
most of what is expected of it would be matched, best first (`peaks`). Then each class is shifted by its systematic
error, and its scores are spread over the scorer's 200 thresholds, which keeps their order. Such a score is good for
ranking and no chance of anything: only submissions hold it. What users are shown stays honest.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, HORIZON_MS, action_index
from ballcast.core.anticipator_config import EmitConfig, LossConfig
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.events import GRID_BINS, Prediction, geometric_ranks
from ballcast.core.files import read_bytes, read_json, write_json
from ballcast.model.postprocess import (
    BIN_MS,
    PEAKS,
    POSITIONS_MS,
    Floats,
    SlotProbabilities,
    find_peaks,
    mean_intensity,
    shift,
)

FORMAT = "ballcast-calibration-1"
FILE_NAME = "calibration.json"
REACH_MS = EmitConfig().reach_ms
LEVELS = 190  # of the 200 thresholds; the rest is left to scores above all that were seen


@dataclass(frozen=True)
class ClassCalibration:
    """One action's."""

    inflation: float = LossConfig().pos_weight  # how many times too high the odds of p_obj are taken to be
    reach_ms: int = REACH_MS  # an action so far (one σ of a Gaussian) from a time still counts 0.6 for it
    shift_ms: int = 0  # added to the times, in whole bins of 160 ms, within the 5 s
    knots: tuple[float, ...] = ()  # scores that become 0.005, …, 0.99 in equal steps; none: as they are

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
        """The scores on their new scale, in the same order; 0 (nothing is said) stays 0."""
        if not self.knots:
            return scores
        levels = np.linspace(0.005, 0.99, len(self.knots))
        # A last piece for scores above all that were seen; those below the first knot keep their order too.
        places = np.array([0.0, *self.knots, 2.0])
        return np.interp(scores, places, np.array([0.0, *levels, 1.0])).astype(np.float32)


@dataclass(frozen=True)
class Calibration:
    """All of it, with what it was fitted on.

    - `actions`: by label; those not there have the defaults.
    - `weights`: the SHA-256 of the `model.safetensors` it belongs to, of each model of an ensemble in order.
    - `fitted_on`: where the samples came from; `figures`: how many there were, and mAP before and after.
    """

    peaks: int = PEAKS
    actions: dict[str, ClassCalibration] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    fitted_on: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for label in self.actions:
            action_index(label)
        if not 1 <= self.peaks <= GRID_BINS:
            raise InputError(f"peaks {self.peaks} must be between 1 and {GRID_BINS}")

    @cached_property
    def classes(self) -> list[ClassCalibration]:
        """In submission order."""
        return [self.actions.get(label, ClassCalibration()) for label in ACTIONS]

    @classmethod
    def untuned(cls, pos_weight: float) -> "Calibration":
        """For models nobody tuned: what their loss inflated is undone, and no more."""
        return cls(actions={label: ClassCalibration(inflation=pos_weight) for label in ACTIONS})

    def raw(self, outputs: Sequence[SlotProbabilities]) -> Floats:
        """(n, 32, C): scores before they are spread: the chance that each time is matched; 0: nothing is said."""
        intensity = mean_intensity(outputs, [c.inflation for c in self.classes])
        found = find_peaks(intensity, [c.reach_ms for c in self.classes], self.peaks)
        for c, own in enumerate(self.classes):
            found[:, :, c] = shift(found[:, :, c], own.shift_ms // BIN_MS)
        return found

    def scores(self, outputs: Sequence[SlotProbabilities]) -> Floats:
        """(n, 32, C): what a submission holds, from the answers of one model or several; 0: nothing is said."""
        found = self.raw(outputs)
        for c, own in enumerate(self.classes):
            found[:, :, c] = own.spread(found[:, :, c])
        return found

    def predict(self, outputs: Sequence[SlotProbabilities]) -> list[list[Prediction]]:
        """One list of predictions a sample, in order of time: one for each bin of which anything is said."""
        predictions = []
        for sample in self.scores(outputs):  # (32, C)
            told = np.flatnonzero(sample.any(-1))
            predictions.append([Prediction.from_scores(int(POSITIONS_MS[b]), sample[b].tolist()) for b in told])
        return predictions


def even_knots(scores: NDArray[np.floating[Any]]) -> tuple[float, ...]:
    """The knots that spread such scores over the scorer's thresholds, by rank (`geometric_ranks`).

    No label is needed for this, and nothing can be overfitted.
    """
    best_first = np.sort(scores[scores > 0])[::-1]
    if len(best_first) < 2:
        return ()
    ranks = geometric_ranks(len(best_first), LEVELS) - 1
    knots = sorted({float(f"{value:.6g}") for value in best_first[ranks]})
    return tuple(knots) if len(knots) > 1 else ()


def weights_hash(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, "model's weights")).hexdigest()


def write_calibration(path: Path, calibration: Calibration) -> None:
    write_json(path, {"format": FORMAT, **to_dict(calibration)}, indent=1)


def read_calibration(path: Path, weights: Sequence[str]) -> Calibration:
    """The file's content; an InputError unless it was fitted to the models with these hashes."""
    tree = read_json(path, "calibration")
    if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
        raise InputError(
            f"{path}: not a calibration (its format is not {FORMAT!r}); make it again with `ballcast tune`"
        )
    calibration = from_dict(Calibration, tree, where=str(path))
    if list(calibration.weights) != list(weights):
        raise InputError(
            f"{path}: was fitted to other weights than these; run `ballcast tune` again, or delete the file"
        )
    return calibration
