"""Predictions from stores: checks of the model and of the frame size."""

import warnings
from pathlib import Path

import pytest
from synthetic import make_split

from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.errors import BallcastWarning
from ballcast.inference.store_predictor import check_fits
from ballcast.model.anticipator import Anticipator


def test_a_warning_for_features_of_another_frame_size(tmp_path: Path) -> None:
    store = make_split(tmp_path / "test", 2, seed=0)
    model = Anticipator(ModelConfig(clips=store.snippets, width=store.width), metadata={"picture_size": [720, 1280]})
    with pytest.warns(
        BallcastWarning, match=r"test: its pictures are 398×224, those of training were 1280×720; extract again"
    ):
        check_fits(model, store, "model")
    for metadata in ({"picture_size": [224, 398]}, {}):  # the same, or unknown
        model.metadata = metadata
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_fits(model, store, "model")
