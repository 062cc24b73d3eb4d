import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ballcast.core.anticipator_config import HierarchyConfig, LossConfig, ModelConfig
from ballcast.loss.criterion import Criterion, focal_bce
from ballcast.loss.matcher import Targets, gaussian_targets
from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots

SMALL = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=16, decoder_heads=2, decoder_ffn=16, decoder_layers=1)
MODEL = ModelConfig(width=8, clips=5, windows=2, hierarchy=SMALL)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def batch(B: int = 6, K: int = 4, M: int = 8) -> tuple[Slots, Targets]:
    slots = Slots(torch.randn(B, K), torch.randn(B, K, 10), torch.randn(B, K, 32), 32, torch.randn(B, 5, 10))
    count = torch.arange(B) % (M + 1)  # sample 0 has none
    classes = torch.where(torch.arange(M) < count[:, None], torch.randint(0, 10, (B, M)), -1)
    presence = (torch.rand(B, 5, 10) < 0.1).float()
    return slots, Targets.from_ms(classes, torch.randint(30_000, 35_000, (B, M)), 32, presence)


def criterion(**changes: Any) -> Criterion:
    return Criterion(config=replace(LossConfig(), **changes), model=MODEL, class_weights=torch.rand(10) + 0.5)


def test_by_hand() -> None:
    """One sample, two slots, one event: the first slot is matched, the second should predict nothing."""
    classes = torch.full((1, 2, 10), -30.0)
    classes[0, 0, 3], classes[0, 1, 5] = 0.0, 0.0  # sure of class 3, and of class 5
    offsets = torch.zeros(1, 2, 32)
    slots = Slots(torch.logit(torch.tensor([[0.9, 0.2]])), classes, offsets, 32)
    targets = Targets.from_ms(torch.tensor([[3, -1]]), torch.tensor([[30_000, 0]]), 32)
    loss = Criterion(config=LossConfig(), model=replace(MODEL, slots=2))(slots, targets)
    assert loss.objectness.item() == pytest.approx((-4 * math.log(0.9) - math.log(0.8)) / 2)
    # The smoothed target is 0.91 for the class and 0.01 for the nine others, whose -log p is 30.
    assert loss.classes.item() == pytest.approx(9 * 0.01 * 30, rel=1e-4)
    assert loss.offset.item() == pytest.approx(math.log(32))  # any target against an even spread
    assert loss.auxiliary.item() == 0
    assert loss.total.item() == pytest.approx(sum(x.item() for x in loss[1:]))


def reference(slots: Slots, targets: Targets, config: LossConfig, pair: Tensor, weight: Tensor) -> list[float]:
    """The loss once more, as a plain loop over samples and slots."""
    sums, counts, own = [0.0] * 4, [0.0] * 4, [0.0] * 4
    assert slots.presence is not None
    assert targets.presence is not None
    for b, w in enumerate(weight.tolist()):
        objectness = classes = offset = 0.0
        for k, m in enumerate(pair[b].tolist()):
            p = torch.sigmoid(slots.objectness[b, k]).item()
            objectness += (-config.pos_weight * math.log(p) if m >= 0 else -math.log(1 - p)) / 4
            if m >= 0:
                truth = targets.classes[b, m : m + 1]
                smooth = config.label_smoothing
                classes += functional.cross_entropy(slots.classes[b, k : k + 1], truth, label_smoothing=smooth).item()
                soft = gaussian_targets(targets.bins[b, m], 32, config.sigma)
                offset += -(soft * slots.offsets[b, k].log_softmax(-1)).sum().item()
        p = torch.sigmoid(slots.presence[b])
        there = targets.presence[b] > 0
        focal = torch.where(there, -0.25 * (1 - p) ** 2 * p.log(), -0.75 * p**2 * (1 - p).log()).sum().item()
        pairs, positives = min(4, int(targets.events[b].sum())), int(there.sum())
        for i, (term, count) in enumerate(
            zip((objectness, classes, offset, focal), (1, pairs, pairs, positives), strict=True)
        ):
            own[i] += w * term / max(count, 1)  # nothing is matched: the term is 0
            sums[i] += w * term
            counts[i] += w * count
    if config.average == "samples":
        return [term / weight.sum().item() for term in own]
    return [term / count for term, count in zip(sums, counts, strict=True)]


