"""Event feeds of every provider, and the model that reads them."""

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

from ballcast.core.embedded import FEED_MODEL
from ballcast.core.errors import BallcastWarning
from ballcast.data.events.event_grid import write_store
from ballcast.data.events.kloppy_feed import read_folder, read_match
from ballcast.data.events.wyscout import read_v2
from ballcast.inference.event_model import is_event_model, open_event_model
from ballcast.inference.feed_predictor import predict_events, summarise
from tests.feeds import made_up
from tools.fuzzing.mutate import mutate_bytes, mutate_json, mutate_tensors, mutate_xml
from tools.fuzzing.target import Target

EVENTS = 100  # of a match that are kept: a fuzzer reads it thousands of times


def sample(name: str) -> bytes:
    """A file that kloppy ships."""
    import kloppy

    return (Path(kloppy.__file__).parent / "tests/files" / name).read_bytes()


def shortened(tree: Any) -> Any:
    """The tree with the first of each long list or table of records."""
    if isinstance(tree, list):
        ends = [value for value in tree[EVENTS:] if isinstance(value, dict) and "Half" in str(value.get("type"))]
        return [shortened(value) for value in (*tree[:EVENTS], *ends)]
    if isinstance(tree, dict):
        return {key: shortened(value) for key, value in list(tree.items())[:EVENTS]}
    return tree


class ProviderFeed(Target):
    """A match of a provider that kloppy reads: recognised by its content, read, and written as a store."""

    kind = "events"
    provider, file, second = "", "", ""

    def prepare(self) -> None:
        self.home.mkdir()
        raw = sample(self.file)
        self.seeds = [json.dumps(shortened(json.loads(raw))).encode() if self.suffix == ".json" else raw]
        if self.second:
            self.beside = self.home / f"second{self.suffix}"
            self.beside.write_bytes(sample(self.second))

    def drive(self, path: Path, out: Path) -> None:
        for _ in read_folder(path):  # by its content, without its second file
            pass
        feed = read_match(path, self.provider, self.beside if self.second else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BallcastWarning)
            write_store(out / "store", [feed], 7000, detail="rich")

    def command(self, path: Path, out: Path) -> list[str]:
        second = ["--lineup", str(self.beside)] if self.second else []
        where = ["--events", str(path), "--provider", self.provider, *second]
        return ["predict", *where, "--every", "30", "--out", str(out / "timeline.json")]


class StatsBomb(ProviderFeed):
    provider, file, second = "statsbomb", "statsbomb_15986_event.json", "statsbomb_15986_lineup.json"


class StatsPerform(ProviderFeed):
    provider, file, second = "statsperform", "statsperform_event_ma3.json", "statsperform_event_ma1.json"


class DataFactory(ProviderFeed):
    provider, file = "datafactory", "datafactory_events.json"


class WyscoutV3(ProviderFeed):
    provider, file = "wyscout", "wyscout_events_v3.json"


class Opta(ProviderFeed):
    suffix = ".xml"
    provider, file, second = "opta", "opta_f24.xml", "opta_f7.xml"
    mutation = staticmethod(mutate_xml)


class Sportec(ProviderFeed):
    suffix = ".xml"
    provider, file, second = "sportec", "sportec_events.xml", "sportec_meta.xml"
    mutation = staticmethod(mutate_xml)


class SecondFile(Opta):
    """The line-ups instead: the events are whole."""

    def prepare(self) -> None:
        self.events = self.base / "opta_f24.xml"
        self.events.write_bytes(sample(self.file))
        self.seeds = [sample(self.second)]

    def drive(self, path: Path, out: Path) -> None:
        read_match(self.events, self.provider, path)

    def command(self, path: Path, out: Path) -> list[str]:
        where = ["--events", str(self.events), "--provider", self.provider, "--lineup", str(path)]
        return ["predict", *where, "--every", "30", "--out", str(out / "timeline.json")]


class FeedModel(Target):
    """The config of an event transformer; its graph is whole."""

    kind, place = "events", "config.json"
    seconds = 20

    def prepare(self) -> None:
        shutil.copytree(FEED_MODEL, self.home)
        match = self.base / "match.json"
        match.write_text(json.dumps({"events": made_up(12, seed=1)}))
        self.feed, self.match = read_v2(match), match

    def drive(self, path: Path, out: Path) -> None:
        home = self.at_home(path)
        is_event_model(home)
        model = open_event_model(home, threads=1)
        summarise(self.feed, "wyscout", ())
        for forecast in predict_events(model, self.feed, missing=(), every_ms=1000):
            json.dumps(forecast.to_json(), allow_nan=False)

    def command(self, path: Path, out: Path) -> list[str]:
        where = ["--events", str(self.match), "--model", str(self.at_home(path))]
        return ["predict", *where, "--out", str(out / "timeline.json")]


class FeedGraph(FeedModel):
    """Its graph, as protocol buffers."""

    suffix, place = ".onnx", "events.onnx"
    mutation = staticmethod(mutate_bytes)


class FeedWeights(FeedModel):
    """The weights that its graph reads by offset."""

    suffix, place = ".safetensors", "model.safetensors"
    mutation = staticmethod(mutate_tensors)


def uploaded_feeds(base: Path) -> list[bytes]:
    """Whole feeds for the server's page."""
    feeds = [json.dumps({"events": made_up(30, seed=2)}).encode()]
    for name in ("opta_f24.xml", "wyscout_events_v3.json"):
        raw = sample(name)
        feeds.append(json.dumps(shortened(json.loads(raw))).encode() if name.endswith("json") else raw)
    return feeds


def mutate_feed(raw: bytes, rng: random.Random) -> bytes:
    """By what it is: JSON or XML."""
    return (mutate_xml if raw.lstrip()[:1] == b"<" else mutate_json)(raw, rng)
