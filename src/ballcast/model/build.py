"""Where all sizes live: a config becomes a network, whose modules receive built parts.

At the start linear, convolution and GRU weights are PyTorch's defaults, since the paper says nothing else. Clip
positions are normal with std 0.02, small beside the features they are added to. Slots are normal with std 1: queries
that start alike get like gradients, and these must soon want different events. gamma_w is the config's. FAANTRA starts
as its public code does (`faantra`).
"""

from typing import TypeVar

from torch import nn

from ballcast.core.recipe import ModelConfig
from ballcast.model.aggregator import Aggregator
from ballcast.model.attention import DecoderLayer, EncoderLayer, band, embedding
from ballcast.model.auxiliary import PresenceHead
from ballcast.model.faantra import Faantra
from ballcast.model.heads import Heads
from ballcast.model.hierarchy import Hierarchy
from ballcast.model.local_encoder import LocalEncoder
from ballcast.model.slot_decoder import SlotDecoder

POSITION_STD = 0.02
SLOT_STD = 1.0
Layer = TypeVar("Layer", EncoderLayer, DecoderLayer)


def build(config: ModelConfig) -> Hierarchy | Faantra:
    """The network of `config.kind`, in training mode, on the default device."""
    return build_hierarchy(config) if config.kind == "hierarchy" else build_faantra(config)


def build_hierarchy(config: ModelConfig) -> Hierarchy:
    h = config.hierarchy
    d = h.dim
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
        clips=config.clips,
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
    return Hierarchy(
        lookback=config.windows,
        encoder=encoder,
        aggregator=aggregator,
        decoder=decoder,
        heads=_heads(config, d, joint=h.heads == "joint"),
        presence=PresenceHead(dim=d, classes=config.classes) if config.auxiliary else None,
        every_layer=h.every_layer,
    )


def build_faantra(config: ModelConfig) -> Faantra:
    f = config.faantra
    d = f.dim

    def layers(kind: type[Layer], count: int) -> list[Layer]:
        return [
            kind(dim=d, heads=f.heads, ffn=f.ffn, dropout=f.dropout, norm="post", activation="relu")
            for _ in range(count)
        ]

    return Faantra(
        project=nn.Linear(config.width, d),
        positions=nn.Embedding(config.clips, d),
        encoder=layers(EncoderLayer, f.encoder_layers),
        queries=embedding(config.slots, d, std=SLOT_STD),
        decoder=layers(DecoderLayer, f.decoder_layers),
        decoder_norm=nn.LayerNorm(d),
        heads=_heads(config, d, joint=False),
        presence=nn.Linear(d, config.classes + 1) if config.auxiliary else None,
        reach=band(config.clips, f.encoder_reach_ms // f.clip_ms),
        query_reach=band(config.slots, f.decoder_reach),
    )


def _heads(config: ModelConfig, dim: int, *, joint: bool) -> Heads:
    return Heads(dim=dim, classes=config.classes, bins=config.bins, offset=config.offset, joint=joint)
