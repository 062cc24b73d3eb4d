"""Events, predictions, clips and forecasts, and the scorer's time grid. Times are integer milliseconds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX, ACTIONS, FPS, OBSERVED_MS, SHORT_NAMES
from ballcast.core.errors import InputError


def action_index(label: str) -> int:
    """Return the index of `label` in `ACTIONS`; an unknown label is an InputError that names the nearest one."""
    try:
        return ACTION_INDEX[label]
    except KeyError:
        near = get_close_matches(str(label).upper(), ACTIONS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else f"; the labels are {', '.join(ACTIONS)}"
        raise InputError(f"unknown label {label!r}{hint}") from None


@dataclass(frozen=True, slots=True)
class Event:
    """An action that happened: `position_ms` from the clip's start."""

    label: str
    position_ms: int
    team: str = ""
    visible: bool = True

    def __post_init__(self) -> None:
        action_index(self.label)

    @property
    def action(self) -> int:
        return action_index(self.label)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted action: label, time, confidence, and the network's own score for each of the ten actions.

    Along a video or stream, `confidence` is how often such a prediction came true where the model was validated, if
    that was measured (`inference.expected_precision`); else it is the network's own score. `scores` is empty for
    systems that give only a label and a confidence.
    """

    label: str
    position_ms: int
    confidence: float
    scores: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        action_index(self.label)
        if self.scores and len(self.scores) != len(ACTIONS):
            raise InputError(f"a prediction has {len(self.scores)} scores instead of {len(ACTIONS)}")

    @classmethod
    def from_scores(cls, position_ms: int, scores: Sequence[float]) -> "Prediction":
        """Build the prediction whose label is the action with the highest score (the first of equals)."""
        best = max(range(len(scores)), key=scores.__getitem__)
        return cls(ACTIONS[best], position_ms, float(scores[best]), tuple(map(float, scores)))

    @property
    def score(self) -> float:
        """The network's own score of the label."""
        return self.scores[action_index(self.label)] if self.scores else self.confidence

    @property
    def vector(self) -> tuple[float, ...]:
        """Ten scores: the given ones, else the confidence at the index of the label and 0 elsewhere."""
        if self.scores:
            return self.scores
        return tuple(self.confidence if label == self.label else 0.0 for label in ACTIONS)


@dataclass(frozen=True, slots=True)
class Clip:
    """30 s of video with the events in it and in the next 5 s; the challenge split is not labelled.

    `name` is the name of its folder ("clip_1") and its name in a submission.
    """

    name: str
    observation: tuple[Event, ...] = ()
    anticipation: tuple[Event, ...] = ()
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predictions made at one time. `at_ms` and every `position_ms` count from the start of the video.

    `within_5s` (10,): the calibrated probability of at least one of each action in the next 5 s; empty: not measured.
    """

    at_ms: int
    predictions: tuple[Prediction, ...] = ()
    within_5s: tuple[float, ...] = field(default=(), kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON form used in files and by the server."""
        within = {"within_5s": dict(zip(SHORT_NAMES, self.within_5s, strict=True))} if self.within_5s else {}
        return {
            "at_ms": self.at_ms,
            "predictions": [
                {
                    "label": p.label,
                    "position_ms": p.position_ms,
                    "confidence": p.confidence,
                    "scores": list(p.scores),
                }
                for p in self.predictions
            ],
            **within,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Forecast":
        """The forecast that `to_json` gave."""
        made = (
            Prediction(p["label"], p["position_ms"], p["confidence"], tuple(p["scores"])) for p in record["predictions"]
        )
        within = record.get("within_5s", {})
        return cls(record["at_ms"], tuple(made), within_5s=tuple(within[name] for name in SHORT_NAMES if within))


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a video for which nothing is forecast, from `begin_ms` to `end_ms`, for a `reason` in a few words.

    kind: "damage": it has no good frames; "pitch": they show no football pitch.
    """

    begin_ms: int
    end_ms: int
    reason: str
    kind: Literal["damage", "pitch"] = "damage"

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON form used in files and by the server, in seconds."""
        return {"from": self.begin_ms / 1000, "to": self.end_ms / 1000, "reason": self.reason, "kind": self.kind}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Gap":
        """The gap that `to_json` gave."""
        return cls(round(1000 * record["from"]), round(1000 * record["to"]), record["reason"], record["kind"])

    def __str__(self) -> str:
        if self.end_ms <= self.begin_ms:
            return f"at {clock(self.begin_ms)}: {self.reason}"
        return f"from {clock(self.begin_ms)} on, {(self.end_ms - self.begin_ms) / 1000:.1f} s: {self.reason}"


@dataclass(frozen=True, slots=True)
class Scene:
    """From `at_ms` on a video shows a football pitch, or none."""

    at_ms: int
    pitch: bool


def clock(at_ms: int) -> str:
    """A time of a video as people read it: 1:02:03.4."""
    minutes, tenths = divmod(round(at_ms / 100), 600)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02d}" if hours else f"{minutes}") + f":{tenths / 10:04.1f}"


