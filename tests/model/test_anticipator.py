"""The anticipator: shapes, presets, saving and loading."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server import Hub
from safetensors.torch import load_file, save_file

import ballcast
from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.errors import InputError
from ballcast.model.anticipator import Anticipator
from ballcast.model.score_mapping import ScoreMapping
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
    with pytest.raises(InputError, match="7 snippets × 11 features, these are 7 × 12"):
        model.encode_window(torch.randn(7, 12))
    with pytest.raises(InputError, match="4 windows"):
        model(torch.randn(1, 3, 7, 11))


@pytest.fixture
def folder(tiny: ModelConfig, tmp_path: Path) -> Path:
    model = Anticipator(tiny, emit=EmitConfig(threshold=0.2), metadata={"class_weights": [0.5, 1.5], "note": "é"})
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, change: dict[str, Any], section: str | None = None) -> None:
    tree = json.loads((folder / "config.json").read_text())
    (tree[section] if section else tree).update(change)
    (folder / "config.json").write_text(json.dumps(tree))


@pytest.mark.parametrize("kind", ["hierarchy", "faantra"])
def test_round_trip_bit_for_bit(tiny: ModelConfig, tmp_path: Path, kind: Any) -> None:
    model = Anticipator(replace(tiny, kind=kind), emit=EmitConfig(mode="class"), metadata={"epoch": 17}).eval()
    model.save_pretrained(tmp_path / "a")
    model.save_pretrained(tmp_path / "a")  # over an older one
    again = Anticipator.from_pretrained(tmp_path / "a")
    assert (again.config, again.emit, again.metadata) == (model.config, model.emit, {"epoch": 17})
    assert not again.training
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())
    features = torch.randn(2, 4, 7, 11)
    assert torch.equal(again(features).classes, model(features).classes)
    again.save_pretrained(str(tmp_path / "b"))
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(os.listdir(tmp_path / "a")) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("change", "section", "words"),
    [
        ({"format": "other"}, None, "not a ballcast model"),
        ({"extra": 1}, None, "unknown key 'extra'"),
        ({"emit": 3}, None, "'emit' is missing or is not a section"),
        ({"slot": 4}, "model", "unknown key 'model.slot'; did you mean 'model.slots'"),
        ({"slots": 9}, "model", "slots must be between 1 and 8"),
        ({"slots": "4"}, "model", "'model.slots' must be a whole number"),
        ({"slots": 4}, "model", "network.decoder.slots.weight has shape .5, 16. instead of .4, 16."),
        ({"width": 10**12}, "model", "width must be between"),
        ({"width": 60_000}, "model", "instead of"),
        ({"kind": "faantra"}, "model", "lacks weight 'network.decoder.0.cross_attention.memory.bias'"),
        ({"auxiliary": False}, "model", "unknown weight 'network.presence"),
        ({"backbone": "mine"}, "metadata", "'metadata.backbone' is 'mine' instead of a record"),
        ({"backbone": {"hash": 3, "name": "x"}}, "metadata", "'metadata.backbone.hash' is 3 instead of text"),
        ({"backbone": {"hash": "a", "name": []}}, "metadata", "'metadata.backbone.name' is a list instead of text"),
        ({"pos_weight": "4"}, "metadata", "'metadata.pos_weight' is '4' instead of a positive number"),
        ({"pos_weight": float("nan")}, "metadata", "'metadata.pos_weight' is nan instead of a positive number"),
        ({"picture_size": [224]}, "metadata", "'metadata.picture_size' is a list instead of a height and a width"),
        ({"picture_size": [0, 398]}, "metadata", "'metadata.picture_size' is a list instead of a height and a width"),
        ({"hierarchy": {"encoder_heads": 0}}, "model", "encoder_heads must be between"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder: Path, change: dict[str, Any], section: str, words: str) -> None:
    edit(folder, change, section)
    with pytest.raises(InputError, match=words) as caught:
        Anticipator.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_truncated_or_foreign_weight_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for broken in (whole[:-10], whole[:100], b"", b"PK\x03\x04 not tensors at all", b"\xff" * 64):
        path.write_bytes(broken)
        with pytest.raises(InputError, match="not a complete safetensors file"):
            Anticipator.from_pretrained(folder)


def test_wrong_kinds_of_tensors_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file({key: value.int() for key, value in weights.items()}, path)
    with pytest.raises(InputError, match="instead of floating-point"):
        Anticipator.from_pretrained(folder)


def test_pickles_are_never_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no such file"):
        Anticipator.from_pretrained(folder)
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights"):
        Anticipator.from_pretrained(folder)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")  # nor under a better name
    with pytest.raises(InputError, match="not a complete safetensors file"):
        Anticipator.from_pretrained(folder)


def test_missing_things_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Anticipator.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a file"):
        Anticipator.from_pretrained(folder / "config.json")
    (folder / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(InputError, match=r"config.json: no such file"):
        Anticipator.from_pretrained(folder)
    for empty in ("", " "):
        with pytest.raises(InputError, match="the name of the folder is empty"):
            Anticipator.from_pretrained(empty)


def test_a_runs_folder_leads_to_its_model(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "best")
    with pytest.raises(InputError, match=f"is a run folder; give its model, {tmp_path / 'best'}$"):
        Anticipator.from_pretrained(tmp_path)


@pytest.mark.parametrize("tuned", [True, False])
def test_a_model_pushed_to_the_hub_comes_back_the_same(tiny: ModelConfig, on_hub: Hub, tuned: bool) -> None:
    model = Anticipator(tiny, metadata={"note": "é", "seed": 3, "trained_on": ["train"]}).eval()
    model.score_mapping = ScoreMapping(fitted_on="valid") if tuned else None
    assert model.push_to_hub("someone/ballcast") == f"{on_hub.url}/someone/ballcast"
    files = ["README.md", "config.json", "model.safetensors"]
    assert sorted(on_hub.of("someone/ballcast")) == sorted([*files, *(["calibration.json"] if tuned else [])])
    assert on_hub.private["someone/ballcast"]
    again = Anticipator.from_pretrained("someone/ballcast")
    assert (again.config, again.metadata) == (model.config, model.metadata)
    assert (again.score_mapping is not None) == tuned
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


def test_a_calibration_of_older_weights_does_not_stay_on_the_hub(tiny: ModelConfig, on_hub: Hub) -> None:
    model = Anticipator(tiny)
    model.score_mapping = ScoreMapping(fitted_on="valid")
    model.push_to_hub("someone/ballcast", private=False)
    Anticipator(tiny).push_to_hub("someone/ballcast", private=False)  # other weights, not tuned
    assert "calibration.json" not in on_hub.of("someone/ballcast")
    assert Anticipator.from_pretrained("someone/ballcast").score_mapping is None


def test_a_folder_that_is_nowhere(on_hub: Hub) -> None:
    with pytest.raises(InputError, match=r"^runs/best: no such folder, and the hub does not provide it: .*404"):
        Anticipator.from_pretrained("runs/best")
