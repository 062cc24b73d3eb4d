"""`ballcast ablate` prints its whole table on a small store."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import SMALL, make_game, make_split

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.training.ablation import VARIANTS, read_variants


def test_the_whole_table(tmp_path: Path, ballcast: Callable[..., Any]) -> None:
    make_game(tmp_path / "features" / "train", 70, seed=1)
    make_split(tmp_path / "features" / "valid", 8, seed=2)
    steps = [
        "train.epochs=1",
        "train.warmup_epochs=0",
        "train.lr=0.003",
        "train.batch=8",
    ]  # losses differ
    overrides = [*SMALL, *steps, "data.features=features"]
    command = ("ablate", "paper", *overrides, "--seeds", "2", "--json", "table.json")
    done = ballcast(*command)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "table.json").read_text())
    assert list(told) == list(VARIANTS)
    for name, row in told.items():
        assert row["seeds"] == 2
        assert f"{100 * row['mean']['avg']:.2f} ± {100 * row['deviation']['avg']:.2f}" in done.stdout, name
    # A slot may emit several classes at a low threshold: more predictions than the 4 slots.
    assert told["τ 0.05, class"]["predictions_per_clip"] > 4 >= told["τ 0.05, slot"]["predictions_per_clip"]
    flooded = told["τ 0.05, class, emitted label only"]
    assert flooded["predictions_per_clip"] == told["τ 0.05, class"]["predictions_per_clip"]
    assert flooded["mean"] != told["τ 0.05, class"]["mean"]
    # Variants of emission alone share the paper's two trainings; the others have two each.
    emission = [name for name, extra in VARIANTS.items() if extra and all(o.startswith("emit.") for o in extra)]
    same = 1  # what the paper's recipe has anyway: the auxiliary loss by positives
    assert told["auxiliary by positives"] == told["paper"] != told["auxiliary by cells"]
    assert len(list((tmp_path / "runs" / "ablation").iterdir())) == 2 * (len(VARIANTS) - len(emission) - same)
    names = {run.name.rsplit("-", 2)[0] for run in (tmp_path / "runs" / "ablation").iterdir()}
    assert {"paper", "static-queries", "no-mixup", "joint-c-1-softmax"} <= names  # as TensorBoard shows them
    again = ballcast(*command)  # nothing is trained twice
    assert json.loads((tmp_path / "table.json").read_text()) == told
    assert again.returncode == 0


def test_rows_on_another_split_and_epochs_by_the_recipes_own_emission(
    tmp_path: Path, ballcast: Callable[..., Any]
) -> None:
    make_game(tmp_path / "features" / "train", 70, seed=1)
    make_split(tmp_path / "features" / "valid", 8, seed=2)
    make_split(tmp_path / "features" / "test", 6, seed=3)
    (tmp_path / "variants.yaml").write_text("full: []\nlabel: [emit.vector=emitted]\n")
    overrides = [*SMALL, "train.epochs=1", "train.batch=8", "data.features=features", "emit.threshold=0.05"]
    command = ("ablate", "paper", *overrides, "--variants", "variants.yaml", "--seeds", "1", "--json", "table.json")
    done = ballcast(*command, "--split", "test")
    assert done.returncode == 0, done.stderr
    assert "mAP (%) on test, 1 seed(s)" in done.stdout
    on_test = json.loads((tmp_path / "table.json").read_text())
    (run,) = (tmp_path / "runs" / "ablation").iterdir()  # both rows share it
    recipe = load(Recipe, run / "config.yaml")
    assert (recipe.emit.threshold, recipe.emit.vector) == (0.05, "full")
    assert ballcast(*command).returncode == 0  # on validation, of the same training
    assert json.loads((tmp_path / "table.json").read_text()) != on_test
    assert len(list((tmp_path / "runs" / "ablation").iterdir())) == 1
    unknown = ballcast(*command, "--split", "tset")
    assert unknown.returncode == 2
    assert "tset" in unknown.stderr


def test_variants_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text("base: []\nfast: [train.lr=1e-3]\n")
    assert read_variants(path) == {"base": [], "fast": ["train.lr=1e-3"]}
    path.write_text("base: train.lr=1\n")
    with pytest.raises(InputError, match="'base' must be a list of key=value"):
        read_variants(path)
