"""A small backbone to publish."""

import pytest
import torch

from ballcast.features.backbone import Backbone, BackboneConfig


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(BackboneConfig(channels=16, blocks=2, projected=8, se_ratio=4), name="small-0").eval()
