"""The paper's network, in the order of its data: local encoder → GRU aggregator → slot decoder → heads.

Symbols: B samples, W windows of 5 s, N snippets per window (`model.clips`), D features per snippet, d the token width,
S summary vectors per window, T = W · S of them in all, K slots, C actions. Equation numbers are the paper's; its heads
(equations 2 to 4), which the baseline shares, are `ballcast.model.slots.Heads`.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.anticipator_config import ModelConfig
from ballcast.model.layers import DecoderLayer, EncoderLayer, embedding
from ballcast.model.slots import Heads, Slots

POSITION_STD = 0.02  # of the snippet position embeddings at the start
SLOT_STD = 1.0  # of the slot embeddings e_k at the start


class LocalEncoder(nn.Module):
    """Local Transformer, the same for every window: features F_w (..., N, D) → tokens E_w (..., N, d).

    Args:
        project: the linear projection D → d.
        positions: learnable snippet position embeddings (N, d).
        layers: pre-LN Transformer layers with DropPath.
        norm: the LayerNorm after the last layer.
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
        """Encode each window separately.

        Args:
            features: (..., N, D), any floating-point type.

        Returns:
            Tokens (..., N, d).
        """
        lead = features.shape[:-2]
        x = features.flatten(0, -3) if lead else features.unsqueeze(0)  # (B W, N, D)
        x = self.project(x.to(self.project.weight.dtype)) + self.positions.weight  # (B W, N, d)
        for layer in self.layers:
            x = layer(x)  # (B W, N, d)
        return self.norm(x).reshape(*lead, *x.shape[-2:])  # (B, W, N, d)