@dataclass(frozen=True, slots=True)
class ClipForecast(Forecast):
    """The predictions for one clip of a feature store; times count from the start of the clip."""

    clip: str = ""


Timeline = tuple[Forecast, ...]


GRID_STEP = 4  # frames per bin
GRID_FPS = FPS / GRID_STEP
GRID_BINS = 32

Milliseconds = TypeVar("Milliseconds", int, NDArray[np.int64])


def grid_bin(position_ms: Milliseconds) -> Milliseconds:
    """Return the bin of a predicted time in whole ms, a number or an array: 30 000 is bin 0, 35 000 still bin 31.

    Computed in integers. The reference scorer never reads a submission file, its predictions are bins from the start;
    this recovers the bin that a time was written for. Labels are rounded differently, see `label_bin`.
    """
    return (position_ms - OBSERVED_MS) * FPS // (1000 * GRID_STEP)


def label_bin(position_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return bins of label times in ms, rounded as the reference does: `int(int(position) / 1000 * 25 / 4 - 750 / 4)`.

    IEEE doubles, in the reference's order of operations: 34 160, 34 480 and 34 800 ms fall one bin early. Times before
    30 000 get a negative bin, where `int` would give 0: they are not to be anticipated.
    """
    observed_frames = OBSERVED_MS // 1000 * FPS
    return np.floor(position_ms / 1000 * FPS / GRID_STEP - observed_frames / GRID_STEP).astype(np.int64)


def merge_bins(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Merge predictions to one per 160 ms bin, by time: the maximum of each class, at the time of the most confident.

    The reference scorer keeps only the last of several in a bin.
    """
    bins: dict[int, list[Prediction]] = {}
    for prediction in predictions:
        bins.setdefault(grid_bin(prediction.position_ms), []).append(prediction)
    merged = []
    for _, entries in sorted(bins.items()):
        best = max(entries, key=lambda p: p.confidence)
        vectors = zip(*(p.vector for p in entries), strict=True)
        merged.append(Prediction.from_scores(best.position_ms, [max(scores) for scores in vectors]))
    return merged


def merge_arrays(
    clip: NDArray[np.int64], position_ms: NDArray[np.int64], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Merge predictions as `merge_bins` does, as arrays.

    Args:
        clip: index of the clip of each prediction, (P,).
        position_ms: its time, (P,).
        scores: its class vector, (P, C).

    Returns:
        The same three arrays of the merged predictions, ordered by clip and time.
    """
    if not len(clip):
        return clip, position_ms, scores
    key = clip * GRID_BINS + grid_bin(position_ms)
    order = np.lexsort((-scores.max(1), key))  # of a bin, the most confident first
    first = np.flatnonzero(np.append(True, np.diff(key[order]) > 0))
    best = order[first]
    return clip[best], position_ms[best], np.maximum.reduceat(scores[order], first)


def geometric_ranks(count: int, levels: int) -> NDArray[np.int64]:
    """Return at most `levels` ranks of 1 … count: 1, 2, 3, …, then each a few per cent above the one before.

    Thresholds at these ranks suit the scorer, which uses the best few predictions and every tenth of the recall.
    """
    return np.unique(np.round(np.geomspace(1, count, levels)).astype(np.int64)) if count else np.zeros(0, np.int64)
