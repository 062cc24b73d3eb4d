"""The SoccerNet package's `average_mAP`, fed as the public evaluation of anticipation feeds it."""

import contextlib
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from ballcast.core.actions import ACTIONS
from ballcast.core.events import GRID_BINS, Clip, Prediction

TOLERANCES = (1, 2, 3, 4, 5, 11)


def reference_bin(position: int | str) -> int:
    """The bin of a label: FAANTRA's own expression, in doubles."""
    return int(int(position) / 1000 * 25 / 4 - 750 / 4)


def submitted_bin(position_ms: int) -> int:
    """The bin that a submitted time was written for, found by search: it is written as the bin's first millisecond.

    The reference has no such function: its predictions start as bins.
    """
    return bisect_right(range(30000, 30000 + 160 * GRID_BINS, 160), position_ms) - 1


def lay_out(
    clips: Sequence[Clip], predictions: Mapping[str, Sequence[Prediction]]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    targets, detections = [], []
    for clip in clips:
        target = np.zeros((GRID_BINS, len(ACTIONS)))
        for event in clip.anticipation:  # a bin holds one event, the last
            target[reference_bin(event.position_ms)] = 0
            target[reference_bin(event.position_ms), event.action] = 1 if event.visible else -1
        detection = np.zeros((GRID_BINS, len(ACTIONS)), np.float32)
        for prediction in predictions.get(clip.name, ()):
            detection[submitted_bin(prediction.position_ms)] = prediction.vector
        targets.append(target)
        detections.append(detection - np.float32(1e-6))
    return targets, detections


def reference_ap(targets: list[np.ndarray], detections: list[np.ndarray]) -> np.ndarray:
    """AP of each class at each tolerance, (6, 10)."""
    from SoccerNet.Evaluation.ActionSpotting import average_mAP

    closests = [np.zeros_like(t) for t in targets]
    with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):  # its progress bars
        rows = [
            average_mAP(targets, detections, closests, framerate=6.25, deltas=np.array([tolerance]))[1]
            for tolerance in TOLERANCES
        ]
    return np.array(rows)
