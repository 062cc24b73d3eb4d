"""The event transformer on spots: what a spotter found in the last 30 s as tokens → K slots and P(at least one).

A spot has no place; its confidence is read instead. Slots, their loss and decoding are those of `event_transformer`.
The probability of at least one action of a class within 1, 2, … 5 s has a separate head. B samples, N tokens,
K slots, C actions.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError
from ballcast.core.event_schema import HORIZONS_S, PAD
from ballcast.core.events import GRID_BINS
from ballcast.core.feed_config import SPOT_KIND, SpotTransformerConfig
from ballcast.core.files import read_json
from ballcast.core.spots import ACTION, AGE, CODES, CONFIDENCE, DETAILS
from ballcast.model.event_transformer import (
    AGES,
    CONFIG,
    TEAMS,
    C,
    EventSlots,
    age_features,
    decode_slots,
    read_weights,
    write_weights,
)
from ballcast.model.layers import EncoderLayer, embedding

_FEATURES = 2 * AGES + 1  # of a token: its age, the time since the token before, its confidence


class SpotTransformer(nn.Module):
    """Tokens, slot queries and one more query through one Transformer encoder; heads on the queries."""

    def __init__(self, config: SpotTransformerConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.codes = nn.Linear(PAD + 1 + 3 * (CODES - 1), dim, bias=False)  # of one-hot codes
        self.ranks = embedding(config.tokens, dim, std=0.02)
        self.queries = embedding(config.slots + 1, dim, std=0.02)
        self.values = nn.Sequential(nn.Linear(_FEATURES, dim), nn.GELU(), nn.Linear(dim, dim))
        self.details = nn.Linear(len(DETAILS), dim)
        self.since = nn.Linear(AGES, dim)
        self.layers = nn.ModuleList(
            EncoderLayer(dim=dim, heads=config.heads, ffn=config.ffn, dropout=config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.kind_head = nn.Linear(dim, 1 + TEAMS * C)
        self.time_head = nn.Linear(dim, C * GRID_BINS)
        self.chance_head = nn.Linear(dim, C * len(HORIZONS_S))

    def forward(self, codes: Tensor, values: Tensor, details: Tensor) -> tuple[EventSlots, Tensor]:
        """Codes (B, N, 4) int64, values (B, N, 2) and details (B, details) float, see `data.events.spot_tokens`.

        N may be less than the model's `tokens`: padding in front can be left out, except the last of it.

        Returns:
            Slots without zones, and the logits (B, C, 5) of at least one action of each class within 1, 2, … 5 s.
        """
        age = values[..., AGE]
        before = torch.cat([age[:, :1], age[:, :-1]], 1)  # the age of the token before each
        gap = (before - age).clamp(min=0)
        features = torch.cat([age_features(age), age_features(gap), values[..., CONFIDENCE, None]], -1)
        tokens = self.codes(_one_hot(codes)) + self.values(features) + self.ranks.weight[-codes.shape[1] :]
        context = self.details(details) + self.since(age_features(age[:, -1]))  # (B, d)
        queries = self.queries.weight + context[:, None]  # (B, K + 1, d)
        x = torch.cat([tokens, queries], 1)  # (B, N + K + 1, d)
        there = torch.cat([codes[..., ACTION] != PAD, torch.ones_like(queries[..., 0], dtype=torch.bool)], 1)
        for layer in self.layers:
            x = layer(x, there[:, None, None, :])
        x = self.norm(x[:, -self.config.slots - 1 :])
        slots = x[:, :-1]
        chance = self.chance_head(x[:, -1]).unflatten(-1, (C, len(HORIZONS_S)))
        times = self.time_head(slots).unflatten(-1, (C, GRID_BINS))
        kinds = self.kind_head(slots)
        return EventSlots(kinds, times, kinds.new_zeros(*kinds.shape[:2], 1)), chance


def _one_hot(codes: Tensor) -> Tensor:
    """(B, N, 12 + 3 · 3) float: which action, and how team and players compare."""
    sizes = (PAD + 1, *(3,) * (CODES - 1))
    parts = [codes[..., i, None] == torch.arange(size, device=codes.device) for i, size in enumerate(sizes)]
    return torch.cat(parts, -1).float()


class SpotOutputs(nn.Module):
    """The network and what is read from its heads: the graph that is exported."""

    def __init__(self, network: SpotTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, codes: Tensor, values: Tensor, details: Tensor) -> tuple[Tensor, Tensor]:
        """Intensity (B, C, 32): expected actions of each class in each bin. Chance (B, C, 5): probabilities."""
        slots, chance = self.network(codes, values, details)
        intensity, _, _ = decode_slots(slots)
        return intensity.sum(1), chance.sigmoid()


def save_spot_transformer(folder: Path, model: SpotTransformer, about: dict[str, Any]) -> None:
    """Write `model.safetensors` and `config.json`, linked by a hash; `about`: further entries of `config.json`."""
    write_weights(folder, model, {"kind": SPOT_KIND, "network": to_dict(model.config), **about})


def load_spot_transformer(folder: Path) -> SpotTransformer:
    """Load a network in eval mode on the CPU; weights in half precision become single."""
    path = folder / CONFIG
    tree = read_json(path, "sizes of the model")
    if not isinstance(tree, dict) or tree.get("kind") != SPOT_KIND or not isinstance(tree.get("network"), dict):
        raise InputError(f"{path}: is not a spot transformer's; give the folder of one made by `tools.make_spot_model`")
    model = SpotTransformer(from_dict(SpotTransformerConfig, tree["network"], str(path), "network."))
    read_weights(folder, model, tree)
    return model.eval()
