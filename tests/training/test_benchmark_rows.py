"""The rows of the quality benchmarks: their recipes, and results that a later call goes on from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import CLIPS, SMALL, WIDTH

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.data.labels.games import Game
from ballcast.features.store import Header
from ballcast.features.store_writer import StoreWriter
from ballcast.training.end_to_end import check_sizes
from benchmarks import pixels
from benchmarks.end_to_end import GROUPS, read_rows, recipe_of
from benchmarks.rows import Results, read_recipes, seeds_of

VARIANTS = Path(__file__).parents[2] / "benchmarks" / "variants"
ROW: dict[str, Any] = {f"at{n}": 0.1 for n in ("1", "2", "3", "4", "5", "Infty")}
ROW |= {"avg": 0.1, "interval": [0.05, 0.15], "resampled": "9 clips", "predictions": 2.0}
RUN: dict[str, Any] = {"valid": ROW, "test": ROW}


def test_a_row_may_start_from_another_recipe(tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text("one: [emit.threshold=0.1]\ntwo: [faantra, model.width=18]\n")
    rows = read_recipes("events", ["train.batch=8"], path, "unused")
    one, chosen_by = rows["one"]
    assert (one.model.kind, one.train.batch, one.emit.threshold, chosen_by.threshold) == ("hierarchy", 8, 0.1, 0.3)
    two, chosen_by = rows["two"]
    assert (two.model.kind, two.model.width, two.train.batch, chosen_by.threshold) == ("faantra", 18, 8, 0.0)
    assert [r.train.seed for r in seeds_of(two, 3)] == [0, 1, 2]
    assert list(read_recipes("events", [], None, "alone")) == ["alone"]


@pytest.mark.parametrize(("name", "config"), [("events_auxiliary", "events"), ("pixels_auxiliary", "paper")])
def test_the_rows_of_the_auxiliary_head(name: str, config: str) -> None:
    rows = read_recipes(config, [], VARIANTS / f"{name}.yaml", "")
    recipes = {row: recipe for row, (recipe, _) in rows.items()}
    assert not recipes["paper, no auxiliary head"].model.auxiliary
    for norm in ("positives", "cells"):
        recipe = recipes[f"paper, auxiliary by {norm}"]
        assert recipe.model.auxiliary
        assert recipe.loss.auxiliary_norm == norm
    assert recipes["FAANTRA"].model.kind == "faantra"
    assert recipes["FAANTRA"].loss.background_weight == 0.03
    for recipe in recipes.values():
        assert recipe.train.warmup_epochs + recipe.train.restart_epochs == recipe.train.epochs


@pytest.mark.parametrize("group", [group for group, job in GROUPS.items() if job == "train"])
def test_the_rows_of_training_end_to_end_load(group: str, tmp_path: Path) -> None:
    for name, row in read_rows(group).items():
        recipe = recipe_of(row, [], seconds=3000, steps=100, work=tmp_path)
        assert recipe.train.backbone == "end_to_end", name
        check_sizes(recipe)  # sizes of the encoder and the anticipator
        assert bool(recipe.encoder.features) == bool(row.get("head")), name


def test_runs_are_found_again_unless_the_recipe_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    about = {"recipe": {"lr": 0.1}}
    results = Results(path)
    assert results.done("a", about) == []
    results.put("a", about, [RUN])
    results.put("b", about, [RUN])
    results.put("a", about, [RUN, RUN])  # after every run
    again = Results(path)
    assert len(again.done("a", about)) == 2
    assert again.done("a", {"recipe": {"lr": 0.2}}) == []
    again.put("c", about, [RUN])
    assert [row["name"] for row in Results(path).rows] == ["a", "b", "c"]  # rows nobody asked for now stay
    again.show(["a", "c"])
    told = capsys.readouterr().out
    assert "| a | valid | 10.0" in told
    assert "| b |" not in told
    path.write_text("{}")
    with pytest.raises(InputError, match="not a list of rows; give another --json"):
        Results(path)


def test_pixels_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows of two seeds on made-up matches; stopped in the second row, then called again."""
    rng = np.random.default_rng(0)
    writer = StoreWriter(tmp_path / "store", Header(BackboneIdentity("h" * 12, "none"), CLIPS, WIDTH, every=25))
    games = []
    for name, split in (("a", "train"), ("b", "valid"), ("c", "test")):
        windows = rng.normal(size=(50, CLIPS, WIDTH)).astype(np.float16)
        writer.add(name, windows, source="", size=0, mtime_ns=0)
        events = tuple(Event(ACTIONS[i % 10], t) for i, t in enumerate(range(400, 50_000, 840)))
        games.append(Game(name, split, (), events))
    store = writer.finish()
    monkeypatch.setattr(pixels, "features_of", lambda *_: store)
    monkeypatch.setattr(pixels, "find_games", lambda _: games)
    monkeypatch.setattr(pixels.Backbone, "from_pretrained", lambda _: None)
    rows = tmp_path / "rows.yaml"
    rows.write_text("plain: [train.batch=8]\nother: [faantra]\n")
    json_ = tmp_path / "rows.json"
    fast = [*SMALL[2:], "train.epochs=1", "train.warmup_epochs=0"]
    words = ["pixels", "x", *fast, "--variants", str(rows), "--seeds", "2", "--work", str(tmp_path / "work")]
    monkeypatch.setattr("sys.argv", [*words, "--json", str(json_)])
    real, left = pixels.trained, 3

    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return real(*args, **kwargs)

    monkeypatch.setattr(pixels, "trained", stopping)
    with pytest.raises(KeyboardInterrupt):
        pixels.main()
    assert [len(row["runs"]) for row in Results(json_).rows] == [1, 1, 1, 1, 2, 1]  # four baselines first
    left = 1  # more are not needed
    pixels.main()
    kept = {row["name"]: row for row in Results(json_).rows}
    assert [run["seed"] for run in kept["other"]["runs"]] == [0, 1]
    assert kept["other"]["recipe"]["model"]["kind"] == "faantra"
    assert "| other | test |" in capsys.readouterr().out
