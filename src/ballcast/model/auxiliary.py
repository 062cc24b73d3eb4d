"""The auxiliary head: which actions happen in the last window, clip by clip. Used in training only."""

from torch import Tensor, nn
from torch.nn import functional


class PresenceHead(nn.Module):
    """A 1D CNN of two layers over the clips: tokens (B, N, d) → presence logits (B, N, C)."""

    def __init__(self, *, dim: int, classes: int, kernel: int = 3) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(dim, dim, kernel, padding=kernel // 2)
        self.out = nn.Conv1d(dim, classes, kernel, padding=kernel // 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens.transpose(1, 2)  # (B, d, N)
        return self.out(functional.gelu(self.hidden(x))).transpose(1, 2)
