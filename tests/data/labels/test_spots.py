"""Files of spots: every form, written as different programs write them, and their faults."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Event, Prediction
from ballcast.data.labels.osl import write_osl
from ballcast.data.labels.spots import SpotLines, action_of, read_spots

PASS, DRIVE, SHOT = 0, 1, 6


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def osl(*events: Any, **item: Any) -> dict[str, Any]:
    return {
        "version": "2.0",
        "data": [{"inputs": [{"type": "video", "path": "a/match.mp4"}], "events": events, **item}],
    }


def test_osl_without_id_with_text_numbers_and_labels_left_out(tmp_path: Path) -> None:
    events = [
        {"head": "ball_action", "label": "DRIVE", "position_ms": "2000", "confidence": "0.4"},
        {"label": "Pass", "position_ms": 1000.0, "confidence": 0.9, "metadata": {"team": "left", "player": 7}},
        {"label": "GOAL", "position_ms": 3000, "confidence": 0.8},
    ]
    found = read_spots(write(tmp_path / "a.json", osl(*events)))
    (video,) = found.videos
    assert video.name == "a/match.mp4"
    assert (video.action.tolist(), video.position_ms.tolist()) == ([PASS, DRIVE], [1000, 2000])
    np.testing.assert_allclose(video.confidence, [0.9, 0.4])
    assert (video.team.tolist(), video.player.tolist()) == ([0, -1], [0, -1])
    assert found.left_out == {"GOAL": 1}
    assert video.details == {"team", "player", "confidence"}


def test_the_class_list_of_osl_says_what_the_spotter_has(tmp_path: Path) -> None:
    tree = osl({"label": "PASS", "position_ms": 5}) | {"labels": {"action": {"labels": ["PASS", "HIGH PASS"]}}}
    (video,) = read_spots(write(tmp_path / "a.json", tree)).videos
    assert video.details == {"HIGH PASS"}
    assert video.forecast.tolist() == [label != "OUT" for label in ACTIONS]


def test_osl_as_ballcast_writes_it(tmp_path: Path) -> None:
    items = {"one": (Prediction("SHOT", 900, 0.5),), "two": (Event("OUT", 100, "home"), Event("PASS", 50, "away"))}
    write_osl(tmp_path / "a.json", items)
    one, two = read_spots(tmp_path / "a.json").videos
    assert (one.name, one.action.tolist(), one.confidence.tolist()) == ("one", [SHOT], [0.5])
    assert (two.name, two.position_ms.tolist(), two.team.tolist()) == ("two", [50, 100], [0, 1])


def soccernet(key: str, *rows: tuple[str, int, str]) -> dict[str, Any]:
    records = [{"gameTime": clock, "position": str(ms), "label": label, "half": clock[0]} for clock, ms, label in rows]
    return {"UrlLocal": "england/a - b", key: records}


@pytest.mark.parametrize("key", ["predictions", "annotations"])
def test_soccernet_on_one_clock_is_one_video(key: str, tmp_path: Path) -> None:
    tree = soccernet(key, ("1 - 00:01", 1000, "PASS"), ("2 - 45:00", 2_700_000, "HIGH PASS"))
    (video,) = read_spots(write(tmp_path / "a.json", tree)).videos
    assert (video.name, video.position_ms.tolist()) == ("england/a - b", [1000, 2_700_000])
    assert "HIGH PASS" in video.details
    assert "OUT" not in video.details


def test_soccernet_whose_second_half_begins_again_is_two_videos(tmp_path: Path) -> None:
    tree = soccernet("predictions", ("1 - 40:00", 2_400_000, "PASS"), ("2 - 00:10", 10_000, "SHOT"))
    first, second = read_spots(write(tmp_path / "a.json", tree)).videos
    assert (first.name, second.name) == ("england/a - b 1", "england/a - b 2")
    assert (first.position_ms.tolist(), second.position_ms.tolist()) == ([2_400_000], [10_000])


def test_clips_give_what_was_observed(tmp_path: Path) -> None:
    seen = {"label": "PASS", "position": "29000", "team": "home", "visibility": "visible"}
    coming = {**seen, "position": "31000"}
    videos = [
        {"path": "clip_1/720p.mp4", "annotations": {"observation": [seen], "anticipation": [coming]}},
        {"path": "clip_2/720p.mp4", "annotations": {"observation": [], "anticipation": []}},
    ]
    one, two = read_spots(write(tmp_path / "a.json", {"videos": videos})).videos
    assert (one.name, one.position_ms.tolist(), two.name, len(two)) == ("clip_1", [29000], "clip_2", 0)


def test_footpass_labels_and_spots(tmp_path: Path) -> None:
    rows = [[50, 1, 9, 5, 0.7], [25, 0, 9, 2, 0.9]]
    (video,) = read_spots(write(tmp_path / "a.json", {"keys": ["g_H1"], "events": {"g_H1": rows}})).videos
    assert (video.action.tolist(), video.position_ms.tolist()) == ([PASS, SHOT], [1000, 2000])
    assert video.player.tolist() == [0, 1]  # the same shirt number, another team
    assert video.details == {"team", "player", "confidence"}
    (labels,) = read_spots(write(tmp_path / "b.json", {"events": {"g_H1": [[50, 1, 9, 5, 1, 0]]}})).videos
    assert labels.confidence.tolist() == [1.0]
    assert labels.details == {"team", "player"}


@pytest.mark.parametrize(
    "text",
    [
        "time,label,confidence\n1:02.5,PASS,0.5\n63,shot,1\n",
        "\ufeffseconds;Class;Score\r\n62.5;pass;0.5\r\n\r\n63;SHOT;1\r\n",
        "position_ms\tlabel\tconfidence\n62500\tPass\t0.5\n63000\tShot\t1\n",
        "63,SHOT,1\n62.5,PASS,0.5",
    ],
)
def test_csv_however_it_is_written(text: str, tmp_path: Path) -> None:
    (video,) = read_spots(write(tmp_path / "spots.csv", text)).videos
    assert (video.name, video.action.tolist(), video.position_ms.tolist()) == ("spots", [PASS, SHOT], [62500, 63000])
    assert video.confidence.tolist() == [0.5, 1.0]


def test_csv_with_teams_players_and_videos(tmp_path: Path) -> None:
    text = "video,time,label,team,player\na,1,PASS,red,4\nb,2,PASS,,\na,3,DRIVE,red,4\na,4,OUT,none,\n"
    a, b = read_spots(write(tmp_path / "s.csv", text)).videos
    assert (a.name, a.team.tolist(), a.player.tolist()) == ("a", [0, 0, -1], [0, 0, -1])
    assert (b.name, b.team.tolist()) == ("b", [-1])
    assert "confidence" not in a.details


FAULTS = [
    ("", "has no spot of the ten actions"),
    ("[]", "is no file of spots; give OSL JSON"),
    ("{", "line 1 column 2: the file ends too early"),
    ({"data": {}}, "'data' is a record instead of a list"),
    (osl({"label": "PASS"}), "data[0].events[0]: has no 'position_ms'"),
    (osl({"label": "PASS", "position_ms": "soon"}), "events[0]: 'position_ms' is 'soon' instead of a number"),
    (osl({"label": "PASS", "position_ms": -1}), "events[0]: the time -1 ms is not within a video"),
    (osl({"label": "PASS", "position_ms": 1, "confidence": 87}), "confidence 87 is not between 0 and 1"),
    (osl({"label": 3, "position_ms": 1}), "'label' is 3 instead of text"),
    (osl({"label": "Yellow card", "position_ms": 1}), "has no spot of the ten actions; its labels are Yellow card"),
    (osl(7), "data[0].events[0]: is 7 instead of a record"),
    ({"data": [{"id": "a", "events": []}, {"id": "a", "events": []}]}, "data[1]: 'a' appears a second time"),
    ({"predictions": [{"label": "PASS", "gameTime": "first half", "position": 1}]}, "predictions[0]: 'gameTime' is"),
    ({"events": {"h": [[1, 0, 7]]}}, "events['h'][0]: is a list instead of [frame, team, player, class, confidence]"),
    ({"events": {"h": [[1, 0, 7, 9, 0.5]]}}, "events['h'][0]: class 9 is not one of 1 to 8"),
    ("who,what\nPASS,1\n", "line 1: the columns are 'who', 'what'; name them time,label,confidence"),
    ("time,label\nnow,PASS\n", "line 2: the time is 'now'; write seconds, or 1:02:03.5"),
    ("time,label,confidence\n1,PASS,high\n", "line 2: 'confidence' is 'high' instead of a number"),
    ("time,label\n1\n", "line 2: has no label"),
]


@pytest.mark.parametrize(("content", "fault"), FAULTS)
def test_faults_name_the_file_and_the_place(content: Any, fault: str, tmp_path: Path) -> None:
    path = write(tmp_path / "spots.any", content)
    with pytest.raises(InputError) as error:
        read_spots(path)
    assert str(error.value).startswith(str(path))
    assert fault in str(error.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00video")
    with pytest.raises(InputError, match="is not text; give OSL JSON"):
        read_spots(tmp_path / "a.csv")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["data", "videos", "predictions", "annotations", "events", "labels", "UrlLocal"])
NAMES = ("label", "position_ms", "position", "confidence", "team", "gameTime", "id", "events", "inputs", "path")
RECORD = st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(["PASS", "1 - 00:01"]))


def fault_of(path: Path) -> str:
    """The sentence that refuses a file; "" if it is read."""
    try:
        found = read_spots(path)
    except InputError as error:
        return str(error)
    assert sum(map(len, found.videos)) > 0
    return ""


@given(st.dictionaries(KEYS, JSON | st.lists(RECORD, max_size=3), max_size=3))
def test_any_json_is_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = write(tmp_path_factory.mktemp("spots") / "a.json", tree)
    fault = fault_of(path)
    assert not fault or (fault.startswith(str(path)) and "\n" not in fault)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("spots") / "a.csv"
    path.write_bytes(text.encode("utf-8", "replace"))
    fault = fault_of(path)
    assert not fault or (fault.startswith(str(path)) and "\n" not in fault)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 7_200_000), st.sampled_from(ACTIONS), st.integers(0, 100), st.sampled_from(["", "home", "away"])
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS)
def test_csv_and_osl_of_the_same_spots_are_read_alike(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    folder = tmp_path_factory.mktemp("spots")
    lines = [f"{ms / 1000:.3f},{label.lower().replace(' ', '_')},{sure / 100},{team}" for ms, label, sure, team in rows]
    table = write(folder / "a.csv", "\n".join(["time,label,confidence,team", *lines]))
    events = [
        {"label": label, "position_ms": ms, "confidence": sure / 100, "team": team} for ms, label, sure, team in rows
    ]
    (one,), (two,) = read_spots(table).videos, read_spots(write(folder / "a.json", osl(*events))).videos
    assert np.all(np.diff(one.position_ms) >= 0)
    for name in ("position_ms", "action", "confidence", "team", "player", "details"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize(
    ("label", "action"),
    [("high_pass", 3), (" Throw-In ", 4), ("tackle", 9), ("BALL PLAYER BLOCK", 8), ("FREE KICK", None), ("", None)],
)
def test_labels_however_they_are_written(label: str, action: int | None) -> None:
    assert action_of(label) == action


def test_spots_that_arrive_as_lines() -> None:
    lines = SpotLines()
    assert lines.read("time,label,confidence,team\n") is None
    assert lines.read("1.0,PASS,0.9,red") == 1001
    assert lines.read('{"position_ms": 2500, "label": "drive", "confidence": 0.5, "team": "blue"}') == 2501
    assert lines.read("4,GOAL,1") is None
    assert lines.read("\n") is None
    assert lines.read("5") == 5000
    assert lines.read("4.5,PASS") == 5000  # reported late: the next forecast is not made in the past
    assert lines.left_out == {"GOAL": 1}
    spots = lines.spots()
    assert (spots.position_ms.tolist(), spots.team.tolist()) == ([1000, 2500, 4500], [0, 1, -1])
    assert spots.details == {"team", "confidence"}


def test_lines_keep_a_minute_and_what_the_spotter_has() -> None:
    lines = SpotLines()
    for seconds in range(200):
        lines.read(f"{seconds},{'OUT' if seconds == 3 else 'PASS'},0.9")
    spots = lines.spots()
    assert 60 <= len(spots) <= 61
    assert "OUT" in spots.details


@pytest.mark.parametrize("line", ["soon,PASS", "{", "[]", '{"label": 3}', "1,PASS,2", '{"label": "PASS"}'])
def test_a_line_that_is_not_understood_changes_nothing(line: str) -> None:
    lines = SpotLines()
    lines.read("1,PASS,0.9")
    with pytest.raises(InputError):
        lines.read(line)
    assert len(lines.spots()) == 1
    assert lines.read("2,PASS,0.9") == 2001
