"""`ballcast.load`: which runtime it chooses, and that its forecasts are those of the functions beneath it."""

import json
import os
import shutil
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feeds import KINDS, event

import ballcast
from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.embedded import BACKBONE, FEED_MODEL, MODEL, SAMPLES
from ballcast.core.errors import InputError
from ballcast.data.events.event_grid import IDENTITIES, STEPS, WIDTHS
from ballcast.features.backbone import Backbone
from ballcast.features.device import choose_device
from ballcast.inference import loading
from ballcast.inference.export_config import read_embedded
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.video_predictor import predict_video
from ballcast.live.status import Status
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from tests.video.conftest import make_video

ROOT = Path(__file__).parents[1]
TINY = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=4)
SMALL = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=16, decoder_layers=1, decoder_heads=2, decoder_ffn=16)
ALL = EmitConfig(threshold=0.0)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_video(tmp_path_factory.mktemp("video") / "v.mp4", range(180), Fraction(1, 25), size=(32, 64))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of a small model in torch and of its backbone."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    backbone = Backbone(TINY, name="tiny").eval()
    backbone.save_pretrained(folder / "backbone")
    about = {"backbone": {"hash": backbone.hash, "name": "tiny"}, "picture_size": [32, 64]}
    config = ModelConfig(width=TINY.width, hierarchy=SMALL)
    Anticipator(config, emit=ALL, metadata=about).save_pretrained(folder / "model")
    return folder / "model", folder / "backbone"


def test_a_video_a_stream_and_the_functions_beneath_agree(names: tuple[Path, Path], video: Path) -> None:
    model = ballcast.load(names[0], backbone=names[1], device="cpu")
    assert model.runtime == "cpu"
    done: list[tuple[int, int | None]] = []
    with model.video(video, every_ms=500, any_video=True, progress=lambda *n: done.append(n)) as forecasts:
        first = next(forecasts)
        rest = list(forecasts)
    assert [f.at_ms for f in (first, *rest)] == [5000, 5500, 6000, 6500, 7000]
    assert done[-1] == (180, 180)
    assert forecasts.about["backbone"]["name"] == "tiny"
    with VideoFile(video) as file:
        predictor = StreamPredictor(TorchRuntime.load(*names, device="cpu"), every_ms=500)
        assert list(predict_video(file, predictor)) == [first, *rest]
    states: list[Status] = []
    with model.stream(str(video), every_ms=500, speed=0, any_video=True, on_status=states.append) as live:
        assert list(live) == [first, *rest]
    assert states[-1].state == "ended"


def test_leaving_early_ends_the_work(names: tuple[Path, Path], video: Path) -> None:
    model = ballcast.load(names[0], backbone=names[1], device="cpu")
    before = threading.active_count()
    for made in (model.video(video, any_video=True), model.stream(str(video), speed=0, any_video=True)):
        with made as forecasts:
            next(forecasts)
        with pytest.raises(StopIteration):
            next(forecasts)
    assert threading.active_count() == before


def test_frames_have_a_row_for_each_prediction(names: tuple[Path, Path], video: Path) -> None:
    model = ballcast.load(names[0], backbone=names[1], device="cpu")
    made = list(model.video(video, any_video=True))
    assert made
    table = model.video(video, any_video=True).to_frame()
    assert list(table.columns) == ["at_ms", "label", "position_ms", "confidence", "score", "within_5s"]
    expected = [[f.at_ms, p.label, p.position_ms, p.confidence, p.score, None] for f in made for p in f.predictions]
    assert table.to_numpy().tolist() == expected
    empty = model.video(video, emit=EmitConfig(threshold=0.999)).to_frame()
    assert (len(empty), list(empty.columns)) == (0, list(table.columns))


def test_a_feed(tmp_path: Path) -> None:
    about = {"backbone": {"hash": IDENTITIES["plain"].hash, "name": IDENTITIES["plain"].name}}
    config = ModelConfig(clips=STEPS, width=WIDTHS["plain"], hierarchy=SMALL)
    Anticipator(config, emit=ALL, metadata=about).save_pretrained(tmp_path / "model")
    rows = [{**event(s, 10, KINDS[0]), "matchPeriod": "1H"} for s in range(50)]
    (tmp_path / "1.json").write_text(json.dumps(rows))
    model = ballcast.load(tmp_path / "model", device="cpu")
    forecasts = model.feed(tmp_path / "1.json", every_ms=5000)
    assert forecasts.about["periods_begin_ms"] == {"1H": 0}
    assert [f.at_ms for f in forecasts] == [30_000, 35_000, 40_000, 45_000]
    with pytest.raises(InputError, match="reads event feeds, not videos"):
        model.video("x.mp4")


def test_what_is_missing_is_said(names: tuple[Path, Path], video: Path, tmp_path: Path) -> None:
    model = ballcast.load(names[0], device="cpu")  # without its backbone: for features only
    with pytest.raises(InputError, match="needs the backbone it was trained on"):
        model.video(video)
    with pytest.raises(InputError, match="was trained on tiny, not on event feeds"):
        model.feed(tmp_path / "x.json")
    with pytest.raises(InputError, match="no such file"):
        ballcast.load(names[0], backbone=names[1], device="cpu").video("no.mp4")
    if not FEED_MODEL.is_dir():
        with pytest.raises(InputError, match="no model of event feeds is embedded"):
            ballcast.load("events")


