"""The tools that make what is embedded: what they cut and round is what it was."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import trained_size
from ballcast.core.config import load
from ballcast.core.events import Event, Prediction
from ballcast.data.labels.games import Match
from ballcast.data.samples.windows import official_windows
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.tuning import run_models
from ballcast.metrics.diagnosis import Pair
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotProbabilities, softmax
from ballcast.video.file import VideoFile
from tests.synthetic import SMALL, WINDOWS, make_clips, make_split
from tests.video.conftest import make_video, number_of
from tools.walk import JOBS


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
    assert assets.read_config(tmp_path / "half") == {}
    save_file({"matrix": torch.full((2, 2), 1e6)}, tmp_path / "model" / "model.safetensors")
    with pytest.raises(SystemExit, match="does not fit"):
        assets.halve(tmp_path / "model", tmp_path / "again")


def test_the_picture_holds_every_mark() -> None:
    said = [Prediction("BALL PLAYER BLOCK", ms, 0.5) for ms in (30_000, 30_100, 34_950)]
    pairs = [Pair(p, Event("BALL PLAYER BLOCK", 34_999)) for p in said]
    picture = tool("make_picture").draw(Image.new("RGB", (398, 224), "green"), pairs)
    assert picture.width == 1280
    assert picture.height > 720 + 2 * 46  # two rows of marks below the frame


def test_what_the_sampler_showed_too_often_is_taken_back() -> None:
    """After it, each action is expected as often as it came, and an action that never came is all but unexpected."""
    assets, rng = tool("make_assets"), np.random.default_rng(0)
    logits = rng.normal(size=(300, 4, 10)).astype(np.float32)
    logits[..., 9] += 3  # seen coming all the time
    slots = rng.normal(size=(300, 4)).astype(np.float32) + 2
    times = np.full((300, 4, 1, 32), 1 / 32, np.float32)
    real = np.array([300, 310, 50, 80, 15, 20, 30, 30, 0, 60])
    classes, objectness = assets.taken_back(SlotProbabilities(slots, softmax(logits), times), real, 4.0)
    assert classes[9] > classes[:2].max() + 4
    assert abs(classes.mean()) < 1e-9
    after = SlotProbabilities(slots - objectness, softmax(logits - classes), times).intensity([4.0] * 10).sum((1, 2))
    assert after.tolist() == pytest.approx(real.tolist(), abs=1)
    with pytest.raises(SystemExit, match="8950 actions come, and the model has 1200 slots"):
        assets.taken_back(SlotProbabilities(slots, softmax(logits), times), 10 * real, 4.0)


def test_the_biases_are_all_that_taking_back_changes(tmp_path: Path) -> None:
    assets = tool("make_assets")
    model = Anticipator(load(Recipe, None, SMALL).model)
    model.save_pretrained(tmp_path / "whole")
    assets.halve(tmp_path / "whole", tmp_path / "half")
    before = load_file(tmp_path / "half" / "model.safetensors")
    store = make_split(tmp_path / "store", 40, seed=0)
    windows = official_windows([(store, make_clips(40, seed=0))], WINDOWS)
    assets.make_natural(tmp_path / "half", windows)
    natural = Anticipator.from_pretrained(tmp_path / "half")
    after = load_file(tmp_path / "half" / "model.safetensors")
    assert {k for k, v in after.items() if not torch.equal(v, before[k])} == {
        "network.heads.classes.bias",
        "network.heads.objectness.bias",
    }
    (outputs,) = run_models([TorchRuntime(natural)], [windows])
    expected = outputs.intensity([natural.pos_weight] * 10).sum((1, 2))
    assert expected.tolist() == pytest.approx(windows.class_counts().tolist(), abs=1)
    for size in ((224, 398), (720, 1280)):  # what is said there already stays
        assets.tell_size(tmp_path / "half", size)
    assert trained_size(Anticipator.from_pretrained(tmp_path / "half").metadata) == (224, 398)


def test_mutants_are_counted_and_survivors_tried_again_with_other_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants = tool("mutants")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mutants/src/ballcast/loss/matcher.py.meta"
    file.parent.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    codes = {"a": 1, "b": 1, "c": 0, "d": 33, "e": None, "f": 2, "g": -24, "h": 3}
    file.write_text(json.dumps({"exit_code_by_key": codes, "other": 1}))
    mutants.forget_survivors()  # the first call has nothing to compare with
    assert mutants.results() == {"loss/matcher.py": codes}
    survivors = mutants.report(survivors=True).splitlines()
    assert survivors[:2] == ["survived: c", "no tests: d"]
    assert survivors[3].split() == [
        "loss/matcher.py",
        "8",
        "6",
        "3",
        "1",
        "1",
        "1",
        "66.7",
        "%",
    ]  # 4 of 6 that were tried
    assert survivors[4].split()[1:] == survivors[3].split()[1:]
    mutants.forget_survivors()
    assert mutants.results() == {"loss/matcher.py": codes}
    (tmp_path / "tests/test_new.py").write_text("")
    mutants.forget_survivors()
    assert mutants.results() == {"loss/matcher.py": codes}  # an empty file says nothing new
    (tmp_path / "tests/test_new.py").write_text("x = 1")
    mutants.forget_survivors()
    assert mutants.results() == {"loss/matcher.py": {**codes, "c": None, "d": None}}
    assert json.loads(file.read_text())["other"] == 1


def test_half_written_mutants_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole are the mutants of a module whose index was written after them, beside results that can be read."""
    mutants = tool("mutants")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.mutmut]\nonly_mutate = ["src/*.py"]')
    (tmp_path / "src").mkdir()
    made = tmp_path / "mutants/src"
    made.mkdir(parents=True)
    for name, order in (
        ("whole", ("", ".meta", ".spans")),
        ("torn", (".meta", ".spans", "")),
        ("first", ("",)),
        ("damaged", ("", ".meta", ".spans")),
    ):
        (tmp_path / f"src/{name}.py").touch()
        for time, suffix in enumerate(order):
            file = made / f"{name}.py{suffix}"
            file.write_text('{"exit' if (name, suffix) == ("damaged", ".meta") else "{}")
            os.utime(file, (time, time))
    mutants.remove_torn()
    assert sorted(path.name for path in made.glob("*.py")) == ["whole.py"]
    assert sorted(path.name for path in made.glob("*.meta")) == ["torn.py.meta", "whole.py.meta"]
    (made / "whole.py.meta").write_text("")
    mutants.restore({made / "whole.py.meta": '{"a": 1}', made / "torn.py.meta": '{"b": 2}'})
    assert (made / "whole.py.meta").read_text() == '{"a": 1}'
    assert (made / "torn.py.meta").read_text() == "{}"


@pytest.mark.parametrize(
    ("job", "files"),
    [
        ("forward pass", {"ballcast/model/anticipator.py", "ballcast/model/hierarchical.py"}),
        ("predict VIDEO", {"ballcast/cli/predict.py", "ballcast/video/file.py", "ballcast/model/postprocess.py"}),
    ],
)
def test_a_walk_lists_the_files_in_which_a_function_ran(tmp_path: Path, job: str, files: set[str]) -> None:
    walked = JOBS[job](tmp_path)
    assert files <= set(walked)
    assert "ballcast/training/run.py" not in walked
