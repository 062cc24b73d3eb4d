"""Matches through kloppy, on the sample files it ships: every provider's table, times, sides of the pitch."""

import json
import shutil
import warnings
from collections import Counter
from pathlib import Path

import feeds
import numpy as np
import pytest

from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.errors import BallcastWarning, InputError, MissingExtra
from ballcast.core.event_schema import KINDS, OTHER
from ballcast.data.events import event_kinds as kinds
from ballcast.data.events.feed import LEFT_OUT, Feed, apply_rules, fits
from ballcast.data.events.kloppy_feed import PROVIDERS, read_folder, read_match, warn_missing_kinds
from ballcast.data.events.providers import OPTA
from ballcast.data.events.wyscout import WYSCOUT, read_v2
from ballcast.features.store import Failure

kloppy = pytest.importorskip("kloppy")
SAMPLES = Path(kloppy.__file__).parent / "tests/files"
SHOT, OUT = ACTION_INDEX["SHOT"], ACTION_INDEX["OUT"]


def sample(name: str) -> Path:
    if not (SAMPLES / name).is_file():
        pytest.skip(f"this kloppy ships no {name}")
    return SAMPLES / name


def counts(feed: Feed) -> dict[str, int]:
    found = Counter(feed.action.tolist())
    return {label: found[i] for i, label in enumerate((*ACTIONS, "OTHER"))}


# Read off the providers' own files, by type and qualifier.
WHOLE_MATCHES = [
    ("wyscout", "wyscout_events_v3.json", {"THROW IN": 26, "OUT": 54, "BALL PLAYER BLOCK": 86, "SHOT": 32}),
    ("statsbomb", "statsbomb_15986_event.json", {"SHOT": 27, "BALL PLAYER BLOCK": 53, "THROW IN": 26}),
    ("statsperform", "statsperform_event_ma3.json", {"SHOT": 33, "OUT": 152}),
    ("datafactory", "datafactory_events.json", {"SHOT": 21, "OUT": 71, "THROW IN": 45, "CROSS": 8}),
]


@pytest.mark.parametrize(("provider", "file", "expected"), WHOLE_MATCHES)
def test_a_whole_match(provider: str, file: str, expected: dict[str, int]) -> None:
    feed = read_match(sample(file), provider)
    assert {label: counts(feed)[label] for label in expected} == expected
    assert [name for name, _ in feed.periods()] == ["1H", "2H"]
    assert counts(feed)["PASS"] > 400
    # Both teams shoot at the goal on the right: positions are as the acting team sees them, also after the break.
    shots = feed.take((feed.action == SHOT) & ~np.isnan(feed.start[:, 0]))
    for team in (0, 1):
        for period in (0, 1):
            x = shots.start[(shots.team == team) & (shots.period == period), 0]
            assert not len(x) or x.mean() > 65, (team, period)


def test_opta() -> None:
    feed = read_match(sample("opta_f24.xml"), "opta")
    told = counts(feed)
    assert told["THROW IN"] == 1
    assert told["BALL PLAYER BLOCK"] == 2  # an interception, and a save by a defender
    assert 4 not in feed.period  # the file has a shoot-out


def test_sportec_has_two_files() -> None:
    assert counts(read_match(sample("sportec_events.xml"), "sportec"))["SHOT"] == 6


def test_a_ball_is_out_when_its_pass_has_ended(tmp_path: Path) -> None:
    """At the pass's own time it would tell how the pass ends."""
    file = sample("statsbomb_15986_event.json")
    feed = read_match(file, "statsbomb")
    raw = json.loads(file.read_text())
    passes = [e for e in raw if e.get("pass", {}).get("outcome", {}).get("name") == "Out" and e["duration"] > 0.5]
    assert len(passes) > 3
    outs = {(p, t) for p, t, a in zip(feed.period.tolist(), feed.t_ms.tolist(), feed.action, strict=True) if a == OUT}
    for e in passes:
        h, m, s = e["timestamp"].split(":")
        begun = round(1000 * (3600 * int(h) + 60 * int(m) + float(s)))
        assert (e["period"] - 1, begun) not in outs
        assert any(p == e["period"] - 1 and abs(t - begun - 1000 * e["duration"]) < 2 for p, t in outs)


