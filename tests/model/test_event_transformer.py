"""The event transformer: padding changes nothing, and what is read from its slots agrees with itself."""

import json
from pathlib import Path

import pytest
import torch
from feeds import feed, made_up
from torch import Tensor

from ballcast.core.errors import InputError
from ballcast.core.event_schema import DETAILS
from ballcast.core.feed_config import EventTransformerConfig
from ballcast.data.events.event_tokens import EventTable, build_table, tokens_before
from ballcast.data.samples.feed_samples import on_device
from ballcast.model.event_transformer import (
    EventTransformer,
    decode_slots,
    load_event_transformer,
    save_event_transformer,
)

SMALL = EventTransformerConfig(dim=32, heads=2, layers=1, ffn=32, dropout=0.0)


@pytest.fixture
def table(tmp_path: Path) -> EventTable:
    return on_device(build_table([feed(made_up(120, seed=0), tmp_path)]), torch.device("cpu"))


def available(count: int) -> Tensor:
    return torch.ones(count, len(DETAILS))


def test_padding_can_be_left_out(table: EventTable) -> None:
    model = EventTransformer(SMALL).eval()
    codes, values = tokens_before(torch, table, torch.tensor([9_000]))
    kept = int((codes[0, :, 0] != 11).sum()) + 1
    assert 1 < kept < codes.shape[1]
    with torch.no_grad():
        whole = decode_slots(model(codes, values, available(1)))
        short = decode_slots(model(codes[:, -kept:], values[:, -kept:], available(1)))
    for one, two in zip(whole, short, strict=True):
        torch.testing.assert_close(one, two)


def test_expectations_agree_with_each_other(table: EventTable) -> None:
    model = EventTransformer(SMALL).eval()
    at = torch.arange(6_000, 86_000, 5_000)
    with torch.no_grad():
        intensity, chance, zones = decode_slots(model(*tokens_before(torch, table, at), available(len(at))))
    assert (chance[..., 1:] >= chance[..., :-1] - 1e-6).all()
    assert (chance[:, 2] <= chance[:, 0] + chance[:, 1] + 1e-5).all()
    assert (chance[:, 2, :, -1] <= intensity.sum((1, 3)) + 1e-5).all()  # at least one, against how many
    torch.testing.assert_close(zones.sum(-1), torch.ones(len(at)))


def test_it_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    model = EventTransformer(SMALL)
    save_event_transformer(tmp_path / "best", model, {"calibration": []})
    loaded = load_event_transformer(tmp_path / "best")
    assert loaded.config == SMALL
    assert not loaded.training
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in model.state_dict().items())
    with pytest.raises(InputError, match="is a run folder; give its model"):
        load_event_transformer(tmp_path)


def test_weights_and_config_belong_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_event_transformer(tmp_path / name, EventTransformer(SMALL), {})
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"model\.safetensors: does not belong to config\.json beside it"):
        load_event_transformer(tmp_path / "a")
    tree = {"kind": "event-transformer", "network": {"dim": 32, "heads": 3}}
    (tmp_path / "a" / "config.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"config\.json: network: dim must be a multiple of heads"):
        load_event_transformer(tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text(json.dumps({"format": "ballcast-anticipator-1"}))
    with pytest.raises(InputError, match="is not an event transformer's"):
        load_event_transformer(tmp_path / "a")
