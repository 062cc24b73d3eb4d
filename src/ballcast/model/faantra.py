"""FAANTRA, the baseline: an encoder-decoder on the last window only, after the paper's description, on our features."""

from torch import Tensor, nn

from ballcast.model.attention import DecoderLayer, EncoderLayer
from ballcast.model.heads import Heads
from ballcast.model.slots import Slots


class Faantra(nn.Module):
    """Features of the last window (B, 1, N, D) → queries z (B, K, d) → `Slots`.

    `project` D → d is all that can be done for a window on its own. `reach` (N, N) and `query_reach` (K, K) are the
    bands of the encoder's and the decoder's self-attention (None: free). `presence` segments the observed clips.
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
        encoder_norm: nn.LayerNorm,
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
        self.encoder_norm = encoder_norm
        self.queries = queries
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = decoder_norm
        self.heads = heads
        self.presence = presence
        self.register_buffer("reach", reach, persistent=False)
        self.register_buffer("query_reach", query_reach, persistent=False)

    def encode_window(self, features: Tensor) -> Tensor:
        return self.project(features.to(self.project.weight.dtype))

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """`present` changes nothing: the one window that is read is always there."""
        memory = tokens[:, -1] + self.positions.weight  # (B, N, d)
        for layer in self.encoder:
            memory = layer(memory, self.reach)
        memory = self.encoder_norm(memory)
        z = self.queries.weight.expand(memory.shape[0], -1, -1)  # (B, K, d)
        for layer in self.decoder:
            z = layer(z, memory, self.query_reach)
        z = self.decoder_norm(z)
        return self.heads(z, None if self.presence is None else self.presence(memory))
