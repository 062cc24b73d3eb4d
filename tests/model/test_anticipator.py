from dataclasses import replace
from typing import Any

import pytest
import torch

import ballcast
from ballcast.core.errors import InputError
from ballcast.core.recipe import HierarchyConfig, ModelConfig
from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots


def parts(slots: Slots) -> list[torch.Tensor]:
    assert slots.presence is not None
    return [slots.objectness, slots.classes, slots.offsets, slots.presence]


def test_it_is_the_public_name() -> None:
    assert ballcast.Anticipator is Anticipator


def test_the_papers_model() -> None:
    """Every weight of the paper's sizes, counted by hand; shapes of what comes out."""
    attention, ffn, norm = 4 * (256 * 256 + 256), 2 * 256 * 1024 + 1024 + 256, 2 * 256
    encoder = (1280 * 256 + 256) + 33 * 256 + 2 * (attention + ffn + 2 * norm) + norm
    gru = 2 * (3 * 256 * 256 + 3 * 256) + 6  # and gamma_w
    decoder = 4 * 256 + 256 * 256 + 4 * (2 * attention + ffn + 3 * norm) + norm
    heads = 257 * (1 + 10 + 32)
    auxiliary = (3 * 256 * 256 + 256) + (3 * 256 * 10 + 10)
    model = Anticipator()
    assert sum(p.numel() for p in model.parameters()) == encoder + gru + decoder + heads + auxiliary == 6_807_611
    slots = model(torch.randn(2, 6, 33, 1280))
    assert [tuple(part.shape) for part in parts(slots)] == [(2, 4), (2, 4, 10), (2, 4, 32), (2, 33, 10)]


@pytest.mark.parametrize(
    "change",
    [
        {"heads": "joint"},
        {"queries": "static"},
        {"window_weight": "memory"},
        {"window_weight": "none"},
        {"gru_layers": 2},
        {"encoder_layers": 0},
    ],
)
def test_every_variant_runs_and_learns(tiny: ModelConfig, change: dict[str, Any]) -> None:
    config = replace(tiny, hierarchy=replace(tiny.hierarchy, **change))
    model = Anticipator(config)
    slots = model(torch.randn(2, 4, 7, 11), torch.tensor([[True] * 4, [False, False, True, True]]))
    torch.cat([part.flatten() for part in parts(slots)]).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_batched_equals_single(tiny: ModelConfig, tiny_faantra: ModelConfig) -> None:
    for config in (tiny, tiny_faantra):
        model = Anticipator(config).eval()
        features = torch.randn(3, 4, 7, 11)
        present = torch.tensor([[True] * 4, [False, True, True, True], [False, False, False, True]])
        whole = parts(model(features, present))
        for b in range(3):
            for ours, single in zip(whole, parts(model(features[b : b + 1], present[b : b + 1])), strict=True):
                torch.testing.assert_close(ours[b : b + 1], single)


def test_absent_windows_have_no_influence(tiny: ModelConfig) -> None:
    model = Anticipator(tiny).eval()
    features = torch.randn(2, 4, 7, 11)
    present = torch.tensor([[False, False, True, True], [True] * 4])
    before = parts(model(features, present))
    spoiled = features.clone()
    spoiled[0, :2] = torch.nan
    for ours, theirs in zip(before, parts(model(spoiled, present)), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(before, parts(model(features)), strict=True):
        torch.testing.assert_close(ours[1], theirs[1])  # all present: as without a mask
    assert not torch.allclose(before[1][0], model(features).classes[0])


def test_windows_are_encoded_one_by_one(tiny: ModelConfig) -> None:
    """Live use: a window's tokens are computed when it arrives and reused for 30 s."""
    model = Anticipator(tiny).eval()
    features = torch.randn(1, 4, 7, 11)
    tokens = torch.stack([model.encode_window(features[0, w]) for w in range(4)])[None]
    assert tokens.shape == (1, 4, 7, 16)
    torch.testing.assert_close(model.anticipate(tokens).classes, model(features).classes)


def test_eval_is_still_and_training_is_not(tiny: ModelConfig) -> None:
    features = torch.randn(2, 4, 7, 11)
    model = Anticipator(tiny)
    assert not torch.equal(model(features).classes, model(features).classes)
    model.eval()
    assert torch.equal(model(features).classes, model(features).classes)
    only_paths = HierarchyConfig(**{**vars(tiny.hierarchy), "dropout": 0.0, "drop_path": 0.5})
    model = Anticipator(replace(tiny, hierarchy=only_paths))
    assert not torch.equal(model.encode_window(features), model.encode_window(features))
    assert torch.equal(model.eval().encode_window(features), model.encode_window(features))


def test_half_precision_features_and_autocast(tiny: ModelConfig) -> None:
    model = Anticipator(tiny).eval()
    features = torch.randn(2, 4, 7, 11)
    half = model(features.half())
    torch.testing.assert_close(half.classes, model(features).classes, atol=2e-2, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(features)
    assert mixed.classes.dtype == torch.float32
    torch.testing.assert_close(mixed.classes, model(features).classes, atol=5e-2, rtol=0)


def test_features_of_another_backbone_are_refused(tiny: ModelConfig) -> None:
    model = Anticipator(tiny)
    with pytest.raises(InputError, match="7 clips × 11 features, these are 7 × 12"):
        model.encode_window(torch.randn(7, 12))
    with pytest.raises(InputError, match="4 windows"):
        model(torch.randn(1, 3, 7, 11))
