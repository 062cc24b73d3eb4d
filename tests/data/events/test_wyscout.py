"""Wyscout's events as actions, the table of five leagues and single matches, and matches that are not right."""

from pathlib import Path

import numpy as np
import pytest
from feeds import KINDS, event, feed

from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.event_schema import OTHER
from ballcast.data.events.event_grid import MATCHES, split_matches
from ballcast.data.events.feed import Feed, apply_rules
from ballcast.data.events.wyscout import WYSCOUT, iterate_table, read_table, read_v2
from ballcast.features.store import Failure

COLUMNS = ("period", "t_ms", "team", "action", "known", "duel", "kind", "outcome", "start", "end")


def test_every_row_of_the_mapping() -> None:
    """The table in the data's README, row by row: with every tag that could change it, and without."""
    expected = {
        "PASS": ("Simple pass", "Smart pass", "Hand pass"),
        "HIGH PASS": ("High pass", "Launch", "Goal kick"),
        "HEADER": ("Head pass",),
        "CROSS": ("Cross", "Free kick cross", "Corner"),
        "THROW IN": ("Throw in",),
        "SHOT": ("Shot", "Free kick shot", "Penalty"),
        "OUT": ("Ball out of the field",),
        "DRIVE": ("Acceleration", "Touch", "Ground attacking duel", "Ground loose ball duel"),
        "OTHER": ("Free Kick", "Foul", "Clearance", "Air duel", "Ground defending duel"),
    }
    action_of = {name: action for action, names in expected.items() for name in names}
    tagged = {
        **{(name, "1401"): "BALL PLAYER BLOCK" for name in ("Touch", "Clearance")},
        ("Air duel", "703"): "HEADER",
        ("Ground defending duel", "703"): "PLAYER SUCCESSFUL TACKLE",
    }
    for kind, name in KINDS:
        for tag in ("", "703", "1401", "1801", "101"):
            meaning = apply_rules(WYSCOUT, {"event": kind, "sub_event": name, "tag": {tag}})
            action = tagged.get((name, tag), action_of[name])
            assert meaning.action == (ACTION_INDEX[action] if action in ACTIONS else OTHER), (name, tag)
            # What ends an event decides nothing that is known of it before; an interception is there from the start.
            assert meaning.known == (OTHER if tag == "703" and (name, tag) in tagged else meaning.action)


def test_a_won_tackle_wins_over_the_simultaneous_drive(tmp_path: Path) -> None:
    attack, defence = ("Duel", "Ground attacking duel"), ("Duel", "Ground defending duel")
    rows = [
        event(5, 10, attack, [701]),
        event(5, 11, defence, [703]),
        event(9, 10, attack),
        event(9.001, 11, defence, [703]),
    ]
    drive, tackle = ACTION_INDEX["DRIVE"], ACTION_INDEX["PLAYER SUCCESSFUL TACKLE"]
    read = feed(rows, tmp_path)
    assert read.action.tolist() == [OTHER, tackle, drive, tackle]
    assert read.known.tolist() == [drive, OTHER, drive, OTHER]


def test_extra_time_is_played_and_the_shoot_out_is_not(tmp_path: Path) -> None:
    rows = [{**event(5, 10, KINDS[0]), "matchPeriod": period} for period in ("E2", "1H", "P", "2H", "E1")]
    read = feed(rows, tmp_path)
    assert [name for name, _ in read.periods()] == ["1H", "2H", "E1", "E2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eventSec": "soon"}, "events[1]"),
        ({"eventSec": -2}, "before its period"),
        ({"eventSec": float("nan")}, "eventSec"),
        ({"positions": [{"x": 1}]}, "has no 'y'"),
        ({"matchPeriod": "3H"}, "3H"),
        ({"tags": None}, "tags"),
        ({"teamId": 12}, "3 teams"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, object], words: str) -> None:
    rows = [event(5, 10, KINDS[0]), {**event(6, 11, KINDS[0]), **change}, event(7, 11, KINDS[0])]
    with pytest.raises(InputError) as error:
        feed(rows, tmp_path)
    assert words in str(error.value)