# -- the runtime -------------------------------------------------------------------------------------------------------


def test_the_embedded_model_runs_in_onnx_and_with_a_gpu_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_may_have_gpu", lambda: False)
    assert ballcast.load().runtime == "onnx"
    monkeypatch.setattr(loading, "_may_have_gpu", lambda: True)  # a driver, but torch sees no GPU
    if not torch.cuda.is_available():
        assert ballcast.load().runtime == "onnx"
    asked: list[Any] = []
    monkeypatch.setattr(loading, "_open_torch", lambda *given: (asked.append(given), None))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto", ("cuda", "mps", "cpu")).type in ("cuda", "mps")
    ballcast.load()
    assert asked == [(MODEL, BACKBONE, "auto", None)]
    ballcast.load(device="cpu")  # asked for: the CPU
    assert len(asked) == 1
    monkeypatch.setattr(loading, "find_spec", lambda name: None)  # torch is not installed
    assert ballcast.load().runtime == "onnx"
    assert len(asked) == 1


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    for device in ("cuda", "mps"):
        if device == "mps" or not torch.cuda.is_available():
            with pytest.raises(InputError, match=f"--device {device}: torch sees no such GPU here"):
                choose_device(device, ("cuda", "mps", "cpu"))
    with pytest.raises(InputError, match="--device mps: cannot be used here; choose from auto, cuda, cpu"):
        choose_device("mps", ("cuda", "cpu"))
    assert choose_device("auto", ("cpu", "mps")).type == "cpu"  # the first that is there


def test_the_embedded_graphs_are_those_of_the_embedded_weights() -> None:
    """Made by `python -m tools.embed_models` of the weights that are there now; on a small picture, for time."""
    config = read_embedded(MODEL)
    backbone, model = Backbone.load(BACKBONE), Anticipator.from_pretrained(MODEL)
    assert config.backbone.hash == backbone.hash
    assert (config.model, config.emit, config.pos_weight) == (model.config, model.emit, model.pos_weight)
    light, full = OnnxRuntime.embedded(MODEL, BACKBONE), TorchRuntime(model, backbone, device="cpu")
    rng = np.random.default_rng(0)
    streams = [(runtime, runtime.open_stream((64, 96))) for runtime in (light, full)]
    for _ in range(41):
        frames = rng.integers(0, 256, (3, 64, 96), dtype=np.uint8)
        for _, stream in streams:
            stream.fill(frames)
        got, expected = (runtime.encode_stacks([stream]) for runtime, stream in streams)
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()
    features = rng.random((1, model.config.clips, model.config.width), np.float32)
    tokens = light.encode_windows(features), full.encode_windows(features)
    assert np.abs(tokens[0] - tokens[1]).max() < 1e-4 * np.abs(tokens[1]).max()
    windows = model.config.windows
    present = np.arange(windows) >= windows // 3
    slots = [one.predict(np.stack([tokens[1]] * windows, 1), present[None]) for one in (light, full)]
    for name in ("objectness", "classes", "offsets"):
        got, expected = (getattr(each, name) for each in slots)
        assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max(), name


# -- documents ---------------------------------------------------------------------------------------------------------


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    for number, text in enumerate(code):
        exec(compile(text, f"notebook.ipynb, code cell {number + 1}", "exec"), names)


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("make"), reason="not a clone, or no make")
def test_the_readmes_first_commands_and_snippet_in_a_fresh_clone(tmp_path: Path) -> None:
    """Clone, `make demo` with an environment of its own, then the Python of the README in that environment."""
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "0", "--timeout", "5", "--no-deps", "six"]
    if subprocess.run([*asked, "--dest", tmp_path / "asked"], capture_output=True).returncode:
        pytest.skip("no package index can be reached")
    blocks = (ROOT / "README.md").read_text().split("```")[1::2]
    commands = [line.partition("#")[0].strip() for line in blocks[0].splitlines()[1:] if line.strip()]
    assert commands == ["git clone <this repository> ballcast && cd ballcast", "make demo"]
    clone = tmp_path / "ballcast"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), clone], check=True)
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = {"cwd": clone, "env": env, "capture_output": True, "text": True}
    demo = subprocess.run(["make", "demo", f"PYTHON={sys.executable}"], **run)  # type: ignore[call-overload]
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert (clone / "demo-out" / "report.html").is_file()
    installed = subprocess.run([".venv/bin/pip", "list"], **run)  # type: ignore[call-overload]
    assert "onnxruntime" in installed.stdout
    assert "torch" not in installed.stdout
    shutil.copy(SAMPLES / "test" / "excerpt.mp4", clone / "match.mp4")
    (language, *lines) = blocks[1].splitlines()
    assert language == "python"
    code = "\n".join(lines) + "\nassert model.runtime == 'onnx'\n"
    done = subprocess.run([".venv/bin/python", "-c", code], **run)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5000 [")
