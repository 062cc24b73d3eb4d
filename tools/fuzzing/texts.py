"""Labels, submissions, recipes and event feeds."""

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load, parse_overrides, to_yaml
from ballcast.core.errors import BallcastError
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.data.events.event_grid import write_store
from ballcast.data.events.wyscout import iterate_table, read_v2
from ballcast.data.labels.games import read_halves, read_matches, split_games
from ballcast.data.labels.osl import read_osl
from ballcast.data.labels.soccernet import check, read_labels, write_labels
from ballcast.features.backbone import Backbone
from ballcast.inference.convert import convert
from ballcast.inference.submission import check_submission, merge_systems, read_submission, write_submission
from ballcast.loss.criterion import Criterion
from ballcast.metrics.average_precision import match_by_visibility, score, score_of_matches
from ballcast.model.anticipator import build
from ballcast.training.ablation import read_variants
from ballcast_server.jobs.labels import read_actual
from tests.feeds import made_up
from tests.synthetic import make_clips
from tools.fuzzing.mutate import mutate_bytes, mutate_json, mutate_lines, mutate_yaml, mutate_zip
from tools.fuzzing.target import Target


def predictions_of(clips: list[Any], seed: int) -> dict[str, Any]:
    """A submission that knows a little."""
    rng = np.random.default_rng(seed)
    videos = []
    for clip in clips:
        entries = []
        for event in clip.anticipation:
            vector = rng.uniform(0, 0.3, 11).round(4)
            vector[1 + event.action] = 0.9
            entry = {"label": event.label, "position": event.position_ms, "confidence": 0.9}
            entries.append({**entry, "confidence_vect": vector.tolist()})
        videos.append({"annotations": {"observation": [], "anticipation": entries}, "path": clip.name})
    return {"videos": videos}


class Challenge(Target):
    """What labels and submissions share: a few clips, and predictions for them."""

    def prepare(self) -> None:
        self.clips = make_clips(3, seed=0)
        self.labels, self.results = self.base / "Labels-ball.json", self.base / "results.json"
        write_labels(self.labels, self.clips)
        self.results.write_text(json.dumps(predictions_of(self.clips, 0)))
        self.predictions = read_submission(self.results)
        convert(self.labels, self.base / "osl_labels.json")
        convert(self.results, self.base / "osl_results.json")

    def there_and_back(self, path: Path, out: Path) -> None:
        """As OSL JSON and back; what was written must be readable."""
        convert(path, out / "there.json")
        read_osl(out / "there.json")
        convert(out / "there.json", out / "back.json")
        try:
            read_labels(out / "back.json")
        except BallcastError:
            read_submission(out / "back.json", read="label")


class Labels(Challenge):
    kind = "labels"

    def prepare(self) -> None:
        super().prepare()
        self.seeds = [self.labels.read_bytes()]

    def drive(self, path: Path, out: Path) -> None:
        folder = path.parent / "split"
        for clip in self.clips:
            (folder / clip.name).mkdir(parents=True, exist_ok=True)
            (folder / clip.name / "224p.mp4").touch()
        (folder / "Labels-ball.json").write_bytes(path.read_bytes())
        check(folder)  # collects defects instead of raising them
        clips = read_labels(path)
        score(clips, self.predictions)
        score(clips, self.predictions, exact=True)
        for matches in match_by_visibility(clips, self.predictions).values():
            score_of_matches(matches)
        read_actual(path, "clip_1")
        self.there_and_back(path, out)
        split_games(folder)

    def command(self, path: Path, out: Path) -> list[str]:
        return ["eval", "--labels", str(path), "--predictions", str(self.results), "--json", str(out / "score.json")]


class HalvesLabels(Target):
    """SN-BAS's labels of a whole game."""

    kind = "labels"

    def prepare(self) -> None:
        record = {"team": "left", "visibility": "visible"}
        actions = [("1 - 00:12", "PASS", "12960"), ("2 - 05:17", "GOAL", "317000"), ("2 - 05:20", "OUT", "320040")]
        rows = [{"gameTime": time, "label": label, "position": at, **record} for time, label, at in actions]
        self.seeds = [json.dumps({"annotations": rows}).encode()]

    def drive(self, path: Path, out: Path) -> None:
        read_actual(path, "224p.mp4")
        read_halves(path)


