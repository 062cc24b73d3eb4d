import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ballcast.model.layers import CrossAttention, DecoderLayer, DropPath, EncoderLayer, SelfAttention, band


def test_self_attention_by_hand() -> None:
    layer = SelfAttention(dim=2, heads=1)
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([torch.eye(2)] * 3))  # queries, keys and values are the input itself
        layer.qkv.bias.zero_()
        layer.out.weight.copy_(torch.eye(2))
        layer.out.bias.zero_()
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    to_itself = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    expected = [[to_itself, 1 - to_itself], [1 - to_itself, to_itself]]
    assert layer(x)[0].tolist() == [pytest.approx(row) for row in expected]
    alone = layer(x, torch.eye(2, dtype=torch.bool))
    torch.testing.assert_close(alone, x)


def test_attention_agrees_with_pytorch() -> None:
    ours = CrossAttention(dim=12, heads=3)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.memory.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.memory.bias]))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    x, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    seen = torch.tensor([[False, True, True, True, True, True], [True] * 6])
    expected, _ = theirs(x, memory, memory, key_padding_mask=~seen)
    torch.testing.assert_close(ours(x, memory, seen[:, None, None, :]), expected)


def test_drop_path_leaves_out_whole_samples_and_keeps_the_mean() -> None:
    drop = DropPath(0.25)
    x = torch.ones(4000, 2, 3)
    out = drop(x)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert (out == out[:, :1, :1]).all()  # a branch goes as a whole
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert drop.eval()(x) is x


def test_drop_path_is_on_both_branches() -> None:
    layer = EncoderLayer(dim=8, heads=2, ffn=8, drop_path=0.5)
    x = torch.randn(400, 3, 8)
    unchanged = ((layer(x) - x).abs().amax(dim=(1, 2)) == 0).float().mean().item()
    assert unchanged == pytest.approx(0.25, abs=0.07)  # both branches left out: 0.5 · 0.5


def test_band() -> None:
    assert band(3, 2) is None
    mask = band(4, 1)
    assert mask is not None
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    parts = [ours.qkv] if isinstance(ours, SelfAttention) else [ours.query, ours.memory]
    theirs.in_proj_weight.data.copy_(torch.cat([p.weight for p in parts]))
    theirs.in_proj_bias.data.copy_(torch.cat([p.bias for p in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def copy_rest(ours: Any, theirs: Any, norms: list[nn.LayerNorm]) -> None:
    """Feed-forward and norms; the norms shall not be the identity."""
    theirs.linear1.load_state_dict(ours.ffn[0].state_dict())
    theirs.linear2.load_state_dict(ours.ffn[3].state_dict())
    for i, norm in enumerate(norms, start=1):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        getattr(theirs, f"norm{i}").load_state_dict(norm.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_layers_agree_with_pytorch(norm: Any, activation: Any) -> None:
    settings = {"dim": 12, "heads": 3, "ffn": 20, "dropout": 0.1, "norm": norm, "activation": activation}
    same: dict[str, Any] = {"dropout": 0.1, "activation": activation, "batch_first": True, "norm_first": norm == "pre"}
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    mask = band(5, 1)
    assert mask is not None
    hidden: Tensor = ~mask  # PyTorch's masks say where not to look

    encoder = EncoderLayer(**settings).eval()
    theirs = nn.TransformerEncoderLayer(12, 3, 20, **same).eval()
    copy_attention(encoder.attention, theirs.self_attn)
    copy_rest(encoder, theirs, [encoder.attention_norm, encoder.ffn_norm])
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, mask), theirs(x, src_mask=hidden))

    decoder = DecoderLayer(**settings).eval()
    other = nn.TransformerDecoderLayer(12, 3, 20, **same).eval()
    copy_attention(decoder.self_attention, other.self_attn)
    copy_attention(decoder.cross_attention, other.multihead_attn)
    copy_rest(decoder, other, [decoder.self_norm, decoder.cross_norm, decoder.ffn_norm])
    with torch.no_grad():
        torch.testing.assert_close(decoder(x, memory, mask), other(x, memory, tgt_mask=hidden))


def test_positions_join_what_attends_and_not_the_stream() -> None:
    """Post-LN: LN(x + attention(x + p)); the layer without attention's share, p has no way in."""
    layer = EncoderLayer(dim=8, heads=2, ffn=16, norm="post").eval()
    x, p = torch.randn(2, 4, 8), torch.randn(4, 8)
    between = layer.attention_norm(x + layer.attention(x + p))
    torch.testing.assert_close(layer(x, positions=p), layer.ffn_norm(between + layer.ffn(between)))
    decoder = DecoderLayer(dim=8, heads=2, ffn=16, dropout=0.0, norm="post").eval()
    memory = torch.randn(2, 3, 8)
    z = decoder.self_norm(x + decoder.self_attention(x + p))
    z = decoder.cross_norm(z + decoder.cross_attention(z + p, memory))
    torch.testing.assert_close(decoder(x, memory, positions=p), decoder.ffn_norm(z + decoder.ffn(z)))
