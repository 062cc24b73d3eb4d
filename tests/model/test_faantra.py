from dataclasses import replace

import torch

from ballcast.core.recipe import ModelConfig
from ballcast.model.anticipator import Anticipator
from ballcast.model.build import build_faantra


def test_the_reach_is_counted_in_clips(tiny_faantra: ModelConfig) -> None:
    network = build_faantra(tiny_faantra)  # 250 ms at 120 ms a clip: 2 to either side
    assert network.reach is not None
    assert network.reach[3].int().tolist() == [0, 1, 1, 1, 1, 1, 0]
    assert network.query_reach is None  # ±9 is free for 5 queries
    paper = build_faantra(ModelConfig(kind="faantra", slots=8, width=4))
    assert paper.reach is not None
    assert paper.reach[16].sum() == 19  # ±1.12 s: 9 clips to either side


def test_information_travels_no_further_than_the_reach(tiny_faantra: ModelConfig) -> None:
    """Two encoder layers of ±2 clips: what happens at clip 0 cannot be seen in the presence at clip 5."""
    model = Anticipator(tiny_faantra).eval()
    features = torch.randn(1, 4, 7, 11)
    changed = features.clone()
    changed[0, -1, 0] += 5
    before, after = model(features).presence, model(changed).presence
    assert before is not None
    torch.testing.assert_close(after[0, 5:], before[0, 5:])
    assert not torch.allclose(after[0, 4], before[0, 4])


def test_only_the_last_window_is_read(tiny_faantra: ModelConfig) -> None:
    model = Anticipator(tiny_faantra).eval()
    features = torch.randn(2, 4, 7, 11)
    spoiled = features.clone()
    spoiled[:, :-1] = torch.nan
    assert torch.equal(model(features).classes, model(spoiled).classes)
    tokens = model.encode_window(features)  # live use keeps all windows' tokens
    torch.testing.assert_close(model.anticipate(tokens).classes, model(features).classes)


def test_shapes(tiny_faantra: ModelConfig) -> None:
    slots = Anticipator(tiny_faantra)(torch.randn(2, 4, 7, 11))
    assert slots.scalar
    assert slots.offsets.shape == (2, 5)
    assert slots.presence is not None
    assert slots.presence.shape == (2, 7, 10)
    assert Anticipator(replace(tiny_faantra, auxiliary=False))(torch.randn(2, 4, 7, 11)).presence is None
