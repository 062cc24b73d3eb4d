"""The reference scorer's time grid: the 5 s to come in 32 bins of 160 ms (6.25 a second)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS, OBSERVED_MS

GRID_STEP = 4  # frames a bin
GRID_FPS = FPS / GRID_STEP
GRID_BINS = 32

Milliseconds = TypeVar("Milliseconds", int, NDArray[np.int64])


def grid_bin(position_ms: Milliseconds) -> Milliseconds:
    """Bin of a time in whole ms, a number or an array: 30 000 is bin 0, 35 000 still bin 31.

    In whole numbers: the same formula in floats puts times on a bin's edge, such as 34 480, one bin too early, and
    then disagrees with the reference.
    """
    return (position_ms - OBSERVED_MS) * FPS // (1000 * GRID_STEP)
