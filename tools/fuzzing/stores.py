"""Feature stores, models, backbones and saved runs: folders of files that belong together."""

import io
import json
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch

from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import load
from ballcast.core.errors import BallcastWarning
from ballcast.core.events import Clip
from ballcast.data.events.event_grid import read_store, write_store
from ballcast.data.events.wyscout import read_v2
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.extract import extract
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_import import import_npy
from ballcast.features.store_writer import Parts
from ballcast.inference.store_predictor import check_fits, hashes
from ballcast.inference.submission import write_submission
from ballcast.model.anticipator import Anticipator
from ballcast.model.score_mapping import ClassScoreMapping, ScoreMapping, read_score_mapping
from ballcast.training.distributed import Ranks
from ballcast.training.loop import Trainer, open_run
from ballcast.training.run import build_task, train
from tests.feeds import made_up
from tests.games import make_matches
from tests.synthetic import SMALL, make_split
from tools.fuzzing.mutate import mutate_bytes, mutate_tensors, mutate_zip
from tools.fuzzing.target import Target
from tools.predict_store import predict_store

CPU = torch.device("cpu")
TINY = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=4, classes=10)
RECIPE = [*SMALL, "train.epochs=1", "train.batch=4", "train.save_every=1", "train.compile=false"]


def small_recipe(features: Path, *extra: str) -> Recipe:
    return load(
        Recipe, None, [*RECIPE, f"data.features={features}", "data.train=[train]", "data.valid=[valid]", *extra]
    )


def open_training(recipe: Recipe, folder: Path) -> None:
    """Open the data and the saved state of a run, without a step."""
    context = open_run(recipe, folder, CPU, Ranks())
    Trainer(build_task(recipe, context), recipe, context)


def tiny_backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(TINY, name="tiny").eval()


class Manifest(Target):
    """A store as training, prediction and extraction open it."""

    kind, place = "manifest", "valid/manifest.json"

    def prepare(self) -> None:
        make_split(self.home / "train", 8, seed=0)
        make_split(self.home / "valid", 3, seed=1)
        torch.manual_seed(0)
        self.model = Anticipator(small_recipe(self.home).model).eval()

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        store = FeatureStore.open(home / "valid")
        store.seen_in_training()
        for name in store.names:
            store.windows(name)
            store.starts(name)
        store.check_finite()
        open_training(small_recipe(home), out / "run")
        check_fits(self.model, store, "model")
        predictions = predict_store(self.model, store, clips_of(store), EmitConfig(threshold=0.0), CPU)
        write_submission(out / "results.json", predictions)

    def command(self, path: Path, out: Path) -> list[str]:
        recipe = path.parent / "recipe.yaml"
        recipe.write_text("{}")
        overrides = [*RECIPE, f"data.features={self.at_home(path)}", "data.train=[train]", "data.valid=[valid]"]
        return ["train", str(recipe), *overrides, "--out", str(out / "run")]


def clips_of(store: FeatureStore) -> list[Clip]:
    return [Clip(name, labelled=False) for name in store.names]


class ShardFile(Manifest):
    suffix, place = ".safetensors", "valid/shard-00000.safetensors"
    mutation = staticmethod(mutate_tensors)


class StoreLabels(Manifest):
    place = "train/Labels-ball.json"


class EventsFile(Target):
    """`windows.npz` of a store of event windows."""

    kind, suffix, place = "manifest", ".npz", "windows.npz"
    mutation = staticmethod(mutate_zip(mutate_bytes))

    def prepare(self) -> None:
        match = self.base / "match.json"
        match.write_text(json.dumps({"events": made_up(90, seed=1)}))
        write_store(self.home, [read_v2(match)], 7000)

    def mutate(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return super().mutate(rng)
        with np.load(io.BytesIO(self.seeds[0])) as file:
            arrays = {name: file[name] for name in file.files}
        name = rng.choice(list(arrays))
        value = arrays[name]
        how = rng.randrange(6)
        if how == 0:
            del arrays[name]
        elif how == 1:
            arrays[name] = value[: rng.randrange(len(value))]
        elif how == 2:
            arrays[name] = value.astype(rng.choice(("f4", "U8", "i8", "u1", "?", "c8")))
        elif how == 3:
            arrays[name] = rng.choice(
                (value[None], value.reshape(-1), value[..., None], value[0], np.empty(0), value.T, value[:0])
            )
        else:
            spoilt = value.view(f"i{value.itemsize}").copy()
            spoilt.flat[rng.randrange(spoilt.size)] = rng.choice((0, 7, 99, 127, -1))
            arrays[name] = spoilt.view(value.dtype)
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    def drive(self, path: Path, out: Path) -> None:
        store = FeatureStore.open(self.at_home(path))
        for scored in (False, True):
            windows = read_store(store, scored=scored).windows
            windows.class_counts()


class Imported(Target):
    """A `.npy` for `data import`."""

    kind, suffix = "manifest", ".npy"
    mutation = staticmethod(mutate_bytes)

    def prepare(self) -> None:
        for dtype in ("f4", "f2"):
            out = io.BytesIO()
            np.save(out, np.ones((6, 5, 3), dtype))
            self.seeds.append(out.getvalue())

    def drive(self, path: Path, out: Path) -> None:
        folder = path.parent / "npy"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "clip_1.npy")
        import_npy(folder, out / "store", name="x", snippets=5).check_finite()

    def command(self, path: Path, out: Path) -> list[str]:
        return ["data", "import", str(path.parent / "npy"), str(out / "store"), "--name", "x", "--clips", "5"]


