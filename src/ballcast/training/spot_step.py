"""One step of pre-training: pictures changed, runs through the backbone, focal loss, AdamW, the running mean."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ballcast.core.pretrain import SpotTrainConfig
from ballcast.features.backbone import Backbone
from ballcast.loss.criterion import focal_bce
from ballcast.training.augment import Changes, change, mix
from ballcast.training.ema import Ema


def spotting_loss(logits: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Focal loss of logits against targets in [0, 1], any equal shapes → their mean; between 0 and 1, in proportion."""
    there = focal_bce(logits, torch.ones_like(target), gamma=gamma, alpha=alpha)
    absent = focal_bce(logits, torch.zeros_like(target), gamma=gamma, alpha=alpha)
    return (target * there + (1 - target) * absent).mean()


class SpotStep:
    """Callable: runs of pictures in, the loss out, the backbone one step further.

    Nothing is asked of the host. On a GPU: bf16 where it is safe, channels last, fused kernels if `config.compile`.
    """

    def __init__(
        self, *, backbone: Backbone, optimizer: torch.optim.Optimizer, ema: Ema | None, config: SpotTrainConfig
    ) -> None:
        self.backbone, self.optimizer, self.ema, self.config = backbone, optimizer, ema, config
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        on_gpu = self.device.type == "cuda"
        self._half = on_gpu and config.precision == "bf16"
        self._logits: Callable[[Tensor], Tensor] = self.logits
        if on_gpu and config.compile:
            self._logits = torch.compile(self.logits, dynamic=False)

    def logits(self, pictures: Tensor) -> Tensor:
        """Runs (B, P, H, W) in [0, 1] → logits (B, n, C)."""
        backbone = self.backbone
        return backbone.classifier(backbone.dropout(backbone.runs(pictures)))

    def __call__(self, pictures: Tensor, how: Changes, target: Tensor) -> Tensor:
        """Runs (B, P, H, W) uint8, their changes, and what their clips should say (B, n, C) → the loss, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        x, target = change(pictures, how), mix(target, how)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._half):
            logits = self._logits(x)
        loss = spotting_loss(logits, target, alpha=self.config.focal_alpha, gamma=self.config.focal_gamma)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update()
        return loss.detach()
