"""The paper's network: local encoder per window, GRU over all of them, slots decoded from its memory."""

from torch import Tensor, nn

from ballcast.model.aggregator import Aggregator
from ballcast.model.auxiliary import PresenceHead
from ballcast.model.heads import Heads
from ballcast.model.local_encoder import LocalEncoder
from ballcast.model.slot_decoder import SlotDecoder
from ballcast.model.slots import Slots


class Hierarchy(nn.Module):
    """Features (B, W, N, D) → tokens (B, W, N, d) → memory (B, T, d) → slots z (B, K, d) → `Slots`.

    `lookback`: how many of the latest windows it reads, here all W.
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
    ) -> None:
        super().__init__()
        self.lookback = lookback
        self.encoder = encoder
        self.aggregator = aggregator
        self.decoder = decoder
        self.heads = heads
        self.presence = presence

    def encode_window(self, features: Tensor) -> Tensor:
        return self.encoder(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        memory, counts = self.aggregator(tokens, present)
        z = self.decoder(memory, counts)
        return self.heads(z, None if self.presence is None else self.presence(tokens[:, -1]))