def test_a_file_that_is_no_match(tmp_path: Path) -> None:
    for text in ("[]", '{"events": []}', "3", '{"a": 1}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match="events"):
            read_v2(tmp_path / "x.json")


def write_table(path: Path, **columns: list[object]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    count = len(columns["match"])
    rest = {
        "competition": ["Spain"] * count,
        "period": ["1H"] * count,
        "t_ms": list(range(count)),
        "team": [1] * count,
        "player": [0] * count,
        "event": ["Pass"] * count,
        "sub_event": ["Simple pass"] * count,
        **{name: [50] * count for name in ("x0", "y0", "x1", "y1")},
        "tags": [[1801]] * count,
    }
    pq.write_table(pa.table({**rest, **columns}), path)


def test_a_match_that_fails_is_told_and_the_rest_is_done(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", match=[1, 2, 2, 3], t_ms=[10, 10, -5, 10], tags=[[], [], [703], [1401, 703]])
    found = list(iterate_table(tmp_path / "t.parquet"))
    assert [type(f) for f in found] == [Feed, Failure, Feed]
    assert isinstance(found[1], Failure)
    assert "match 2" in found[1].reason
    with pytest.raises(InputError, match="match 2"):
        read_table(tmp_path / "t.parquet")


def test_tags_belong_to_their_row(tmp_path: Path) -> None:
    tags = [[], [1801, 703], [], [], [703], []]
    write_table(
        tmp_path / "t.parquet", match=[1] * 6, sub_event=["Ground defending duel"] * 6, event=["Duel"] * 6, tags=tags
    )
    (read,) = read_table(tmp_path / "t.parquet")
    assert (read.action == ACTION_INDEX["PLAYER SUCCESSFUL TACKLE"]).tolist() == [703 in t for t in tags]


def test_a_table_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; give the parquet table, or the provider of the matches with"):
        read_table(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_text("no table")
    with pytest.raises(InputError, match="not the parquet table"):
        read_table(tmp_path / "t.parquet")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="events"):
        read_table(tmp_path / "t.parquet")


@pytest.fixture(scope="module")
def league_feeds() -> list[Feed]:
    from conftest import SHARED

    if not SHARED.is_dir():
        pytest.skip("../shared is not beside the checkout")
    return read_table(SHARED / "data/events/wyscout_leagues.parquet")


@pytest.mark.parametrize("match", ["2499719", "2565548"])
def test_a_delivered_match_and_the_table_agree(league_feeds: list[Feed], shared: Path, match: str) -> None:
    delivered = read_v2(shared / f"data/events/raw/{match}.json")
    (listed,) = [f for f in league_feeds if f.match == match]
    assert delivered.match == match
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(delivered, column), getattr(listed, column))


def test_the_benchmarks_matches(league_feeds: list[Feed]) -> None:
    assert len(league_feeds) == 1826
    for size in ("small", "full"):
        splits = split_matches(league_feeds, size)  # type: ignore[arg-type]
        assert {name: len(feeds) for name, feeds in splits.items()} == MATCHES[size]
        ids = [{f.match for f in feeds} for feeds in splits.values()]
        assert len(set.union(*ids)) == sum(map(len, ids))
        assert {f.competition for f in splits["test"]} == {"England"}
        assert "England" not in {f.competition for name in ("train", "valid") for f in splits[name]}
    small, full = split_matches(league_feeds, "small"), split_matches(league_feeds, "full")
    for name in small:
        assert {f.match for f in small[name]} <= {f.match for f in full[name]}
    with pytest.raises(InputError, match="whole table"):
        split_matches(league_feeds[:500], "full")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1e300, "which is not a time in a match"),
        (1e8, "after its period's start; are the times in seconds"),
        (-3.0, "3000 ms before its period's start"),
    ],
)
def test_times_that_no_match_has(seconds: float, said: str, tmp_path: Path) -> None:
    rows = [event(1.0, 1, ("Pass", "Simple pass")), event(seconds, 1, ("Shot", "Shot"))]
    with pytest.raises(InputError, match=said):
        feed(rows, tmp_path)
