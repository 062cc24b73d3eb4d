"""Shared stacks: each distinct stack once, and the same features as clip by clip."""

import numpy as np
import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.features import batch_encoder
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_span
from tests.features.conftest import SMALL, small_backbone


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 40, 60), dtype=np.uint8)


def one_by_one(backbone: Backbone, video: np.ndarray, starts: list[int]) -> torch.Tensor:
    """Features of the clips at `starts`, each computed alone from its own pictures."""
    c = backbone.config
    with torch.no_grad():
        clips = [torch.from_numpy(video[start : start + snippet_span(c) : c.step]) for start in starts]
        return torch.cat([backbone.features(clip[None]) for clip in clips])


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.shape == expected.shape
    assert ((got - expected).abs().max() / expected.abs().max()).item() < 1e-5


@pytest.mark.parametrize("count", [29, 125, 200])
def test_clips_equal_clip_by_clip(backbone: Backbone, count: int) -> None:
    video = frames(count)
    starts = list(range(0, count - 28, 3))
    assert_same(backbone.snippets(video), one_by_one(backbone, video, starts))


def test_the_33_frame_network() -> None:
    config = BackboneConfig(frames=33, channels=16, blocks=1, projected=8, se_ratio=4)
    backbone, video = small_backbone(config=config), frames(140)
    assert_same(backbone.snippets(video), one_by_one(backbone, video, list(range(0, 140 - 64, 3))))
    assert BatchEncoder(backbone, compiled=False).windows(video, [0, 10]).shape == (2, 21, 11 * 8)


def test_windows_start_anywhere(backbone: Backbone) -> None:
    video = frames(230)
    starts = [0, 25, 75, 100, 105]
    got = BatchEncoder(backbone, compiled=False).windows(video, starts)
    assert got.shape == (5, 33, SMALL.width)
    for window, start in zip(got, starts, strict=True):
        assert_same(window, one_by_one(backbone, video, [start + 3 * i for i in range(33)]))


def test_a_windows_features_do_not_depend_on_its_neighbours(backbone: Backbone) -> None:
    video = frames(250)
    together = BatchEncoder(backbone, compiled=False).windows(video, [0, 125])
    assert torch.equal(together[1], BatchEncoder(backbone, compiled=False).windows(video[125:], [0])[0])


@pytest.mark.parametrize(("pixels", "at_once"), [(1, 1), (3 * 64 * 64, 3), (10**9, 8)])
def test_on_a_cpu_fewer_stacks_of_larger_frames_go_through_at_once(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch, pixels: int, at_once: int
) -> None:
    """40×60 is padded to 64×64."""
    video, passes = frames(125), []
    expected = BatchEncoder(backbone, device="cpu").windows(video, [0])
    monkeypatch.setattr(batch_encoder, "CPU_PIXELS", pixels)
    encode = backbone.encode
    monkeypatch.setattr(backbone, "encode", lambda x: passes.append(len(x)) or encode(x))
    got = BatchEncoder(backbone, device="cpu").windows(video, [0])
    assert max(passes) == at_once
    assert sum(passes) == 41
    assert_same(got, expected)


def test_on_a_cpu_freed_memory_is_kept(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(batch_encoder, "keep_freed_memory", lambda: calls.append(True))
    BatchEncoder(backbone, device="cpu")
    assert calls == [True]


def test_a_window_encodes_41_stacks(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    encode = BatchEncoder.encode
    monkeypatch.setattr(BatchEncoder, "encode", lambda self, x: seen.append(len(x)) or encode(self, x))
    BatchEncoder(backbone, compiled=False).windows(frames(125), [0])
    assert seen == [41]
    seen.clear()
    BatchEncoder(backbone).windows(frames(750), range(0, 626, 25))
    assert sum(seen) <= 3 * 6 * 41  # 26 windows alone would take 26 · 41


def test_the_last_frame_counts_and_nothing_after_it(backbone: Backbone) -> None:
    video = frames(126)
    changed = video.copy()
    changed[125] = 0
    assert torch.equal(
        BatchEncoder(backbone, compiled=False).windows(changed, [0]),
        BatchEncoder(backbone, compiled=False).windows(video, [0]),
    )
    changed[124] = 0
    different = (
        BatchEncoder(backbone, compiled=False).windows(changed, [0])
        != BatchEncoder(backbone, compiled=False).windows(video, [0])
    ).any(-1)[0]
    assert different.tolist() == [False] * 32 + [True]


def test_bad_input(backbone: Backbone) -> None:
    with pytest.raises(InputError, match="a window at frame 1 needs frames 1 to 125"):
        BatchEncoder(backbone, compiled=False).windows(frames(125), [1])
    with pytest.raises(InputError, match="must be"):
        backbone.snippets(frames(125).astype(np.float32))
    assert backbone.snippets(frames(28)).shape == (0, SMALL.width)


def test_training_mode_is_left_alone() -> None:
    backbone = small_backbone().train()
    backbone.snippets(frames(29))
    assert backbone.training


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_compiled_on_a_gpu(backbone: Backbone) -> None:
    video = frames(140)
    expected = BatchEncoder(backbone, compiled=False).windows(video, [0, 15])
    engine = BatchEncoder(backbone, device="cuda")
    for _ in range(3):  # compiled, recorded, replayed
        got = engine.windows(video, [0, 15]).cpu()
        assert ((got - expected).abs().max() / expected.abs().max()).item() < 2e-2
    eager = BatchEncoder(backbone, device="cuda", compiled=False).windows(video, [0, 15]).cpu()
    assert ((got - eager).abs().max() / expected.abs().max()).item() < 2e-2