def test_wyscout_version_3_keeps_its_milliseconds() -> None:
    feed = read_match(sample("wyscout_events_v3.json"), "wyscout")
    assert (feed.t_ms % 1000 != 0).mean() > 0.9


@pytest.mark.parametrize("match", ["2499719", "2565548"])
def test_kloppys_reading_of_a_version_2_match_is_ours_less_what_it_leaves_out(shared: Path, match: str) -> None:
    """Event for event the same action; what kloppy drops are offsides, and rows before an intercepted duel."""
    from kloppy import wyscout

    path = shared / f"data/events/raw/{match}.json"
    through = {}
    for event in wyscout.load(event_data=str(path), coordinates="wyscout", data_version="V2").events:
        raw = event.raw_event
        tags = {str(tag["id"]) for tag in raw["tags"]}
        record = {"event": raw["eventName"], "sub_event": raw["subEventName"], "tag": tags}
        through[raw["id"]] = (
            event.period.id - 1,
            round(event.timestamp.total_seconds() * 1000),
            apply_rules(WYSCOUT, record),
        )
    ours = read_v2(path)
    raw_events = json.loads(path.read_text())["events"]
    kept = np.array([e["id"] in through for e in raw_events])
    assert (~kept).sum() <= 12
    assert {e["eventName"] for e, k in zip(raw_events, kept, strict=True) if not k} <= {"Offside", "Duel", "Pass"}
    same = [through[e["id"]] for e in raw_events if e["id"] in through]
    np.testing.assert_array_equal(ours.period[kept], [p for p, _, _ in same])
    np.testing.assert_allclose(ours.t_ms[kept], [t for _, t, _ in same], atol=1)  # kloppy rounds to µs before us
    np.testing.assert_array_equal(ours.known[kept], [m.known for _, _, m in same])
    # A won tackle has made the DRIVE beside it OTHER.
    differ = ours.action[kept] != [m.action for _, _, m in same]
    assert set(ours.action[kept][differ].tolist()) <= {OTHER}


def test_a_folder_with_a_bad_match(tmp_path: Path) -> None:
    for folder in ("events", "lineups"):
        (tmp_path / folder).mkdir()
    for number in (1, 2):
        shutil.copy(sample("statsbomb_event.json"), tmp_path / f"events/{number}.json")
        shutil.copy(sample("statsbomb_lineup.json"), tmp_path / f"lineups/{number}.json")
    (tmp_path / "events/1.json").write_text('[{"id": 1}]')
    shutil.copy(sample("statsbomb_event.json"), tmp_path / "events/3.json")
    found = list(read_folder(tmp_path / "events", "statsbomb"))
    assert [type(f) for f in found] == [Failure, Feed, Failure]
    assert isinstance(found[0], Failure)
    assert isinstance(found[2], Failure)
    assert "kloppy cannot read it" in found[0].reason
    assert "lineup" in found[2].reason


def test_what_the_user_got_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there are wyscout, statsbomb, opta"):
        read_match(tmp_path / "x.json", "tracab")
    with pytest.raises(InputError, match="no such file"):
        read_match(tmp_path / "x.json", "wyscout")
    with pytest.raises(InputError, match="'f24' in the name"):
        list(read_folder(tmp_path, "opta"))
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"kloppy cannot read|not valid JSON"):
        read_match(tmp_path / "x.json", "datafactory")
    monkeypatch.setitem(__import__("sys").modules, "kloppy.datafactory", None)
    with pytest.raises(MissingExtra, match="events"):
        read_match(tmp_path / "x.json", "datafactory")


# Read off the providers' own files too: kinds, and shots on target and not.
RICH_MATCHES = [
    (
        "wyscout",
        "wyscout_events_v3.json",
        {"attacking duel": 128, "defending duel": 128, "air duel": 66, "loose ball": 94, "save": 10, "offside": 5}
        | {"free kick": 30 + 26, "acceleration": 8, "hand pass": 7, "interception": 86, "launch": 0},
        (9, 23),
    ),
    (
        "statsbomb",
        "statsbomb_15986_event.json",
        {"attacking duel": 41 + 14, "defending duel": 30 + 25, "air duel": 6, "save": 16, "keeper out": 3, "foul": 28},
        (16, 11),
    ),
    (
        "statsperform",
        "statsperform_event_ma3.json",
        {"attacking duel": 35, "defending duel": 34, "air duel": 80, "loose ball": 40, "penalty": 1, "keeper out": 4},
        (12, 21),
    ),
    ("datafactory", "datafactory_events.json", {"corner": 8, "foul": 28, "save": 0}, (14, 7)),
]