class Matches(Target):
    """The `matches.json` of simulated matches."""

    kind = "labels"

    def prepare(self) -> None:
        action = {"label": "PASS", "position": 1200, "team": "home", "visibility": "visible"}
        match = {
            "video": "match_000.mp4",
            "split": "train",
            "frames": 300,
            "actions": [action, {**action, "position": 40}],
        }
        self.seeds = [json.dumps([match, {**match, "video": "match_001.mp4"}]).encode()]

    def drive(self, path: Path, out: Path) -> None:
        read_matches(path)
        read_actual(path, "match_000.mp4")


class OslJson(Challenge):
    kind = "labels"

    def prepare(self) -> None:
        super().prepare()
        self.seeds = [(self.base / f"osl_{name}.json").read_bytes() for name in ("labels", "results")]

    def drive(self, path: Path, out: Path) -> None:
        convert(path, out / "back.json")
        try:
            read_labels(out / "back.json")
        except BallcastError:
            read_submission(out / "back.json", read="label")
        read_actual(path, "clip_1")

    def command(self, path: Path, out: Path) -> list[str]:
        return ["data", "convert", str(path), str(out / "back.json")]


class Submission(Challenge):
    kind = "submission"

    def prepare(self) -> None:
        super().prepare()
        self.seeds = [self.results.read_bytes()]

    def drive(self, path: Path, out: Path) -> None:
        check_submission(path, self.clips)  # collects defects instead of raising them
        score(self.clips, read_submission(path, read="label"), read="label")
        predictions = read_submission(path)
        score(self.clips, predictions)
        self.there_and_back(path, out)
        handed = read_submission(path, hand_in=True)
        if handed.keys() == self.predictions.keys():
            write_submission(out / "merged.zip", merge_systems([handed, self.predictions]))
            read_submission(out / "merged.zip", hand_in=True)

    def command(self, path: Path, out: Path) -> list[str]:
        if path.read_bytes()[:1] in b"[{ ":
            report = ["--report", str(out / "report.html")] if len(path.name) % 2 else []
            return ["eval", "--labels", str(self.labels), "--predictions", str(path), *report]
        return ["submit", str(path), "--labels", str(self.labels), "--out", str(out / "results.zip")]


class SubmissionZip(Submission):
    suffix = ".zip"
    mutation = staticmethod(mutate_zip(mutate_json))

    def prepare(self) -> None:
        super().prepare()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("results_anticipation.json", self.results.read_bytes())
        self.seeds = [archive.getvalue()]


def build_all(recipe: Recipe) -> None:
    """Everything a run builds of its recipe, without taking memory for it."""
    with torch.device("meta"):
        build(recipe.model)
    Criterion(config=recipe.loss, model=recipe.model, class_weights=torch.ones(10))


class RecipeYaml(Target):
    kind, suffix = "config", ".yaml"
    mutation = staticmethod(mutate_yaml)

    def prepare(self) -> None:
        faantra = parse_overrides(["model.kind=faantra", "model.width=24"])
        extended = b"extends: e2e-head\ntrain: {lr: 1.0e-3, seed: 7}\ndata: {boost: {SHOT: 3.0}}\n"
        self.seeds = [to_yaml(Recipe()).encode(), json.dumps(faantra).encode(), extended]

    def drive(self, path: Path, out: Path) -> None:
        build_all(load(Recipe, path))

    def command(self, path: Path, out: Path) -> list[str]:
        return ["train", str(path), "data.features=/nowhere", "--out", str(out / "run")]


class PretrainYaml(Target):
    kind, suffix = "config", ".yaml"
    mutation = staticmethod(mutate_yaml)

    def prepare(self) -> None:
        self.seeds = [to_yaml(PretrainRecipe()).encode()]

    def drive(self, path: Path, out: Path) -> None:
        recipe = load(PretrainRecipe, path)
        with torch.device("meta"):
            Backbone(recipe.network)

    def command(self, path: Path, out: Path) -> list[str]:
        return ["pretrain", str(path), "data.sources=[/nowhere]", "--out", str(out / "run")]