@pytest.mark.parametrize("average", ["samples", "batch"])
@pytest.mark.parametrize("matching", ["hungarian", "ordered"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_a_plain_loop(average: str, matching: str, weighted: bool) -> None:
    slots, targets = batch()
    judge = criterion(matching=matching, average=average)
    weight = torch.rand(6) if weighted else torch.ones(6)
    loss = judge(slots, targets, weight if weighted else None)
    terms = reference(slots, targets, judge.config, judge.match(slots, targets), weight)
    assert [x.item() for x in loss[1:]] == pytest.approx(terms, rel=1e-5)
    assert loss.total.item() == pytest.approx(terms[0] + terms[1] + terms[2] + 0.5 * terms[3], rel=1e-5)


def join(first: Targets, second: Targets) -> Targets:
    """Two batches as one, as MixUp scores the mixed samples against both of their sources."""
    assert first.presence is not None
    assert second.presence is not None
    classes, bins, times = (torch.cat([getattr(t, k) for t in (first, second)]) for k in ("classes", "bins", "times"))
    return Targets(classes, bins, times, torch.cat([first.presence, second.presence]))


def test_mixup_with_lambda_one_is_the_plain_loss() -> None:
    slots, targets = batch()
    other = Targets.from_ms(torch.full((6, 8), 2), torch.full((6, 8), 33_000), 32, torch.ones(6, 5, 10))
    judge = criterion()
    twice = slots.map(lambda x: torch.cat([x, x]))
    both = judge(twice, join(targets, other), torch.cat([torch.ones(6), torch.zeros(6)]))
    assert [x.item() for x in both] == pytest.approx([x.item() for x in judge(slots, targets)], rel=1e-5)


def test_a_batch_without_events_teaches_only_objectness() -> None:
    slots, targets = batch()
    targets.classes.fill_(-1)
    for tensor in (slots.objectness, slots.classes, slots.offsets):
        tensor.requires_grad_()
    loss = criterion()(slots, targets)
    loss.total.backward()
    assert loss.classes.item() == loss.offset.item() == 0
    assert loss.objectness.item() > 0
    assert slots.classes.grad is not None
    assert slots.classes.grad.abs().sum() == 0
    assert slots.objectness.grad is not None
    assert (slots.objectness.grad > 0).all()  # all should predict nothing


def test_unmatched_slots_learn_objectness_only() -> None:
    slots, targets = batch()
    slots.classes.requires_grad_()
    slots.offsets.requires_grad_()
    judge = criterion()
    judge(slots, targets).total.backward()
    matched = judge.match(slots, targets) >= 0
    for tensor in (slots.classes, slots.offsets):
        assert tensor.grad is not None
        assert torch.equal(tensor.grad.abs().sum(-1) > 0, matched)


def test_a_given_matching_is_used() -> None:
    slots, targets = batch()
    judge = criterion()
    pair = judge.match(slots, targets)
    assert judge(slots, targets, matching=pair).total == judge(slots, targets).total
    rolled = pair.roll(1, dims=1)
    assert judge(slots, targets, matching=rolled).total > judge(slots, targets).total


@pytest.mark.parametrize("average", ["samples", "batch"])
def test_normalisers_averaged_over_ranks_give_the_whole_batch(average: str) -> None:
    """Two ranks with different numbers of events: the mean of their losses is the loss of both batches together."""
    slots, targets = batch(8)
    judge = criterion(average=average)
    halves = [
        (slots.map(lambda x, at=at: x[at]), Targets(*(x[at] for x in vars(targets).values())))  # type: ignore[misc]
        for at in (slice(0, 4), slice(4, 8))
    ]
    seen: list[Tensor] = []
    for part in halves:
        judge(*part, reduce=lambda x, least: seen.append(x) or x)  # type: ignore[func-returns-value]
    mean = torch.stack(seen).mean(dim=0)
    ranks = [judge(*part, reduce=lambda x, least: mean) for part in halves]
    together = [torch.stack(terms).mean().item() for terms in zip(*ranks, strict=True)]
    assert together == pytest.approx([x.item() for x in judge(slots, targets)], rel=1e-5)


def test_a_scalar_offset_is_judged_by_its_distance() -> None:
    slots = Slots(torch.zeros(1, 4), torch.zeros(1, 4, 10), torch.tensor([[0.25, 0.0, 0.0, 0.0]]), 32, form="fraction")
    targets = Targets.from_ms(torch.tensor([[1]]), torch.tensor([[34_000]]), 32)
    loss = criterion(matching="ordered", offset=10.0)(slots, targets)
    assert loss.offset.item() == pytest.approx(0.8 - 0.25)
    assert loss.total.item() == pytest.approx((loss.objectness + loss.classes + 10 * loss.offset).item())


def test_focal_by_hand() -> None:
    logits = torch.logit(torch.tensor([0.9, 0.9]))
    loss = focal_bce(logits, torch.tensor([1, 0], dtype=torch.uint8), gamma=2.0, alpha=0.25)
    assert loss.tolist() == pytest.approx([-0.25 * 0.01 * math.log(0.9), -0.75 * 0.81 * math.log(0.1)], rel=1e-4)


def test_costs_are_full_precision_under_autocast() -> None:
    slots, targets = batch()
    judge = criterion()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = judge(slots, targets)
    assert all(x.dtype == torch.float32 for x in mixed)
    assert mixed.total == judge(slots, targets).total


def step(model: Anticipator, judge: Criterion, features: Tensor, present: Tensor, targets: Targets) -> Tensor:
    with torch.autocast(features.device.type, dtype=torch.bfloat16):
        slots = model(features, present)
    twice = slots.map(lambda x: torch.cat([x, x]))
    weight = torch.full_like(present[:, 0], 0.5, dtype=torch.float32)
    return judge(twice, join(targets, targets), torch.cat([weight, weight])).total


@pytest.mark.parametrize("kind", ["hierarchy", "faantra"])
def test_one_graph_without_a_break(kind: Any) -> None:
    """Nothing in model and loss depends on the data: one whole graph, once dynamo is allowed to keep the GRU."""
    model = Anticipator(replace(MODEL, kind=kind)).eval()
    _, targets = batch()
    features, present = torch.randn(6, 2, 5, 8), torch.ones(6, 2, dtype=torch.bool)
    with torch._dynamo.config.patch(allow_rnn=True):
        whole = torch.compile(step, backend="eager", fullgraph=True)
        compiled = whole(model, criterion(reweight=False), features, present, targets)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled, step(model, criterion(reweight=False), features, present, targets))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["hierarchy", "faantra"])
