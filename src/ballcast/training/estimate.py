"""How long a run will take, said once, when that can be told."""

import time
from collections.abc import Callable

AFTER = 25  # steps from the first look to the one that tells


class Estimate:
    """Told after steps how many are done; says how long the rest takes by those since the first look, before which
    things were compiled and read.

    total: steps of the run. say: takes the sentence.
    """

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._say = total, say
        self._first: tuple[int, float] | None = None  # steps done at the first look, and when that was
        self._told = False

    def __call__(self, done: int) -> None:
        now = time.perf_counter()
        if self._first is None:
            self._first = (done, now)
        steps, seconds = done - self._first[0], now - self._first[1]
        if steps < AFTER or self._told:
            return
        self._told, left = True, self._total - done
        minutes, each = left * seconds / steps / 60, 1000 * seconds / steps
        self._say(f"{each:.0f} ms a step: {minutes:.1f} minutes for the {left} to go, without scoring")
