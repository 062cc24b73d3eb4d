"""The learning rate: a linear warm-up, then a cosine with warm restarts; or one cycle over a whole run."""

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


def one_cycle(step: int, steps: int, *, top: float, warmup: float) -> float:
    """The rate of step number `step` of `steps`: up along a half cosine to `top`, and down along another to almost 0.

    `warmup` is the share of all steps that the rise takes; it begins at a 25th of the top.
    """
    rise = warmup * steps
    if step < rise:
        return top * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * (step + 1) / rise)))
    return top * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))
