"""Exports: what they say is what torch says, what does not agree is not written, and nothing of it needs torch."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from light import HEAVY, ballcast_without, python_without

from ballcast.api import load
from ballcast.core.anticipator_config import EmitConfig, FaantraConfig, HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.embedded import BACKBONE, MODEL, SAMPLES
from ballcast.core.errors import InputError
from ballcast.data.events.event_grid import IDENTITIES, STEPS, WIDTHS
from ballcast.export import export as exports
from ballcast.export.check import LIMIT, THOROUGH, WINDOWS, ExportMismatch, differences, make_reference
from ballcast.export.export import check_target, export
from ballcast.export.parts import StacksPart, make_parts, to_onnx
from ballcast.features.backbone import Backbone
from ballcast.inference.export_config import read_export, write_config
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from tests.video.conftest import make_video

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

CONFIG = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=4)
SIZES = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
ALL = EmitConfig(threshold=0.0)  # every slot is emitted


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 s of 72 × 40, which is padded to 96 × 64."""
    return make_video(tmp_path_factory.mktemp("video") / "v.mp4", range(350), Fraction(1, 25), size=(40, 72))


def make(folder: Path, **changes: Any) -> tuple[str, str]:
    """The names of a small model and its backbone, saved in `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = Backbone(CONFIG, name="small").eval()
    config = ModelConfig(width=CONFIG.width, hierarchy=HierarchyConfig(**SIZES, decoder_layers=2), **changes)
    about = {"backbone": {"hash": backbone.hash, "name": "small"}, "pos_weight": 3.0, "picture_size": [40, 72]}
    Anticipator(config, emit=ALL, metadata=about).save_pretrained(folder / "model")
    backbone.save_pretrained(folder / "backbone")
    return str(folder / "model"), str(folder / "backbone")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, names: tuple[str, str], video: Path) -> Path:
    out = tmp_path_factory.mktemp("exported") / "onnx"
    export(*names, out, video=video)
    return out


def timeline(runtime: Any, frames: np.ndarray) -> list[Any]:
    predictor = StreamPredictor(runtime)
    return [made for frame in frames if (made := predictor.push(frame)) is not None]


def test_the_timeline_is_torchs(names: tuple[str, str], exported: Path, video: Path) -> None:
    with VideoFile(video) as file:
        frames = file.read(0, 350)
    torch_, onnx = TorchRuntime.load(*names, device="cpu"), OnnxRuntime.open(exported, threads=1)
    expected, got = timeline(torch_, frames), timeline(onnx, frames)
    assert [made.at_ms for made in got] == list(range(5000, 14_001, 1000))
    for a, b in zip(got, expected, strict=True):
        assert len(a.predictions) == 4
        assert [(p.label, p.position_ms) for p in a.predictions] == [(p.label, p.position_ms) for p in b.predictions]
        for p, q in zip(a.predictions, b.predictions, strict=True):
            assert p.scores == pytest.approx(q.scores, abs=1e-5)
    assert got == timeline(onnx, frames)  # and again, with the same sessions
    assert onnx.pos_weight == 3.0
    assert onnx.picture_size == torch_.picture_size == (40, 72)
    assert onnx.about["backbone"] == torch_.about["backbone"]


def test_any_batch_and_any_picture(exported: Path, names: tuple[str, str]) -> None:
    onnx, backbone = OnnxRuntime.open(exported, threads=1), Backbone.load(names[1])
    rng = np.random.default_rng(0)
    for batch, high, wide in ((1, 32, 32), (3, 64, 160)):
        pictures = rng.integers(0, 256, (batch * 5, 3, high, wide), dtype=np.uint8)
        maps = onnx.encode(pictures)
        got = onnx.mix(maps.reshape(batch, 5, *maps.shape[1:]))
        with torch.no_grad():
            expected = backbone.features(torch.from_numpy(pictures.reshape(batch, 15, high, wide))).numpy()
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("changes", [{"kind": "faantra"}, {"offset": "scalar"}, {"offset": "class bins"}])
def test_other_models_too(tmp_path: Path, video: Path, changes: dict[str, Any]) -> None:
    if changes.get("kind") == "faantra":
        changes = {**changes, "faantra": FaantraConfig(dim=16, heads=2, ffn=32)}
    names = make(tmp_path, **changes)
    done = export(*names, tmp_path / "out", video=video)
    assert max(done.apart.values()) < LIMIT
    assert done.config.lookback == (1 if "kind" in changes else 6)


def test_an_export_for_torch_by_an_older_version_is_refused(tmp_path: Path, exported: Path) -> None:
    shutil.copytree(exported, tmp_path / "old")
    write_config(tmp_path / "old", replace(read_export(exported)[1], kind="torch"))
    with pytest.raises(InputError, match="was exported for torch, which ballcast does not run; export it again"):
        OnnxRuntime.open(tmp_path / "old")


def test_what_does_not_agree_is_not_written(
    tmp_path: Path, names: tuple[str, str], video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight of the network that is exported is off by a thousandth."""

    def tampered(model: Anticipator, backbone: Backbone | None) -> Any:
        parts = make_parts(model, backbone)
        with torch.no_grad():
            parts["slots"][0].network.heads.classes.weight[0] *= 1.001
        return parts

    monkeypatch.setattr(exports, "make_parts", tampered)
    with pytest.raises(ExportMismatch, match="was not written, since the exported classes differ from torch's by"):
        export(*names, tmp_path / "out", video=video)
    assert not (tmp_path / "out").exists()


