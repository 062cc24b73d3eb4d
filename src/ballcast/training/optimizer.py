"""AdamW, what its weight decay spares, and the schedules of its learning rate."""

import math

import torch
from torch import nn

from ballcast.core.anticipator_config import TrainConfig
from ballcast.core.feed_config import FeedTrainConfig
from ballcast.core.pretrain_config import PretrainTrainConfig


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


def warmup_cosine(step: int, steps: int, *, top: float, warmup: float) -> float:
    """The rate of step number `step` of `steps`: a cosine from `top` down to a hundredth, times a linear warm-up.

    `warmup` is the share of all steps that the warm-up takes; it ends with its last step.
    """
    rise = min((step + 1) / (warmup * steps), 1.0) if warmup else 1.0
    return top * rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def decayed(model: nn.Module) -> set[nn.Parameter]:
    """The parameters weight decay applies to: matrices and kernels, but not embeddings (positions, slots)."""
    embedded = {p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    return {p for p in model.parameters() if p.ndim >= 2} - embedded


def build_optimizer(
    model: nn.Module,
    config: TrainConfig | PretrainTrainConfig | FeedTrainConfig,
    *,
    recorded: bool = False,
    beta2: float = 0.999,
    slower: nn.Module | None = None,
    factor: float = 1.0,
) -> torch.optim.AdamW:
    """AdamW of the parameters of a model that learn.

    Args:
        model: the model.
        config: learning rate and weight decay.
        recorded: the steps are recorded as a CUDA graph, so the learning rate is a tensor on the device.
        beta2: decay of the mean of squared gradients.
        slower: a part of the model whose learning rate is `factor` times that of the rest.
        factor: see `slower`.
    """
    learning = [p for p in model.parameters() if p.requires_grad]
    heavy = decayed(model)
    slow = set(slower.parameters()) if slower is not None else set()
    groups = [
        {
            "params": [p for p in learning if (p in heavy) == decays and (p in slow) == is_slow],
            "weight_decay": config.weight_decay if decays else 0.0,
            "factor": factor if is_slow else 1.0,
        }
        for is_slow in (False, True)
        for decays in (True, False)
    ]
    device = learning[0].device
    lr = torch.tensor(config.lr, device=device) if recorded else config.lr
    groups = [group for group in groups if group["params"]]
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), fused=on_gpu, capturable=recorded)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group to `rate` times the group's factor."""
    for group in optimizer.param_groups:
        scaled = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled
