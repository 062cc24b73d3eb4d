import json
from pathlib import Path
from typing import Any

import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import Recipe, TrainConfig
from ballcast.core.config import from_dict, keys, load, read_yaml, to_dict, to_yaml
from ballcast.core.embedded import RECIPES
from ballcast.core.errors import InputError
from tools.make_schemas import SCHEMAS, json_schema, schema_text


def test_the_papers_recipe_is_the_default() -> None:
    assert load(Recipe, Path("paper")) == Recipe()


def spelled_out(tree: dict[str, object], prefix: str = "") -> set[str]:
    found = set()
    for key, value in tree.items():
        found.add(prefix + key)
        if isinstance(value, dict) and key not in ("boost", "ce_weights"):  # mappings by action, not sections
            found |= spelled_out(value, f"{prefix}{key}.")
    return found


END_TO_END = ("games", "encoder", "augment", "model.dense")  # sections that recipes on stored features leave out


def test_both_models_spell_every_value_out() -> None:
    read = {key for key in keys(Recipe) if not any(key == own or key.startswith(f"{own}.") for own in END_TO_END)}
    for name in ("paper", "faantra"):
        assert spelled_out(read_yaml(RECIPES / f"{name}.yaml")) == read, name


def test_faantra_is_the_baseline_of_its_public_code() -> None:
    recipe = load(Recipe, Path("faantra"))
    assert (recipe.model.kind, recipe.model.offset, recipe.model.slots) == ("faantra", "linear", 8)
    assert (recipe.loss.matching, recipe.loss.offset, recipe.loss.pos_weight) == ("ordered", 10.0, 1.0)
    assert set(recipe.loss.ce_weights) == set(ACTIONS)
    assert (recipe.train.lr, recipe.train.batch, recipe.train.weight_decay) == (1e-4, 4, 5e-3)
    assert recipe.train.warmup_epochs + recipe.train.restart_epochs == recipe.train.epochs == 30
    assert (recipe.emit.threshold, recipe.data.boost, recipe.data.mixup) == (0.0, {}, 0.0)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.train=[]", "data: train must name at least one split"),
        ("data.train=[train, train]", "data: train names a split twice"),
        ("data.valid=[valid, valid]", "data: valid names a split twice"),
        ("data.every_ms=1010", "every_ms must be a multiple of a frame, 40 ms"),
        ("data.every_ms=0", "every_ms must be a multiple of a frame, 40 ms"),
        ("data.mixup=1e308", "mixup must be between 0 and 1000"),
        ("data.boost={SHOT: 1e300}", "boost of SHOT must be above 0"),
        ("train.seed=-1", "seed must be between 0 and 4294967295"),
        (f"train.seed={10**20}", "seed must be between 0 and 4294967295"),
        (f"train.batch={10**11}", "batch must be between 1 and 65536"),
        ("train.warmup_epochs=-3", "warmup_epochs must be between 0 and"),
        ("train.weight_decay=-0.1", "weight_decay must be between 0 and 1000"),
        ("train.patience=-1", "patience must be between 0 and"),
        ("train.save_every=-1", "save_every must be between 0 and"),
        (f"model.width={2**63}", "width must be between 1 and 65536"),
        (f"model.windows={2**31}", "windows must be between 1 and 1024"),
        (f"model.hierarchy.dim={2**63}", "dim must be between 1 and 65536"),
        (f"model.hierarchy.steps={2**31}", "steps must be between 1 and 1024"),
        (f"model.hierarchy.gru_layers={2**31}", "gru_layers must be between 1 and 64"),
        (f"model.faantra.encoder_layers={2**31}", "encoder_layers must be between 0 and 64"),
        (f"model.faantra.decoder_reach={2**63}", "decoder_reach must be between 0 and 65536"),
        ("loss.sigma=1e-300", "sigma must be 0 or between"),
        ("loss.pos_weight=1e300", "pos_weight must be above 0"),
        ("loss.focal_alpha=2", "focal_alpha must be between 0 and 1"),
        ("loss.auxiliary_beside=0", "auxiliary_beside must be between 1 and 1024"),
        ("loss.background_weight=-1", "background_weight must be between 0 and"),
        ("loss.ce_weights={SHOT: 0}", "ce_weights of SHOT must be above 0"),
        ("loss.ce_weights={GOAL: 1}", "GOAL"),
        (f"emit.run={2**63}", "run must be between 1 and 1024"),
    ],
)
def test_values_nobody_can_mean_are_refused(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(Recipe, overrides=[override])
    assert words in str(caught.value)


def test_nan_is_within_no_bounds() -> None:
    with pytest.raises(InputError, match="'weight_decay' must be a finite number"):
        TrainConfig(weight_decay=float("nan"))


def test_what_the_loss_inflates_is_said_once() -> None:
    assert load(Recipe, None, ["loss.pos_weight=2"]).emission.inflation == 2
    assert load(Recipe, Path("paper"), ["loss.pos_weight=2"]).emission.inflation == 2
    assert load(Recipe, None, ["loss.pos_weight=2", "emit.inflation=3"]).emission.inflation == 3


def test_the_inflation_of_a_saved_config_follows_another_pos_weight(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(Recipe()))
    assert load(Recipe, path).emission.inflation == 4
    assert load(Recipe, path, ["loss.pos_weight=1"]).emission.inflation == 1
    path.write_text(to_yaml(load(Recipe, None, ["emit.inflation=3"])))
    assert load(Recipe, path, ["loss.pos_weight=1"]).emission.inflation == 3  # what was asked for stays


def test_a_config_that_spells_the_inflation_out_is_the_same_as_one_that_does_not() -> None:
    """Configs of older runs do; they can still be resumed."""
    tree = to_dict(Recipe())
    tree["emit"]["inflation"] = 4.0
    assert from_dict(Recipe, tree) == Recipe()


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_for_editors_are_those_of_the_classes(name: str) -> None:
    assert (RECIPES / name).read_text() == schema_text(SCHEMAS[name]), "run python -m tools.make_schemas"


def test_every_recipe_names_its_schema_and_fits_it() -> None:
    recipes = sorted(RECIPES.glob("*.yaml"))
    assert len(recipes) == 9
    for path in recipes:
        first = path.read_text().splitlines()[0]
        name = first.removeprefix("# yaml-language-server: $schema=")
        assert name == (f"{path.stem}.schema.json" if path.stem in ("feed", "pretrain") else "schema.json"), path
        schema = json.loads((RECIPES / name).read_text())
        check(read_yaml(path), schema, path.stem, schema["$defs"])


def check(value: object, schema: dict[str, Any], where: str, sections: dict[str, Any]) -> None:
    """The part of JSON schema that the files use."""
    if "$ref" in schema:
        schema = sections[schema["$ref"].removeprefix("#/$defs/")]
    if "enum" in schema:
        assert value in schema["enum"], where
        return
    kinds = {"object": dict, "array": list, "integer": int, "number": (int, float), "boolean": bool, "string": str}
    assert isinstance(value, kinds[schema["type"]]), where
    if isinstance(value, dict):
        for key, entry in value.items():
            rest = schema["additionalProperties"]
            part = schema.get("properties", {}).get(key, rest)
            assert part is not False, f"{where}.{key}"
            check(entry, part, f"{where}.{key}", sections)
    if isinstance(value, list):
        for entry in value:
            check(entry, schema["items"], where, sections)
    if isinstance(value, int | float):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), where
        assert schema.get("exclusiveMinimum", -1e9) < value < schema.get("exclusiveMaximum", 1e9), where


def test_the_schema_has_types_bounds_defaults_and_descriptions() -> None:
    train = json_schema(TrainConfig)["properties"]
    assert train["lr"] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1000, "default": 1.5e-4}
    assert train["batch"] == {"type": "integer", "minimum": 1, "maximum": 65536, "default": 32}
    assert train["precision"]["enum"] == ["bf16", "fp32"]
    assert train["clip"]["description"] == "norm of the gradient"
    sections = json_schema(Recipe)["$defs"]
    assert sections["ModelConfig"]["properties"]["hierarchy"] == {"$ref": "#/$defs/HierarchyConfig"}
    assert sections["HierarchyConfig"]["additionalProperties"] is False
    boost = sections["DataConfig"]["properties"]["boost"]
    assert boost["additionalProperties"] == {"type": "number"}
    assert boost["default"]["SHOT"] == 15.0
