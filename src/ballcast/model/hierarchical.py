"""The paper's network: a local encoder per window, a GRU over all windows, slots decoded from its memory."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.model.layers import DecoderLayer, EncoderLayer
from ballcast.model.slots import Heads, Slots


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


class SlotDecoder(nn.Module):
    """Memory H (B, T, d) → slots z (B, K, d).

    `slots` is the table of e_k (K, d); `context` is W_ctx, or None for static queries q_k = e_k.
    """

    def __init__(
        self, *, slots: nn.Embedding, context: nn.Linear | None, layers: list[DecoderLayer], norm: nn.LayerNorm
    ) -> None:
        super().__init__()
        self.slots = slots
        self.context = context
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, memory: Tensor, counts: Tensor | None = None) -> Tensor:
        """`counts` (B, T) bool: the steps of H that count, at least one a sample; None: all."""
        return self.every_layer(memory, counts)[-1]

    def every_layer(self, memory: Tensor, counts: Tensor | None = None) -> list[Tensor]:
        """The slots as each layer leaves them, L × (B, K, d); without layers the queries."""
        z = self.queries(memory, counts)
        mask = None if counts is None else counts[:, None, None, :]
        states = []
        for layer in self.layers:
            z = layer(z, memory, memory_mask=mask)
            states.append(self.norm(z))
        return states or [self.norm(z)]

    def queries(self, memory: Tensor, counts: Tensor | None = None) -> Tensor:
        """(B, K, d): equation 1, q_k = e_k + W_ctx · mean of the h_t that count."""
        slots = self.slots.weight.expand(memory.shape[0], -1, -1)
        if self.context is None:
            return slots
        if counts is None:
            mean = memory.mean(dim=1)
        else:
            share = counts / counts.sum(dim=1, keepdim=True)  # (B, T), sums to 1
            mean = (memory * share.unsqueeze(-1)).sum(dim=1)
        return slots + self.context(mean).unsqueeze(1)


class PresenceHead(nn.Module):
    """A 1D CNN of two layers over the clips: tokens (B, N, d) → presence logits (B, N, C)."""

    def __init__(self, *, dim: int, classes: int, kernel: int = 3) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(dim, dim, kernel, padding=kernel // 2)
        self.out = nn.Conv1d(dim, classes, kernel, padding=kernel // 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens.transpose(1, 2)  # (B, d, N)
        return self.out(functional.gelu(self.hidden(x))).transpose(1, 2)


class Hierarchy(nn.Module):
    """Features (B, W, N, D) → tokens (B, W, N, d) → memory (B, T, d) → slots z (B, K, d) → `Slots`.

    `lookback`: how many of the latest windows it reads, here all W. `every_layer`: while training, the slots of the
    decoder's earlier layers come along.
    """

    def __init__(
        self,
        *,
        lookback: int,
        encoder: LocalEncoder,
        aggregator: Aggregator,
        decoder: SlotDecoder,
        heads: Heads,
        presence: PresenceHead | None,
        every_layer: bool = False,
    ) -> None:
        super().__init__()
        self.lookback = lookback
        self.encoder = encoder
        self.aggregator = aggregator
        self.decoder = decoder
        self.heads = heads
        self.presence = presence
        self.every_layer = every_layer

    def encode_window(self, features: Tensor) -> Tensor:
        return self.encoder(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        memory, counts = self.aggregator(tokens, present)
        presence = None if self.presence is None else self.presence(tokens[:, -1])
        if not (self.training and self.every_layer):
            return self.heads(self.decoder(memory, counts), presence)
        *earlier, z = self.decoder.every_layer(memory, counts)
        slots = self.heads(z, presence)
        return replace(slots, earlier=self.heads(torch.stack(earlier, dim=1).flatten(0, 1))) if earlier else slots
