"""Frame encoders: backbones without 3D blocks, in gray or colour, with and without a temporal shift."""

import av
import numpy as np
import torch

from ballcast.features.backbone import i420_to_rgb, pad_frames


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
    padded = pad_frames(frames, 32, colour=True)
    assert padded.shape == (2, 1, 48, 64)
    rgb, own = i420_to_rgb(padded), i420_to_rgb(frames)
    assert torch.equal(rgb[..., 4:26, 12:50], own)
    rgb[..., 4:26, 12:50] = 0
    assert not rgb.any()
    assert pad_frames(padded, 32, colour=True) is padded
