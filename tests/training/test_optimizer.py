"""The learning rate by hand, and what decay spares."""

from itertools import pairwise

import pytest

from ballcast.core.anticipator_config import ModelConfig, TrainConfig
from ballcast.model.anticipator import Anticipator
from ballcast.training.optimizer import build_optimizer, decayed, learning_rate


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
