"""Which model and backbone a command uses."""

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