def test_200_real_windows_through_the_embedded_model() -> None:
    """Every part at its full size, on 30 s of the embedded excerpt, cut to the middle of the pictures for time."""
    torch.set_num_threads(1)
    model, backbone = Anticipator.from_pretrained(MODEL), Backbone.load(BACKBONE)
    with VideoFile(SAMPLES / "test" / "excerpt.mp4") as file:
        frames = file.read(0, 750)[:, 80:144, 150:246]
    graphs = {name: to_onnx(*part) for name, part in make_parts(model, backbone).items()}
    onnx = OnnxRuntime(exports.make_config("", model, backbone, graphs), graphs, threads=1)
    reference = make_reference(model, backbone, frames, THOROUGH)
    assert len(reference.windows) == len(reference.samples) == 200
    assert reference.present.any(1).all()
    found = differences(onnx.run, reference, backbone)
    assert set(found) == {"maps", "features", "tokens", "objectness", "classes", "offsets"}
    assert max(found.values()) < LIMIT, found


# -- folders ---------------------------------------------------------------------------------------------------------


def _cut(folder: Path) -> None:
    path = folder / "stacks.onnx"
    path.write_bytes(path.read_bytes()[:-100])


def _config(key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tree = json.loads((folder / "config.json").read_text())
        tree[key] = value
        (folder / "config.json").write_text(json.dumps(tree))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_cut, r"stacks\.onnx: differs from what was exported"),
        (lambda folder: (folder / "clips.onnx").unlink(), r"clips\.onnx: no such file"),
        (lambda folder: (folder / "config.json").unlink(), "not an export: it has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "ends too early"),
        (_config("format", "ballcast-anticipator-1"), "not the config of an export"),
        (_config("actions", ["PASS"]), "actions are not those of this version"),
        (_config("files", {"stacks": {"file": "../x", "sha256": ""}}), "files must name the parts"),
        (_config("lookback", 99), "lookback must be between 1 and the model's 6"),
        (_config("picture_size", [224, 0]), "picture_size must be a height and a width between 1 and"),
        (_config("surprise", 1), "unknown key 'surprise'"),
    ],
)
def test_damaged_and_foreign_folders(
    tmp_path: Path, exported: Path, damage: Callable[[Path], None], words: str
) -> None:
    for path in exported.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damage(tmp_path)
    with pytest.raises(InputError, match=words):
        OnnxRuntime.open(tmp_path)


def test_bytes_that_are_no_graph(exported: Path) -> None:
    _, config = read_export(exported)
    with pytest.raises(InputError, match="x: stacks: is not a graph ONNX Runtime can run"):
        OnnxRuntime(config, {"stacks": b"not a graph"}, name="x")


def test_other_peoples_folders_are_left_alone(tmp_path: Path, names: tuple[str, str], video: Path) -> None:
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(InputError, match="holds other files than an export"):
        export(*names, tmp_path, video=video)
    with pytest.raises(InputError, match="is a file"):
        export(*names, tmp_path / "thesis.docx", video=video)
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "config.json").write_text('{"mine": true}')
    with pytest.raises(InputError, match="holds other files than an export"):
        check_target(tmp_path / "settings")
    (tmp_path / "broken").mkdir()
    for left in ("stacks.onnx", ".clips.onnx.1f2e3d4c.tmp"):  # of an export that was killed
        (tmp_path / "broken" / left).touch()
    check_target(tmp_path / "broken")


# -- the commands ----------------------------------------------------------------------------------------------------


