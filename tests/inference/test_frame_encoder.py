"""Models on a frame encoder: the same features and forecasts from a store, a file, live, a server and an export."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.events import Forecast
from ballcast.export.export import export
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.extract import extract
from ballcast.features.stack_index import snippet_count
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.video_predictor import predict_video
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from ballcast.video.sources import FileSource
from ballcast_server.confined import decoder
from ballcast_server.settings import Limits

SIZE = (40, 74)  # padded to 64 × 96, with an odd number of columns on each side if it were centred
SECONDS = 12
SIZES: dict[str, Any] = {"encoder": "test_efficientnet", "blocks": 0, "projected": 16}
GRAY: dict[str, Any] = {"frames": 3, "stack": 3, "step": 1, "stride": 2}
COLOUR: dict[str, Any] = {"frames": 1, "stack": 1, "step": 1, "stride": 2, "colour": True}
CONFIGS = {
    "gray": BackboneConfig(**SIZES, **GRAY),
    "colour": BackboneConfig(**SIZES, **COLOUR),
    "plain shift": BackboneConfig(**SIZES, **GRAY, shift="plain"),
    "gated shift": BackboneConfig(**SIZES, **COLOUR, shift="gated"),
    "causal shift": BackboneConfig(**SIZES, **COLOUR, shift="causal"),
}
ALL = EmitConfig(threshold=0.0)  # every slot is a prediction
EVERY_MS = 1160  # windows that begin at even and odd frames


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colours that change all the time."""
    path = tmp_path_factory.mktemp("video") / "v.mp4"
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"preset": "ultrafast", "crf": "15"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for _ in range(25 * SECONDS):
            small = rng.integers(0, 256, (5, 8, 3), dtype=np.uint8)
            rgb = np.ascontiguousarray(small.repeat(8, 0).repeat(10, 1)[: SIZE[0], : SIZE[1]])
            out.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="yuv420p")))
        out.mux(stream.encode())
    return path


