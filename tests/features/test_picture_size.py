"""The size at which pictures are seen: the same by every route, recorded in stores, never mixed, warned of first."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ballcast import cli
from ballcast.cli.runtime import load_model
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig, trained_size
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer
from ballcast_server.predictors import make_predictor_factory
from tests.features.test_extract import write_video
from tests.features.test_lromul import Published, save

pytestmark = pytest.mark.filterwarnings("ignore:.*SN-BAA's valid and test")


def small_model(backbone: Backbone, folder: Path, **metadata: object) -> Path:
    sizes = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
    config = ModelConfig(width=backbone.config.width, hierarchy=HierarchyConfig(**sizes, decoder_layers=1))
    about = {"backbone": {"hash": backbone.hash, "name": backbone.name}, "pos_weight": 4.0, **metadata}
    Anticipator(config, metadata=about).eval().save_pretrained(folder)
    return folder


@pytest.fixture
def place(published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """lromul.pth, trained at 160×90 padded to 160×96; silent.pth, the same without a size; model; a.mp4 of 192×108."""
    weights = published("tuning")
    processor = ("pad_normalize", {"size": (160, 96), "pad_mode": "constant", "fill_value": 0})
    params = {"image_size": (160, 96), "frames_processor": processor, "frame_stack_step": 2}
    path = save(tmp_path / "lromul.pth", weights, **params)
    save(tmp_path / "silent.pth", weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small_model(Backbone.load(path), tmp_path / "model")
    write_video(tmp_path / "a.mp4", 128, 3, (108, 192))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, [*arguments, "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


class Seen:
    """The features (float32) that commands compute, by the class that computes them, before they are rounded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.windows: list[np.ndarray] = []
        self.clips: list[np.ndarray] = []
        windows, keep = BatchEncoder.windows, StreamPredictor._keep

        def watched(engine: BatchEncoder, *given: Any) -> torch.Tensor:
            self.windows.append((found := windows(engine, *given)).numpy())
            return found

        def kept(predictor: StreamPredictor, features: np.ndarray) -> None:
            self.clips.append(features.copy())
            keep(predictor, features)

        monkeypatch.setattr(BatchEncoder, "windows", watched)
        monkeypatch.setattr(StreamPredictor, "_keep", kept)

    def stream(self) -> np.ndarray:
        """The first window's clips (33, D) of the stream since the last call."""
        clips, self.clips = np.concatenate(self.clips), []
        return clips[:33]


@pytest.mark.parametrize("size", [(), ("--size", "own"), ("--size", "128x64")], ids=["trained", "own", "given"])
def test_every_route_gives_the_same_features(place: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[str]) -> None:
    seen = Seen(monkeypatch)
    shape = {(): (90, 160), "own": (108, 192), "128x64": (64, 114)}[size[1] if size else ()]
    models = ("--model", "model", "--backbone", "lromul.pth")
    said = run("extract", "a.mp4", "store", "--backbone", "lromul.pth", "--workers", "1", *size)
    assert f"frames of {shape[1]}×{shape[0]}" in said
    (extracted,) = seen.windows[0]  # (33, D)
    assert extracted.shape == (33, 1280)
    run("predict", "a.mp4", "-o", "a.json", *models, *size)
    predicted = seen.stream()
    run("live", "a.mp4", "--speed", "0", "--json", "a.jsonl", *models, *size)
    live = seen.stream()
    serving = make_predictor_factory(
        load_model("torch", *models[1::2], "cpu", "serve", *size[1:]).new_runtime, every_ms=1000
    ).new()
    with VideoFile("a.mp4") as video:
        frames = list(video.frames())
        for frame in frames:
            serving.push(frame)
    served = seen.stream()
    pictures = np.stack([FrameResizer(serving.fit.trained)(frame) for frame in frames])
    assert pictures.shape[1:] == shape
    direct = (
        BatchEncoder(Backbone.load("lromul.pth"), compiled=False).windows(torch.from_numpy(pictures), [0])[0].numpy()
    )
    scale = np.abs(direct).max()
    assert direct.std(0).max() > 1e-3 * scale  # or the comparison would say nothing
    for features in (extracted, predicted, live, served):
        assert np.abs(features - direct).max() < 1e-5 * scale
    store = FeatureStore.open("store")
    assert store.manifest.resolution == shape
    np.testing.assert_array_equal(store.windows("a")[0], extracted.astype(np.float16))


