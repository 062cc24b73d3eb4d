"""FAANTRA, the baseline: an encoder-decoder on the last window only, after its public code, on our features."""

import torch
from torch import Tensor, nn

from ballcast.model.layers import CrossAttention, DecoderLayer, EncoderLayer, SelfAttention
from ballcast.model.slots import Heads, Slots

POSITION_BOUND = (6 / (2001 * 512)) ** 0.5  # Xavier's for the public code's table of 2000 positions of 512


class Faantra(nn.Module):
    """Features of the last window (B, 1, N, D) → queries z (B, K, d) → `Slots`.

    The layers are post-LN with ReLU. Positions join what attends, in every layer, and are no part of the stream; so do
    the queries, while what is decoded starts at zero. `project` D → d, and a ReLU, is all that can be done for a window
    on its own. `reach` (N, N) and `query_reach` (K, K) are the bands of the encoder's and the decoder's self-attention
    (None: free). `presence` segments the observed clips into the actions and background (the last).
    """

    lookback = 1  # windows it reads
    reach: Tensor | None
    query_reach: Tensor | None

    def __init__(
        self,
        *,
        project: nn.Linear,
        positions: nn.Embedding,
        encoder: list[EncoderLayer],
        queries: nn.Embedding,
        decoder: list[DecoderLayer],
        decoder_norm: nn.LayerNorm,
        heads: Heads,
        presence: nn.Linear | None,
        reach: Tensor | None,
        query_reach: Tensor | None,
    ) -> None:
        super().__init__()
        self.project = project
        self.positions = positions
        self.encoder = nn.ModuleList(encoder)
        self.queries = queries
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = decoder_norm
        self.heads = heads
        self.presence = presence
        self.register_buffer("reach", reach, persistent=False)
        self.register_buffer("query_reach", query_reach, persistent=False)
        self.apply(_start)
        nn.init.uniform_(positions.weight, -POSITION_BOUND, POSITION_BOUND)

    def encode_window(self, features: Tensor) -> Tensor:
        return torch.relu(self.project(features.to(self.project.weight.dtype)))

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """`present` changes nothing: the one window that is read is always there."""
        memory = tokens[:, -1]  # (B, N, d)
        for layer in self.encoder:
            memory = layer(memory, self.reach, self.positions.weight)
        placed = memory + self.positions.weight
        z = torch.zeros_like(self.queries.weight).expand(memory.shape[0], -1, -1)  # (B, K, d)
        for layer in self.decoder:
            z = layer(z, placed, self.query_reach, positions=self.queries.weight)
        z = self.decoder_norm(z)
        return self.heads(z, None if self.presence is None else self.presence(memory))


def _start(module: nn.Module) -> None:
    """Xavier-uniform matrices, as in the public code, whose attention keeps queries, keys and values in one matrix."""
    if isinstance(module, SelfAttention | CrossAttention):
        for name, part in module.named_children():
            assert isinstance(part, nn.Linear)
            bound = (6 / ((2 if name == "out" else 4) * part.in_features)) ** 0.5
            nn.init.uniform_(part.weight, -bound, bound)
            nn.init.zeros_(part.bias)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
