import math

import pytest
import torch

from ballcast.model.attention import CrossAttention, DropPath, EncoderLayer, SelfAttention, band


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
