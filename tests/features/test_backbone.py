"""The backbone as a file and as a network."""

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ballcast.core.errors import InputError
from ballcast.features import backbone as module
from ballcast.features.backbone import Backbone, BackboneConfig, InvertedResidual3d, pad_frames
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, snippet_span, stack_overlap
from tests.features.conftest import small_backbone


def test_sizes_of_the_published_networks() -> None:
    short, long = BackboneConfig(), BackboneConfig(frames=33)
    assert (short.stacks, short.width, snippet_span(short), snippet_count(short)) == (5, 1280, 29, 33)
    assert (long.stacks, long.width, snippet_span(long), snippet_count(long)) == (11, 2816, 65, 21)
    assert (snippet_count(short, 28), snippet_count(short, 29), snippet_count(short, 31), snippet_count(short, 32)) == (
        0,
        1,
        1,
        2,
    )
    assert snippet_count(short) + stack_overlap(short) == 41  # distinct stacks of a window's 165
    # the window's last frame is the last clip's last frame
    assert short.stride * (snippet_count(short) - 1) + snippet_span(short) == 125


@pytest.mark.parametrize("changes", [{"frames": 16}, {"stride": 4}, {"blocks": 0}, {"se_ratio": 9999}])
def test_sizes_that_do_not_fit(changes: dict[str, int]) -> None:
    with pytest.raises(InputError):
        dataclasses.replace(BackboneConfig(), **changes)


def test_padding_is_centred_and_the_odd_one_comes_after() -> None:
    padded = pad_frames(torch.ones(1, 93, 160, dtype=torch.uint8), 32)
    assert padded.shape == (1, 96, 160)
    assert padded[0, :, 0].tolist() == [0] + [1] * 93 + [0, 0]
    assert pad_frames(torch.ones(1, 720, 1280), 32).shape == (1, 736, 1280)


def test_saved_and_read_again(tmp_path: Path, backbone: Backbone) -> None:
    backbone.save_pretrained(tmp_path)
    again = Backbone.load(tmp_path)
    assert again.hash == backbone.hash
    assert again.identity == backbone.identity
    assert not again.training
    assert small_backbone(1).hash != backbone.hash


def test_the_hash_sees_weights_and_config(backbone: Backbone) -> None:
    other = small_backbone()
    assert other.hash == backbone.hash
    with torch.no_grad():
        other.pool.p += 1e-3
    assert other.hash != backbone.hash
    assert small_backbone(config=dataclasses.replace(backbone.config, step=4)).hash != backbone.hash


def test_a_damaged_folder(tmp_path: Path, backbone: Backbone) -> None:
    backbone.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read"):
        Backbone.load(tmp_path)
    weights.unlink()
    with pytest.raises(InputError, match=r"has no model\.safetensors"):
        Backbone.load(tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "something else"}')
    with pytest.raises(InputError, match="not the config of a ballcast backbone"):
        Backbone.load(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        Backbone.load(tmp_path / "nowhere")


def test_it_learns(backbone: Backbone) -> None:
    network = small_backbone().train()
    frames = torch.randint(0, 256, (2, 15, 64, 64), dtype=torch.uint8)
    network(frames).square().sum().backward()
    missing = [name for name, value in network.named_parameters() if value.grad is None]
    assert not missing


@settings(max_examples=60, deadline=None)
@given(B=st.integers(1, 3), J=st.integers(1, 6), C=st.integers(1, 9), h=st.integers(1, 7), w=st.integers(1, 7))
def test_depthwise_in_planes_equals_conv3d(B: int, J: int, C: int, h: int, w: int) -> None:
    torch.manual_seed(10 * J + C)
    block = InvertedResidual3d(channels=C, expansion=2, se_ratio=1).eval()
    stacks, index = torch.randn(B + J, 2 * C, h, w), torch.randint(0, B + J, (B, J))
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        expected = block.depthwise(stacks, lambda x: x[index])
        assert torch.equal(expected, block.conv_dw(stacks[index].transpose(1, 2)).transpose(1, 2))
        patch.setattr(module, "use_2d_convolutions", lambda x: True)
        got = block.depthwise(stacks, lambda x: x[index])
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= 1e-5 * max(1, expected.abs().max())


def test_a_window_in_planes(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = torch.randint(0, 256, (128, 40, 60), dtype=torch.uint8)
    expected = BatchEncoder(backbone, compiled=False).windows(frames, [0, 3])
    calls: list[int] = []
    monkeypatch.setattr(module, "use_2d_convolutions", lambda x: calls.append(len(x)) is None)
    got = BatchEncoder(backbone, compiled=False).windows(frames, [0, 3])
    assert calls  # and not the same way twice
    assert ((got - expected).abs().max() / expected.abs().max()).item() < 1e-5


def test_the_way_is_chosen_by_device_and_gradient() -> None:
    assert not module.use_2d_convolutions(torch.zeros(1))
    cuda = type("OnGpu", (), {"is_cuda": True})()
    assert not module.use_2d_convolutions(cuda)
    with torch.no_grad():
        assert module.use_2d_convolutions(cuda)
    with torch.inference_mode():
        assert module.use_2d_convolutions(cuda)
