"""Anticipation along a stream: what each window from scratch gives, and no work done twice."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ballcast import cli
from ballcast.core.anticipator_config import EmitConfig, FaantraConfig, HierarchyConfig, ModelConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.data.labels.osl import read_osl
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.inference.loading import UNKNOWN
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.video_predictor import predict_video
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer
from tests.features.conftest import SMALL, small_backbone
from tests.video.conftest import make_video

ALL = EmitConfig(threshold=0.0)  # every slot is emitted


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.set_num_threads(1)
    return small_backbone()


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """(T, 32, 64) uint8: noise whose grain, brightness and contrast wander, so that no two seconds are alike."""
    rng = np.random.default_rng(seed)
    grain = rng.normal(0, 1, (count, 32, 64))
    wander = np.cumsum(rng.normal(0, 0.2, (3, count)), 1)[:, :, None, None]
    waves = np.sin(np.arange(64) * (1 + np.sin(wander[0])))
    return np.clip(110 + 60 * np.sin(wander[1]) + 50 * waves + 40 * np.sin(wander[2]) * grain, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def video() -> np.ndarray:
    return pictures(25 * 37 + 11)


@pytest.fixture(scope="module")
def model(backbone: Backbone, video: np.ndarray) -> Anticipator:
    """A small model that sees how features differ from the usual, so that each second shows in what it says."""
    torch.manual_seed(1)
    sizes = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
    config = ModelConfig(width=SMALL.width, hierarchy=HierarchyConfig(**sizes, decoder_layers=2))
    made = Anticipator(config, metadata={"backbone": {"hash": backbone.hash, "name": backbone.name}, "pos_weight": 4.0})
    features, project = backbone.snippets(video[::5]), made.network.encoder.project
    with torch.no_grad():
        project.weight /= features.std(0).clamp(min=1e-3)
        project.bias.copy_(-project.weight @ features.mean(0))
    return made.eval()


def roll(predictor: StreamPredictor, frames: np.ndarray) -> list[Forecast]:
    return [made for frame in frames if (made := predictor.push(frame)) is not None]


@torch.no_grad()
def from_scratch(model: Anticipator, backbone: Backbone, frames: np.ndarray, at_ms: int) -> list[Prediction]:
    """The slots at one time, every window computed for it separately."""
    end, W = at_ms // 40, model.config.windows
    starts = [end - 125 * (W - w) for w in range(W)]
    features = torch.zeros(1, W, 33, SMALL.width)
    for w, start in enumerate(starts):
        if start >= 0:
            first = start // 3 * 3
            features[0, w] = BatchEncoder(backbone, compiled=False).windows(frames[first : first + 125], [0])[0]
    slots = model(features, torch.tensor([[start >= 0 for start in starts]]))
    shift = at_ms - 30_000
    return [replace(p, position_ms=p.position_ms + shift) for p in emit(slots, ALL, pos_weight=4.0)[0]]


def assert_same(got: Forecast, expected: list[Prediction]) -> None:
    assert [(p.label, p.position_ms) for p in got.predictions] == [(p.label, p.position_ms) for p in expected]
    for a, b in zip(got.predictions, expected, strict=True):
        assert a.scores == pytest.approx(b.scores, abs=1e-5)
        assert a.confidence == pytest.approx(b.confidence, abs=1e-5)


@pytest.mark.parametrize(("every_ms", "times"), [(1000, range(5000, 37_001, 1000)), (1830, range(5000, 37_440, 1830))])
def test_it_says_what_every_window_from_scratch_would(
    model: Anticipator, backbone: Backbone, video: np.ndarray, every_ms: int, times: range
) -> None:
    timeline = roll(StreamPredictor(TorchRuntime(model, backbone), every_ms=every_ms, emit=ALL), video)
    assert [made.at_ms for made in timeline] == list(times)
    for made in (*timeline[:3], timeline[6], *timeline[-3:]):
        assert len(made.predictions) == 4
        assert_same(made, from_scratch(model, backbone, video, made.at_ms))
        assert all(made.at_ms <= p.position_ms <= made.at_ms + 5000 for p in made.predictions)
    moves = [np.abs(np.subtract(a.predictions[0].scores, b.predictions[0].scores)).max() for a, b in pairwise(timeline)]
    assert min(moves) > 1e-4  # or the comparison above would say nothing


def test_pictures_of_another_size_are_brought_to_that_of_training(
    model: Anticipator, backbone: Backbone, video: np.ndarray
) -> None:
    """The model's word goes before the backbone's; the runtime's None leaves them as they are."""
    knowing, seeing = copy.copy(model), copy.copy(backbone)
    knowing.metadata = {**model.metadata, "picture_size": [32, 64]}
    seeing.metadata = {"picture_size": [64, 128]}
    large = video[:150].repeat(2, 1).repeat(2, 2)  # (T, 64, 128)

    def forecasts(runtime: TorchRuntime, frames: np.ndarray) -> list[Forecast]:
        return roll(StreamPredictor(runtime, emit=ALL), frames)

    plain = forecasts(TorchRuntime(model, backbone), large)
    scaled = np.stack([FrameResizer((32, 64))(frame) for frame in large])
    assert scaled.shape == (150, 32, 64)
    assert forecasts(TorchRuntime(knowing, seeing), large) == forecasts(TorchRuntime(model, backbone), scaled) != plain
    assert forecasts(TorchRuntime(knowing, backbone), scaled) == forecasts(TorchRuntime(model, backbone), scaled)
    assert forecasts(TorchRuntime(model, seeing), large) == plain
    own = TorchRuntime(knowing, seeing)
    own.picture_size = None
    assert forecasts(own, large) == plain


