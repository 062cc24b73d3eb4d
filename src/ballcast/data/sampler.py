"""Which samples an epoch draws, in what order, with what MixUp partner: a plan, made from the seed and the epoch alone.

A run that is resumed, or spread over several machines, makes the same plan again and takes its part of it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, action_index
from ballcast.core.recipe import DataConfig


@dataclass(frozen=True)
class Plan:
    """An epoch of `steps` batches of B samples.

    - `first`, `second` (steps, B) int64: the samples, and their MixUp partners; S + s is sample s mirrored.
    - `share` (steps, B) float32: λ, how much of each sample is `first`; all 1 without MixUp.
    - `absent` (steps, B) int64: how many early windows are dropped.
    - `mixed`: whether there is MixUp.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    share: NDArray[np.float32]
    absent: NDArray[np.int64]
    mixed: bool

    def __len__(self) -> int:
        return len(self.first)

    def slice(self, rank: int, ranks: int) -> "Plan":
        """The part of every batch that one of several processes takes."""
        size = self.first.shape[1] // ranks
        part = np.s_[:, rank * size : (rank + 1) * size]
        return Plan(self.first[part], self.second[part], self.share[part], self.absent[part], self.mixed)


def sample_weights(classes: NDArray[np.int64], config: DataConfig) -> NDArray[np.float64] | None:
    """(S,) how likely each sample is drawn by the boosts of its events, (S, 8) classes; None: no boosts at all.

    The largest, the sum (at least 1), or the product of them, as `boost_rule` says; an event without one counts 1.
    """
    if not config.boost:
        return None
    boost = np.ones(len(ACTIONS) + 1)
    for label, factor in config.boost.items():
        boost[action_index(label)] = factor
    of_events = boost[classes]  # class −1, no event, reads the last entry, 1
    if config.boost_rule == "sum":
        return np.maximum((of_events * (classes >= 0)).sum(1), 1)
    return of_events.max(1) if config.boost_rule == "max" else of_events.prod(1)


def plan_epoch(
    classes: NDArray[np.int64], config: DataConfig, *, batch: int, windows: int, seed: int, epoch: int
) -> Plan:
    """The plan of an epoch over S samples with event classes (S, 8).

    With boosts, S samples are drawn with replacement; without, each comes once. What does not fill a batch is left out.
    """
    rng = np.random.default_rng([seed, epoch])
    count = len(classes)
    weights = sample_weights(classes, config)
    if weights is not None:
        order = rng.choice(count, max(count, batch), p=weights / weights.sum())
    else:
        order = np.concatenate([rng.permutation(count) for _ in range(-(-batch // count))])
    steps = len(order) // batch
    first = order[: steps * batch].reshape(steps, batch)
    if config.mirror:
        first = first + count * (rng.random((steps, batch)) < config.mirror)
    absent = rng.integers(1, windows, (steps, batch)) if windows > 1 else np.zeros((steps, batch), np.int64)
    absent = np.where(rng.random((steps, batch)) < config.drop_windows, absent, 0)
    if not config.mixup:
        return Plan(first, first, np.ones(first.shape, np.float32), absent, mixed=False)
    second = rng.permuted(first, axis=1)
    share = rng.beta(config.mixup, config.mixup, first.shape).astype(np.float32)
    return Plan(first, second, share, absent, mixed=True)
