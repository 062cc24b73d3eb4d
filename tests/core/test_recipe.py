from pathlib import Path

from ballcast.core.config import keys, load, read_yaml
from ballcast.core.recipe import Recipe

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_papers_recipe_is_the_default() -> None:
    assert load(Recipe, CONFIGS / "paper.yaml") == Recipe()


def spelled_out(tree: dict[str, object], prefix: str = "") -> set[str]:
    found = set()
    for key, value in tree.items():
        found.add(prefix + key)
        if isinstance(value, dict) and key != "boost":  # a mapping by action, not a section
            found |= spelled_out(value, f"{prefix}{key}.")
    return found


def test_both_models_spell_every_value_out() -> None:
    for name in ("paper", "faantra"):
        assert spelled_out(read_yaml(CONFIGS / f"{name}.yaml")) == set(keys(Recipe)), name


def test_faantra_is_the_baseline_on_the_same_features() -> None:
    recipe = load(Recipe, CONFIGS / "faantra.yaml")
    assert (recipe.model.kind, recipe.model.offset, recipe.model.slots) == ("faantra", "scalar", 8)
    assert (recipe.loss.matching, recipe.loss.offset) == ("ordered", 10.0)
    assert recipe.train == Recipe().train