def test_a_baseline_reads_only_the_last_window(backbone: Backbone, video: np.ndarray) -> None:
    config = ModelConfig(kind="faantra", width=SMALL.width, faantra=FaantraConfig(dim=16, heads=2, ffn=32))
    model = Anticipator(config, metadata={"pos_weight": 4.0}).eval()
    for made in roll(StreamPredictor(TorchRuntime(model, backbone), every_ms=2000, emit=ALL), video[:250]):
        assert_same(made, from_scratch(model, backbone, video, made.at_ms))


def test_how_often_it_speaks_does_not_change_what_it_says(
    model: Anticipator, backbone: Backbone, video: np.ndarray
) -> None:
    """Nor does a change of the rate on the way, nor another video before."""
    often = {
        m.at_ms: m for m in roll(StreamPredictor(TorchRuntime(model, backbone), every_ms=200, emit=ALL), video[:300])
    }
    predictor = StreamPredictor(TorchRuntime(model, backbone), every_ms=1000, emit=ALL)
    timeline = roll(predictor, video[:300])
    assert [m.at_ms for m in timeline] == [5000, 6000, 7000, 8000, 9000, 10_000, 11_000, 12_000]
    assert timeline == [often[made.at_ms] for made in timeline]
    predictor.reset()
    begin = roll(predictor, video[:200])
    predictor.every_ms = 2000
    assert [*begin, *roll(predictor, video[200:300])] == [often[t] for t in (5000, 6000, 7000, 8000, 9000, 11_000)]


