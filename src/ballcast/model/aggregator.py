"""The GRU aggregator: windows are pooled to a few steps each, weighted, and read in order of time into one memory."""

from typing import Literal

import torch
from torch import Tensor, nn


class Aggregator(nn.Module):
    """E (B, W, N, d) → memory H (B, T, d) with T = W S, and which of its steps count, (B, T) bool or None for all.

    `gru` takes and gives d; `gamma` is gamma_w at the start; `weight` says where alpha_w = sigmoid(gamma_w) acts: on
    the S steps a window feeds the GRU ("input"), on the S steps of H it yields ("memory"), or nowhere ("none").
    """

    pooling: Tensor

    def __init__(
        self,
        *,
        gru: nn.GRU,
        windows: int,
        clips: int,
        steps: int,
        weight: Literal["input", "memory", "none"],
        gamma: float,
    ) -> None:
        super().__init__()
        self.gru = gru
        self.steps = steps
        self.weight = weight
        self.gamma = None if weight == "none" else nn.Parameter(torch.full((windows,), gamma))
        self.register_buffer("pooling", pooling_matrix(clips, steps), persistent=False)

    def forward(self, tokens: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`present` (B, W) bool: False for windows before the video began, whose tokens are then never looked at.

        The last window must be present. None: all are.
        """
        if present is not None:  # not a product with 0, which would let a NaN through
            tokens = tokens.masked_fill(~present[:, :, None, None], 0)
        steps = self.pooling.to(tokens.dtype) @ tokens  # (S, N) @ (B, W, N, d) = (B, W, S, d)
        if self.weight == "input":
            steps = steps * self.alpha()
        memory, _ = self.gru(steps.flatten(1, 2))  # (B, T, d)
        if self.weight == "memory":
            memory = (memory.unflatten(1, (-1, self.steps)) * self.alpha()).flatten(1, 2)
        return memory, None if present is None else present[:, :, None].expand(-1, -1, self.steps).flatten(1)

    def alpha(self) -> Tensor:
        """alpha_w, shaped (W, 1, 1) to scale (B, W, S, d)."""
        assert self.gamma is not None
        return torch.sigmoid(self.gamma)[:, None, None]


def pooling_matrix(clips: int, steps: int) -> Tensor:
    """(S, N): adaptive average pooling as a matrix; step s is the mean of clips floor(sN/S) to ceil((s+1)N/S) - 1.

    As one product it is quicker than the pooling kernel, and its gradient is the same from run to run.
    """
    step, clip = torch.arange(steps)[:, None], torch.arange(clips)[None, :]
    first = step * clips // steps
    end = ((step + 1) * clips + steps - 1) // steps
    inside = ((clip >= first) & (clip < end)).float()
    return inside / inside.sum(dim=1, keepdim=True)
