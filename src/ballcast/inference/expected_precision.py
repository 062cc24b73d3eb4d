"""Expected precision: how often what a model predicts of an action, at some score, comes true.

Measured on validation clips and stored as `precision.json` beside the weights. Wherever predictions are shown, this is
their confidence: a percentage is a measured frequency. Beside it stands the probability of at least one of each action
within 5 s, corrected in the same way.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.config import Record, from_dict
from ballcast.core.errors import InputError
from ballcast.core.events import Event, Prediction, action_index
from ballcast.core.files import read_json, write_json
from ballcast.inference.calibration import apply_calibration, fit_calibration
from ballcast.model.postprocess import SlotArrays, SlotProbabilities
from ballcast.model.score_mapping import weights_hash

FORMAT = "ballcast-precision-1"
FILE_NAME = "precision.json"
TOLERANCE_MS = 1000
DIGITS = 4  # of a calibrated probability
PRIOR = 5.0  # predictions' worth of the mean class, added to each part of a curve: few hits may be luck
LEVELS = tuple(level / 100 for level in range(91))  # that viewers can choose
Floats = NDArray[np.float32]
Sample = tuple[Sequence[Prediction], Sequence[Event]]  # what was predicted at one time, and what then happened
Curve = tuple[tuple[float, float], ...]  # (confidence, precision), both rising


@dataclass(frozen=True)
class ExpectedPrecision(Record):
    """The precision of a model's predictions by action and confidence.

    - `actions`: label → points (score, precision), interpolated from (0, 0) and constant after the last.
    - `default`: the precision from which on predictions are shown: with the best F1 on the samples.
    - `tolerance_ms`: a prediction is right if its action comes within this time of the predicted one.
    - `within_5s`: label → slope and shift of the log-odds of at least one action within 5 s; empty: not measured.
    - `samples`, `predictions`: it was measured on. `weights`: SHA-256 of the `model.safetensors` it belongs to.
    """

    actions: dict[str, Curve]
    default: float = 0.0
    tolerance_ms: int = TOLERANCE_MS
    within_5s: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0
    predictions: int = 0
    weights: str = ""
    fitted_on: str = ""

    def __post_init__(self) -> None:
        for label, curve in self.actions.items():
            action_index(label)
            rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(curve))
            if not rising or any(len(point) != 2 or not all(0 <= v <= 1 for v in point) for point in curve):
                raise InputError(f"the precision of {label} is not a rising curve of numbers from 0 to 1")
        if self.within_5s and (sorted(self.within_5s) != sorted(ACTIONS) or not np.isfinite(self._odds).all()):
            raise InputError("within_5s is not a slope and a shift for each of the ten actions")
        if not 0 <= self.default <= 1:
            raise InputError(f"default {self.default} must be between 0 and 1")

    @property
    def _odds(self) -> Floats:
        """(10, 2): slope and shift of each action."""
        return np.array([self.within_5s[label] for label in ACTIONS], np.float32).reshape(-1, 2)

    def of(self, label: str, score: float) -> float:
        """The expected precision of a prediction; 0 for an action that was never predicted."""
        curve = self.actions.get(label, ())
        return float(np.interp(score, [0.0, *(c for c, _ in curve)], [0.0, *(p for _, p in curve)]))

    def calibrate(
        self, predictions: Sequence[Prediction], chance: Floats
    ) -> tuple[tuple[Prediction, ...], tuple[float, ...]]:
        """Predictions with their expected precision as confidence, and `Forecast.within_5s`.

        Args:
            predictions: as the model emits them, with the network's own scores.
            chance: (C,) the network's own probability of at least one of each action within 5 s.
        """
        shown = tuple(
            replace(p, confidence=round(self.of(p.label, p.confidence), DIGITS), scores=p.vector) for p in predictions
        )
        if not self.within_5s:
            return shown, ()
        return shown, tuple(apply_calibration(chance, self._odds.T).round(DIGITS).tolist())

    def to_json(self) -> dict[str, Any]:
        """Convert to the form used in files and results."""
        return asdict(self)


def chance_within_5s(slots: SlotArrays, pos_weight: float) -> Floats:
    """(B, C): the network's own probability of at least one of each action within 5 s."""
    expected = SlotProbabilities.from_slots(slots).intensity([pos_weight] * len(ACTIONS)).sum(-1)  # (C, B)
    return -np.expm1(-expected.T)