@pytest.mark.parametrize(("provider", "file", "expected", "shots"), RICH_MATCHES)
def test_kinds_and_outcomes_of_a_whole_match(
    provider: str, file: str, expected: dict[str, int], shots: tuple[int, int]
) -> None:
    feed = read_match(sample(file), provider)
    found = Counter(KINDS[kind] for kind in feed.kind.tolist())
    assert {kind: found[kind] for kind in expected} == expected
    assert not found.keys() & set(kinds.missing_kinds(PROVIDERS[provider].kinds))
    outcome = Counter(feed.outcome[feed.action == SHOT].tolist())
    assert (outcome[1], outcome[-1], outcome[0]) == (*shots, 0)
    assert 0.6 < (feed.outcome[feed.action == ACTION_INDEX["PASS"]] > 0).mean() < 0.95


def test_opta_writes_an_offside_at_the_time_of_its_pass() -> None:
    """A millisecond after it, which would make the pass a finished one, and its end known: it is left out."""
    file = sample("statsperform_event_ma3.json")
    raw = json.loads(file.read_text())["liveData"]["event"]
    passed, provoked = ([e["timeStamp"][:-4] for e in raw if e["typeId"] == kind] for kind in (2, 55))
    assert len(passed) == 2
    assert passed == provoked  # to a hundredth
    assert apply_rules(OPTA, {"type": "55"}).action == LEFT_OUT
    assert "offside" in kinds.missing_kinds(PROVIDERS["opta"].kinds)


def test_what_is_no_kind_and_no_outcome() -> None:
    feed = read_match(sample("statsbomb_15986_event.json"), "statsbomb")
    assert set(feed.kind[feed.action == OUT].tolist()) == {0}  # of the event that it was made of
    carried = (feed.action == ACTION_INDEX["DRIVE"]) & (feed.kind == 0)
    assert carried.sum() > 900
    assert set(feed.outcome[carried].tolist()) == {0}  # kloppy says of every carry that it succeeded


def test_what_a_provider_does_not_record_is_warned_of_once(tmp_path: Path) -> None:
    for number in (1, 2):
        shutil.copy(sample("datafactory_events.json"), tmp_path / f"{number}.json")
    (tmp_path / "0.json").write_text("{")  # it fails, as it would without
    with pytest.warns(BallcastWarning, match=r"^datafactory does not record .*: offside, save, .*, whistle; ") as told:
        found = list(read_folder(tmp_path, "datafactory", rich=True))
    assert [w.category for w in told].count(BallcastWarning) == 1
    assert [type(f) for f in found] == [Failure, Feed, Feed]
    with warnings.catch_warnings():
        warnings.simplefilter("error", BallcastWarning)
        list(read_folder(tmp_path, "datafactory"))
        feeds.feed(feeds.made_up(50, 0), tmp_path)
        warn_missing_kinds(tmp_path / "match.json", "wyscout")  # version 2 tells all


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_kind_is_one_of_ours_and_every_row_can_be_reached(provider: str) -> None:
    table = PROVIDERS[provider].kinds
    assert {kind for kind, _ in table} <= set(KINDS)
    for i, (_, when) in enumerate(table):
        record = {key: values[0] for key, values in when.items()}
        assert next(n for n, (_, w) in enumerate(table) if fits(w, record)) == i, when


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_row_of_every_table_can_be_reached(provider: str) -> None:
    """A row that an earlier one always takes is a slip of the pen."""
    rules = PROVIDERS[provider].rules
    for i, rule in enumerate(rules):
        record = {key: values[0] for key, values in rule.when.items()}
        first = next(n for n, r in enumerate(rules) if r.fits(record))
        assert first == i, (rule, rules[first])