def test_no_stack_and_no_window_is_computed_twice(
    model: Anticipator, backbone: Backbone, video: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks, windows = [], []
    encode, encode_window = BatchEncoder.encode, Anticipator.encode_window
    monkeypatch.setattr(BatchEncoder, "encode", lambda self, x: stacks.extend(x.numpy().copy()) or encode(self, x))
    monkeypatch.setattr(Anticipator, "encode_window", lambda self, x: windows.append(x) or encode_window(self, x))
    predictor = StreamPredictor(TorchRuntime(model, backbone), every_ms=1000, emit=ALL)
    timeline = roll(predictor, video)
    stacks = [stack for stack in stacks if stack.any()]  # a black one is encoded to learn the size of the maps
    assert len(stacks) == predictor.stream.stacks == (25 * 37 + 11 - 5) // 3 + 1
    assert len({stack.tobytes() for stack in stacks}) == len(stacks)
    assert len(windows) == len(timeline) == 33  # the newest of each forecast; the five before it are known


def test_recorded_graphs_say_the_same(
    model: Anticipator, backbone: Backbone, video: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a replay overwrites is not kept; where there is no GPU, with a stand-in for the graphs."""
    for module in ("torch_runtime", "torch_stacks"):
        monkeypatch.setattr(f"ballcast.inference.{module}.record", graphs.record)
    plain = StreamPredictor(TorchRuntime(model, backbone), emit=ALL)
    runtime = TorchRuntime(model, backbone)
    runtime._graphed = True
    recorded = StreamPredictor(runtime, emit=ALL)
    assert roll(recorded, video[:400]) == roll(plain, video[:400])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_it_says_what_a_cpu_says(model: Anticipator, backbone: Backbone, video: np.ndarray) -> None:
    expected = roll(StreamPredictor(TorchRuntime(model, backbone), emit=ALL), video[:400])
    predictor = StreamPredictor(TorchRuntime(copy.deepcopy(model), copy.deepcopy(backbone).cuda()), emit=ALL)
    got = roll(predictor, video[:400])
    for a, b in zip(got, expected, strict=True):
        assert a.at_ms == b.at_ms
        sure = [sorted(p.confidence for p in made.predictions) for made in (a, b)]  # fp16 may change their order
        assert sure[0] == pytest.approx(sure[1], abs=0.02)
    predictor.reset()
    assert roll(predictor, video[:400]) == got


@pytest.mark.parametrize("every_ms", [40, 1000, 7000, 60_000])
def test_memory_does_not_grow(model: Anticipator, backbone: Backbone, every_ms: int) -> None:
    """Five minutes, the networks replaced by nothing: what is kept after two minutes is what is kept after five."""
    runtime = TorchRuntime(model, backbone)
    predictor, encoder = StreamPredictor(runtime, every_ms=every_ms), runtime.encoder
    encoder.encode = lambda pictures: torch.zeros(len(pictures), 16, 1, 1)  # type: ignore[method-assign]
    encoder.mix = lambda maps: torch.zeros(len(maps) - encoder.overlap, SMALL.width)  # type: ignore[method-assign]
    frame, held, made = np.zeros((1, 1), np.uint8), [], 0
    for _ in range(25 * (300 if every_ms > 40 else 60)):
        made += predictor.push(frame) is not None
        held.append((len(predictor.stream._waiting), len(predictor._clips), len(predictor._tokens)))
    assert made == (len(held) - 125) * 40 // every_ms + 1
    most = np.array(held).max(0)
    assert (most <= (5, 252, 252)).all()
    early, late = np.array(held[: len(held) * 2 // 3]).max(0), np.array(held[len(held) * 2 // 3 :]).max(0)
    assert (late <= early).all()
    assert predictor._clips._all.nbytes <= 2 * 4 * SMALL.width * 253  # half of it may be free


def test_a_model_gone_wrong_is_not_a_quiet_game(model: Anticipator, backbone: Backbone, video: np.ndarray) -> None:
    broken = copy.deepcopy(model)
    torch.nn.init.constant_(broken.network.encoder.project.weight, float("nan"))
    with pytest.raises(InputError, match="at 5000 ms: the model gives numbers that are not finite"):
        roll(StreamPredictor(TorchRuntime(broken, backbone)), video[:130])


def test_every_frame_is_as_often_as_it_goes(model: Anticipator, backbone: Backbone) -> None:
    with pytest.raises(InputError, match="more often than there are frames"):
        StreamPredictor(TorchRuntime(model, backbone), every_ms=39)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 s at 50 fps."""
    return make_video(tmp_path_factory.mktemp("video") / "cut.mp4", range(600), Fraction(1, 50), rate=50)


def test_twelve_seconds_use_the_windows_there_are(
    model: Anticipator, backbone: Backbone, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = []
    anticipate = Anticipator.anticipate
    monkeypatch.setattr(
        Anticipator,
        "anticipate",
        lambda self, x, present: masks.append(present[0].tolist()) or anticipate(self, x, present),
    )
    calls: list[tuple[int, int | None]] = []
    predictor = StreamPredictor(TorchRuntime(model, backbone), emit=ALL)
    with VideoFile(short) as file:
        timeline = tuple(predict_video(file, predictor, lambda done, total: calls.append((done, total))))
        frames = file.read(0, 1000)
    assert predictor.frames == len(frames) == 300
    assert [made.at_ms for made in timeline] == list(range(5000, 12_001, 1000))
    assert [sum(mask) for mask in masks] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert masks[-1] == [False] * 4 + [True] * 2
    assert calls[-1] == (300, 300)
    predictor.reset()
    assert roll(predictor, frames) == list(timeline)  # a file and frames that trickle in: the same bits
    assert_same(timeline[-1], from_scratch(model, backbone, frames, 12_000))


def test_less_than_a_window_is_one_sentence(model: Anticipator, backbone: Backbone, tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4", range(100))
    with VideoFile(path) as file, pytest.raises(InputError, match=r"a\.mp4: is only 4\.0 s long"):
        list(predict_video(file, StreamPredictor(TorchRuntime(model, backbone))))


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, model: Anticipator, backbone: Backbone) -> Path:
    """A folder with model/, backbone/ and other/, a backbone it was not trained on."""
    model.save_pretrained(tmp_path / "model")
    backbone.save_pretrained(tmp_path / "backbone")
    small_backbone(seed=5).save_pretrained(tmp_path / "other")
    return tmp_path


def test_the_command_line_writes_all_four(
    made: Path, model: Anticipator, backbone: Backbone, short: Path, ballcast: Any
) -> None:
    done = ballcast(
        *("predict", short, "threshold=0.0", "--model", "model", "--backbone", "backbone", "--every", "2"),
        *("--any-video", "--html", "page.html"),
        *("-o", "out.json", "--osl", "osl.json", "--csv", "table.csv", "--overlay", "seen.mp4", "--device", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    assert "out.json: 4 forecasts, 16 predictions" in done.stdout
    assert "12.0 s of video" in done.stdout
    assert "× real time" in done.stdout
    tree = json.loads((made / "out.json").read_text())
    anticipations = tree.pop("anticipations")
    assert tree == {
        "video": str(short),
        "every_ms": 2000,
        "model": "model",
        "runtime": "onnx fp32",
        "backbone": {"name": backbone.name, "hash": backbone.hash},
        "origin": UNKNOWN,
        "pos_weight": 4.0,
        "gaps": [],
    }
    assert [a["at_ms"] for a in anticipations] == [5000, 7000, 9000, 11_000]
    with VideoFile(short) as file:
        expected = tuple(predict_video(file, StreamPredictor(TorchRuntime(model, backbone), every_ms=2000, emit=ALL)))
    got = [
        Forecast(
            a["at_ms"],
            tuple(
                Prediction(p["label"], p["position_ms"], p["confidence"], tuple(p["scores"])) for p in a["predictions"]
            ),
        )
        for a in anticipations
    ]
    for a, b in zip(got, expected, strict=True):
        assert_same(a, list(b.predictions))
    events = read_osl(made / "osl.json").items[str(short)]
    assert sorted(events, key=repr) == sorted((p for a in got for p in a.predictions), key=repr)
    header, *rows = (made / "table.csv").read_text().splitlines()
    assert header == "at_ms,label,position_ms,confidence,score,within_5s"
    first = got[0].predictions[0]
    assert rows[0] == f"5000,{first.label},{first.position_ms},{first.confidence!r},{first.score!r},"
    assert len(rows) == 16
    with VideoFile(made / "seen.mp4") as seen:
        assert seen.probe().rate == 50
        assert seen.size[0] > 64
        assert seen.frame_count() == 300


def test_the_command_line_tells_of_the_size(
    made: Path, model: Anticipator, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    knowing = copy.copy(model)
    knowing.metadata = {**model.metadata, "picture_size": [32, 48]}
    knowing.save_pretrained(made / "knowing")
    notice, timelines = "frames of 96×64 are scaled to 48×32", {}
    for name, more in (
        ("model", ()),
        ("knowing", ()),
        ("own", ("--pictures", "own")),
        ("given", ("--size", "48x32")),
    ):
        which = "knowing" if name in ("knowing", "own") else "model"
        given = ["predict", str(short), "threshold=0", "--every", "7", "-o", f"{name}.json", "--device", "cpu", *more]
        result = CliRunner().invoke(cli.app, [*given, "--any-video", "--model", which, "--backbone", "backbone"])
        assert result.exit_code == 0, result.output
        assert (notice in result.output) == (name in ("knowing", "given"))
        timelines[name] = json.loads((made / f"{name}.json").read_text())["anticipations"]
    assert timelines["own"] == timelines["model"] != timelines["knowing"] == timelines["given"]


def test_another_backbone_is_refused(
    made: Path, short: Path, ballcast: Any, clean_failure: Callable[..., None]
) -> None:
    done = ballcast("predict", short, "--model", "model", "--backbone", "other")
    clean_failure(done, "other: is the backbone small-5", "the model model was trained on small-0")
    assert not list(made.glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("VIDEO --backbone backbone", "predict needs a model"),
        ("VIDEO --model model", "predict needs the backbone"),
        ("--model model", "give what to anticipate: either a VIDEO"),
        ("VIDEO --features store --model model", "give what to anticipate: either a VIDEO"),
        ("threshold=0.1 --model model", "give what to anticipate: either a VIDEO"),
        ("VIDEO --labels a --model model --backbone backbone", "--labels goes with --features"),
        ("--features store --overlay a.mp4 --model model", "--overlay goes with a VIDEO"),
        ("VIDEO treshold=0.1 --model model --backbone backbone", "did you mean 'threshold'"),
        ("VIDEO --overlay a.avi --model model --backbone backbone", "ends in .mp4"),
        ("VIDEO --out VIDEO --model model --backbone backbone", "is the file that is read"),
        ("VIDEO --csv a --osl a --model model --backbone backbone", "is given twice"),
        ("VIDEO --csv VIDEO/x.csv --model model --backbone backbone", "x.csv: cannot be written, since a part of its"),
        ("VIDEO --out /proc/p.json --model model --backbone backbone", "/proc/p.json: cannot be written"),
        ("VIDEO --osl new/a --csv VIDEO/x.csv --model model --backbone backbone", "x.csv: cannot be written"),
        ("missing.mp4 --model model --backbone backbone", "no such file"),
    ],
)
def test_what_does_not_go_together(
    made: Path, short: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(made)
    before, there = short.read_bytes(), sorted(made.iterdir())
    result = CliRunner().invoke(cli.app, ["predict", *arguments.replace("VIDEO", str(short)).split()])
    assert isinstance(result.exception, InputError), result.output
    assert words in str(result.exception)
    assert short.read_bytes() == before
    assert sorted(made.iterdir()) == there


@pytest.mark.parametrize("command", ["predict a.mp4", "events in out"])
@pytest.mark.parametrize("every", ["inf", "nan", "0", "1e9"])
def test_every_is_a_number_of_seconds(command: str, every: str) -> None:
    result = CliRunner().invoke(cli.app, [*command.split(), "--every", every])
    assert result.exit_code == 2
    assert "Invalid value for '--every'" in result.output


def test_a_stop_keeps_what_is_made_and_the_same_command_goes_on(
    made: Path, short: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C twice, at different places, then to the end: the same bytes as without."""
    monkeypatch.chdir(made)
    command = ["predict", str(short), "threshold=0", "--model", "model", "--backbone", "backbone", "--any-video"]
    assert CliRunner().invoke(cli.app, [*command, "-o", "whole.json"]).exit_code == 0
    push = StreamPredictor.push

    def stop_at(left: int) -> Callable[[StreamPredictor, np.ndarray], Forecast | None]:
        def stopped(self: StreamPredictor, frame: np.ndarray) -> Forecast | None:
            if self.frames == left:
                raise KeyboardInterrupt
            return push(self, frame)

        return stopped

    for left, words in ((180, "stopped at 7 s"), (270, "stopped at 10 s")):
        monkeypatch.setattr(StreamPredictor, "push", stop_at(left))
        with pytest.raises(SystemExit) as stop:
            cli.main([*command, "-o", "part.json"])
        assert stop.value.code == 130
        assert words in capsys.readouterr().err
        assert not (made / "part.json").exists()
        assert (made / "part.json.part").exists()
    monkeypatch.setattr(StreamPredictor, "push", push)
    done = CliRunner().invoke(cli.app, [*command, "-o", "part.json"])
    assert "kept from a run that was interrupted" in done.output
    assert (made / "part.json").read_bytes() == (made / "whole.json").read_bytes()
    assert not (made / "part.json.part").exists()
    (made / "half.json.part").write_text((made / "whole.json").read_text())  # of something else
    assert CliRunner().invoke(cli.app, [*command, "-o", "half.json"]).exit_code == 0
    assert (made / "half.json").read_bytes() == (made / "whole.json").read_bytes()
