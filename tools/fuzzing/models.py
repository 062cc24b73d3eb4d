"""What came with the models: expected precision, interrupted predictions, graphs, frame encoders, checksums."""

import json
import random
import shutil
import zlib
from pathlib import Path

import av
import numpy as np
import torch

from ballcast.api import load
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.events import Forecast, Gap, Prediction
from ballcast.features.backbone import Backbone
from ballcast.inference.expected_precision import ExpectedPrecision, read_precision, write_precision
from ballcast.inference.loading import open_model
from ballcast.inference.onnx_check import check_graph
from ballcast.inference.onnx_runtime import OnnxRuntime, open_session
from ballcast.inference.partial_timeline import SUFFIX, PartialTimeline
from ballcast.inference.timeline import write_timeline, write_timeline_csv
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from ballcast.video.overlay import write_overlay
from ballcast.video.pitch import frames_and_scenes
from ballcast.workflows.verify import verify
from tests.features.conftest import small_backbone
from tests.synthetic import make_split
from tools.fuzzing.media import Video
from tools.fuzzing.mutate import mutate_bytes, mutate_json, mutate_tensors
from tools.fuzzing.stores import Model, small_recipe
from tools.fuzzing.target import Target
from tools.fuzzing.texts import Challenge

FRAME_ENCODER = BackboneConfig(
    encoder="test_efficientnet", blocks=0, projected=16, frames=1, stack=1, step=1, stride=2, colour=True, shift="gated"
)


class PrecisionFile(Target):
    """`precision.json` beside a model's weights."""

    kind, place = "model", "precision.json"

    def prepare(self) -> None:
        torch.manual_seed(0)
        Anticipator(small_recipe(self.home).model).eval().save_pretrained(self.home)
        curves = {"PASS": ((0.1, 0.2), (0.4, 0.5), (0.9, 0.5)), "SHOT": ((0.3, 0.0),), "DRIVE": ()}
        write_precision(self.home, ExpectedPrecision(curves, 0.3, samples=9, predictions=40), "valid")

    def drive(self, path: Path, out: Path) -> None:
        measured = read_precision(self.at_home(path))
        if measured is None:
            return
        for label in ("PASS", "SHOT", "OUT"):
            assert 0 <= measured.of(label, 0.35) <= 1
        json.dumps(measured.to_json(), allow_nan=False)


class PartOfPrediction(Target):
    """The `.part` of an interrupted `predict`: lines of JSON, of which the first says what they depend on."""

    kind, suffix = "timeline", ".part"
    key = {"video": "match.mp4", "every_ms": 1000}  # noqa: RUF012

    def prepare(self) -> None:
        target = self.base / "timeline.json"
        predictions = (Prediction("PASS", 5400, 0.7, (0.1,) * 10), Prediction("SHOT", 9000, 0.1, ()))
        with PartialTimeline(target, self.key) as part:
            part.append([Forecast(5000, predictions), Gap(6000, 7200, "a picture is damaged"), Forecast(8000, ())])
            self.seeds.append(part.path.read_bytes())
            part.finish()
        self.seeds.append(part.path.read_bytes())

    def mutate(self, rng: random.Random) -> bytes:
        raw = rng.choice(self.seeds)
        lines = raw.split(b"\n")
        at = rng.randrange(len(lines))
        if rng.random() < 0.3 or not lines[at]:
            return mutate_bytes(raw, rng)
        line = mutate_json(lines[at].rpartition(b"\t")[0], rng)
        lines[at] = b"%s\t%08x" % (line, zlib.crc32(line))
        return b"\n".join(lines)

    def drive(self, path: Path, out: Path) -> None:
        target = out / "timeline.json"
        shutil.copyfile(path, out / f"timeline.json{SUFFIX}")
        with PartialTimeline(target, self.key) as part:
            kept = [item for item in part.kept if isinstance(item, Forecast)]
            gaps = [item for item in part.kept if isinstance(item, Gap)]
            part.append([Forecast(20_000, ())])
        again = PartialTimeline(target, self.key)
        with again:
            assert len(again.kept) == len(kept) + len(gaps) + 1 or again.complete, "what was kept cannot be read again"
        write_timeline(target, kept, {"video": "match.mp4"}, gaps)
        write_timeline_csv(out / "timeline.csv", kept)
        part.remove()


class OnnxGraph(Target):
    """A graph of a stranger: checked, and loaded if it passes."""

    kind, suffix = "model", ".onnx"
    mutation = staticmethod(mutate_bytes)
    seconds = 20

    def prepare(self) -> None:
        from onnx import helper

        from tests.inference.test_onnx_check import HUNGRY, ONE, STRANGE, external, graph_of

        good = graph_of([helper.make_node("Expand", ["one", "shape"], ["y"])], one=ONE, shape=np.array([2, 3]))
        self.seeds = [good, *HUNGRY.values(), *STRANGE.values(), external("w.bin"), external("../x")]

    def drive(self, path: Path, out: Path) -> None:
        check_graph(path, path.name)
        check_graph(path.read_bytes(), path.name)
        open_session(path, path.name, 1)


