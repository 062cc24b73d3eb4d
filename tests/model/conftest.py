"""A network of every part but small sizes, none of them the paper's, so that nothing can rely on 1280, 33 or 6."""

from dataclasses import replace

import pytest
import torch

from ballcast.core.anticipator_config import FaantraConfig, HierarchyConfig, ModelConfig


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def tiny() -> ModelConfig:
    hierarchy = HierarchyConfig(
        dim=16, encoder_heads=2, encoder_ffn=32, steps=3, decoder_layers=2, decoder_heads=4, decoder_ffn=24
    )
    faantra = FaantraConfig(dim=24, heads=2, ffn=32, encoder_reach_ms=250)
    return ModelConfig(windows=4, clips=7, width=11, slots=5, bins=9, hierarchy=hierarchy, faantra=faantra)


@pytest.fixture
def tiny_faantra(tiny: ModelConfig) -> ModelConfig:
    return replace(tiny, kind="faantra", offset="linear")
