"""Clips along a stream: the features of the whole video at once, from few frames at a time and each stack once."""

import numpy as np
import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.features.backbone import BackboneConfig
from ballcast.features.shared import SharedStacks
from ballcast.features.stream import ClipStream
from tests.features.conftest import SMALL, small_backbone

SIZES = {"channels": 16, "blocks": 1, "projected": 8, "se_ratio": 4}
CONFIGS = [SMALL, BackboneConfig(frames=33, **SIZES), BackboneConfig(stride=6, **SIZES)]


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 40, 60), dtype=np.uint8)


def features(stream: ClipStream, video: np.ndarray, flush_every: int) -> torch.Tensor:
    parts = []
    for n, frame in enumerate(video):
        parts.append(stream.push(frame))
        if (n + 1) % flush_every == 0:
            parts.append(stream.flush())
    return torch.cat([*parts, stream.flush()])


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(("batch", "flush_every"), [(9, 25), (2, 7), (33, 1000)])
def test_a_stream_gives_the_features_of_the_video(
    config: BackboneConfig, batch: int, flush_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, video = small_backbone(config=config), frames(131)
    expected = backbone.clips(video)
    encoded = []
    maps = SharedStacks.maps
    monkeypatch.setattr(
        SharedStacks, "maps", lambda self, x, begins: encoded.append(len(begins)) or maps(self, x, begins)
    )
    stream = ClipStream(backbone, batch=batch)
    got = features(stream, video, flush_every)
    assert got.shape == expected.shape
    assert ((got - expected).abs().max() / expected.abs().max()).item() < 1e-5
    assert sum(encoded) == stream.stacks == (131 - config.stack_span) // config.stride + 1
    assert max(encoded) <= batch
    assert len(stream._waiting) <= config.stride * stream.batch + config.stack_span


def test_after_a_reset_the_same_frames_give_the_same_bits() -> None:
    stream, video = ClipStream(small_backbone(), batch=4), frames(60)
    first = features(stream, video, 25)
    stream.reset()
    assert (stream.frames, stream.stacks, stream.pending) == (0, 0, 0)
    assert torch.equal(features(stream, video, 25), first)


def test_bad_frames() -> None:
    stream = ClipStream(small_backbone(), batch=4)
    with pytest.raises(InputError, match="must be"):
        stream.push(np.zeros((40, 60), np.float32))
    stream.push(np.zeros((40, 60), np.uint8))
    with pytest.raises(InputError, match=r"frame 1 is \(60, 40\), the one before \(40, 60\)"):
        stream.push(np.zeros((60, 40), np.uint8))


def test_numbers_that_are_not_finite_are_named() -> None:
    backbone = small_backbone()
    torch.nn.init.constant_(backbone.project3d[0].weight, float("nan"))
    with pytest.raises(InputError, match="not finite"):
        features(ClipStream(backbone, batch=4), frames(40), 25)