def test_predict_and_live_never_import_torch(
    tmp_path: Path, exported: Path, names: tuple[str, str], video: Path
) -> None:
    done = ballcast_without(HEAVY, "predict", video, "--any-video", "--model", exported, "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["runtime"], told["pos_weight"], told["model"]) == ("onnx fp32", 3.0, str(exported))
    live = ballcast_without(HEAVY, "live", video, "--any-video", "--model", exported, "--speed", "0", cwd=tmp_path)
    assert live.returncode == 0, live.stderr
    records = [json.loads(line) for line in live.stdout.splitlines()]
    heard = [r for r in records if r["type"] == "anticipation"]
    assert [(r["at_ms"], r["predictions"]) for r in heard] == [
        (a["at_ms"], a["predictions"]) for a in told["anticipations"]
    ]  # live is predict, bit for bit, here too
    trained = ballcast_without(HEAVY, "predict", video, "--model", names[0], "--backbone", names[1], cwd=tmp_path)
    assert trained.returncode == 2
    (line,) = trained.stderr.splitlines()
    assert "holds the weights of a trained model" in line
    assert "[train]'" in line


def test_the_server_needs_no_torch(tmp_path: Path, exported: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from ballcast.inference.onnx_runtime import OnnxRuntime\n"
        "from ballcast_server.web.server import build_app\n"
        "from ballcast_server.predictors import make_predictor_factory\n"
        "from ballcast_server.web.service import Service\n"
        "from ballcast_server.settings import Settings\n"
        "import ballcast_server.web.server\n"
        f"opened = OnnxRuntime.open({str(exported)!r})\n"
        "service = Service(Settings(data=Path('data')), make_predictor_factory(lambda: opened, every_ms=1000))\n"
        "build_app(service)\n"
        "service.predictors.new()\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = python_without(HEAVY, code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("VIDEO", "--model", "OUT", "--backbone", "b"), "is an export and holds its own backbone"),
        (("VIDEO", "--model", "OUT", "--device", "cuda"), "is an export, which runs on the CPU"),
        (("VIDEO", "--model", "OUT", "--runtime", "torch"), "is an export, which runs on the CPU"),
        (("VIDEO", "--runtime", "onnx", "--device", "cuda"), "--runtime onnx runs on the CPU"),
        (("VIDEO", "--runtime", "onnx", "--model", "MODEL", "--backbone", "BONE"), "MODEL: is not an export; make one"),
        (("VIDEO", "--runtime", "onnx", "--model", "nowhere"), "predict needs the backbone the model was trained on"),
        (("nowhere.mp4", "--model", "nowhere"), "nowhere.mp4: no such file"),
    ],
)
def test_what_does_not_go_together(
    exported: Path, names: tuple[str, str], video: Path, arguments: tuple[str, ...], words: str
) -> None:
    from typer.testing import CliRunner

    from ballcast import cli

    places = {"VIDEO": str(video), "OUT": str(exported), "MODEL": names[0], "BONE": names[1]}
    given = [places.get(argument, argument) for argument in arguments]
    result = CliRunner().invoke(cli.app, ["predict", *given])
    assert isinstance(result.exception, InputError), result.output
    assert words.replace("MODEL", names[0]) in str(result.exception)


def test_without_onnx_runtime_it_says_what_to_install(tmp_path: Path, exported: Path, video: Path) -> None:
    done = ballcast_without((*HEAVY, "onnxruntime"), "predict", video, "--model", exported, cwd=tmp_path)
    assert done.returncode == 2
    assert "this needs ONNX Runtime, which is not installed: pip install '" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_same_export_is_not_made_twice(tmp_path: Path, names: tuple[str, str], video: Path) -> None:
    first = export(*names, tmp_path / "out", video=video)
    assert first.config.figures["windows_compared"] == WINDOWS
    before = {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    again = export(*names, tmp_path / "out", video=video)
    assert again.reused
    assert again.config == first.config
    assert set(again.apart) == set(first.apart)
    assert {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before
    thorough = export(*names, tmp_path / "out", video=video, thorough=True)  # compared on more: made again
    assert not thorough.reused
    assert thorough.config.figures["windows_compared"] > WINDOWS
    assert export(*names, tmp_path / "out", video=video).reused
    (tmp_path / "out" / "slots.onnx").write_bytes(b"damaged")
    assert not export(*names, tmp_path / "out", video=video).reused
    other = make(tmp_path / "other", slots=3)
    assert not export(*other, tmp_path / "out", video=video).reused


def test_a_model_of_event_feeds_is_exported_without_a_backbone(tmp_path: Path) -> None:
    config = ModelConfig(clips=STEPS, width=WIDTHS["plain"], hierarchy=HierarchyConfig(**SIZES))
    identity = IDENTITIES["plain"]
    about = {"backbone": {"hash": identity.hash, "name": identity.name}}
    Anticipator(config, metadata=about).save_pretrained(tmp_path / "model")
    done = export(str(tmp_path / "model"), None, tmp_path / "out")
    assert max(done.apart.values()) < LIMIT
    assert set(done.config.files) == {"window", "slots"}
    light, full = (load(tmp_path / name, device="cpu").window_model for name in ("out", "model"))
    features = np.random.default_rng(0).random((3, 6, STEPS, WIDTHS["plain"]), np.float32)
    got, expected = light.predict_windows(features), full.predict_windows(features)
    assert np.abs(got.objectness - expected.objectness).max() < 1e-5
    with pytest.raises(InputError, match="reads event feeds, not videos"):
        load(tmp_path / "out").video(SAMPLES / "test" / "excerpt.mp4")
    names = make(tmp_path / "video")
    with pytest.raises(InputError, match="export needs the backbone the model was trained on"):
        export(names[0], None, tmp_path / "other")


def test_a_network_that_pads_by_size_needs_whole_strides() -> None:
    config = BackboneConfig(
        encoder="tf_efficientnet_lite0", frames=3, stack=3, step=1, stride=2, blocks=0, projected=16, padding=2
    )
    with pytest.raises(InputError, match=r"tf_efficientnet_lite0 pads by .* encoder\.network\.padding=32"):
        StacksPart(Backbone(config))
