"""The event transformer: the last events before T as tokens → K slots, each the k-th action to come.

A slot has a distribution over "none" and each action by each team, a distribution over the scorer's 32 bins for each
action, and one over zones of the pitch. `decode_slots` reads them. B samples, N tokens,
K slots, C actions, 2 teams (0: the team of the last event before T), Z zones.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ballcast.core.actions import ACTIONS, HORIZON_MS
from ballcast.core.checks import check_pair
from ballcast.core.config import from_dict, to_dict
from ballcast.core.errors import InputError, first_line
from ballcast.core.event_schema import (
    ACTION,
    AGE,
    CODES,
    DETAILS,
    HORIZONS_S,
    KIND,
    KINDS,
    OUTCOME,
    PAD,
    SAME_TEAM,
    ZONES,
)
from ballcast.core.events import GRID_BINS
from ballcast.core.feed_config import KIND as MODEL_KIND
from ballcast.core.feed_config import EventTransformerConfig
from ballcast.core.files import read_bytes, read_json, write_pair
from ballcast.model.layers import EncoderLayer, embedding
from ballcast.model.postprocess import BIN_MS

C = len(ACTIONS)
TEAMS = 2
_FEATURES = 24  # of a token, from its values; see `_features`


class EventSlots(NamedTuple):
    """Logits of K slots: `kinds` (B, K, 1 + 2C), none first, then team by team; `times` (B, K, C, 32); `zones`
    (B, K, Z), row by row along the pitch."""

    kinds: Tensor
    times: Tensor
    zones: Tensor


class EventTransformer(nn.Module):
    """Tokens and slot queries through one Transformer encoder; heads on the slots."""

    def __init__(self, config: EventTransformerConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.codes = nn.Linear(sum(_SIZES.values()), dim, bias=False)  # of one-hot codes: the sum of their embeddings
        self.ranks = embedding(config.tokens, dim, std=0.02)
        self.queries = embedding(config.slots, dim, std=0.02)
        self.values = nn.Sequential(nn.Linear(_FEATURES, dim), nn.GELU(), nn.Linear(dim, dim))
        self.told = nn.Linear(len(DETAILS), dim)  # the name in saved weights
        self.since = nn.Linear(AGES, dim)
        self.layers = nn.ModuleList(
            EncoderLayer(dim=dim, heads=config.heads, ffn=config.ffn, dropout=config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.kind_head = nn.Linear(dim, 1 + TEAMS * C)
        self.time_head = nn.Linear(dim, C * GRID_BINS)
        self.zone_head = nn.Linear(dim, ZONES[0] * ZONES[1])

    def forward(self, codes: Tensor, values: Tensor, available: Tensor) -> EventSlots:
        """Codes (B, N, 7) int64, values (B, N, 5) and available (B, flags) float → slots; see `event_tokens`.

        N may be less than the model's `tokens`: padding in front can be left out, except the last of it.
        """
        action = codes[..., ACTION]
        ranks = self.ranks.weight[-codes.shape[1] :]
        tokens = self.codes(_one_hot(codes)) + self.values(_features(codes, values)) + ranks  # (B, N, d)
        since = self.since(age_features(values[:, -1, AGE]))  # (B, d): the time since the last event
        context = (self.told(available) + since)[:, None]
        queries = self.queries.weight + context  # (B, K, d)
        x = torch.cat([tokens, queries], 1)  # (B, N + K, d)
        there = torch.cat([action != PAD, torch.ones_like(queries[..., 0], dtype=torch.bool)], 1)
        mask = there[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        slots = self.norm(x[:, -self.config.slots :])
        times = self.time_head(slots).unflatten(-1, (C, GRID_BINS))
        return EventSlots(self.kind_head(slots), times, self.zone_head(slots))


CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def save_event_transformer(folder: Path, model: EventTransformer, about: dict[str, Any]) -> None:
    """Write `model.safetensors` and `config.json`, linked by a hash (`core.files.write_pair`).

    Args:
        folder: where to write; made if needed.
        model: the network.
        about: further entries of `config.json`; `calibration` (2, C, 5) is needed to run the model.
    """
    write_weights(folder, model, {"kind": MODEL_KIND, "network": to_dict(model.config), **about})


def load_event_transformer(folder: Path) -> EventTransformer:
    """Load a network in eval mode on the CPU; weights in half precision become single."""
    path = folder / CONFIG
    if not path.exists() and (folder / "best" / CONFIG).exists():
        raise InputError(f"{folder}: is a run folder; give its model, {folder / 'best'}")
    tree = read_json(path, "sizes of the model")
    if not isinstance(tree, dict) or tree.get("kind") != MODEL_KIND or not isinstance(tree.get("network"), dict):
        raise InputError(f"{path}: is not an event transformer's; give the folder of one made by `ballcast train feed`")
    model = EventTransformer(from_dict(EventTransformerConfig, tree["network"], str(path), "network."))
    read_weights(folder, model, tree)
    return model.eval()


def write_weights(folder: Path, network: nn.Module, tree: dict[str, Any]) -> None:
    """Write `model.safetensors`, and `tree` as `config.json`, linked by a hash."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    write_pair(folder, WEIGHTS, save(weights), CONFIG, tree)


