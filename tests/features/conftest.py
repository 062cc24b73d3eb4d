"""A small backbone and tiny videos for the tests of features."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.stack_index import snippet_count
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator

SMALL = BackboneConfig(channels=16, blocks=2, projected=8, se_ratio=4)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # two test processes share two cores


def small_backbone(seed: int = 0, config: BackboneConfig = SMALL) -> Backbone:
    """The network with few channels beyond the 2D encoder, and random weights that keep its maps alive."""
    torch.manual_seed(seed)
    backbone = Backbone(config, name=f"small-{seed}")
    for module in backbone.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(module.bias, 0.1, 0.2)
    return backbone.eval()


def runtime_of(backbone: Backbone) -> TorchRuntime:
    """A runtime of the backbone, for its features: the model on them is a small one."""
    sizes = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=32, decoder_heads=2, decoder_ffn=32)
    config = ModelConfig(clips=snippet_count(backbone.config), width=backbone.config.width, hierarchy=sizes)
    return TorchRuntime(Anticipator(config), backbone)


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    return small_backbone()


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory: pytest.TempPathFactory, backbone: Backbone) -> Path:
    folder = tmp_path_factory.mktemp("backbone")
    backbone.save_pretrained(folder)
    return folder


@pytest.fixture
def published(shared: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """The published network's weights as the fixture makes them: 'tuning' (15 frames) or 'long' (33)."""
    spec = importlib.util.spec_from_file_location("lromul_weights", shared / "fixtures" / "lromul" / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load
