"""Recognising a provider's files by content, and pairing them by name or by the match's id."""

import json
from pathlib import Path

import pytest
from feeds import feed, made_up

from ballcast.core.errors import InputError
from ballcast.data.events.feed_files import find_lineup, recognise
from ballcast.data.events.kloppy_feed import match_files, missing_details, read_match
from ballcast.data.events.wyscout import EVENT_NAMES, SUB_EVENT_NAMES, read_v2
from tests.data.events.test_kloppy_feed import sample

F24 = '<?xml version="1.0"?>\n<Games timestamp="x">\n <Game id="2210271" away_score="1">\n'
F7 = '<?xml version="1.0"?>\n<SoccerFeed TimeStamp="x">\n <SoccerDocument Type="Result" uID="f{}">\n'

KNOWN = [
    ("wyscout_events_v3.json", "wyscout"),
    ("statsbomb_15986_event.json", "statsbomb"),
    ("opta_f24.xml", "opta"),
    ("statsperform_event_ma3.json", "statsperform"),
    ("statsperform_event_ma3.xml", "statsperform"),
    ("sportec_events.xml", "sportec"),
    ("datafactory_events.json", "datafactory"),
]


@pytest.mark.parametrize(("file", "provider"), KNOWN)
def test_a_providers_file_is_recognised(file: str, provider: str) -> None:
    assert recognise(sample(file)) == provider


@pytest.mark.parametrize("file", ["opta_f7.xml", "statsperform_event_ma1.json", "sportec_meta.xml"])
def test_a_second_file_is_called_that(file: str) -> None:
    with pytest.raises(InputError, match="give its file of events"):
        recognise(sample(file))


def test_what_is_no_feed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        recognise(tmp_path / "missing.json")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"known provider.*--provider"):
        recognise(tmp_path / "x.json")
    with pytest.raises(InputError, match="has no file of events"):
        recognise(tmp_path)


def test_optas_own_names_are_paired_by_the_match(tmp_path: Path) -> None:
    events = tmp_path / "f24-23-2021-2210271-eventdetails.xml"
    events.write_text(F24)
    (tmp_path / "srml-23-2021-f1111111-matchresults.xml").write_text(F7.format(1111111))
    with pytest.raises(InputError, match=r"2210271.*--lineup"):
        find_lineup(events, "opta")
    right = tmp_path / "srml-23-2021-f2210271-matchresults.xml"
    right.write_text(F7.format(2210271))
    assert find_lineup(events, "opta") == right
    assert match_files(tmp_path, "opta") == [events]


def test_stats_performs_files_are_paired_by_the_match(tmp_path: Path) -> None:
    for name, other in (("a.json", "statsperform_event_ma3.json"), ("b.json", "statsperform_event_ma1.json")):
        (tmp_path / name).write_bytes(sample(other).read_bytes())
    assert find_lineup(tmp_path / "a.json", "statsperform") == tmp_path / "b.json"


def test_a_line_up_for_a_provider_without_one(tmp_path: Path) -> None:
    feed(made_up(60, 0), tmp_path)
    with pytest.raises(InputError, match="leave --lineup out"):
        read_match(tmp_path / "match.json", lineup=tmp_path / "x.json")


def test_wyscout_by_number_is_wyscout_by_name(tmp_path: Path) -> None:
    rows = made_up(120, 4)
    named = feed(rows, tmp_path)
    events = {name: number for number, name in EVENT_NAMES.items()}
    parts = {name: number for number, name in SUB_EVENT_NAMES.items()}
    for row in rows:
        row["eventName"], row["subEventName"] = int(events[row["eventName"]]), int(parts[row["subEventName"]])
    path = tmp_path / "numbers.json"
    teams = {"10": {"team": {"name": "Ten"}}}
    path.write_text(json.dumps({"events": rows, "teams": teams}))
    by_number = read_v2(path)
    assert by_number.counts() == named.counts()
    assert by_number.kind.tolist() == named.kind.tolist()
    assert by_number.teams == ("Ten", "11")
    for row in rows:
        row["eventId"], row["subEventId"] = row.pop("eventName"), row.pop("subEventName")
    path.write_text(json.dumps(rows))
    assert read_v2(path).counts() == named.counts()


def test_a_feed_of_unknown_names_is_refused(tmp_path: Path) -> None:
    rows = [row | {"eventName": "?", "subEventName": "?"} for row in made_up(400, 0)]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    with pytest.raises(InputError, match=r"0 % of its .* events are known"):
        read_match(tmp_path / "x.json")


def test_what_providers_do_not_tell() -> None:
    assert missing_details(sample("wyscout_events_v3.json"), "wyscout") == ()
    missing = missing_details(sample("datafactory_events.json"), "datafactory")
    assert {"HEADER", "HIGH PASS", "BALL PLAYER BLOCK", "PLAYER SUCCESSFUL TACKLE", "duels"} <= set(missing)
    counts = read_match(sample("datafactory_events.json")).counts()
    assert [counts[name] for name in ("header", "high pass", "block", "tackle")] == [0] * 4
