"""Augmentation like television: shapes, ranges, what each effect keeps, and that a seed draws the same."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ballcast.training import television
from ballcast.training.television import cut_in, gaussian_blur, jpeg, lightly, like_television, move_camera, wander


@pytest.fixture
def frames() -> Tensor:
    """A coarse random picture that moves to the right, (20, 3, 48, 80) in [0, 255]."""
    picture = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (1, 3, 6, 20)).astype(np.float32))
    wide = torch.nn.functional.interpolate(picture, (48, 160), mode="bilinear")
    return torch.cat([wide[..., 2 * i : 2 * i + 80] for i in range(20)])


@pytest.mark.parametrize("change", [lightly, like_television])
def test_keeps_shape_and_range_and_is_drawn_from_the_seed(change, frames):
    for seed in range(12):
        before = frames.clone()
        changed = change(frames, np.random.default_rng(seed))
        assert torch.equal(frames, before)  # the film itself is not written to
        assert changed.shape == frames.shape
        assert torch.isfinite(changed).all()
        assert changed.min() >= 0
        assert changed.max() <= 255
    torch.manual_seed(1)
    first = change(frames, np.random.default_rng(3))
    torch.manual_seed(1)
    assert torch.equal(first, change(frames, np.random.default_rng(3)))
    assert not torch.equal(first, change(frames, np.random.default_rng(4)))


def test_jpeg_of_high_quality_hardly_changes_and_of_low_quality_does(frames):
    fine = (jpeg(frames, 98) - frames).abs().mean()
    coarse = (jpeg(frames, 12) - frames).abs().mean()
    assert fine < 1
    assert coarse > 2 * fine


def test_jpeg_keeps_a_flat_picture_of_any_size():
    flat = torch.full((1, 3, 13, 30), 128.0)  # 128 is JPEG's zero
    assert torch.allclose(jpeg(flat, 30), flat, atol=1e-3)


def test_blur_keeps_the_mean_and_lowers_the_deviation(frames):
    blurred = gaussian_blur(frames, 1.2)
    assert blurred.mean() == pytest.approx(frames.mean().item(), abs=2)
    assert blurred.std() < frames.std()
    flat = torch.full((1, 3, 20, 20), 77.0)
    assert torch.allclose(gaussian_blur(flat, 1.5), flat, atol=1e-3)


def test_a_camera_that_does_not_move_shows_the_same_picture(frames, monkeypatch):
    class Middle:
        """Draws the middle of every range, and never what has a probability of a half or less."""

        def uniform(self, low: float, high: float) -> float:
            return 0.0 if low < 0 < high else 1.0

        def normal(self, size: int) -> np.ndarray:
            return np.zeros(size)

        def random(self) -> float:
            return 0.99

    monkeypatch.setattr(television.math, "exp", lambda x: 1.0)
    assert torch.allclose(move_camera(frames, Middle()), frames, atol=0.01)


def test_a_cut_begins_with_the_other_film_and_marks_it(frames):
    other = torch.full_like(frames, 200.0)
    shown, play = cut_in(frames, other, np.random.default_rng(0))
    assert play.shape == (20,)
    assert not play[0]
    assert play[-1]
    assert torch.equal(shown[play], frames[play])
    assert torch.allclose(shown[~play], other[~play])


def test_a_wandering_path_is_smooth_and_has_the_deviation_asked_for():
    path = wander(20_000, 0.5, 12, np.random.default_rng(0))
    assert path.shape == (20_000,)
    assert path.std() == pytest.approx(0.5, rel=0.15)
    assert np.abs(np.diff(path)).max() < 0.25
