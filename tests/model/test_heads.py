import pytest
import torch
from torch.nn import functional

from ballcast.model.heads import Heads


def test_equations_2_to_4_by_hand() -> None:
    heads = Heads(dim=2, classes=3, bins=2)
    with torch.no_grad():
        for layer in (heads.objectness, heads.classes, heads.offset):
            layer.bias.zero_()
        heads.objectness.weight.copy_(torch.tensor([[3.0, 1.0]]).log())
        heads.classes.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, 1.0], [5.0, 1.0]]).log())
        heads.offset.weight.copy_(torch.tensor([[1.0, 1.0], [4.0, 1.0]]).log())
    slots = heads(torch.tensor([[[1.0, 0.0]]]))
    assert torch.sigmoid(slots.objectness).item() == pytest.approx(0.75)  # 3 / (3 + 1)
    assert slots.classes.softmax(-1).flatten().tolist() == pytest.approx([0.125, 0.25, 0.625])  # (1, 2, 5) / 8
    assert slots.offsets.softmax(-1).flatten().tolist() == pytest.approx([0.2, 0.8])  # (1, 4) / 5
    assert slots.arrays().position().item() == 0.75  # bin 1 of 2


def test_a_scalar_offset_is_a_fraction() -> None:
    slots = Heads(dim=4, classes=3, bins=8, offset="scalar")(100 * torch.randn(2, 5, 4))
    assert slots.scalar
    assert slots.offsets.shape == (2, 5)
    assert slots.offsets.min() >= 0
    assert slots.offsets.max() <= 1


def test_a_linear_offset_is_in_bins_and_may_leave_the_horizon() -> None:
    heads = Heads(dim=4, classes=3, bins=8, offset="linear")
    z = 100 * torch.randn(2, 5, 4)
    slots = heads(z)
    assert slots.scalar
    torch.testing.assert_close(8 * slots.offsets, heads.offset(z).squeeze(-1))


def test_joint_heads_are_one_softmax_with_background() -> None:
    heads = Heads(dim=6, classes=4, bins=8, joint=True).double()
    z = torch.randn(3, 5, 6, dtype=torch.double)
    slots = heads(z)
    logits = torch.cat([heads.objectness(z), heads.classes(z)], dim=-1)  # background first
    joint = logits.softmax(-1)
    torch.testing.assert_close(torch.sigmoid(slots.objectness), 1 - joint[..., 0])
    torch.testing.assert_close(torch.from_numpy(slots.arrays().scores()), joint[..., 1:].detach().float())
    # BCE with pos_weight 1, and CE where there is an event, add up to the joint cross-entropy.
    truth = torch.randint(0, 5, (3, 5))  # 0: nothing
    matched = (truth > 0).double()
    bce = functional.binary_cross_entropy_with_logits(slots.objectness, matched, reduction="none")
    ce = functional.cross_entropy(slots.classes.transpose(1, 2), (truth - 1).clamp(min=0), reduction="none")
    expected = functional.cross_entropy(logits.transpose(1, 2), truth, reduction="none")
    torch.testing.assert_close(bce + matched * ce, expected)


def test_logits_are_full_precision_under_autocast() -> None:
    heads = Heads(dim=4, classes=3, bins=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        slots = heads(torch.randn(2, 5, 4).bfloat16())
    assert slots.objectness.dtype == slots.classes.dtype == slots.offsets.dtype == torch.float32
