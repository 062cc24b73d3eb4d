"""Clips along a stream: the features of the whole video at once, from few frames at a time and each stack once."""

import graphs
import numpy as np
import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.features.backbone import BackboneConfig
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_span, stack_span
from ballcast.inference.stream_encoder import StreamEncoder
from tests.features.conftest import SMALL, runtime_of, small_backbone

SIZES = {"channels": 16, "blocks": 1, "projected": 8, "se_ratio": 4}
CONFIGS = [SMALL, BackboneConfig(frames=33, **SIZES), BackboneConfig(stride=6, **SIZES)]


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 40, 60), dtype=np.uint8)


def features(stream: StreamEncoder, video: np.ndarray) -> np.ndarray:
    return np.concatenate([stream.push(frame) for frame in video])


@pytest.mark.parametrize("config", CONFIGS)
def test_a_stream_gives_the_features_of_the_video(config: BackboneConfig) -> None:
    backbone, video = small_backbone(config=config), frames(131)
    expected = backbone.snippets(video).numpy()
    stream = StreamEncoder(runtime_of(backbone))
    got = features(stream, video)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() / np.abs(expected).max() < 1e-5
    assert stream.stacks == (131 - stack_span(config)) // config.stride + 1
    assert len(stream._waiting) < stack_span(config)


def test_a_clip_comes_with_its_last_frame() -> None:
    stream, video = StreamEncoder(runtime_of(small_backbone())), frames(60)
    came = [n for n, frame in enumerate(video) if len(stream.push(frame))]
    assert came == list(range(snippet_span(SMALL) - 1, 60, SMALL.stride))


def test_after_a_reset_the_same_frames_give_the_same_bits() -> None:
    stream, video = StreamEncoder(runtime_of(small_backbone())), frames(60)
    first = features(stream, video)
    features(stream, frames(17, seed=1))
    stream.reset()
    assert (stream.frames, stream.stacks) == (0, 0)
    assert np.array_equal(features(stream, video), first)


def test_after_a_reset_frames_may_have_another_size() -> None:
    stream = StreamEncoder(runtime_of(small_backbone()))
    features(stream, frames(40))
    stream.reset()
    other = np.ascontiguousarray(frames(40).transpose(0, 2, 1))
    assert np.array_equal(features(stream, other), features(StreamEncoder(runtime_of(small_backbone())), other))


def test_the_recorded_step_keeps_nothing_that_a_replay_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ballcast.inference.torch_stacks.record", graphs.record)
    runtime, video = runtime_of(small_backbone()), frames(60)
    runtime._graphed = True
    plain, recorded = StreamEncoder(runtime_of(small_backbone())), StreamEncoder(runtime)
    expected = features(plain, video)
    assert np.array_equal(features(recorded, video), expected)
    recorded.reset()
    assert np.array_equal(features(recorded, video), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_recorded_step_on_a_gpu() -> None:
    backbone, video = small_backbone().cuda(), frames(131)
    expected = BatchEncoder(backbone, compiled=False).snippets(video).cpu().numpy()
    stream = StreamEncoder(runtime_of(backbone))
    got = features(stream, video)
    assert np.abs(got - expected).max() / np.abs(expected).max() < 1e-2  # fp16, other batches
    stream.reset()
    assert np.array_equal(features(stream, video), got)


def test_bad_frames() -> None:
    stream = StreamEncoder(runtime_of(small_backbone()))
    with pytest.raises(InputError, match="must be"):
        stream.push(np.zeros((40, 60), np.float32))
    stream.push(np.zeros((40, 60), np.uint8))
    with pytest.raises(InputError, match=r"frame 1 is \(60, 40\), the one before \(40, 60\)"):
        stream.push(np.zeros((60, 40), np.uint8))


def test_numbers_that_are_not_finite_are_named() -> None:
    backbone = small_backbone()
    torch.nn.init.constant_(backbone.project3d[0].weight, float("nan"))
    with pytest.raises(InputError, match="not finite"):
        features(StreamEncoder(runtime_of(backbone)), frames(40))
