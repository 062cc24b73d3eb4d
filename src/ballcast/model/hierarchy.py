"""The paper's network: local encoder per window, GRU over all of them, slots decoded from its memory."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ballcast.model.aggregator import Aggregator
from ballcast.model.auxiliary import PresenceHead
from ballcast.model.heads import Heads
from ballcast.model.local_encoder import LocalEncoder
from ballcast.model.slot_decoder import SlotDecoder
from ballcast.model.slots import Slots


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
