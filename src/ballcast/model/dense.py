"""A dense forecast: the expected number of actions of each class in each bin of the horizon, by one query a class."""

import torch
from torch import Tensor, nn

from ballcast.core.anticipator_config import ModelConfig
from ballcast.model.layers import DecoderLayer, embedding
from ballcast.model.slots import Slots

CERTAIN = 200.0  # class logit of a slot that is one class: the softmax is exactly one-hot in float32
RARE = -2.0  # initial objectness: an eighth of an action of each class is expected
ABSENT = -4.0  # initial presence: an action in one of 50 stacks


class Dense(nn.Module):
    """Features (B, W, N, D) → tokens (B, W, N, d) → z (B, C, d) → `Slots` of the form "counts": one for each class.

    Slot c expects softplus(objectness) actions of class c, at times distributed as its offsets: a Poisson process with
    an intensity for each bin. Its likelihood is the criterion's (`loss.criterion`).

    Args:
        lookback: W, the number of windows it reads.
        project: D → d. gru: both ways over each window, d/2 for each direction. norm: of the tokens.
        positions: (W N, d) of the tokens. queries: (C, d), one a class.
        decoder: Transformer layers. decoder_norm: the LayerNorm after the last of them.
        count, offset: heads, z → objectness and z → logits over the bins.
        presence: d → C, the actions at each snippet of the last window; None: without it.
    """

    def __init__(
        self,
        *,
        lookback: int,
        project: nn.Linear,
        gru: nn.GRU,
        norm: nn.LayerNorm,
        positions: nn.Embedding,
        queries: nn.Embedding,
        decoder: list[DecoderLayer],
        decoder_norm: nn.LayerNorm,
        count: nn.Linear,
        offset: nn.Linear,
        presence: nn.Linear | None,
    ) -> None:
        super().__init__()
        self.lookback = lookback
        self.project = project
        self.gru = gru
        self.norm = norm
        self.positions = positions
        self.queries = queries
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = decoder_norm
        self.count = count
        self.offset = offset
        self.presence = presence
        nn.init.constant_(count.bias, RARE)
        if presence is not None:
            nn.init.constant_(presence.bias, ABSENT)

    def encode_window(self, features: Tensor) -> Tensor:
        """Features (..., N, D) → tokens (..., N, d) of each window."""
        lead = features.shape[:-2]
        x = self.project(features.reshape(-1, *features.shape[-2:]).to(self.project.weight.dtype))  # (B W, N, d)
        x = self.norm(x + self.gru(x)[0])
        return x.reshape(*lead, *x.shape[-2:])

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Tokens (B, W, N, d), and which windows are present (B, W), None: all → `Slots`."""
        B, W, N, _ = tokens.shape
        mask = None if present is None else present[:, :, None].expand(-1, -1, N).reshape(B, 1, 1, W * N)
        memory = tokens.flatten(1, 2) + self.positions.weight  # (B, W N, d)
        z = self.queries.weight.expand(B, -1, -1)  # (B, C, d)
        for layer in self.decoder:
            z = layer(z, memory, memory_mask=mask)
        z = self.decoder_norm(z)
        presence = None if self.presence is None else self.presence(tokens[:, -1])  # (B, N, C)
        # In full precision even under autocast, as all heads.
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.count.weight.dtype)
            classes = CERTAIN * torch.eye(z.shape[1], device=z.device, dtype=z.dtype).expand(B, -1, -1)
            offsets = self.offset(z)  # (B, C, bins)
            return Slots(self.count(z).squeeze(-1), classes, offsets, offsets.shape[-1], presence, form="counts")

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Dense":
        """Build the network of `config.dense`, in training mode, on the default device."""
        c = config.dense
        d = config.dense.dim
        return cls(
            lookback=config.windows,
            project=nn.Linear(config.width, d),
            gru=nn.GRU(d, d // 2, num_layers=c.gru_layers, batch_first=True, bidirectional=True),
            norm=nn.LayerNorm(d),
            positions=embedding(config.windows * config.clips, d, std=0.02),
            queries=embedding(config.classes, d, std=1.0),
            decoder=[DecoderLayer(dim=d, heads=c.heads, ffn=c.ffn, dropout=c.dropout) for _ in range(c.decoder_layers)],
            decoder_norm=nn.LayerNorm(d),
            count=nn.Linear(d, 1),
            offset=nn.Linear(d, config.bins),
            presence=nn.Linear(d, config.classes) if config.auxiliary else None,
        )