class Aggregator(nn.Module):
    """GRU aggregator: tokens E (B, W, N, d) → memory H (B, T, d).

    Args:
        gru: input and hidden size d, batch first.
        windows, snippets, steps: W, N and S.
        weight: what the window weight alpha_w = sigmoid(gamma_w) multiplies: what goes into the GRU ("input"), what
            comes out of it ("memory"), or nothing ("none").
        gamma: initial value of every gamma_w.
    """

    pooling: Tensor

    def __init__(
        self,
        *,
        gru: nn.GRU,
        windows: int,
        snippets: int,
        steps: int,
        weight: Literal["input", "memory", "none"],
        gamma: float,
    ) -> None:
        super().__init__()
        self.gru = gru
        self.steps = steps
        self.weight = weight
        self.gamma = None if weight == "none" else nn.Parameter(torch.full((windows,), gamma))
        self.register_buffer("pooling", pooling_matrix(snippets, steps), persistent=False)

    def forward(self, tokens: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Pool each window to S steps and run the GRU over all of them.

        Args:
            tokens: (B, W, N, d).
            present: (B, W) bool, False for windows before the video began: the GRU reads zeros in their place, and
                the decoder does not read their steps. The last window must be present. None: all are.

        Returns:
            Memory (B, T, d), and its mask (B, T) bool, True for steps of present windows; None: all.
        """
        if present is not None:  # masked_fill and not a product with 0, which would let a NaN through
            tokens = tokens.masked_fill(~present[:, :, None, None], 0)
        steps = self.pooling.to(tokens.dtype) @ tokens  # (S, N) @ (B, W, N, d) = (B, W, S, d)
        if self.weight == "input":
            steps = steps * self.alpha()  # (B, W, S, d)
        memory, _ = self.gru(steps.flatten(1, 2))  # (B, T, d)
        if self.weight == "memory":
            memory = (memory.unflatten(1, (-1, self.steps)) * self.alpha()).flatten(1, 2)
        mask = None if present is None else present[:, :, None].expand(-1, -1, self.steps).flatten(1)  # (B, T)
        return memory, mask

    def alpha(self) -> Tensor:
        """Window weights alpha_w, (W, 1, 1) to scale (B, W, S, d)."""
        assert self.gamma is not None
        return torch.sigmoid(self.gamma)[:, None, None]


def pooling_matrix(snippets: int, steps: int) -> Tensor:
    """Adaptive average pooling of N snippets to S steps as a matrix (S, N).

    Step s is the mean of the snippets floor(sN/S) to ceil((s+1)N/S) - 1. A matrix product is faster than the pooling
    kernel, and its gradient is deterministic.
    """
    step = torch.arange(steps)[:, None]
    snippet = torch.arange(snippets)[None, :]
    first = step * snippets // steps
    end = ((step + 1) * snippets + steps - 1) // steps
    inside = ((snippet >= first) & (snippet < end)).float()
    return inside / inside.sum(dim=1, keepdim=True)


class SlotDecoder(nn.Module):
    """Input-conditioned slot decoder: memory H (B, T, d) → slots z (B, K, d).

    Args:
        slots: the slot embeddings e_k (K, d).
        context: W_ctx of equation 1, d → d; None: static queries q_k = e_k.
        layers: Transformer decoder layers.
        norm: the LayerNorm after the last layer.
    """

    def __init__(
        self, *, slots: nn.Embedding, context: nn.Linear | None, layers: list[DecoderLayer], norm: nn.LayerNorm
    ) -> None:
        super().__init__()
        self.slots = slots
        self.context = context
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Decode the slots.

        Args:
            memory: H (B, T, d).
            mask: (B, T) bool, the steps of H to read, at least one per sample; None: all.

        Returns:
            z (B, K, d).
        """
        return self.every_layer(memory, mask)[-1]

    def every_layer(self, memory: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The normalised slots after each of the L layers, L × (B, K, d); without layers one entry, the queries."""
        z = self.queries(memory, mask)  # (B, K, d)
        memory_mask = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, T)
        states = []
        for layer in self.layers:
            z = layer(z, memory, memory_mask=memory_mask)
            states.append(self.norm(z))
        return states or [self.norm(z)]

    def queries(self, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Equation 1: q_k = e_k + W_ctx · (mean of the h_t), over the steps of `mask`; (B, K, d)."""
        slots = self.slots.weight.expand(memory.shape[0], -1, -1)  # (B, K, d)
        if self.context is None:
            return slots
        if mask is None:
            mean = memory.mean(dim=1)  # (B, d)
        else:
            share = mask / mask.sum(dim=1, keepdim=True)  # (B, T), sums to 1
            mean = (memory * share.unsqueeze(-1)).sum(dim=1)  # (B, d)
        return slots + self.context(mean).unsqueeze(1)


class PresenceHead(nn.Module):
    """Auxiliary head, a 1D CNN of two layers: tokens of the last window (B, N, d) → presence logits (B, N, C)."""

    def __init__(self, *, dim: int, classes: int, kernel: int = 3) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(dim, dim, kernel, padding=kernel // 2)
        self.out = nn.Conv1d(dim, classes, kernel, padding=kernel // 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens.transpose(1, 2)  # (B, d, N)
        return self.out(functional.gelu(self.hidden(x))).transpose(1, 2)


class Hierarchy(nn.Module):
    """The whole network: features (B, W, N, D) → tokens (B, W, N, d) → memory (B, T, d) → z (B, K, d) → `Slots`.

    Args:
        lookback: number of latest windows it reads, here all W; streams keep the tokens of that many.
        encoder, aggregator, decoder, heads: the four stages.
        presence: the auxiliary head; None: without it.
        every_layer: in training, also return the slots of the decoder's earlier layers.
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
        """Features (..., N, D) → tokens (..., N, d) of each window."""
        return self.encoder(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Tokens (B, W, N, d), and which windows are present (B, W), None: all → `Slots`."""
        memory, mask = self.aggregator(tokens, present)  # (B, T, d), (B, T)
        presence = None if self.presence is None else self.presence(tokens[:, -1])  # (B, N, C)
        if not (self.training and self.every_layer):
            return self.heads(self.decoder(memory, mask), presence)
        *earlier, z = self.decoder.every_layer(memory, mask)  # L × (B, K, d)
        slots = self.heads(z, presence)
        return replace(slots, earlier=self.heads(torch.stack(earlier, dim=1).flatten(0, 1))) if earlier else slots

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Hierarchy":
        """Build the network of `config.hierarchy`, in training mode, on the default device."""
        h = config.hierarchy
        d = config.hierarchy.dim
        encoder = LocalEncoder(
            project=nn.Linear(config.width, d),
            positions=embedding(config.clips, d, std=POSITION_STD),
            layers=[
                EncoderLayer(dim=d, heads=h.encoder_heads, ffn=h.encoder_ffn, drop_path=h.drop_path)
                for _ in range(h.encoder_layers)
            ],
            norm=nn.LayerNorm(d),
        )
        aggregator = Aggregator(
            gru=nn.GRU(d, d, num_layers=h.gru_layers, batch_first=True),
            windows=config.windows,
            snippets=config.clips,
            steps=h.steps,
            weight=h.window_weight,
            gamma=h.window_gamma,
        )
        decoder = SlotDecoder(
            slots=embedding(config.slots, d, std=SLOT_STD),
            context=nn.Linear(d, d, bias=False) if h.queries == "conditioned" else None,
            layers=[
                DecoderLayer(dim=d, heads=h.decoder_heads, ffn=h.decoder_ffn, dropout=h.dropout, norm=h.decoder_norm)
                for _ in range(h.decoder_layers)
            ],
            norm=nn.LayerNorm(d),
        )
        return cls(
            lookback=config.windows,
            encoder=encoder,
            aggregator=aggregator,
            decoder=decoder,
            heads=Heads.from_config(config, d, joint=h.heads == "joint"),
            presence=PresenceHead(dim=d, classes=config.classes) if config.auxiliary else None,
            every_layer=h.every_layer,
        )
