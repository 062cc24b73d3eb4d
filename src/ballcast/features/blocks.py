"""The backbone's own parts: the 3D block that mixes a clip's stacks, and generalised-mean pooling.

Maps are (B, J, C, h, w): B clips of J stacks of C channels. Everything that does not mix stacks runs as a 2D operation
on (B·J, C, h, w), where kernels are best; only the depthwise convolution sees the stacks as a third axis.
"""

import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.functional import silu


class NormAct(nn.BatchNorm2d):
    """Batch norm, then SiLU unless `act` is false; (B, C, h, w) in and out."""

    def __init__(self, channels: int, *, act: bool = True) -> None:
        super().__init__(channels)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return silu(x) if self.act else x


class SqueezeExcite(nn.Module):
    """A gate per clip and channel, from the mean over the clip's stacks and pixels."""

    def __init__(self, *, channels: int, ratio: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, channels // ratio, 1)
        self.conv_expand = nn.Conv2d(channels // ratio, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, J, C, h, w) in and out."""
        gate = x.mean((1, 3, 4))[:, :, None, None]  # (B, C, 1, 1)
        gate = self.conv_expand(silu(self.conv_reduce(gate))).sigmoid()
        return x * gate[:, None]


class InvertedResidual3d(nn.Module):
    """Expand, mix stacks and pixels depthwise 3×3×3, gate, project, and add.

    Split at the expansion: `expand` sees single stacks, so for stacks that several clips share it need run only once.
    """

    def __init__(self, *, channels: int, expansion: int, se_ratio: int, drop_path: float = 0.0) -> None:
        super().__init__()
        inner = channels * expansion
        self.conv_pw = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = NormAct(inner)
        self.conv_dw = nn.Conv3d(inner, inner, 3, padding=1, groups=inner, bias=False)
        self.bn2 = NormAct(inner)
        self.se = SqueezeExcite(channels=inner, ratio=se_ratio)
        self.conv_pwl = nn.Conv2d(inner, channels, 1, bias=False)
        self.bn3 = NormAct(channels, act=False)
        self.drop_path = DropPath(drop_path)

    def expand(self, x: Tensor) -> Tensor:
        """(S, C, h, w) single stacks → (S, C', h, w)."""
        return self.bn1(self.conv_pw(x))

    def mix(self, expanded: Tensor) -> Tensor:
        """(B, J, C', h, w) → (B, J, C, h, w), the residual branch's result."""
        J = expanded.shape[1]
        y = self.conv_dw(expanded.transpose(1, 2)).transpose(1, 2)  # over (J, h, w)
        y = self.bn2(y.flatten(0, 1)).unflatten(0, (-1, J))  # (B, J, C', h, w)
        y = self.bn3(self.conv_pwl(self.se(y).flatten(0, 1)))  # (B·J, C, h, w)
        return self.drop_path(y.unflatten(0, (-1, J)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, J, C, h, w) in and out."""
        return x + self.mix(self.expand(x.flatten(0, 1)).unflatten(0, (-1, x.shape[1])))


class GeM(nn.Module):
    """Generalised mean over pixels, (mean xᵖ)^(1/p) with a learnable p, always in float32; (B, C, h, w) → (B, C)."""

    def __init__(self, *, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.full((1,), p))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        p = self.p.float()
        return x.float().clamp(min=self.eps).pow(p).mean((2, 3)).pow(1 / p)