class EmbeddedGraphs(Target):
    """`graphs.json`, the config of graphs beside weights, as exports have it too."""

    kind, place = "model", "graphs.json"
    seconds = 20

    def prepare(self) -> None:
        self.home.mkdir()
        for name in ("config.json", "graphs.json", "slots.onnx", "window.onnx", "model.safetensors"):
            shutil.copyfile(MODEL / name, self.home / name)

    def drive(self, path: Path, out: Path) -> None:
        OnnxRuntime.embedded(self.at_home(path), BACKBONE, threads=1)


class LoadedModel(Model):
    """`ballcast.load` of a folder, a model of `faantra-ws`; its config names a backbone trained end to end."""

    def prepare(self) -> None:
        make_split(self.base / "store", 2, seed=1)
        torch.manual_seed(0)
        config = small_recipe(self.home, "model.kind=faantra").model
        about = {"pos_weight": 1.0, "backbone": {"name": "x", "folder": "../backbone"}}
        Anticipator(config, metadata=about).eval().save_pretrained(self.home)

    def drive(self, path: Path, out: Path) -> None:
        model = load(self.at_home(path), device="cpu")
        for made in model.features(self.base / "store"):
            assert made.predictions is not None


class FrameEncoder(Target):
    """The config of a frame encoder in colour with a temporal shift, trained end to end with its model."""

    kind, place = "model", "config.json"
    seconds = 20

    def prepare(self) -> None:
        torch.manual_seed(0)
        Backbone(FRAME_ENCODER, name="small", metadata={"picture_size": [40, 74]}).eval().save_pretrained(self.home)
        make = Anticipator(small_recipe(self.home, f"model.width={FRAME_ENCODER.width}", "model.clips=63").model)
        make.eval().save_pretrained(self.base / "model")

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        backbone = Backbone.load(home)
        with torch.inference_mode():
            backbone.snippets(np.zeros((130, 60, 74) if backbone.config.colour else (130, 40, 74), np.uint8))
        open_model(self.base / "model", home, runtime="torch", device="cpu")


class Verified(Target):
    """`ballcast data verify` over a store, a backbone and a state, one of their files spoilt."""

    kind, place, signed = "checksums", "features/train/manifest.json", True

    def prepare(self) -> None:
        make_split(self.home / "features/train", 2, seed=0)
        small_backbone(0).save_pretrained(self.home / "runs/best")
        np.savez(self.home / "features/windows.npz", a=np.arange(100))

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        found = verify(home)
        for sentence in found.damaged:
            assert sentence.isprintable(), sentence
        spoilt = path.read_bytes() != self.seeds[0]
        assert not spoilt or found.damaged or found.unknown, "damage is not detected"


class VerifiedWeights(Verified):
    suffix, place = ".safetensors", "runs/best/model.safetensors"
    mutation = staticmethod(mutate_tensors)


class VerifiedConfig(Verified):
    place = "runs/best/config.json"


class VerifiedSamples(Verified):
    suffix, place = ".npz", "features/windows.npz"
    mutation = staticmethod(mutate_bytes)

    def drive(self, path: Path, out: Path) -> None:
        verify(self.at_home(path))  # bytes that belong to no array of a zip may differ


class TwoSystems(Challenge):
    """`eval A B`: a second submission beside a whole one."""

    kind, commanded = "submission", 1.0
    seconds = 20

    def prepare(self) -> None:
        super().prepare()
        self.seeds = [self.results.read_bytes()]

    def drive(self, path: Path, out: Path) -> None:
        pass

    def command(self, path: Path, out: Path) -> list[str]:
        both = ["--predictions", str(self.results), "--predictions", str(path)]
        return ["eval", "--labels", str(self.labels), *both, "--bootstrap", "100", "--json", str(out / "score.json")]


class DamagedVideo(Video):
    """A damaged file as `predict` reads it: on after the damage, with gaps, and drawn."""

    commanded = 0.0

    def drive(self, path: Path, out: Path) -> None:
        with VideoFile(path, threads=1, strict=False) as video:
            frames, last = 0, 0
            for item in frames_and_scenes(video, colour=True, any_video=False):
                if isinstance(item, Gap):
                    assert item.end_ms >= item.begin_ms >= last, f"gaps overlap: {item}"
                    last = item.end_ms
                elif isinstance(item, np.ndarray):
                    frames += 1
                if frames > 2000:
                    return
        if frames and len(path.read_bytes()) % 4 == 0:
            write_overlay(path, out / "overlay.mp4", [Forecast(1000, ())], [], note="x")
            with av.open(str(out / "overlay.mp4")) as made:
                assert made.streams.video
