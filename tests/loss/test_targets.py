import math

import pytest
import torch

from ballcast.loss.targets import Targets, class_weights, gaussian_targets


def test_bins_and_times_by_hand() -> None:
    ms = torch.tensor([[30_000, 30_156, 30_157, 34_999, 35_000, 31_560]])
    targets = Targets.from_ms(torch.tensor([[0, 1, 2, 3, 4, -1]]), ms, bins=32)
    assert targets.bins.tolist() == [[0, 0, 1, 31, 31, 9]]  # a bin is 156.25 ms; 35 000 stays on the grid
    assert targets.times[0, :4].tolist() == pytest.approx([0.0, 0.0312, 0.0314, 0.9998])
    assert targets.times.max() < 1
    assert targets.events.tolist() == [[True] * 5 + [False]]


def test_the_gaussian_by_hand() -> None:
    target = gaussian_targets(torch.tensor([[2, 0]]), 4, sigma=1.5)
    near, far = math.exp(-0.5 / 2.25), math.exp(-2 / 2.25)
    total = 1 + 2 * near + far
    assert target[0, 0].tolist() == pytest.approx([far / total, near / total, 1 / total, near / total])
    assert target[0, 1].argmax() == 0
    assert target.sum(-1)[0].tolist() == pytest.approx([1, 1])  # normalised at the edge too


def test_no_width_is_one_hot() -> None:
    assert gaussian_targets(torch.tensor([1, 3]), 4, sigma=0).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_class_weights() -> None:
    weights = class_weights(torch.tensor([4, 16, 1]))  # 1/2, 1/4, 1, mean 7/12
    assert weights.tolist() == pytest.approx([6 / 7, 3 / 7, 12 / 7])
    assert class_weights(torch.tensor([0, 1])).tolist() == [1, 1]  # a class never seen counts as seen once
    inverse = class_weights(torch.tensor([4, 16, 1]), "inverse")  # 1/4, 1/16, 1, mean 7/16
    assert inverse.tolist() == pytest.approx([4 / 7, 1 / 7, 16 / 7])
