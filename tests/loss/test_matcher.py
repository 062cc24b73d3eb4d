"""The assignment equals scipy's, with ties and on large batches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from ballcast.loss.matcher import Targets, assign, assign_in_order, class_weights, gaussian_targets, matching_cost
from ballcast.model.slots import Slots


def check(cost: torch.Tensor, events: torch.Tensor, tolerance: float = 1e-4) -> None:
    """Every sample: min(K, n) different real events, at the least total cost there is."""
    assigned = assign(cost, events)
    assert assigned.dtype == torch.int64
    K = cost.shape[1]
    for c, e, a in zip(cost.double().numpy(), events.numpy(), assigned.numpy(), strict=True):
        there = np.flatnonzero(e)
        rows, columns = linear_sum_assignment(c[:, there])
        slots = np.flatnonzero(a >= 0)
        assert len(set(a[slots])) == len(slots) == min(K, len(there))
        assert e[a[slots]].all()
        assert abs(c[slots, a[slots]].sum() - c[:, there][rows, columns].sum()) <= tolerance


@pytest.mark.parametrize("K", [4, 8])
def test_equals_scipy_on_100_000_cases(K: int) -> None:
    random = torch.Generator().manual_seed(K)
    for M in range(1, 9):  # as many events as columns
        cost = 10 * torch.rand(11_250, K, M, generator=random)
        check(cost, torch.ones(len(cost), M, dtype=torch.bool))
    cost = torch.randn(10_000, K, 8, generator=random)  # 0 to 8 events anywhere among 8 columns, costs of either sign
    count = torch.randint(0, 9, (len(cost), 1), generator=random)
    check(cost, torch.rand(len(cost), 8, generator=random).argsort(dim=1) < count)


@pytest.mark.parametrize(("K", "M"), [(1, 3), (3, 1), (3, 5), (5, 3), (4, 8)])
def test_equals_scipy_on_a_few_cases(K: int, M: int) -> None:
    """The cases that `make mutants` has time for."""
    random = torch.Generator().manual_seed(K)
    cost = torch.randn(20, K, M, generator=random)
    check(cost, torch.rand(20, M, generator=random) < 0.7)
    check(cost.round(), torch.ones(20, M, dtype=torch.bool), tolerance=0)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_equals_scipy_exactly_with_ties(data: st.DataObject) -> None:
    """Small whole costs tie all the time, and their sums are exact."""
    K, M = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    costs = data.draw(st.lists(st.integers(-2, 2), min_size=K * M, max_size=K * M))
    events = data.draw(st.lists(st.booleans(), min_size=M, max_size=M))
    check(torch.tensor(costs).float().view(1, K, M), torch.tensor([events]), tolerance=0)


def test_ties_never_book_twice_and_are_settled_alike() -> None:
    cost = torch.zeros(3, 4, 8)
    events = torch.ones(3, 8, dtype=torch.bool)
    assigned = assign(cost, events)
    assert (assigned == assigned[0]).all()
    assert len(set(assigned[0].tolist())) == 4
    assert torch.equal(assigned, assign(cost, events))


def test_no_events() -> None:
    assert assign(torch.rand(2, 4, 8), torch.zeros(2, 8, dtype=torch.bool)).tolist() == [[-1] * 4] * 2


def test_a_cost_where_no_event_is_means_nothing() -> None:
    cost, events = torch.rand(50, 4, 8), torch.rand(50, 8) < 0.4
    spoiled = cost.masked_fill(~events.unsqueeze(1), torch.nan)
    assert torch.equal(assign(spoiled, events), assign(cost, events))


def test_batched_equals_single() -> None:
    cost, events = torch.rand(20, 4, 8), torch.rand(20, 8) < 0.6
    single = torch.cat([assign(cost[b : b + 1], events[b : b + 1]) for b in range(20)])
    assert torch.equal(assign(cost, events), single)


def test_a_diverged_model_still_gets_an_assignment_without_double_booking() -> None:
    cost = torch.full((1, 4, 8), torch.nan)
    assigned = assign(cost, torch.ones(1, 8, dtype=torch.bool))[0]
    taken = assigned[assigned >= 0]
    assert len(taken.unique()) == len(taken)


def test_more_than_eight_events_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 8 events, not 9"):
        assign(torch.rand(1, 4, 9), torch.ones(1, 9, dtype=torch.bool))


def hand_made() -> tuple[Slots, Targets]:
    """Two slots: the first half pass, half shot, at bin 3; the second a quarter pass, the rest shot, at bin 10."""
    classes = torch.full((1, 2, 10), -1e9)
    classes[0, 0, [0, 6]] = torch.tensor([0.5, 0.5]).log()
    classes[0, 1, [0, 6]] = torch.tensor([0.25, 0.75]).log()
    offsets = torch.zeros(1, 2, 32)
    offsets[0, 0, 3] = offsets[0, 1, 10] = 1.0
    slots = Slots(torch.zeros(1, 2), classes, offsets, 32)
    targets = Targets(torch.tensor([[0, 6, -1]]), torch.tensor([[3, 18, 0]]), torch.zeros(1, 3))
    return slots, targets


def test_the_cost_by_hand() -> None:
    slots, targets = hand_made()
    weights = torch.ones(10)
    weights[6] = 2.0
    cost = matching_cost(slots, targets, weights, mu=2.0)
    expected = [
        [math.log(2) + 0.0, (math.log(2) + 2 * 15 / 32) / 2],
        [math.log(4) + 2 * 7 / 32, (math.log(4 / 3) + 2 * 8 / 32) / 2],
    ]
    assert cost.shape == (1, 2, 3)
    assert [row[:2] for row in cost[0].tolist()] == [pytest.approx(row) for row in expected]
    plain = matching_cost(slots, targets, None, mu=2.0)
    assert plain[0, 0, 1].item() == pytest.approx(math.log(2) + 2 * 15 / 32)


def test_a_scalar_time_costs_by_its_bin() -> None:
    slots, targets = hand_made()
    slots.offsets = torch.tensor([[3.9 / 32, 10.1 / 32]])
    slots.form = "fraction"
    bins, scalars = hand_made()[0], slots
    assert torch.equal(matching_cost(bins, targets, None, 2.0), matching_cost(scalars, targets, None, 2.0))


def test_rare_classes_win_when_there_are_more_events_than_slots() -> None:
    """One slot, a pass and a tackle: without weights the likely pass is taken, with them the rare tackle."""
    classes = torch.full((1, 1, 10), -1e9)
    classes[0, 0, [0, 9]] = torch.tensor([0.7, 0.3]).log()
    slots = Slots(torch.zeros(1, 1), classes, torch.zeros(1, 1, 32), 32)
    targets = Targets(torch.tensor([[0, 9]]), torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2))
    weights = torch.ones(10)
    weights[0], weights[9] = 0.28, 2.46  # 0.357 / 0.28 = 1.27 against 1.204 / 2.46 = 0.49
    assert assign(matching_cost(slots, targets, None, 2.0), targets.events).tolist() == [[0]]
    assert assign(matching_cost(slots, targets, weights, 2.0), targets.events).tolist() == [[1]]


def test_in_order_of_time() -> None:
    times = torch.tensor([[0.5, 0.1, 0.0, 0.3], [0.2, 0.2, 0.1, 0.0]])
    events = torch.tensor([[True, True, False, True], [True, True, True, True]])
    assert assign_in_order(times, events, 3).tolist() == [[1, 3, 0], [3, 2, 0]]  # the fourth is left out
    assert assign_in_order(times, events, 6).tolist() == [[1, 3, 0, -1, -1, -1], [3, 2, 0, 1, -1, -1]]


def test_bins_and_times_by_hand() -> None:
    ms = torch.tensor([[30_000, 30_156, 30_157, 34_999, 35_000, 31_560]])
    targets = Targets.from_ms(torch.tensor([[0, 1, 2, 3, 4, -1]]), ms, bins=32)
    assert targets.bins.tolist() == [[0, 0, 1, 31, 31, 9]]  # a bin is 156.25 ms; 35 000 stays on the grid
    assert targets.times[0, :4].tolist() == pytest.approx([0.0, 0.0312, 0.0314, 0.9998])
    assert targets.times.max() < 1
    early = Targets.from_ms(torch.tensor([[0]]), torch.tensor([[29_000]]), bins=32)
    assert (early.bins.item(), early.times.item()) == (0, 0.0)
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