def test_a_step_never_asks_the_host_and_fits_in_a_cuda_graph(kind: Any) -> None:
    model = Anticipator(replace(MODEL, kind=kind)).cuda()
    judge = criterion().cuda()
    _, targets = batch()
    targets = Targets(*(x.cuda() for x in vars(targets).values()))
    features, present = torch.randn(6, 2, 5, 8, device="cuda"), torch.ones(6, 2, dtype=torch.bool, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(model, judge, features, present, targets).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(model, judge, features, present, targets).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = step(model, judge, features, present, targets)
        total.backward()
    graph.replay()
    assert total.isfinite().item()


def test_every_layer_counts_as_the_last_does() -> None:
    """Two earlier layers with the same outputs as the last one: the total without auxiliary is three times its own."""
    slots, targets = batch()
    slots.presence = targets.presence = None
    measured = criterion()
    plain = measured(slots, targets)
    twice = Slots(*(t.repeat_interleave(2, dim=0) for t in (slots.objectness, slots.classes, slots.offsets)), 32)
    every = measured(replace(slots, earlier=twice), targets)
    assert every.total.item() == pytest.approx(3 * plain.total.item(), rel=1e-5)
    assert torch.equal(torch.stack(every[1:]), torch.stack(plain[1:]))  # reported is the last layer


def test_earlier_layers_are_mixed_with_their_own_sample() -> None:
    """MixUp doubles the batch: sample b's earlier outputs must meet the targets of b and of its partner."""
    slots, targets = batch()
    slots.presence = targets.presence = None
    other = batch()[1]
    measured = criterion()
    share = torch.rand(6)
    early = Slots(torch.randn(12, 4), torch.randn(12, 4, 10), torch.randn(12, 4, 32), 32)  # two earlier layers
    doubled = replace(slots, earlier=early).map(lambda t: torch.cat([t, t]))
    both = Targets(
        *(torch.cat(pair) for pair in zip(*((t.classes, t.bins, t.times) for t in (targets, other)), strict=True))
    )
    got = measured(doubled, both, torch.cat([share, 1 - share])).total
    by_layer = [Slots(early.objectness[i::2], early.classes[i::2], early.offsets[i::2], 32) for i in range(2)]
    expected = sum(
        measured(layer.map(lambda t: torch.cat([t, t])), both, torch.cat([share, 1 - share])).total
        for layer in (slots, *by_layer)
    )
    assert got.item() == pytest.approx(float(expected), rel=1e-5)


def test_a_class_is_asked_for_its_own_time() -> None:
    slots, targets = batch()
    slots.presence = targets.presence = None
    measured = criterion()
    alike = replace(slots, offsets=slots.offsets.unsqueeze(2).expand(-1, -1, 10, -1), form="class bins")
    assert measured(alike, targets).total.item() == pytest.approx(measured(slots, targets).total.item(), rel=1e-6)
    offsets = torch.randn(6, 4, 10, 32, requires_grad=True)
    measured(replace(alike, offsets=offsets), targets).offset.backward()
    assert offsets.grad is not None
    touched = {tuple(place) for place in offsets.grad.abs().sum(-1).nonzero()[:, [0, 2]].tolist()}
    assert touched == {(b, int(c)) for b in range(6) for c in targets.classes[b] if c >= 0} & touched
    assert touched


@pytest.mark.parametrize(("offset_cost", "slot"), [(0.0, 0), (1.0, 0), (2.0, 1), (3.0, 1)])
def test_the_matching_weighs_time_by_offset_cost(offset_cost: float, slot: int) -> None:
    """Slot 0 is surer of the class by log 2 = 0.69, slot 1 nearer in time by 16 of 32 bins: even at μ = 1.39."""
    classes = torch.full((1, 2, 10), -1e9)
    classes[0, 0, [3, 5]] = torch.tensor([0.8, 0.2]).log()
    classes[0, 1, [3, 5]] = torch.tensor([0.4, 0.6]).log()
    offsets = torch.zeros(1, 2, 32)
    offsets[0, 0, 20] = offsets[0, 1, 4] = 1.0
    slots = Slots(torch.zeros(1, 2), classes, offsets, 32)
    targets = Targets.from_ms(torch.tensor([[3]]), torch.tensor([[30_000 + 4 * 157]]), 32)
    judge = Criterion(config=LossConfig(offset_cost=offset_cost), model=replace(MODEL, slots=2))
    assert judge.match(slots, targets)[0].tolist() == [0 if k == slot else -1 for k in range(2)]


def test_a_model_may_have_one_slot() -> None:
    slots, targets = batch(K=1)
    judge = Criterion(config=LossConfig(), model=replace(MODEL, slots=1))
    loss, weighted = judge(slots, targets), judge(slots, targets, torch.ones(6))
    assert torch.equal(torch.stack(loss), torch.stack(weighted))


def test_normalisers_of_every_layer_are_reduced() -> None:
    """Twice the normalisers halve all terms: of the last layer, and of one before it."""
    slots, targets = batch()
    slots.presence = targets.presence = None
    slots.earlier = Slots(torch.randn(6, 4), torch.randn(6, 4, 10), torch.randn(6, 4, 32), 32)
    judge = criterion()
    assert judge(slots, targets, reduce=lambda x, least: 2 * x).total.item() == pytest.approx(
        judge(slots, targets).total.item() / 2, rel=1e-5
    )


def test_a_checkpoint_holds_the_weights_of_the_data_not_of_the_config() -> None:
    assert set(criterion().state_dict()) == {"class_weights", "pos_weight"}
