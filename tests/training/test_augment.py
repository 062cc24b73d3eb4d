"""Changes to pictures: each does what it says, none moves an action."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ballcast.core.pretrain_config import AugmentConfig
from ballcast.training.augment import Augmentation, apply_augmentation, draw_augmentation, mix

NONE = AugmentConfig(flip=0, shift=0, zoom=0, brightness=0, contrast=0, blur=0, drop=0, mixup=0)


def changes(config: AugmentConfig, batch: int = 4, pictures: int = 6, seed: int = 0) -> Augmentation:
    return draw_augmentation(config, 3, batch, pictures, np.random.default_rng(seed))[0]


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.randint(0, 256, (4, 6, 16, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_no_change_changes_nothing(pictures: torch.Tensor) -> None:
    assert torch.allclose(apply_augmentation(pictures, changes(NONE)), pictures / 255, atol=1e-5)


def test_flip_is_of_whole_runs(pictures: torch.Tensor) -> None:
    flipped = apply_augmentation(pictures, changes(replace(NONE, flip=1.0)))
    assert torch.allclose(flipped, pictures.flip(-1) / 255, atol=1e-5)


def test_shift_moves_right_and_down(pictures: torch.Tensor) -> None:
    how = changes(NONE)
    how.shift[:, 0], how.shift[:, 1] = 2 * 4 / 32, 2 * 3 / 16  # 4 and 3 pixels
    moved = apply_augmentation(pictures, how)
    assert torch.allclose(moved[..., 3:, 4:], pictures[..., :-3, :-4] / 255, atol=1e-4)
    assert torch.allclose(moved[..., 8, 0], pictures[..., 5, 0] / 255, atol=1e-4)  # the edge is repeated


def test_zoom_and_flip_are_of_the_shifted_picture(pictures: torch.Tensor) -> None:
    how = changes(NONE)
    how.shift[:, 0] = 2 * 4 / 32
    shifted = apply_augmentation(pictures, how)
    how.turn[:] = -1
    assert torch.allclose(apply_augmentation(pictures, how), shifted.flip(-1), atol=1e-5)

    block = torch.zeros(1, 1, 33, 33, dtype=torch.uint8)
    block[..., 14:19, 14:19] = 255  # its middle is the picture's, 16
    how = changes(NONE, batch=1, pictures=1)
    how.zoom[:], how.shift[0, 0], how.shift[0, 1] = 2.0, 2 * 3 / 33, -2 * 2 / 33
    x = apply_augmentation(block, how)[0, 0]
    assert x.sum() == pytest.approx(100, rel=0.1)
    middle = (x[..., None] * torch.cartesian_prod(torch.arange(33), torch.arange(33)).view(33, 33, 2)).sum((0, 1))
    assert (middle / x.sum()).tolist() == pytest.approx([16 - 2 * 2, 16 + 2 * 3], abs=0.1)


def test_brightness_contrast_and_blur(pictures: torch.Tensor) -> None:
    calm = pictures // 4 + 96
    how = changes(NONE)
    how.brightness[:] = 0.1
    assert torch.allclose(apply_augmentation(calm, how), calm / 255 + 0.1, atol=1e-5)
    how = changes(NONE)
    how.contrast[:] = 0.5
    changed = apply_augmentation(calm, how)
    assert torch.allclose(changed.std((1, 2, 3)), (calm / 255).std((1, 2, 3)) / 2, rtol=1e-3)
    assert torch.allclose(changed.mean((1, 2, 3)), (calm / 255).mean((1, 2, 3)), atol=1e-4)
    how = changes(NONE)
    how.blur[:] = 1.0
    assert apply_augmentation(calm, how).std() < 0.6 * (calm / 255).std()


def test_a_lost_picture_is_the_one_before(pictures: torch.Tensor) -> None:
    how = changes(replace(NONE, drop=0.5), seed=1)
    assert (how.kept[:, 0] == 0).all()
    lost = how.kept != torch.arange(6)
    assert 0.2 < lost.float().mean() < 0.7
    assert (how.kept <= torch.arange(6)).all()
    changed = apply_augmentation(pictures, how)
    for b, p in lost.nonzero().tolist():
        assert torch.equal(changed[b, p], changed[b, p - 1])


def test_mixup_mixes_pictures_and_targets_alike(pictures: torch.Tensor) -> None:
    how = changes(replace(NONE, mixup=1.0))
    assert sorted(how.partner.tolist()) == [0, 1, 2, 3]
    x, share = pictures / 255, how.share[:, None, None, None]
    assert torch.allclose(apply_augmentation(pictures, how), share * x + (1 - share) * x[how.partner], atol=1e-5)
    target = torch.rand(4, 3, 10)
    share = how.share[:, None, None]
    assert torch.allclose(mix(target, how), share * target + (1 - share) * target[how.partner])


def test_partners_are_drawn_for_each_batch() -> None:
    """A permutation of each batch, not the same for all; each run meets every other, and itself, equally often."""
    partner = draw_augmentation(AugmentConfig(mixup=0.2), 2000, 4, 2, np.random.default_rng(0)).partner
    assert (partner.sort(-1).values == torch.arange(4)).all()
    for place in range(4):
        shares = torch.bincount(partner[:, place], minlength=4) / 2000
        assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.05)
    assert len(partner.unique(dim=0)) == 24  # all permutations, not only the rotations


def test_draws_stay_within_their_limits() -> None:
    how = draw_augmentation(AugmentConfig(mixup=0.2), 50, 32, 12, np.random.default_rng(0))
    across, down = how.shift.unbind(-1)  # up to 0.05 of the width is up to 0.1 of its half
    for drawn, low, high in (
        (across, -0.1, 0.1),
        (down, -0.1, 0.1),
        (how.zoom, 1 / 1.1, 1.1),
        (how.brightness, -0.1, 0.1),
        (how.contrast, 0.8, 1.2),
    ):
        assert low - 1e-6 <= drawn.min() < low + 0.01 * (high - low)  # as far as they go, to either side
        assert high + 1e-6 >= drawn.max() > high - 0.01 * (high - low)
    assert (how.turn < 0).float().mean() == pytest.approx(0.5, abs=0.05)
    assert (how.blur > 0).float().mean() == pytest.approx(0.2, abs=0.04)
    assert (how.kept != torch.arange(12)).float().mean() == pytest.approx(0.02 * 11 / 12, abs=0.005)
