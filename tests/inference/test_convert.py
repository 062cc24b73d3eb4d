"""The challenge's files as OSL JSON and back: exactly what they were, or a sentence that says why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Forecast, Prediction
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.inference.convert import convert
from ballcast.inference.submission import read_submission, write_submission
from ballcast.inference.timeline import write_timeline_osl


def there_and_back(source: Path) -> Path:
    osl, back = source.with_name("osl.json"), source.with_name(f"back{source.suffix}")
    convert(source, osl)
    convert(osl, back)
    return back


def test_events_on_the_edge_stay_in_their_part(tmp_path: Path) -> None:
    past = (Event("PASS", 0, "home"), Event("SHOT", 30000, "away", visible=False))
    clips = [Clip("clip_1", past, (Event("DRIVE", 30000), Event("OUT", 35000))), Clip("clip_2")]
    write_labels(tmp_path / "labels.json", clips)
    assert read_labels(there_and_back(tmp_path / "labels.json")) == clips


@pytest.mark.parametrize("name", ["results.json", "results.zip"])
def test_predictions_without_any_entry_come_back_as_predictions(tmp_path: Path, name: str) -> None:
    write_submission(tmp_path / name, {"clip_1": (), "clip_2": ()})
    back = there_and_back(tmp_path / name)
    assert read_submission(back) == {"clip_1": (), "clip_2": ()}
    if name.endswith("json"):
        assert back.read_bytes() == (tmp_path / name).read_bytes()


def test_labels_without_any_event_come_back_as_labels(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.json", [Clip("clip_1")])
    assert "input_type" in there_and_back(tmp_path / "labels.json").read_text()


def item(id_: str = "clip_1", **changes: Any) -> dict[str, Any]:
    return {"id": id_, "events": [{"label": "PASS", "position_ms": 31000, **changes}]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([item(position_ms=-1)], r"data[0].events[0]: position_ms -1 is outside 0–35000"),
        ([item(position_ms=35001)], "data[0].events[0]: position_ms 35001 is outside 0–35000"),
        ([item(position_ms=20000, confidence=0.5)], "position_ms 20000 is outside 30000–35000"),
        ([item(position_ms=61000, confidence=0.5)], "position_ms 61000 is outside 30000–35000"),
        ([item(metadata={"part": "observation"})], "position_ms 31000 is outside 0–30000"),
        ([item(confidence=1.5)], "confidences must be between 0 and 1"),
        ([item(confidence=0.5, scores=[-0.1] * 10)], "confidences must be between 0 and 1"),
        ([item(""), item("b")], "data[0]: the id '' is not the name of a clip"),
        ([item("a/b.mp4")], "data[0]: the id 'a/b.mp4' is not the name of a clip"),
        ([item("a", confidence=0.5), item("b")], "data[1].events[0]: has no 'confidence', unlike other events"),
    ],
)
def test_what_the_challenges_files_cannot_hold_is_refused(tmp_path: Path, data: list[Any], words: str) -> None:
    (tmp_path / "osl.json").write_text(json.dumps({"data": data}))
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "osl.json", tmp_path / "out.json")
    assert str(caught.value).startswith(f"{tmp_path / 'osl.json'}: ")
    assert words in str(caught.value)
    assert not (tmp_path / "out.json").exists()


def test_a_videos_timeline_is_no_submission(tmp_path: Path) -> None:
    timeline = [Forecast(30000, (Prediction("PASS", 31000, 0.5),))]
    write_timeline_osl(tmp_path / "osl.json", timeline, "match.mp4")
    with pytest.raises(InputError, match="holds forecasts along a video"):
        convert(tmp_path / "osl.json", tmp_path / "out.json")
