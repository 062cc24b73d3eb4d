"""AdamW whose decay spares norms, biases and embeddings."""

import torch
from torch import nn

from ballcast.core.pretrain import SpotTrainConfig
from ballcast.core.recipe import TrainConfig


def decayed(model: nn.Module) -> set[nn.Parameter]:
    """The parameters weight decay applies to: matrices and kernels, but not embeddings (positions, slots)."""
    embedded = {p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    return {p for p in model.parameters() if p.ndim >= 2} - embedded


def build_optimizer(
    model: nn.Module, config: TrainConfig | SpotTrainConfig, *, graphed: bool = False
) -> torch.optim.AdamW:
    """`graphed`: made to live inside a CUDA graph, with the learning rate as a tensor on the device."""
    trained, heavy = [p for p in model.parameters() if p.requires_grad], decayed(model)
    groups = [
        {"params": [p for p in trained if p in heavy], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p not in heavy], "weight_decay": 0.0},
    ]
    device = trained[0].device
    lr = torch.tensor(config.lr, device=device) if graphed else config.lr
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, fused=device.type == "cuda", capturable=graphed)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
