"""The learning rate by hand, and what decay spares."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from synthetic import CLIPS, SMALL, WIDTH, WINDOWS

from ballcast.core.anticipator_config import ModelConfig, Recipe, TrainConfig
from ballcast.core.config import load
from ballcast.data.samples.batches import Batch
from ballcast.loss.criterion import Criterion
from ballcast.model.anticipator import Anticipator
from ballcast.training.steps import (
    TrainStep,
    build_optimizer,
    compute_losses,
    decayed,
    learning_rate,
    set_learning_rate,
)


@pytest.mark.parametrize(
    ("step", "share"),
    [
        (0, 1 / 50),  # 5 epochs of 10 steps rise linearly
        (24, 25 / 50),
        (49, 1.0),
        (50, 1.0),  # the cosine of 50 epochs begins
        (50 + 250, 0.5),
        (50 + 500, 1.0),  # restarts after T_0 epochs, for 2 T_0
        (50 + 500 + 500, 0.5),
        (50 + 500 + 1000, 1.0),
        (50 + 500 + 1000 + 1000, 0.5),  # and 4 T_0
    ],
)
def test_warmup_and_warm_restarts(step: int, share: float) -> None:
    assert learning_rate(step, 10, TrainConfig()) == pytest.approx(1.5e-4 * share)


def test_it_falls_between_restarts() -> None:
    rates = [learning_rate(s, 10, TrainConfig()) for s in range(50, 550)]
    assert all(a > b for a, b in pairwise(rates))
    assert rates[-1] < 1e-8


def test_norms_biases_and_embeddings_do_not_decay() -> None:
    model = Anticipator(ModelConfig(width=16))
    heavy = decayed(model)
    names = {name: p in heavy for name, p in model.named_parameters()}
    assert not any(
        decays for name, decays in names.items() if "norm" in name or name.endswith("bias") or "gamma" in name
    )
    assert not any(decays for name, decays in names.items() if "position" in name or "slots.weight" in name)
    assert sum(names.values()) > 20
    groups = build_optimizer(model, TrainConfig()).param_groups
    assert [g["weight_decay"] for g in groups] == [0.3, 0.0]
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))


STILL = ["model.hierarchy.dropout=0", "model.hierarchy.drop_path=0"]
RECIPE = load(Recipe, Path("paper"), [*SMALL, *STILL])


def batch(count: int, seed: int = 0, device: str = "cpu") -> Batch:
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 10, (count, 8), generator=draw)
    classes[:, 3:] = -1
    made = Batch(
        torch.randn(count, WINDOWS, CLIPS, WIDTH, generator=draw).half(),
        torch.ones(count, WINDOWS, dtype=torch.bool),
        classes,
        torch.randint(30_000, 35_000, (count, 8), generator=draw),
        torch.randint(0, 2, (count, CLIPS, 10), generator=draw).to(torch.uint8),
    )
    return Batch(*(t.to(device) for t in made.tensors()))


def parts(device: str = "cpu") -> tuple[Anticipator, Criterion]:
    torch.manual_seed(0)
    model = Anticipator(RECIPE.model).to(device).train()
    weights = torch.linspace(0.3, 2.5, 10)
    return model, Criterion(config=RECIPE.loss, model=RECIPE.model, class_weights=weights).to(device)


def losses(model: Anticipator, criterion: Criterion, of: Batch, share: torch.Tensor) -> torch.Tensor:
    absent = torch.zeros(len(share), dtype=torch.long)
    return torch.stack(compute_losses(model, criterion, of, share, absent, bins=32)).detach()


def test_mixup_is_lambda_of_each_sources_loss_on_the_mixed_features() -> None:
    """One pair, three events each: λ·L_i + (1 − λ)·L_j with L against each source's events on its own."""
    model, criterion = parts()
    pair, share = batch(2), torch.tensor([0.3])
    mixed = 0.3 * pair.features[:1].float() + 0.7 * pair.features[1:].float()
    by_hand = torch.zeros(5)
    for weight, i in ((0.3, 0), (0.7, 1)):
        source = Batch(mixed, *(t[i : i + 1] for t in pair.tensors()[1:]))
        by_hand += weight * losses(model, criterion, source, torch.ones(1))
    torch.testing.assert_close(losses(model, criterion, pair, share), by_hand)


def test_a_share_of_one_is_the_first_source_alone() -> None:
    model, criterion = parts()
    both, first = batch(4), Batch(*(t[:2] for t in batch(4).tensors()))
    one = torch.ones(2)
    torch.testing.assert_close(losses(model, criterion, both, one), losses(model, criterion, first, one))


def test_dropped_windows_are_not_seen() -> None:
    model, criterion = parts()
    absent = torch.tensor([2, 0])
    changed = batch(2)
    changed.features[0, :2] = 7
    a, b = (compute_losses(model, criterion, x, torch.ones(2), absent, bins=32).total for x in (batch(2), changed))
    assert torch.equal(a, b)
    changed.features[1, 0] = 7
    assert compute_losses(model, criterion, changed, torch.ones(2), absent, bins=32).total != a


def test_a_window_absent_in_either_source_is_absent_in_the_mix() -> None:
    model, criterion = parts()
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    both = batch(4)  # samples 0 and 1, mixed with 2 and 3
    both.present[0, :2] = False
    both.present[3, :1] = False
    losses(model, criterion, both, torch.tensor([0.5, 0.5]))
    expected = torch.ones(2, WINDOWS, dtype=torch.bool)
    expected[0, :2] = False  # the first source's
    expected[1, :1] = False  # the second source's
    assert torch.equal(seen[0], expected)


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_gradients_norm_is_clipped(clip: float) -> None:
    """The optimizer sees a gradient no longer than train.clip, and a shorter one as it is."""
    norms = {}
    for bound in (clip, 1e9):
        step = make_step(False, "cpu")
        step.config = replace(step.config, clip=bound)
        step(batch(4), torch.ones(4), torch.zeros(4, dtype=torch.long))
        grads = torch.stack([p.grad.norm() for p in step.parameters if p.grad is not None])
        norms[bound] = float(grads.norm())
    free = norms[1e9]
    assert 1e-3 < free < 1e3
    assert norms[clip] == pytest.approx(min(clip, free), rel=1e-3)


def make_step(graphed: bool, device: str) -> TrainStep:
    model, criterion = parts(device)
    # In order of time: rounding can swap a Hungarian pair, and then the losses may rightly differ.
    criterion.config = replace(criterion.config, matching="ordered")
    config = replace(RECIPE.train, compile=graphed, precision="fp32")
    optimizer = build_optimizer(model, config, graphed=graphed)
    return TrainStep(model=model, criterion=criterion, optimizer=optimizer, config=config, bins=32, graphed=graphed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_recorded_step_does_what_the_plain_one_does() -> None:
    """Five steps with different batches and rates: same losses, same weights; the warm-up leaves no trace."""
    plain, recorded = make_step(False, "cuda"), make_step(True, "cuda")
    for i in range(5):
        told = []
        for step in (plain, recorded):
            set_learning_rate(step.optimizer, 1e-4 * (i + 1))
            share = torch.full((4,), 0.2 * (i + 1), device="cuda")
            told.append(
                step(batch(8, seed=i, device="cuda"), share, torch.zeros(4, dtype=torch.long, device="cuda")).clone()
            )
        torch.testing.assert_close(told[0], told[1], rtol=2e-3, atol=1e-4)
    for a, b in zip(plain.parameters, recorded.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