@pytest.fixture(scope="module", params=CONFIGS, ids=str)
def networks(request: pytest.FixtureRequest) -> tuple[Anticipator, Backbone]:
    """A small model and its frame encoder, both random."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = CONFIGS[request.param]
    backbone = Backbone(config, name="small", metadata={"picture_size": list(SIZE)}).eval()
    for module in backbone.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
            torch.nn.init.normal_(module.bias, 0.1, 0.2)
    coarse = torch.rand(2 * snippet_count(config), config.planes, 8, 12).repeat_interleave(8, 2).repeat_interleave(8, 3)
    with torch.no_grad():  # norms and the last layer as after training, so that features differ between frames
        backbone.train().encode(coarse)
        features = backbone.eval().encode(coarse).flatten(1)
        project = backbone.project2d[0]
        project.weight /= features.std(0)[:, None, None, None]
        project.bias.copy_((project.bias - features.mean(0)) / features.std(0))
    sizes = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
    model = ModelConfig(
        windows=2, clips=snippet_count(config), width=config.width, hierarchy=HierarchyConfig(**sizes, decoder_layers=2)
    )
    about = {"backbone": {"hash": backbone.hash, "name": "small"}, "picture_size": list(SIZE)}
    return Anticipator(model, emit=ALL, metadata=about).eval(), backbone


def predictor(networks: tuple[Anticipator, Backbone]) -> StreamPredictor:
    return StreamPredictor(TorchRuntime(*networks), every_ms=EVERY_MS)


def frames(video: Path, backbone: Backbone) -> np.ndarray:
    with VideoFile(video) as file:
        return file.read(0, 25 * SECONDS, colour=backbone.config.colour)


def assert_same(got: list[Forecast], expected: list[Forecast]) -> None:
    assert [made.at_ms for made in got] == [made.at_ms for made in expected] == list(range(5000, 12001, EVERY_MS))
    for a, b in zip(got, expected, strict=True):
        assert [(p.label, p.position_ms) for p in a.predictions] == [(p.label, p.position_ms) for p in b.predictions]
        for p, q in zip(a.predictions, b.predictions, strict=True):
            assert p.scores == pytest.approx(q.scores, abs=1e-5)


def test_a_window_is_the_same_from_a_video_and_along_a_stream(
    networks: tuple[Anticipator, Backbone], video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = networks[1]
    c, pixels = backbone.config, frames(video, backbone)
    seen: list[np.ndarray] = []
    stream = predictor(networks)
    encode = stream.runtime.encode_windows
    monkeypatch.setattr(stream.runtime, "encode_windows", lambda given: (seen.extend(given.copy()), encode(given))[1])
    starts = []
    for number, frame in enumerate(pixels, 1):
        before = len(seen)
        if stream.push(frame) is not None and len(seen) > before:
            starts.append((number - 125) // c.stride * c.stride)  # of the last window
    assert len(starts) == 7
    engine = BatchEncoder(backbone, compiled=False)
    last = torch.stack([engine.windows(pixels[start : start + 125], [0])[0] for start in starts]).numpy()
    assert last.shape == (7, 63 if c.colour else 62, 16)
    assert np.abs(np.diff(last, axis=1)).mean() > 0.02 * np.abs(last).max()  # the frames differ
    for start, window in zip(starts, last, strict=True):
        assert min(np.abs(window - given).max() for given in seen) < 1e-5 * np.abs(window).max(), start
    together = engine.windows(pixels, starts).numpy()
    assert np.abs(together - last).max() < 1e-5 * np.abs(last).max()


def test_predict_is_live(networks: tuple[Anticipator, Backbone], video: Path) -> None:
    with VideoFile(video) as file:
        predicted = tuple(predict_video(file, predictor(networks)))
    stream = predictor(networks)
    session = LiveSession(FileSource(video, speed=0, colour=stream.colour), stream)
    with session.subscribe(capacity=1000) as records, session:
        live = [record.forecast for record in records if isinstance(record, LiveForecast)]
    assert session.error is None
    assert_same(live, list(predicted))
    moves = [np.subtract(a.predictions[0].scores, b.predictions[0].scores) for a, b in pairwise(live)]
    assert min(np.abs(move).max() for move in moves) > 1e-5


def test_a_store_has_the_same_features(networks: tuple[Anticipator, Backbone], video: Path, tmp_path: Path) -> None:
    backbone = networks[1]
    report = extract(video, tmp_path / "store", backbone, every=25, device="cpu")
    assert not report.failed
    store = report.store
    pixels = frames(video, backbone)
    starts = list(range(0, len(pixels) - 124, 25))
    expected = BatchEncoder(backbone, compiled=False).windows(pixels, starts).numpy()
    got = store.windows("v").astype(np.float32)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 1e-3 * np.abs(expected).max()  # the store is float16
    assert store.manifest.resolution == SIZE


def test_a_servers_decoder_gives_the_same_frames(networks: tuple[Anticipator, Backbone], video: Path) -> None:
    backbone = networks[1]
    with decoder.frames(video, "v", Limits(), colour=backbone.config.colour) as given:
        assert np.array_equal(np.stack(list(given)), frames(video, backbone))


def test_an_onnx_export_is_torch(networks: tuple[Anticipator, Backbone], video: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model, backbone = networks
    model.save_pretrained(tmp_path / "model")
    backbone.save_pretrained(tmp_path / "backbone")
    names = str(tmp_path / "model"), str(tmp_path / "backbone")
    result = export(*names, tmp_path / "out", video=video)
    assert max(result.apart.values()) < 1e-5
    with VideoFile(video) as file:
        expected = tuple(predict_video(file, predictor(networks)))
        onnx = StreamPredictor(OnnxRuntime.open(tmp_path / "out", threads=1), every_ms=EVERY_MS)
        assert_same(list(predict_video(file, onnx)), list(expected))
