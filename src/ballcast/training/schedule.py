"""The learning rate: a linear warm-up, then a cosine with warm restarts."""

import math

from ballcast.core.recipe import TrainConfig


def learning_rate(step: int, steps_per_epoch: int, config: TrainConfig) -> float:
    """The rate of step number `step`, counted from 0 through the whole run.

    The warm-up rises linearly and reaches `lr` with its last step. The first cosine lasts `restart_epochs`, each next
    one `restart_factor` times as long.
    """
    warmup = config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return config.lr * (step + 1) / warmup
    since = step - warmup
    length = config.restart_epochs * steps_per_epoch
    while since >= length:
        since -= length
        length *= config.restart_factor
    return config.lr * 0.5 * (1 + math.cos(math.pi * since / length))
