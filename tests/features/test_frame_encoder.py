"""Frame encoders: backbones without 3D blocks, in gray or colour, with and without a temporal shift."""

from dataclasses import replace
from typing import Any, Literal

import av
import numpy as np
import pytest
import torch

from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import InputError
from ballcast.features.backbone import pad_frames
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.frame_network import i420_to_planes, i420_to_rgb, pad_i420, rgb_to_planes
from ballcast.features.stack_index import snippet_count, stack_overlap
from ballcast.inference.stream_encoder import StreamEncoder
from tests.features.conftest import runtime_of, small_backbone


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_i420_to_rgb_is_bt601() -> None:
    """As FFmpeg converts it, up to its rounding."""
    colours = noise(6, 10, 3)
    rgb = colours.repeat(16, 0).repeat(16, 1)  # squares of one colour, since FFmpeg smooths chroma at their edges
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="yuv420p").to_ndarray()
    got = i420_to_rgb(torch.from_numpy(frame))
    assert got.shape == (3, 96, 160)
    assert got.dtype == torch.float32
    assert np.abs(255 * got.numpy().transpose(1, 2, 0) - rgb)[8::16, 8::16].max() < 4
    batch = torch.from_numpy(np.stack([frame, frame // 2])[None])
    assert torch.equal(i420_to_rgb(batch)[0, 0], got)


def test_black_and_white() -> None:
    frame = torch.full((6, 4), 128, dtype=torch.uint8)
    for level, want in ((16, 0.0), (235, 1.0), (0, 0.0), (255, 1.0)):
        frame[:4] = level
        assert torch.allclose(i420_to_rgb(frame), torch.full((3, 4, 4), want), atol=1e-6)


def test_colour_frames_are_padded_with_black_in_pairs() -> None:
    frames = torch.from_numpy(noise(2, 1, 33, 38))  # pictures of 22 × 38
    padded = pad_i420(frames, 32)
    assert padded.shape == (2, 1, 48, 64)
    rgb, own = i420_to_rgb(padded), i420_to_rgb(frames)
    assert torch.equal(rgb[..., 4:26, 12:50], own)
    assert torch.equal(pad_frames(own, 32, pairs=True), rgb)
    rgb[..., 4:26, 12:50] = 0
    assert not rgb.any()
    assert pad_i420(padded, 32) is padded


GRAY = BackboneConfig(encoder="test_efficientnet", frames=3, stack=3, step=1, stride=2, blocks=0, projected=256)
COLOUR = replace(GRAY, frames=1, stack=1, colour=True)
COLOUR_STACKS = replace(GRAY, step=2, colour=True)


def test_a_window_has_62_snippets_of_256() -> None:
    assert (snippet_count(GRAY), GRAY.width, stack_overlap(GRAY)) == (62, 256, 0)
    assert (snippet_count(COLOUR), COLOUR.width) == (63, 256)


def test_a_stack_in_colour_is_lumas_around_a_frame_of_three_colours() -> None:
    stacks = torch.from_numpy(noise(2, 3, 48, 40))  # I420 of 32 × 40
    planes = i420_to_planes(stacks)
    assert planes.shape == (2, 5, 32, 40)
    assert torch.equal(planes[:, 1:4], i420_to_rgb(stacks[:, 1]))
    assert torch.allclose(planes[:, 4], ((stacks[:, 2, :32].float() - 16) / 219).clamp(0, 1))
    one = i420_to_planes(stacks[:, :1])
    assert torch.equal(one, i420_to_rgb(stacks[:, 0]))


def test_stacks_of_coloured_frames_are_those_of_i420() -> None:
    """Training has frames in red, green and blue; where all colours can be shown, their luma is I420's."""
    frames = torch.from_numpy(noise(1, 7, 48, 40))
    frames[..., :32, :] = frames[..., :32, :] // 4 + 90  # no colour is cut off
    frames[..., 32:, :] = frames[..., 32:, :] // 8 + 112
    read = torch.tensor([[0, 2, 4], [1, 3, 5], [2, 4, 6]])
    stacks = rgb_to_planes(i420_to_rgb(frames), read)
    assert stacks.shape == (1, 3, 5, 32, 40)
    assert torch.allclose(stacks[0], i420_to_planes(frames[0, read]), atol=1e-4)


def test_a_stack_in_colour_has_a_middle() -> None:
    with pytest.raises(InputError, match="set stack and frames to an odd number"):
        replace(COLOUR, frames=2, stack=2)


@pytest.mark.parametrize("config", [GRAY, COLOUR, COLOUR_STACKS], ids=["gray", "colour", "colour stacks"])
def test_snippets_one_by_one(config: BackboneConfig) -> None:
    backbone, video = small_backbone(config=config), noise(133, 48, 60)
    with torch.no_grad():
        reads = config.step * np.arange(config.frames)
        given = [torch.from_numpy(video[start + reads])[None] for start in range(0, 129, 2)]
        expected = torch.cat([backbone.features(snippet) for snippet in given])
        got = backbone.snippets(video)[: len(expected)]
    assert ((got - expected).abs().max() / expected.abs().max()).item() < 1e-5


@pytest.mark.parametrize("shift", ["plain", "gated", "causal"])
def test_a_shifted_window_sees_nothing_beyond_it(shift: Literal["plain", "gated", "causal"]) -> None:
    """Windows are the network's own batches of N stacks, and neighbours in the call do not change them."""
    config = replace(COLOUR, shift=shift)
    backbone, video = small_backbone(config=config), noise(300, 48, 60)
    engine = BatchEncoder(backbone, compiled=False)
    got = engine.windows(video, [0, 7, 175])
    for start, window in zip((0, 7, 175), got, strict=True):
        with torch.no_grad():
            own = backbone.features(torch.from_numpy(video[start : start + 125 : 2])[:, None])
        assert ((window - own).abs().max() / own.abs().max()).item() < 1e-5
    covered = engine.snippets(video)  # 150 snippets: the windows at the snippets 0, 63 and 87
    assert len(covered) == 150
    assert torch.equal(covered[:63], got[0])
    assert torch.equal(covered[87:], engine.windows(video, [174])[0])
    assert torch.equal(covered[63:87], engine.windows(video, [126])[0][:24])
    with pytest.raises(InputError, match="100 frames are fewer than the 125"):
        engine.snippets(video[:100])


def test_a_causal_shift_sees_no_later_frame() -> None:
    backbone, video = small_backbone(config=replace(COLOUR, shift="causal")), noise(125, 48, 60)
    changed = video.copy()
    changed[60:] = 0
    engine = BatchEncoder(backbone, compiled=False)
    a, b = engine.windows(video, [0])[0], engine.windows(changed, [0])[0]
    assert torch.allclose(a[:30], b[:30], atol=1e-6)
    assert not torch.allclose(a[31], b[31], atol=1e-3)


def test_frames_of_another_kind() -> None:
    engine = BatchEncoder(small_backbone(config=COLOUR), compiled=False)
    with pytest.raises(InputError, match=r"frames must be I420 \(T, 3H/2, W\) uint8, not \(125, 40, 60\)"):
        engine.windows(noise(125, 40, 60), [0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("encoder", ["tf_efficientnet_lite0", "regnety_002"])
@pytest.mark.parametrize(
    "changes", [{}, {"colour": True}, {"shift": "gated"}, {"shift": "causal", "colour": True}], ids=str
)
def test_compiled_on_a_gpu(encoder: str, changes: dict[str, Any]) -> None:
    """The compiled encoder and the recorded stream give the CPU's features, up to fp16."""
    config = replace(COLOUR if "colour" in changes else GRAY, encoder=encoder, **changes)
    backbone, video = small_backbone(config=config), noise(150, 96, 96)
    expected = BatchEncoder(backbone, compiled=False).windows(video, [0, 24])
    engine = BatchEncoder(backbone, device="cuda")
    for _ in range(3):  # compiled, recorded, replayed
        got = engine.windows(video, [0, 24]).cpu()
        assert ((got - expected).abs().max() / expected.abs().max()).item() < 2e-2
    stream = StreamEncoder(runtime_of(backbone.cuda()))
    features = [stream.push(frame) for frame in video]
    along = stream.window(12) if config.shift != "none" else np.concatenate(features)[12:][: len(expected[1])]
    assert np.abs(along - expected[1].numpy()).max() / expected.abs().max().item() < 2e-2
