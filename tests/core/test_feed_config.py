"""Recipes of the event transformer, and how they are told from those of models of videos."""

from pathlib import Path

import pytest

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import keys, load, read_yaml, to_yaml
from ballcast.core.embedded import RECIPES
from ballcast.core.errors import InputError
from ballcast.core.feed_config import FeedRecipe, SpotTransformerConfig, load_recipe


def test_the_recipe_spells_the_defaults_out() -> None:
    assert load(FeedRecipe, Path("feed")) == FeedRecipe()
    tree = read_yaml(RECIPES / "feed.yaml")
    spelled = {f"{section}.{key}" for section, values in tree.items() if section != "kind" for key in values}
    assert spelled == {key for key in keys(FeedRecipe) if "." in key}


def test_recipes_are_told_apart_by_their_kind(tmp_path: Path) -> None:
    assert isinstance(load_recipe(Path("feed"), ["train.batch=8"]), FeedRecipe)
    assert isinstance(load_recipe(Path("paper")), Recipe)
    assert isinstance(load_recipe(Path("best")), Recipe)  # extends another
    (tmp_path / "saved.yaml").write_text(to_yaml(FeedRecipe()))
    assert load_recipe(tmp_path / "saved.yaml") == FeedRecipe()
    (tmp_path / "mine.yaml").write_text("extends: saved.yaml\ntrain: {seed: 7}")
    (tmp_path / "ours.yaml").write_text("extends: feed\nmodel: {layers: 6}")
    (tmp_path / "theirs.yaml").write_text("extends: paper\ntrain: {seed: 7}")
    mine, ours, theirs = (load_recipe(tmp_path / f"{name}.yaml") for name in ("mine", "ours", "theirs"))
    assert isinstance(mine, FeedRecipe)
    assert mine.train.seed == 7
    assert isinstance(ours, FeedRecipe)
    assert ours.model.layers == 6
    assert isinstance(theirs, Recipe)


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    for name, text, words in (
        ("unknown", "kind: another", "unknown key 'kind'"),
        ("circle", "extends: circle.yaml", "which extends it in turn"),
        ("nothing", "extends: nothing-there", "no such file beside it"),
        ("list", "extends: [feed]", "must be the name of a recipe"),
        ("section", "kind: event-transformer\nencoder: {}", "unknown key 'encoder'"),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            load_recipe(path)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.train=[]", "data: train must name at least one split"),
        ("data.valid=[a, a]", "data: valid names a split twice"),
        ("data.every_ms=0", "every_ms must be between 40 and"),
        ("data.size=medium", "'data.size' must be one of small, full"),
        ("model.heads=3", "model: dim must be a multiple of heads"),
        ("model.slots=9", "slots must be between 1 and 8"),
        (f"model.tokens={2**31}", "tokens must be between 1 and 1024"),
        ("mask.samples=1.5", "samples must be between 0 and 1"),
        ("distil.weight=-1", "weight must be between 0 and 1"),
        ("distil.teachers=run", "'distil.teachers' must be a list"),
        ("loss.sigma=0", r"sigma must be between 0\.01 and 1000"),
        ("train.ema=1", r"ema must be in \[0, 1\)"),
        ("train.clip=0", "clip must be positive"),
        ("train.start=''", "start must be scratch"),
        ("train.seconds=240", "unknown key 'train.seconds'"),
    ],
)
def test_values_nobody_can_mean_are_refused(override: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_recipe(Path("feed"), [override])


def test_sizes_of_a_network_on_spots_are_checked_too() -> None:
    with pytest.raises(InputError, match="dim must be a multiple of heads"):
        SpotTransformerConfig(dim=10, heads=4)
