"""OSL JSON v2, there and back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Event, Prediction
from ballcast.data.labels.osl import read_osl, write_osl
from ballcast.data.labels.soccernet import read_labels
from ballcast.inference.submission import read_submission

times = st.integers(0, 10_000_000)
events = st.builds(Event, st.sampled_from(ACTIONS), times, st.text(max_size=5), st.booleans())
scores = st.just(()) | st.lists(st.floats(0, 1), min_size=10, max_size=10).map(tuple)
predictions = st.builds(Prediction, st.sampled_from(ACTIONS), times, st.floats(0, 1), scores)


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.lists(events | predictions, max_size=4).map(tuple), max_size=3)
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, items: dict[str, tuple[Event | Prediction, ...]]) -> None:
    path = tmp_path_factory.mktemp("osl") / "osl.json"
    write_osl(path, items)
    assert read_osl(path).items == items


def test_the_command_turns_labels_and_predictions_there_and_back(
    shared: Path, tmp_path: Path, ballcast: Callable[..., Any]
) -> None:
    folder = shared / "fixtures" / "metric"
    for name in ("Labels-ball.json", "results_anticipation.json"):
        assert ballcast("data", "convert", folder / name, tmp_path / "osl.json").returncode == 0
        done = ballcast("data", "convert", tmp_path / "osl.json", tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert read_labels(tmp_path / "Labels-ball.json") == read_labels(folder / "Labels-ball.json")
    there = read_submission(tmp_path / "results_anticipation.json")
    back = read_submission(folder / "results_anticipation.json")
    assert there.keys() == back.keys()
    assert [p.scores for v in there.values() for p in v] == [p.scores for v in back.values() for p in v]


def test_a_defect_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "osl.json"
    path.write_text(json.dumps({"data": [{"id": "a", "events": [{"label": "PASS", "position_ms": 1.5}]}]}))
    with pytest.raises(InputError, match=r"osl.json: data\[0\].events\[0\]: 'position_ms' is 1.5"):
        read_osl(path)
    event = {"label": "PASS", "position_ms": 31000, "confidence": 0.5, "scores": 3}
    path.write_text(json.dumps({"data": [{"id": "a", "events": [event]}]}))
    with pytest.raises(InputError, match=r"data\[0\].events\[0\]: 'scores' is 3 instead of a list"):
        read_osl(path)
    path.write_text(json.dumps({"data": [], "metadata": 3}))
    with pytest.raises(InputError, match=r"osl.json: 'metadata' is not a record"):
        read_osl(path)


def test_what_others_write_in_the_metadata_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "osl.json"
    event = {"label": "PASS", "position_ms": 31000, "metadata": {"part": ["first half"]}}
    path.write_text(json.dumps({"metadata": {"kind": "u19"}, "data": [{"id": "a", "events": [event]}]}))
    osl = read_osl(path)
    assert (osl.kind, osl.parts) == (None, {"a": (None,)})
