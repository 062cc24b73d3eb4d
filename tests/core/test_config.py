"""Config: YAML and overrides in, frozen dataclasses out, and errors that name the nearest key."""

import contextlib
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.config import from_dict, keys, load, to_dict, to_yaml
from ballcast.core.errors import InputError


def test_overrides_reach_every_depth_and_type() -> None:
    recipe = load(
        Recipe,
        overrides=[
            "model.hierarchy.dim=128",
            "train.lr=1e-4",  # text to YAML 1.1, a number to us
            "data.train=[train, valid, test]",
            "data.boost={SHOT: 3}",
            "loss.reweight=false",
            "emit.mode=class",
        ],
    )
    assert recipe.model.hierarchy.dim == 128
    assert recipe.train.lr == 1e-4
    assert recipe.data.train == ("train", "valid", "test")
    assert recipe.data.boost == {"SHOT": 3.0}
    assert recipe.loss.reweight is False
    assert recipe.emit.mode == "class"
    with pytest.raises(FrozenInstanceError):
        recipe.train.lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.leraning_rate=1", "unknown key 'train.leraning_rate'"),
        ("train.bacth=1", "did you mean 'train.batch'?"),
        ("modle.slots=4", "did you mean 'model"),
        ("train.batch=many", "'train.batch' must be a whole number, not 'many'"),
        ("train.batch=1.5", "'train.batch' must be a whole number, not 1.5"),
        ("train.batch=true", "'train.batch' must be a whole number, not True"),
        ("train.lr=fast", "'train.lr' must be a number, not 'fast'"),
        ("loss.reweight=1", "'loss.reweight' must be true or false, not 1"),
        ("emit.mode=both", "'emit.mode' must be one of slot, class, expected, not 'both'"),
        ("data.train=train", "'data.train' must be a list like [a, b], not 'train'"),
        ("data.boost=[SHOT]", "'data.boost' must be a mapping like {name: value}, not a list"),
        ("train=fast", "'train' is a section with keys, not 'fast'"),
        ("model=4", "'model' is a section"),
        ("train.batch", "not of the form key=value"),
        ("emit.threshold=1.5", "emit: threshold must be in [0, 1)"),
        ("data.boost={SHOOT: 2}", "did you mean 'SHOT'?"),
        ("model.slots=9", "slots must be between 1 and 8"),
        ("model=!!timestamp x", "the value is not valid YAML"),
        (".=!!int x", "the value is not valid YAML"),
        ("train.graph=!!bool x", "the value is not valid YAML"),
        ("train.lr=" + "9" * 400, "'train.lr' must be a finite number"),
        ("train.lr=.nan", "'train.lr' must be a finite number"),
        ("train.lr=1e400", "'train.lr' must be a finite number"),
        ("data.boost={SHOT: .inf}", "'data.boost.SHOT' must be a finite number"),
        ("train.seed=0x" + "f" * 5000, "seed must be between"),
        ("train.lr=0x" + "f" * 5000, "'train.lr' must be a finite number"),
        ("train.graph=0x" + "f" * 5000, "'train.graph' must be true or false"),
    ],
)
def test_bad_values_are_named(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(Recipe, overrides=[override])
    assert words in str(caught.value)


def test_files_are_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("train:\n  batch: [1\n")
    with pytest.raises(InputError, match=r"mine\.yaml: line 3 column 1: not valid YAML"):
        load(Recipe, path)
    path.write_text("train:\n  batchsize: 4\n")
    with pytest.raises(InputError, match=r"mine\.yaml: unknown key 'train.batchsize'; did you mean 'train.batch'\?"):
        load(Recipe, path)
    path.write_text("train: !!timestamp x\n")
    with pytest.raises(InputError, match=r"mine\.yaml: not valid YAML"):
        load(Recipe, path)
    path.write_text("- a\n- b\n")
    with pytest.raises(InputError, match="a config is a mapping"):
        load(Recipe, path)
    with pytest.raises(InputError, match="no such file"):
        load(Recipe, tmp_path / "none.yaml")


def test_a_value_is_not_opened_like_a_section() -> None:
    with pytest.raises(InputError, match=r"override 'train\.lr\.top=1': 'lr' holds a value, not a section"):
        load(Recipe, overrides=["train.lr=1", "train.lr.top=1"])
    with pytest.raises(InputError, match="override 'epochs' is not of the form key=value"):
        load(Recipe, overrides=["epochs"])


def test_an_empty_file_is_all_defaults_and_a_missing_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("# nothing yet\n")
    assert load(Recipe, tmp_path / "mine.yaml") == Recipe()
    with pytest.raises(InputError, match=r"^config\.json: missing key 'backbone\.hash'$"):
        from_dict(BackboneIdentity, {"name": "mine"}, where="config.json", prefix="backbone.")


def test_a_wrong_override_is_not_the_files_fault(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("train:\n  batch: 4\n")
    with pytest.raises(InputError, match=r"^unknown key 'train.epoch'; did you mean 'train.epochs'\?"):
        load(Recipe, path, ["train.epoch=3"])
    path.write_text("train:\n  batch: 0\n")
    with pytest.raises(InputError, match=r"mine\.yaml: train: batch must be between"):
        load(Recipe, path, ["train.epochs=3"])
    assert load(Recipe, path, ["train.batch=2"]).train.batch == 2


def test_a_recipe_may_build_on_another(tmp_path: Path) -> None:
    """Sections are merged, mappings of actions and lists are not, overrides come last."""
    (tmp_path / "base.yaml").write_text("extends: e2e\ntrain: {lr: 0.5, seed: 7}\ndata: {boost: {SHOT: 3, OUT: 2}}\n")
    (tmp_path / "own.yaml").write_text(
        "extends: base.yaml\ntrain: {lr: 0.25}\ndata: {boost: {CROSS: 2}}\ngames: {valid: [a]}\n"
    )
    own, e2e = load(Recipe, tmp_path / "own.yaml", ["train.batch=3"]), load(Recipe, Path("e2e"))
    assert (own.train.lr, own.train.seed, own.train.batch) == (0.25, 7, 3)
    assert own.data.boost == {"CROSS": 2.0}
    assert own.games.valid == ("a",)
    assert (own.encoder, own.model, own.loss) == (e2e.encoder, e2e.model, e2e.loss)
    assert (own.train.epochs, own.games.lines) == (e2e.train.epochs, e2e.games.lines)


@pytest.mark.parametrize(
    ("base", "own", "words"),
    [
        ("train: {bacth: 1}\n", "extends: base.yaml\n", "base.yaml: unknown key 'train.bacth'"),
        ("", "extends: base.yaml\ntrain: {bacth: 1}\n", "own.yaml: unknown key 'train.bacth'"),
        ("", "extends: papre\n", "own.yaml: extends 'papre', but there is no such file beside it, and no recipe"),
        ("", 'extends: "x/a\\0b"\n', "own.yaml: extends 'x/a\\x00b', but there is no such file"),
        ("", f"extends: {'x' * 300}\n", "but there is no such file beside it"),
        ("", "extends: /dev/zero\n", "own.yaml: extends '/dev/zero', but there is no such file"),
        ("", "extends: .\n", "own.yaml: extends '.', but there is no such file"),
        ("", "extends: [paper]\n", "own.yaml: 'extends' must be the name of a recipe or a file, not a list"),
        ("", "extends: ''\n", "own.yaml: 'extends' must be the name"),
        ("extends: own.yaml\n", "extends: base.yaml\n", "base.yaml: extends own.yaml, which extends it in turn"),
        ("", "extends: own.yaml\n", "own.yaml: extends own.yaml, which extends it in turn"),
        ("train: 3\n", "extends: base.yaml\ntrain: {lr: 1}\n", "base.yaml: 'train' is a section"),
        ("", "extends: base.yaml\ntrain: 3\n", "own.yaml: 'train' is a section"),
    ],
)
def test_a_fault_names_its_file_of_two(base: str, own: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "own.yaml").write_text(own)
    with pytest.raises(InputError) as caught:
        load(Recipe, tmp_path / "own.yaml")
    assert words in str(caught.value)


def test_what_is_extended_does_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = load(Recipe, Path("e2e-head"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.yaml").write_text("extends: base.yaml\n")
    for name in ("e2e", "e2e.yaml", "base.yaml"):
        (tmp_path / name).write_text("train: {lr: 0.5}\n")
    monkeypatch.chdir(tmp_path)
    assert load(Recipe, Path("e2e-head")) == head
    with pytest.raises(InputError, match=r"own/own.yaml: extends 'base.yaml', but there is no such file beside it"):
        load(Recipe, Path("own/own.yaml"))


def test_a_chain_of_recipes_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "0.yaml").write_text("extends: paper\n")
    for n in range(1, 20):
        (tmp_path / f"{n}.yaml").write_text(f"extends: {n - 1}.yaml\n")
    assert load(Recipe, tmp_path / "14.yaml") == load(Recipe, Path("paper"))
    with pytest.raises(InputError, match="more than 16 files extend one another"):
        load(Recipe, tmp_path / "19.yaml")


def test_the_head_alone_is_e2e_with_these_settings() -> None:
    settings = "encoder.start=embedded encoder.learns=false encoder.features=cache/e2e augment.mixup=0.2 train.batch=32"
    settings += " train.lr=2.0e-4 train.weight_decay=0.05 train.epochs=8 train.restart_epochs=7"
    assert load(Recipe, Path("e2e-head")) == load(Recipe, Path("e2e"), settings.split())


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    recipe = load(Recipe, overrides=["train.seed=7", "data.boost={}", "emit.threshold=0.05"])
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(recipe))
    assert load(Recipe, path) == recipe
    assert from_dict(Recipe, to_dict(recipe)) == recipe


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_tree_is_a_recipe_or_a_clear_error(tree: object) -> None:
    for key in ("train", "data", "emit"):
        with contextlib.suppress(InputError):
            from_dict(Recipe, {key: tree})


def test_keys_lists_every_dotted_key() -> None:
    found = keys(Recipe)
    assert "model.hierarchy.dim" in found
    assert "train.lr" in found
