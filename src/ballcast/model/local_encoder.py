"""The local Transformer: clips of one window look at each other. Shared by all windows."""

from torch import Tensor, nn

from ballcast.model.attention import EncoderLayer


class LocalEncoder(nn.Module):
    """F_w (..., N, D) → E_w (..., N, d): a linear projection, learnable clip positions, pre-LN layers and a final norm.

    `project` maps D to d; `positions` is a table (N, d); `layers` and `norm` are the Transformer.
    """

    def __init__(
        self, *, project: nn.Linear, positions: nn.Embedding, layers: list[EncoderLayer], norm: nn.LayerNorm
    ) -> None:
        super().__init__()
        self.project = project
        self.positions = positions
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, features: Tensor) -> Tensor:
        lead = features.shape[:-2]
        x = features.flatten(0, -3) if lead else features.unsqueeze(0)  # (B W, N, D)
        x = self.project(x.to(self.project.weight.dtype)) + self.positions.weight  # (B W, N, d)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).reshape(*lead, *x.shape[-2:])
