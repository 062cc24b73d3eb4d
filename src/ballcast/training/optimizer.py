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
    model: nn.Module,
    config: TrainConfig | SpotTrainConfig,
    *,
    graphed: bool = False,
    slower: nn.Module | None = None,
    factor: float = 1.0,
) -> torch.optim.AdamW:
    """AdamW of what learns in the model.

    `graphed`: made to live inside a CUDA graph, with the learning rate as a tensor on the device. `slower`: a part of
    the model whose learning rate is `factor` times that of the rest.
    """
    trained, heavy = [p for p in model.parameters() if p.requires_grad], decayed(model)
    part = set(slower.parameters()) if slower is not None else set()
    groups = [
        {
            "params": [p for p in trained if (p in heavy) == decays and (p in part) == own],
            "weight_decay": config.weight_decay if decays else 0.0,
            "factor": factor if own else 1.0,
        }
        for own in (False, True)
        for decays in (True, False)
    ]
    device = trained[0].device
    lr = torch.tensor(config.lr, device=device) if graphed else config.lr
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, fused=device.type == "cuda", capturable=graphed)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """`rate` for every group, times the group's own factor."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
