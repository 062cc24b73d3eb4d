"""What really happened, from whatever file says so."""

import json
from pathlib import Path

import pytest

from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.data.labels.osl import write_osl
from ballcast.data.labels.soccernet import write_labels
from ballcast_server.jobs.labels import actual_beside, read_actual


def test_a_clip_of_snbaa_has_its_labels_above(tmp_path: Path) -> None:
    clips = [Clip("clip_1", (Event("PASS", 1000),), (Event("SHOT", 31_000),)), Clip("clip_2", (Event("OUT", 5),), ())]
    write_labels(tmp_path / "Labels-ball.json", clips)
    (tmp_path / "clip_1").mkdir()
    found = actual_beside(tmp_path / "clip_1" / "224p.mp4")
    assert found == (Event("PASS", 1000), Event("SHOT", 31_000))


def test_the_halves_of_a_game(tmp_path: Path) -> None:
    labels = [
        {"gameTime": "2 - 00:01", "label": "SHOT", "position": "1000"},
        {"gameTime": "1 - 00:02", "label": "PASS", "position": "2000"},
        {"gameTime": "1 - 00:03", "label": "GOAL", "position": "3000"},
    ]
    (tmp_path / "Labels-ball.json").write_text(json.dumps({"annotations": labels}))
    assert [e.label for e in actual_beside(tmp_path / "1_720p.mkv") or ()] == ["PASS"]
    assert [e.label for e in actual_beside(tmp_path / "2_720p.mkv") or ()] == ["SHOT"]
    with pytest.raises(InputError, match="counts from its own start"):
        actual_beside(tmp_path / "720p.mp4")
    labels[0]["position"] = "4000"  # it goes on after the first half: one clock for both
    (tmp_path / "Labels-ball.json").write_text(json.dumps({"annotations": labels}))
    assert [e.label for e in actual_beside(tmp_path / "720p.mp4") or ()] == ["PASS", "SHOT"]


def test_simulated_matches(shared: Path) -> None:
    found = actual_beside(shared / "data" / "simbaa" / "match_001.mp4")
    assert found is not None
    assert found[0] == Event("DRIVE", 360, "home")
    assert len(found) > 100


def test_osl_json_of_the_videos_name(tmp_path: Path) -> None:
    write_osl(tmp_path / "final.json", {"other": [], "final.mp4": [Event("OUT", 9), Event("PASS", 3)]})
    assert [e.label for e in actual_beside(tmp_path / "final.mp4") or ()] == ["PASS", "OUT"]


def test_nothing_beside_it(tmp_path: Path) -> None:
    assert actual_beside(tmp_path / "final.mp4") is None


def test_predictions_are_not_what_happened(tmp_path: Path) -> None:
    write_osl(tmp_path / "a.json", {"a": [Prediction("OUT", 9, 0.5)]})
    with pytest.raises(InputError, match="holds predictions, not what happened"):
        read_actual(tmp_path / "a.json", "a.mp4")