def read_weights(folder: Path, network: nn.Module, tree: dict[str, Any]) -> None:
    """Load `model.safetensors` into a network; an InputError unless it fits it and `tree`, the `config.json`."""
    raw = read_bytes(folder / WEIGHTS, "model's weights")
    check_pair(folder / WEIGHTS, raw, folder / CONFIG, tree)
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in load(raw).items()})
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        fault = first_line(error)
        raise InputError(f"{folder / WEIGHTS}: does not hold the model of config.json ({fault})") from None


# No tensor below is made of Python numbers or lists: copying them to a GPU would break a CUDA graph.
AGES = 6
_SIZES = {ACTION: PAD + 1, KIND: len(KINDS), OUTCOME: 3}


def _one_hot(codes: Tensor) -> Tensor:
    """(B, N, sum of sizes) float: which action, kind and outcome."""
    parts = [codes[..., i, None] == torch.arange(size, device=codes.device) for i, size in _SIZES.items()]
    return torch.cat(parts, -1).float()


def age_features(age: Tensor) -> Tensor:
    """(…) seconds → (…, 6) features."""
    parts = [age / 30, torch.log1p(age), *(torch.exp(-age / s) for s in (0.5, 1.5, 4.0, 10.0))]
    return torch.stack(parts, -1)


def _features(codes: Tensor, values: Tensor) -> Tensor:
    """(B, N, 24): positions and their change, distance to both goals, ages, flags."""
    place = values[..., :4]
    age = values[..., AGE]
    start = place[..., :2]
    end = place[..., 2:]
    before = torch.cat([values[:, :1], values[:, :-1]], 1)  # the token before each
    step = start - before[..., 2:4]
    gap = (before[..., AGE] - age).clamp(min=0)
    across = ((end[..., 1] - 0.5) * 0.68).square()  # in units of 100 m
    goals = [(((end[..., 0] - x) * 1.05).square() + across).sqrt() for x in (0.0, 1.0)]
    flags = codes[..., SAME_TEAM:CODES].to(values.dtype)  # same team, same player, ended, located
    parts = [place, end - start, step, torch.stack([*goals, torch.log1p(gap), torch.exp(-gap)], -1), age_features(age)]
    wave = torch.sin(3.14159265 * start)  # 0 at the lines
    return torch.cat([*parts, flags, wave], -1)


def decode_slots(slots: EventSlots) -> tuple[Tensor, Tensor, Tensor]:
    """Read the slots.

    Returns:
        Intensity (B, 2, C, 32): expected actions of each team and class in each bin. Chance (B, 3, C, 5): the
        probability of at least one within 1, 2, … 5 s by team 0, by team 1, by either. Zones (B, Z): where the next
        action happens, given that one comes.
    """
    kinds = slots.kinds.softmax(-1)[..., 1:].unflatten(-1, (TEAMS, C))  # (B, K, 2, C)
    times = slots.times.softmax(-1)  # (B, K, C, 32)
    joint = kinds[..., None] * times[:, :, None]  # (B, K, 2, C, 32)
    until = joint @ _overlap().to(joint)  # (B, K, 2, C, 5)
    until = torch.cat([until, until.sum(2, keepdim=True)], 2).clamp(max=1)  # (B, K, 3, C, 5)
    return joint.sum(1), 1 - (1 - until).prod(1), slots.zones[:, 0].softmax(-1)


def _overlap() -> Tensor:
    """(32, 5): the share of each bin that lies within 1, 2, … 5 s."""
    begin = torch.arange(GRID_BINS)[:, None] * BIN_MS
    length = (begin + BIN_MS).clamp(max=HORIZON_MS) - begin
    return ((torch.tensor(HORIZONS_S) * 1000 - begin) / length).clamp(0, 1)
