"""Calibration of probabilities: the log-odds are stretched and shifted so that they fit what came (Platt scaling)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def apply_calibration(chance: Floats, calibration: Floats) -> NDArray[np.float64]:
    """Correct probabilities (n, …) by slope and shift of their log-odds, (2, …)."""
    slope, shift = calibration
    return 1 / (1 + np.exp(-(slope * _log_odds(chance) + shift).clip(-50, 50)))


def fit_calibration(chance: Floats, came: NDArray[np.bool_], rounds: int = 25) -> Floats:
    """Fit slope and shift of the log-odds to what came, by Newton's method on the logistic loss.

    Before the data, slope and shift are normally distributed around 1 and 0 with a deviation of 1, so that actions that
    hardly occur stay nearly as the network has them.

    Args:
        chance: (n, …) probabilities, fitted for each column.
        came: (n, …) whether the action came.

    Returns:
        (2, …).
    """
    x = _log_odds(chance)
    y = came.astype(np.float64)
    slope, shift = np.ones(x.shape[1:]), np.zeros(x.shape[1:])
    for _ in range(rounds):
        q = 1 / (1 + np.exp(-(slope * x + shift).clip(-50, 50)))
        w = q * (1 - q)
        error = q - y
        a = (w * x * x).sum(0) + 1
        b = (w * x).sum(0)
        c = w.sum(0) + 1
        u = (error * x).sum(0) + slope - 1
        v = error.sum(0) + shift
        det = a * c - b * b
        slope, shift = slope - (c * u - b * v) / det, shift - (a * v - b * u) / det
    return np.stack([slope, shift]).astype(np.float32)


def _log_odds(chance: Floats) -> NDArray[np.float64]:
    p = chance.astype(np.float64).clip(1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))