def fit_precision(
    samples: Sequence[Sample], chance: Floats | None = None, *, tolerance_ms: int = TOLERANCE_MS
) -> ExpectedPrecision:
    """Fit the curves of all actions, the default, and the probabilities within 5 s.

    For each action a rising step function of the score is fitted (isotonic regression), and each step is drawn towards
    the mean precision of all actions by `PRIOR` predictions.

    Args:
        samples: predictions with the network's own scores, and what happened in the 5 s after them.
        chance: (n, C) the network's own probability of at least one action within 5 s; None: not to be fitted.
        tolerance_ms: between a prediction and its action.
    """
    found: dict[str, list[tuple[float, bool]]] = {label: [] for label in ACTIONS}
    for predictions, events in samples:
        for prediction, hit in zip(predictions, matched(predictions, events, tolerance_ms), strict=True):
            found[prediction.label].append((min(1.0, prediction.confidence), hit is not None))
    rates = [float(np.mean([hit for _, hit in pairs])) for pairs in found.values() if pairs]
    mean = float(np.mean(rates)) if rates else 0.0
    actions = {label: _curve(pairs, mean) for label, pairs in found.items() if pairs}
    fitted = ExpectedPrecision(actions, tolerance_ms=tolerance_ms)
    return replace(
        fitted,
        default=_best_level(fitted, samples),
        within_5s={} if chance is None else _fit_within(chance, samples),
        samples=len(samples),
        predictions=sum(map(len, found.values())),
    )


def _fit_within(chance: Floats, samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Slope and shift of each action's log-odds, fitted to whether it came."""
    came = np.array([[any(e.label == label for e in events) for label in ACTIONS] for _, events in samples])
    slope, shift = fit_calibration(chance, came).astype(float).round(4)
    return dict(zip(ACTIONS, zip(slope.tolist(), shift.tolist(), strict=True), strict=True))


def matched(predictions: Sequence[Prediction], events: Sequence[Event], tolerance_ms: int) -> list[Event | None]:
    """The event of each prediction made at one time, or None; each event counts once, the most confident first."""
    free, result = list(events), [None] * len(predictions)  # type: list[Event], list[Event | None]
    for i in sorted(range(len(predictions)), key=lambda i: -predictions[i].confidence):
        prediction = predictions[i]
        near = [
            e
            for e in free
            if e.label == prediction.label and abs(e.position_ms - prediction.position_ms) <= tolerance_ms
        ]
        if near:
            result[i] = min(near, key=lambda e: abs(e.position_ms - prediction.position_ms))
            free.remove(result[i])  # type: ignore[arg-type]
    return result


def _curve(pairs: Sequence[tuple[float, bool]], mean: float) -> Curve:
    """Isotonic regression of hits over confidence, each block drawn towards `mean`; a point for each block."""
    blocks = [  # hits, count, sum of confidences
        (float(sum(hit for _, hit in same)), float(len(same)), confidence * len(same))
        for confidence, group in groupby(sorted(pairs), key=lambda pair: round(pair[0], 4))
        for same in [list(group)]
    ]
    blocks = _rising(_rising(blocks, mean, 0.0), mean, PRIOR)
    return tuple(
        (round(total / count, 4), round(_rate((hits, count), mean, PRIOR), 4)) for hits, count, total in blocks
    )


def _rising(
    blocks: Sequence[tuple[float, float, float]], mean: float, prior: float
) -> list[tuple[float, float, float]]:
    """Merge neighbours until the rates rise."""
    done: list[tuple[float, float, float]] = []
    for block in blocks:
        done.append(block)
        while len(done) > 1 and _rate(done[-2], mean, prior) >= _rate(done[-1], mean, prior):
            one, other = done.pop(), done.pop()
            done.append((one[0] + other[0], one[1] + other[1], one[2] + other[2]))
    return done


def _rate(block: Sequence[float], mean: float, prior: float) -> float:
    return (block[0] + prior * mean) / (block[1] + prior)


def _best_level(fitted: ExpectedPrecision, samples: Sequence[Sample]) -> float:
    """The level with the best F1 of the predictions at or above it.

    Of equal ones the highest: it shows the same of the samples, and hides actions that were never predicted there.
    """
    hits: list[float] = []
    misses: list[float] = []
    total = 0
    for predictions, events in samples:
        total += len(events)
        for prediction, event in zip(predictions, matched(predictions, events, fitted.tolerance_ms), strict=True):
            (misses if event is None else hits).append(fitted.of(prediction.label, prediction.confidence))
    hits.sort()
    misses.sort()

    def f1(level: float) -> float:
        right, wrong = len(hits) - bisect_left(hits, level), len(misses) - bisect_left(misses, level)
        return 2 * right / max(1, right + wrong + total)

    return max(LEVELS, key=lambda level: (f1(level), level))


def write_precision(folder: Path, measured: ExpectedPrecision, fitted_on: str) -> Path:
    """Write `precision.json` beside the weights in `folder`, with their hash; returns its path."""
    tree = measured.to_json() | {"weights": weights_hash(folder / "model.safetensors"), "fitted_on": fitted_on}
    write_json(folder / FILE_NAME, {"format": FORMAT, **tree}, checksum=True)
    return folder / FILE_NAME


def read_precision(folder: Path) -> ExpectedPrecision | None:
    """Read the `precision.json` of a model's folder; None if there is none, or it was measured with other weights."""
    path = folder / FILE_NAME
    weights = folder / "model.safetensors"
    if not path.is_file():
        return None
    tree = read_json(path, "expected precision")
    if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
        raise InputError(f"{path}: not an expected precision; make it again with `ballcast tune`")
    measured = from_dict(ExpectedPrecision, tree, where=str(path))
    return measured if not weights.is_file() or measured.weights == weights_hash(weights) else None
