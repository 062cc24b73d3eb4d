"""Which model, backbone and recipe a command uses."""

from pathlib import Path

import pytest

from ballcast.core import embedded
from ballcast.core.errors import InputError


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(embedded, "MODEL", tmp_path / "anticipator")
    monkeypatch.setattr(embedded, "BACKBONE", tmp_path / "backbone")
    return tmp_path


def test_given_ones_are_used(samples: Path) -> None:
    assert embedded.choose_models("a", "b", "predict") == ("a", "b")


def test_the_embedded_pair_where_none_is_given(samples: Path) -> None:
    for folder in ("anticipator", "backbone"):
        (samples / folder).mkdir()
        with pytest.raises(InputError, match="serve needs a model: give --model"):
            embedded.choose_models(None, None, "serve")
        (samples / folder / "config.json").touch()
    assert embedded.choose_models(None, None, "serve") == (str(samples / "anticipator"), str(samples / "backbone"))


def test_one_alone_is_refused(samples: Path) -> None:
    with pytest.raises(InputError, match="live needs the backbone the model was trained on"):
        embedded.choose_models("a", None, "live")
    with pytest.raises(InputError, match="live needs a model for this backbone"):
        embedded.choose_models(None, "b", "live")


@pytest.mark.parametrize("name", ["paper", "paper.yaml", "configs/paper.yaml"])
def test_a_recipe_of_the_package_is_found_by_its_name_in_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper").mkdir()  # a folder is no recipe
    assert embedded.find_recipe(Path(name)) == embedded.RECIPES / "paper.yaml"
    (tmp_path / "configs").mkdir()
    for own in ("paper.yaml", "configs/paper.yaml"):
        (tmp_path / own).write_text("train: {epochs: 3}")
        assert embedded.find_recipe(Path(own)) == Path(own)  # the user's own comes first


def test_what_is_no_recipe_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"papre: no such file, and no recipe .* best, e2e, e2e-head, events, faantra, faantra-ws, feed, "
        r"paper, pretrain$",
    ):
        embedded.find_recipe(Path("papre"))
    for elsewhere in (tmp_path / "paper.yaml", Path("mine/paper.yaml"), Path("mine.yaml"), Path("paper.json")):
        assert embedded.find_recipe(elsewhere) == elsewhere  # whoever reads it says that it is not there
