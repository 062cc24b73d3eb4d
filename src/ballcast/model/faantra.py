"""FAANTRA, the baseline: an encoder-decoder on the last window only, after its public code, on our features."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from ballcast.core.anticipator_config import ModelConfig
from ballcast.model.layers import CrossAttention, DecoderLayer, EncoderLayer, SelfAttention, band, embedding
from ballcast.model.slots import Heads, Slots

Layer = TypeVar("Layer", EncoderLayer, DecoderLayer)

POSITION_BOUND = (6 / (2001 * 512)) ** 0.5  # Xavier's for the public code's table of 2000 positions of 512


class Faantra(nn.Module):
    """Features of the last window (B, 1, N, D) → z (B, K, d) → `Slots`; N, D, d, K and C as in `hierarchical`.

    The layers are post-LN with ReLU. Position embeddings are added to what every attention reads, not to the residual
    stream; so are the query embeddings, and the decoder's input is zero.

    Args:
        project: D → d, followed by a ReLU; the only part computed for each window separately.
        positions: (N, d) snippet positions. queries: (K, d) slot embeddings.
        encoder, decoder: the Transformer layers. decoder_norm: the LayerNorm after the last of them.
        heads: z → `Slots`.
        presence: d → C + 1, segments the observed snippets into actions and background (last); None: without it.
        reach, query_reach: (N, N) and (K, K) bool, the bands of the encoder's and decoder's self-attention; None: free.
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
        self.apply(_initialise)
        nn.init.uniform_(positions.weight, -POSITION_BOUND, POSITION_BOUND)

    def encode_window(self, features: Tensor) -> Tensor:
        """Features (..., N, D) → tokens (..., N, d) of each window."""
        return torch.relu(self.project(features.to(self.project.weight.dtype)))

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Tokens (B, W, N, d) → `Slots`; `present` is ignored: the last window is always present."""
        memory = tokens[:, -1]  # (B, N, d)
        for layer in self.encoder:
            memory = layer(memory, self.reach, self.positions.weight)
        placed = memory + self.positions.weight  # (B, N, d)
        z = torch.zeros_like(self.queries.weight).expand(memory.shape[0], -1, -1)  # (B, K, d)
        for layer in self.decoder:
            z = layer(z, placed, self.query_reach, positions=self.queries.weight)
        z = self.decoder_norm(z)
        return self.heads(z, None if self.presence is None else self.presence(memory))

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Faantra":
        """Build the network of `config.faantra`, in training mode, on the default device."""
        f = config.faantra
        d = config.faantra.dim

        def layers(kind: type[Layer], count: int) -> list[Layer]:
            return [
                kind(dim=d, heads=f.heads, ffn=f.ffn, dropout=f.dropout, norm="post", activation="relu")
                for _ in range(count)
            ]

        return cls(
            project=nn.Linear(config.width, d),
            positions=nn.Embedding(config.clips, d),
            encoder=layers(EncoderLayer, f.encoder_layers),
            queries=embedding(config.slots, d, std=1.0),
            decoder=layers(DecoderLayer, f.decoder_layers),
            decoder_norm=nn.LayerNorm(d),
            heads=Heads.from_config(config, d),
            presence=nn.Linear(d, config.classes + 1) if config.auxiliary else None,
            reach=band(config.clips, f.encoder_reach_ms // f.clip_ms),
            query_reach=band(config.slots, f.decoder_reach),
        )


def _initialise(module: nn.Module) -> None:
    """Xavier-uniform matrices, as in the public code, whose attention keeps queries, keys and values in one matrix."""
    if isinstance(module, SelfAttention | CrossAttention):
        for name, part in module.named_children():
            assert isinstance(part, nn.Linear)
            bound = (6 / ((2 if name == "out" else 4) * part.in_features)) ** 0.5
            nn.init.uniform_(part.weight, -bound, bound)
            nn.init.zeros_(part.bias)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