def test_a_model_is_given_the_size_of_its_features(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained on features of another size than the backbone's own, it sees videos at that size."""
    small_model(Backbone.load("lromul.pth"), place / "other", picture_size=[64, 128])
    given = make_predictor_factory(
        load_model("torch", "other", "lromul.pth", "cpu", "predict").new_runtime, every_ms=1000
    ).new()
    assert given.fit.trained == (64, 128)


def test_without_a_size_it_is_warned_of_before_any_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "does not record the frame size of its training"

    def work(*_: object, **__: object) -> None:
        assert any(told in str(warning.message) for warning in shown)
        raise InputError("the work begins")

    monkeypatch.setattr("ballcast.features.extract.find_sources", work)
    monkeypatch.setattr("ballcast.inference.video_predictor.predict_video", work)
    monkeypatch.setattr("ballcast.video.sources.open_source", work)
    models = ["--model", "model", "--backbone", "silent.pth", "--device", "cpu"]
    for command in (
        ["extract", "a.mp4", "store", *models[2:]],
        ["predict", "a.mp4", "-o", "a.json", *models],
        ["live", "a.mp4", *models],
    ):
        with pytest.warns(BallcastWarning, match=told) as shown:
            result = CliRunner().invoke(cli.app, command)
        assert str(result.exception) == "the work begins", result.output


def test_a_wrong_size_is_one_sentence(place: Path) -> None:
    for command in (["extract", "a.mp4", "store"], ["predict", "a.mp4", "--model", "model", "-o", "a.json"]):
        given = [*command, "--backbone", "lromul.pth", "--device", "cpu", "--size", "720p"]
        result = CliRunner().invoke(cli.app, given)
        assert isinstance(result.exception, InputError)
        assert "--size '720p': give trained, own, or a width and a height" in str(result.exception)
    assert not (place / "store").exists()


def known(backbone: Backbone, *size: int) -> Backbone:
    backbone = copy.copy(backbone)
    backbone.metadata = {"picture_size": list(size)}
    return backbone


def test_sizes_do_not_mix(backbone: Backbone, tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 130, 7)
    video, backbone = tmp_path / "a.mp4", known(backbone, 24, 32)
    small = extract(video, tmp_path / "small", backbone, device="cpu", workers=1).store
    assert small.manifest.picture_size == small.manifest.resolution == (24, 32)
    assert small.manifest.header.preprocessing is not None
    assert small.manifest.header.preprocessing.picture_size == (24, 32)
    with pytest.raises(InputError, match="small: holds features of pictures seen at 32×24, not at their own size"):
        extract(video, tmp_path / "small", backbone, device="cpu", workers=1, size="own")
    own = extract(video, tmp_path / "own", backbone, device="cpu", workers=1, size="own").store
    assert own.manifest.picture_size == (48, 64)
    with pytest.raises(
        InputError, match=r"two sizes of pictures do not mix: .*small saw them at 32×24, .*own .* 64×48"
    ):
        small.check_same_backbone(own)
    small.check_same_backbone(small)
    assert not np.array_equal(own.windows("a"), small.windows("a"))


def test_enlarged_pictures_are_warned_of_before_the_work(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "a.mp4", 130, 7)

    def work(*_: object, **__: object) -> None:
        raise InputError("the work begins")

    monkeypatch.setattr("ballcast.features.extract._run", work)
    told = r"a.mp4: its pictures of 64×48 are enlarged to 128×96; videos of that size give better features"
    with pytest.warns(BallcastWarning, match=told), pytest.raises(InputError, match="the work begins"):
        extract(tmp_path / "a.mp4", tmp_path / "out", known(backbone, 96, 128), device="cpu", workers=1)


def test_sizes_that_would_take_all_memory_are_refused() -> None:
    with pytest.raises(InputError, match="padding must be between 1 and 256"):
        BackboneConfig(padding=10_000)
    with pytest.raises(InputError, match="instead of a height and a width between 1 and 8192 pixels, at most 9437184"):
        trained_size({"picture_size": [8192, 8192]}, "config.json")
    assert trained_size({"picture_size": [2160, 3840]}) == (2160, 3840)