class PartsHeader(Target):
    """`parts/header.json` of an extraction under way."""

    kind, place = "manifest", "parts/header.json"
    seconds = 20

    def prepare(self) -> None:
        self.videos = make_matches(self.base / "videos", ("train",), frames=130)
        (self.videos / "matches.json").unlink()
        self.backbone = tiny_backbone()
        header = Header(
            self.backbone.identity, snippet_count(TINY), TINY.width, preprocessing=self.backbone.preprocessing("fp32")
        )
        Parts(self.home).begin(header)

    def drive(self, path: Path, out: Path) -> None:
        store = path.parent / "spoilt"
        extract(self.videos, self.at_home(path), self.backbone, device="cpu", workers=1)
        assert not list(store.rglob("*.tmp"))


class Model(Target):
    """An anticipator's folder."""

    kind, place = "model", "config.json"

    def prepare(self) -> None:
        make_split(self.base / "store", 2, seed=1)
        self.store = FeatureStore.open(self.base / "store")
        torch.manual_seed(0)
        model = Anticipator(
            small_recipe(self.home).model, metadata={"pos_weight": 8.0, "backbone": {"name": "x"}}
        ).eval()
        model.score_mapping = ScoreMapping(actions={"PASS": ClassScoreMapping(inflation=3.0, knots=(0.1, 0.2, 0.4))})
        model.save_pretrained(self.home)

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        model = Anticipator.from_pretrained(home)
        check_fits(model, self.store, home)
        predictions = predict_store(model, self.store, clips_of(self.store), model.emit, CPU)
        write_submission(out / "results.json", predictions)
        read_score_mapping(home / "calibration.json", hashes([str(home)]))

    def command(self, path: Path, out: Path) -> list[str]:
        where = ["--model", str(self.at_home(path)), "--features", str(self.base / "store")]
        return ["predict", *where, "--out", str(out / "results.json")]


class ModelWeights(Model):
    suffix, place = ".safetensors", "model.safetensors"
    mutation = staticmethod(mutate_tensors)


class CalibrationFile(Model):
    place = "calibration.json"


class BackboneFolder(Target):
    kind, place = "model", "config.json"

    def prepare(self) -> None:
        tiny_backbone().save_pretrained(self.home)
        self.frames = np.random.default_rng(0).integers(0, 255, (40, 32, 64), np.uint8)

    def drive(self, path: Path, out: Path) -> None:
        backbone = Backbone.load(self.at_home(path))
        assert backbone.identity.hash
        with torch.inference_mode():
            backbone.snippets(self.frames)

    def command(self, path: Path, out: Path) -> list[str]:
        return ["extract", str(self.base / "nothing.mp4"), str(out / "store"), "--backbone", str(self.at_home(path))]


class BackboneWeights(BackboneFolder):
    suffix, place = ".safetensors", "model.safetensors"
    mutation = staticmethod(mutate_tensors)


class PublishedCheckpoint(Target):
    """A `.pth`, read as data."""

    kind, suffix = "model", ".pth"
    mutation = staticmethod(mutate_zip(mutate_bytes))

    def prepare(self) -> None:
        params = {"nn_module": ["multidim_stacker", {"model_name": TINY.encoder}], "frame_stack_step": TINY.step}
        tree = {"model_name": "x", "params": params, "nn_state_dict": tiny_backbone().state_dict()}
        for new in (True, False):  # an archive, and as torch wrote them before
            out = io.BytesIO()
            torch.save(tree, out, _use_new_zipfile_serialization=new)
            self.seeds.append(out.getvalue())

    def mutate(self, rng: random.Random) -> bytes:
        seed = rng.choice(self.seeds)
        return mutate_bytes(seed, rng) if seed[:2] != b"PK" else type(self).mutation(seed, rng)

    def drive(self, path: Path, out: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BallcastWarning)
            Backbone.load(path)


class SavedRun(Target):
    """The state of a run that was stopped."""

    kind, suffix, place = "model", ".safetensors", "run/state.safetensors"
    mutation = staticmethod(mutate_tensors)
    seconds = 20

    def prepare(self) -> None:
        make_split(self.home / "train", 8, seed=0)
        make_split(self.home / "valid", 3, seed=1)
        train(small_recipe(self.home), self.home / "run", device=CPU)

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        open_training(small_recipe(self.home, "train.epochs=2"), home / "run")


class SavedSteps(SavedRun):
    suffix, place = ".csv", "run/steps.csv"
    mutation = staticmethod(mutate_bytes)

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        train(small_recipe(self.home, "train.epochs=2"), home / "run", device=CPU)
