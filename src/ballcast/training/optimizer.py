"""AdamW whose decay spares norms, biases and embeddings."""

import torch
from torch import nn

from ballcast.core.recipe import TrainConfig

# Learned positions, slots and window weights are embeddings: decay would pull them to a value that means nothing.
NOT_DECAYED = ("positions", "slots", "gamma", "embedding", "queries")


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to matrices, but not to embeddings."""
    return parameter.ndim >= 2 and not any(part in NOT_DECAYED for part in name.split("."))


def build_optimizer(model: nn.Module, config: TrainConfig, *, graphed: bool = False) -> torch.optim.AdamW:
    """`graphed`: made to live inside a CUDA graph, with the learning rate as a tensor on the device."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if is_decayed(n, p)], "weight_decay": config.weight_decay},
        {"params": [p for n, p in named if not is_decayed(n, p)], "weight_decay": 0.0},
    ]
    on_gpu = named[0][1].device.type == "cuda"
    lr = torch.tensor(config.lr, device=named[0][1].device) if graphed else config.lr
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, fused=on_gpu, capturable=graphed)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
