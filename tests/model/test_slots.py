"""Slots in every form, and the heads that compute them."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from ballcast.model.postprocess import SlotArrays, SlotForm
from ballcast.model.slots import Heads, Slots


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
    assert slots.form == "fraction"
    assert slots.offsets.shape == (2, 5)
    assert slots.offsets.min() >= 0
    assert slots.offsets.max() <= 1


def test_a_linear_offset_is_in_bins_and_may_leave_the_horizon() -> None:
    heads = Heads(dim=4, classes=3, bins=8, offset="linear")
    z = 100 * torch.randn(2, 5, 4)
    slots = heads(z)
    assert slots.form == "fraction"
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


def slots(offsets: torch.Tensor, bins: int, presence: torch.Tensor | None = None, form: SlotForm = "bins") -> Slots:
    B, K = offsets.shape[:2]
    return Slots(torch.zeros(B, K), torch.zeros(B, K, 10), offsets, bins, presence, form=form)


def test_bins_become_the_middle_of_the_likeliest_bin() -> None:
    offsets = torch.full((1, 3, 32), -1.0)
    for slot, place in enumerate((0, 5, 31)):
        offsets[0, slot, place] = 2.0
    given = slots(offsets, 32)
    assert given.bin().tolist() == [[0, 5, 31]]
    assert given.arrays().position().tolist() == [[0.5 / 32, 5.5 / 32, 31.5 / 32]]


def test_a_scalar_is_its_own_position_and_stays_on_the_grid() -> None:
    given = slots(torch.tensor([[0.0, 0.49, 0.5, 1.0]]), 4, form="fraction")
    assert given.bin().tolist() == [[0, 1, 2, 3]]  # floor(0.49 · 4) = 1; 1.0 would be bin 4
    assert given.arrays().position()[0].tolist() == pytest.approx([0.0, 0.49, 0.5, 1.0])


def test_a_run_of_bins_finds_the_hump_not_the_spike() -> None:
    p = torch.tensor([0.30, 0.02, 0.02, 0.20, 0.24, 0.22])
    given = slots(p.log().expand(1, 1, 6), 6)
    assert given.arrays().position().item() == pytest.approx(0.5 / 6)  # the spike
    assert given.arrays().position(run=3).item() == pytest.approx(4.5 / 6)  # bins 3, 4, 5: their middle
    assert given.arrays().position(run=2).item() == pytest.approx(5 / 6)  # bins 4, 5
    assert given.arrays().position(run=99).item() == pytest.approx(0.5)  # never longer than the horizon


@pytest.mark.parametrize(("form", "shape"), [("bins", (1, 2)), ("fraction", (1, 2, 4)), ("class bins", (1, 2, 4))])
def test_offsets_that_are_not_of_their_form_are_refused(form: SlotForm, shape: tuple[int, ...]) -> None:
    """They would be read as something else, and give numbers all the same."""
    with pytest.raises(ValueError, match=f"of the form '{form}' cannot have the shape"):
        SlotArrays(np.zeros((1, 2)), np.zeros((1, 2, 10)), np.zeros(shape), 4, form)


def test_scores_are_the_product_of_both_probabilities() -> None:
    given = Slots(torch.tensor([[0.0]]), torch.tensor([[[1.0, 3.0, 1.0]]]).log(), torch.zeros(1, 1), 4, form="fraction")
    assert given.arrays().scores().flatten().tolist() == pytest.approx([0.1, 0.3, 0.1])  # 0.5 · (1, 3, 1) / 5


@pytest.mark.parametrize("presence", [None, torch.ones(2, 3, 10)])
def test_slots_are_a_tree_of_tensors(presence: torch.Tensor | None) -> None:
    given = slots(torch.rand(2, 4, 8), 8, presence)
    doubled = pytree.tree_map(lambda x: torch.cat([x, x]), given)
    mapped = given.map(lambda x: torch.cat([x, x]))
    assert doubled.bins == mapped.bins == 8
    assert doubled.offsets.shape == mapped.offsets.shape == (4, 4, 8)
    assert (doubled.presence is None) == (mapped.presence is None) == (presence is None)


@pytest.mark.parametrize("pos_weight", [1.0, 4.0, 0.5])
def test_undo_pos_weight_takes_the_losss_pos_weight_out(pos_weight: float) -> None:
    p = torch.tensor([[0.01, 0.3, 0.5, 0.8, 0.999]])
    slots = Slots(torch.logit(p), torch.zeros(1, 5, 10), torch.zeros(1, 5, 32), 32)
    undo_pos_weight = torch.from_numpy(slots.arrays().undo_pos_weight(pos_weight).p_obj())
    assert torch.allclose(undo_pos_weight, p / (p + pos_weight * (1 - p)), atol=1e-6)
    assert torch.equal(slots.objectness, torch.logit(p))


def test_undo_pos_weight_by_hand() -> None:
    """What a loss that counts actions 4 times calls 0.8 comes true half the time; its 0.3 is about 10 %."""
    slots = Slots(torch.logit(torch.tensor([[0.8, 0.3]])), torch.zeros(1, 2, 10), torch.zeros(1, 2, 32), 32)
    assert slots.arrays().undo_pos_weight(4.0).p_obj().tolist()[0] == pytest.approx([0.5, 0.3 / 3.1])