class Overrides(Target):
    """One `key=value` a line."""

    kind, suffix = "config", ".args"
    mutation = staticmethod(mutate_lines)

    def prepare(self) -> None:
        lines = ["train.lr=1e-4", "model.hierarchy.dim=32", "data.train=[a, b]", "data.boost={SHOT: 2.0}", "emit.run=3"]
        self.seeds = ["\n".join([*lines, "model.kind=faantra", "train.backbone=frozen"]).encode()]

    def drive(self, path: Path, out: Path) -> None:
        lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
        tree = parse_overrides(lines)
        assert isinstance(tree, dict)
        build_all(load(Recipe, None, lines))
        load(PretrainRecipe, None, [line for line in lines if line.startswith("train.lr")])


class Variants(Target):
    """`ablate --variants`."""

    kind, suffix = "config", ".yaml"
    mutation = staticmethod(mutate_yaml)

    def prepare(self) -> None:
        self.seeds = [b"paper: []\nfour slots: [model.slots=4]\nno aux: [loss.auxiliary=0, train.epochs=2]\n"]

    def drive(self, path: Path, out: Path) -> None:
        for overrides in read_variants(path).values():
            load(Recipe, None, overrides)


class Wyscout(Target):
    """A match as Wyscout delivers it, version 2."""

    kind = "events"

    def prepare(self) -> None:
        self.seeds = [json.dumps({"events": made_up(90, seed=seed)}).encode() for seed in range(2)]

    def drive(self, path: Path, out: Path) -> None:
        feed = read_v2(path)
        write_store(out / "store", [feed], 7000, detail="rich")

    def command(self, path: Path, out: Path) -> list[str]:
        return ["events", str(path), str(out / "store"), "--provider", "wyscout"]


class EventTable(Target):
    """The parquet table: its columns by type and value, or its bytes."""

    kind, suffix = "events", ".parquet"

    def prepare(self) -> None:
        rows = made_up(90, seed=3)
        self.columns: dict[str, list[Any]] = {
            "competition": ["England"] * len(rows),
            "match": [7] * len(rows),
            "period": [row["matchPeriod"] for row in rows],
            "t_ms": [round(1000 * row["eventSec"]) for row in rows],
            "team": [row["teamId"] for row in rows],
            "player": [row["playerId"] for row in rows],
            "event": [row["eventName"] for row in rows],
            "sub_event": [row["subEventName"] for row in rows],
            "tags": [[tag["id"] for tag in row["tags"]] for row in rows],
        }
        for i, axis in ((i, axis) for i in (0, 1) for axis in "xy"):
            self.columns[f"{axis}{i}"] = [float(row["positions"][i][axis]) for row in rows]
        self.seeds = [self.table(self.columns)]

    @staticmethod
    def table(columns: dict[str, list[Any]]) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        return out.getvalue()

    def mutate(self, rng: random.Random) -> bytes:
        import pyarrow as pa

        if rng.random() < 0.5:
            return mutate_bytes(self.seeds[0], rng)
        columns = dict(self.columns)
        name = rng.choice(list(columns))
        odd: tuple[Any, ...] = (
            None,
            -1,
            2**62,
            0.5,
            float("nan"),
            "x",
            "",
            [],
            [1],
            {"a": 1},
            b"\xff",
            True,
            "1H",
            -(2**63),
        )
        value = rng.choice(odd)
        how = rng.randrange(5)
        if how == 0:
            del columns[name]
        elif how == 1:
            columns = {key: values[: rng.randrange(3)] for key, values in columns.items()}
        elif how == 2:
            columns[name] = [value] * len(columns[name])
        else:
            spoilt = list(columns[name])
            spoilt[rng.randrange(len(spoilt))] = value
            columns[name] = spoilt
        try:
            return self.table(columns)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):  # no column of a table can hold that
            return mutate_bytes(self.seeds[0], rng)

    def drive(self, path: Path, out: Path) -> None:
        write_store(out / "store", iterate_table(path), 7000)

    def command(self, path: Path, out: Path) -> list[str]:
        return ["events", str(path), str(out / "store")]
