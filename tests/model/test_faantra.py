from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.errors import InputError
from ballcast.model.anticipator import Anticipator
from ballcast.model.faantra import Faantra


def test_the_reach_is_counted_in_snippets(tiny_faantra: ModelConfig) -> None:
    network = Faantra.from_config(tiny_faantra)  # 250 ms at 120 ms a clip: 2 to either side
    assert network.reach is not None
    assert network.reach[3].int().tolist() == [0, 1, 1, 1, 1, 1, 0]
    assert network.query_reach is None  # ±9 is free for 5 queries
    paper = Faantra.from_config(ModelConfig(kind="faantra", slots=8, width=4))
    assert paper.reach is not None
    assert paper.reach[16].sum() == 19  # ±1.12 s: 9 snippets to either side


def test_information_travels_no_further_than_the_reach(tiny_faantra: ModelConfig) -> None:
    """Two encoder layers of ±2 snippets: what happens at snippet 0 cannot be seen in the presence at snippet 5."""
    model = Anticipator(tiny_faantra).eval()
    features = torch.randn(1, 4, 7, 11)
    changed = features.clone()
    changed[0, -1, 0] += 5
    before, after = model(features).presence, model(changed).presence
    assert before is not None
    torch.testing.assert_close(after[0, 5:], before[0, 5:])
    assert not torch.allclose(after[0, 4], before[0, 4])


def test_only_the_last_window_is_read(tiny_faantra: ModelConfig) -> None:
    model = Anticipator(tiny_faantra).eval()
    features = torch.randn(2, 4, 7, 11)
    spoiled = features.clone()
    spoiled[:, :-1] = torch.nan
    assert torch.equal(model(features).classes, model(spoiled).classes)
    tokens = model.encode_window(features)  # live use keeps all windows' tokens
    torch.testing.assert_close(model.anticipate(tokens).classes, model(features).classes)


def test_shapes(tiny_faantra: ModelConfig) -> None:
    slots = Anticipator(tiny_faantra)(torch.randn(2, 4, 7, 11))
    assert slots.form == "fraction"
    assert slots.offsets.shape == (2, 5)
    assert slots.presence is not None
    assert slots.presence.shape == (2, 7, 11)  # ten actions and background
    assert Anticipator(replace(tiny_faantra, auxiliary=False))(torch.randn(2, 4, 7, 11)).presence is None


def test_it_starts_as_the_public_code_does() -> None:
    network = Faantra.from_config(ModelConfig(kind="faantra", slots=8, width=64))
    assert network.positions.weight.abs().max().item() == pytest.approx((6 / (2001 * 512)) ** 0.5, rel=1e-3)
    assert network.queries.weight.std().item() == pytest.approx(1, abs=0.05)
    packed = (6 / (4 * 512)) ** 0.5  # queries, keys and values in one matrix of 3 · 512 rows
    for layer in network.decoder:
        for part in (layer.self_attention.qkv, layer.cross_attention.query, layer.cross_attention.memory):
            assert part.weight.abs().max().item() == pytest.approx(packed, rel=1e-3)
            assert not part.bias.any()
        assert layer.ffn[0].weight.abs().max().item() == pytest.approx((6 / (5 * 512)) ** 0.5, rel=1e-3)
    assert isinstance(network.encoder[0].ffn[1], torch.nn.ReLU)


def test_the_forward_pass_is_the_public_codes(tiny_faantra: ModelConfig) -> None:
    """Once more in plain steps: ReLU of the projection, positions where it attends, zeros that the queries join."""
    model = Anticipator(tiny_faantra).eval()
    network = model.network
    assert isinstance(network, Faantra)
    features = torch.randn(2, 4, 7, 11)
    x, p, q = torch.relu(network.project(features[:, -1])), network.positions.weight, network.queries.weight
    for e in network.encoder:
        x = e.attention_norm(x + e.attention(x + p, network.reach))
        x = e.ffn_norm(x + e.ffn(x))
    z = torch.zeros(2, 5, 24)
    for d in network.decoder:
        z = d.self_norm(z + d.self_attention(z + q))
        z = d.cross_norm(z + d.cross_attention(z + q, x + p))
        z = d.ffn_norm(z + d.ffn(z))
    z = network.decoder_norm(z)
    slots = model(features)
    torch.testing.assert_close(slots.classes, network.heads.classes(z))
    torch.testing.assert_close(slots.objectness, network.heads.objectness(z).squeeze(-1))
    torch.testing.assert_close(slots.offsets, network.heads.offset(z).squeeze(-1) / 9)
    torch.testing.assert_close(slots.presence, network.presence(x))


def test_a_model_of_an_older_ballcast_is_refused_in_words(tiny_faantra: ModelConfig, tmp_path: Path) -> None:
    Anticipator(tiny_faantra).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights |= {f"network.encoder_norm.{k}": torch.zeros(24) for k in ("weight", "bias")}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"older ballcast.*train it again with the recipe faantra"):
        Anticipator.from_pretrained(tmp_path)
