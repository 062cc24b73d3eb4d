import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server import Hub
from safetensors.torch import load_file, save_file

from ballcast.core.errors import InputError
from ballcast.core.recipe import EmitConfig, ModelConfig
from ballcast.model.anticipator import Anticipator
from ballcast.model.calibration import Calibration


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
        ({"slots": 4}, "model", "'network.decoder.slots.weight' is .5, 16. instead of .4, 16."),
        ({"width": 10**12}, "model", "width must be between"),
        ({"width": 60_000}, "model", "instead of"),
        ({"kind": "faantra"}, "model", "tensor 'network.project.weight' is missing"),
        ({"auxiliary": False}, "model", "unknown tensor 'network.presence"),
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
        with pytest.raises(InputError, match="an empty name names no folder"):
            Anticipator.from_pretrained(empty)


def test_a_runs_folder_leads_to_its_model(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "best")
    with pytest.raises(InputError, match=f"is a run's folder; give the model in it, {tmp_path / 'best'}$"):
        Anticipator.from_pretrained(tmp_path)


@pytest.mark.parametrize("tuned", [True, False])
def test_a_model_pushed_to_the_hub_comes_back_the_same(tiny: ModelConfig, on_hub: Hub, tuned: bool) -> None:
    model = Anticipator(tiny, metadata={"note": "é", "seed": 3, "trained_on": ["train"]}).eval()
    model.calibration = Calibration(fitted_on="valid") if tuned else None
    assert model.push_to_hub("someone/ballcast") == f"{on_hub.url}/someone/ballcast"
    files = ["README.md", "config.json", "model.safetensors"]
    assert sorted(on_hub.of("someone/ballcast")) == sorted([*files, *(["calibration.json"] if tuned else [])])
    assert on_hub.private["someone/ballcast"]
    again = Anticipator.from_pretrained("someone/ballcast")
    assert (again.config, again.metadata) == (model.config, model.metadata)
    assert (again.calibration is not None) == tuned
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


def test_a_calibration_of_older_weights_does_not_stay_on_the_hub(tiny: ModelConfig, on_hub: Hub) -> None:
    model = Anticipator(tiny)
    model.calibration = Calibration(fitted_on="valid")
    model.push_to_hub("someone/ballcast", private=False)
    Anticipator(tiny).push_to_hub("someone/ballcast", private=False)  # other weights, not tuned
    assert "calibration.json" not in on_hub.of("someone/ballcast")
    assert Anticipator.from_pretrained("someone/ballcast").calibration is None


def test_a_folder_that_is_nowhere(on_hub: Hub) -> None:
    with pytest.raises(InputError, match=r"^runs/best: no such folder, and not to be had from the hub: .*404"):
        Anticipator.from_pretrained("runs/best")
