"""The tools that make what is embedded: what they cut and round is what it was."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone import trained_size
from ballcast.core.clips import Event, Prediction
from ballcast.core.recipe import DataConfig, HierarchyConfig, ModelConfig
from ballcast.data.spotting_labels import Match
from ballcast.metrics.pairing import Pair
from ballcast.model.anticipator import Anticipator
from ballcast.video.decode import VideoFile
from tests.video.conftest import make_video, number_of


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_excerpt_is_the_match_itself(tmp_path: Path) -> None:
    match = make_video(
        tmp_path / "match.mp4", range(900), codec_options={"g": "125", "keyint_min": "125", "sc_threshold": "0"}
    )
    assets = tool("make_assets")
    assets.copy_excerpt(match, 10_000, 20, tmp_path / "out" / "excerpt.mp4")
    with VideoFile(tmp_path / "out" / "excerpt.mp4") as cut, VideoFile(match) as whole:
        frames = cut.read(0, 10_000)
        assert len(frames) == 500
        assert [number_of(y) for y in frames[[0, 1, -1]]] == [250, 251, 749]
        assert np.array_equal(frames, whole.read(250, 750))
    with pytest.raises(SystemExit, match="no key frame"):
        assets.copy_excerpt(match, 11_000, 5, tmp_path / "other.mp4")


def test_the_liveliest_stretch_has_the_most_kinds_of_action() -> None:
    passes = tuple(Event("PASS", 1_000 * s) for s in range(30, 60))
    match = Match(
        "m.mp4", "test", 25 * 120, (*passes, Event("SHOT", 100_000), Event("OUT", 101_000), Event("CROSS", 104_000))
    )
    start = tool("make_assets").liveliest(match, 50)
    assert start + 30_000 <= 100_000 < 104_000 < start + 50_000


def test_weights_are_halved_and_vectors_are_not(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    state = {"matrix": torch.rand(4, 4), "vector": torch.rand(4), "count": torch.tensor(3)}
    save_file(state, tmp_path / "model" / "model.safetensors")
    assets = tool("make_assets")
    assets.halve(tmp_path / "model", tmp_path / "half")
    half = load_file(tmp_path / "half" / "model.safetensors")
    assert {k: v.dtype for k, v in half.items()} == {
        "matrix": torch.float16,
        "vector": torch.float32,
        "count": torch.int64,
    }
    assert torch.equal(half["matrix"], state["matrix"].half())
    assert (tmp_path / "half" / "config.json").read_text() == "{}"
    save_file({"matrix": torch.full((2, 2), 1e6)}, tmp_path / "model" / "model.safetensors")
    with pytest.raises(SystemExit, match="does not fit"):
        assets.halve(tmp_path / "model", tmp_path / "again")


def test_the_picture_holds_every_mark() -> None:
    said = [Prediction("BALL PLAYER BLOCK", ms, 0.5) for ms in (30_000, 30_100, 34_950)]
    pairs = [Pair(p, Event("BALL PLAYER BLOCK", 34_999)) for p in said]
    picture = tool("make_picture").draw(Image.new("RGB", (398, 224), "green"), pairs)
    assert picture.width == 1280
    assert picture.height > 720 + 2 * 46  # two rows of marks below the frame


def test_what_the_sampler_showed_too_often_is_taken_back(tmp_path: Path) -> None:
    """A shot in one of two windows, drawn 3 times as often: shots come 1.5 times too often, passes half as often."""
    match = Match("m.mp4", "train", 25 * 70, (Event("SHOT", 31_000), Event("PASS", 66_000)))
    assets = tool("make_assets")
    too_often = assets.excess([match], DataConfig(boost={"SHOT": 3.0}, every_ms=35_000))
    expected = {"SHOT": 1.5, "PASS": 0.5}
    assert too_often.tolist() == pytest.approx([expected.get(action, 1.0) for action in ACTIONS])
    model = Anticipator(ModelConfig(hierarchy=HierarchyConfig(dim=16, encoder_heads=2, decoder_heads=2)))
    model.save_pretrained(tmp_path)
    assets.halve(tmp_path, tmp_path / "half")
    assets.make_natural(tmp_path / "half", np.array([2.0] + [1.0] * 9))
    before = model.state_dict()["network.heads.classes.bias"]
    after = Anticipator.from_pretrained(tmp_path / "half").state_dict()["network.heads.classes.bias"]
    assert (before - after).tolist() == pytest.approx([np.log(2)] + [0.0] * 9, abs=1e-6)
    for size in ((224, 398), (720, 1280)):  # what is said there already stays
        assets.tell_size(tmp_path / "half", size)
    assert trained_size(Anticipator.from_pretrained(tmp_path / "half").metadata) == (224, 398)
