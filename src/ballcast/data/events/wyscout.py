"""Wyscout: how its events map to actions, its version 2 files, and the table of five leagues.

The table is the season 2017/18 of England, France, Germany, Italy and Spain (Pappalardo, Massucco et al., *Soccer match
event dataset*, figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).

Version 2 is read here and not through kloppy, which drops rows that we need: offsides, and the row before a duel that
is tagged as an interception.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.checks import Defects, finite, get, show
from ballcast.core.errors import InputError, MissingExtra, first_line
from ballcast.core.event_schema import KINDS
from ballcast.core.files import read_json
from ballcast.data.events.feed import (
    PERIODS,
    EventMeaning,
    Feed,
    Record,
    Row,
    Rule,
    apply_rules,
    feed_of,
    player_numbers,
    team_names,
    team_numbers,
)
from ballcast.features.store import Failure

INTERCEPTION = "1401"
WON = "703"
LOST = "701"
ACCURATE = "1801"
INACCURATE = "1802"
OUTCOMES = {WON: 1, ACCURATE: 1, LOST: -1, INACCURATE: -1}
GOALS = {"101": 1, "102": -1}  # goal; own goal

WYSCOUT = (
    # An interception is a kind of event, not an outcome: it comes before the rows below, and is known at once.
    Rule("BALL PLAYER BLOCK", {"sub_event": ("Touch", "Clearance"), "tag": (INTERCEPTION,)}),
    Rule("PASS", {"sub_event": ("Simple pass", "Smart pass", "Hand pass")}),
    Rule("HIGH PASS", {"sub_event": ("High pass", "Launch", "Goal kick")}),
    Rule("HEADER", {"sub_event": ("Head pass",)}),
    # Who won a duel is known at its end, so until then it is just a duel.
    Rule("HEADER", {"sub_event": ("Air duel",), "tag": (WON,)}, until_later="OTHER", duel="air"),
    Rule("OTHER", {"sub_event": ("Air duel",)}, duel="air"),
    Rule("CROSS", {"sub_event": ("Cross", "Free kick cross", "Corner")}),
    Rule("THROW IN", {"sub_event": ("Throw in",)}),
    Rule("SHOT", {"event": ("Shot",)}),
    Rule("SHOT", {"sub_event": ("Free kick shot", "Penalty")}),
    Rule("OUT", {"sub_event": ("Ball out of the field",)}),
    Rule("DRIVE", {"sub_event": ("Acceleration", "Touch")}),
    Rule("DRIVE", {"sub_event": ("Ground attacking duel",)}, duel="ground"),
    Rule("DRIVE", {"sub_event": ("Ground loose ball duel",)}, duel="loose"),
    Rule(
        "PLAYER SUCCESSFUL TACKLE",
        {"sub_event": ("Ground defending duel",), "tag": (WON,)},
        until_later="OTHER",
        duel="ground",
    ),
    Rule("OTHER", {"sub_event": ("Ground defending duel",)}, duel="ground"),
    # Everything else is OTHER: fouls, free kicks that are simply passed, offsides, saves, clearances …
)

# The kind of an event by its sub-event, or by its event where that has none.
KIND_OF = {
    "Free Kick": "free kick",
    "Free kick cross": "free kick",
    "Free kick shot": "free kick",
    "Goal kick": "goal kick",
    "Corner": "corner",
    "Penalty": "penalty",
    "Foul": "foul",
    "Offside": "offside",
    "Save attempt": "save",
    "Reflexes": "save",
    "Goalkeeper leaving line": "keeper out",
    "Clearance": "clearance",
    "Air duel": "air duel",
    "Ground attacking duel": "attacking duel",
    "Ground defending duel": "defending duel",
    "Ground loose ball duel": "loose ball",
    "Acceleration": "acceleration",
    "Smart pass": "through ball",
    "Launch": "launch",
    "Hand pass": "hand pass",
    "Whistle": "whistle",
}


# Version 2 by number, as some deliveries write it: event → its sub-events, numbered from ten times the event's number.
_NUMBERED: dict[str, tuple[int, tuple[str, ...]]] = {
    "Duel": (10, ("Air duel", "Ground attacking duel", "Ground defending duel", "Ground loose ball duel")),
    "Foul": (20, ("Foul", "Hand foul", "Late card foul", "Out of game foul", "Protest", "Simulation")),
    "Free Kick": (30, ("Corner", "Free Kick", "Free kick cross", "Free kick shot", "Goal kick", "Penalty", "Throw in")),
    "Goalkeeper leaving line": (40, ("Goalkeeper leaving line",)),
    "Interruption": (50, ("Ball out of the field", "Whistle")),
    "Offside": (60, ()),
    "Others on the ball": (70, ("Acceleration", "Clearance", "Touch")),
    "Pass": (80, ("Cross", "Hand pass", "Head pass", "High pass", "Launch", "Simple pass", "Smart pass")),
    "Save attempt": (90, ("Reflexes", "Save attempt")),
    "Shot": (100, ("Shot",)),
}
EVENT_NAMES = {str(first // 10): event for event, (first, _) in _NUMBERED.items()}
SUB_EVENT_NAMES = {str(n): name for first, names in _NUMBERED.values() for n, name in enumerate(names, first)}


def meaning(event: str, sub_event: str, tags: set[str]) -> EventMeaning:
    """Look up what an event of these names and tags means."""
    record: Record = {"event": event, "sub_event": sub_event, "tag": tags}
    kind = KIND_OF.get(sub_event, KIND_OF.get(event, "interception" if INTERCEPTION in tags else ""))
    outcome = next((value for tag, value in OUTCOMES.items() if tag in tags), 0)
    return replace(apply_rules(WYSCOUT, record), kind=KINDS.index(kind), outcome=outcome)


def _period(name: str) -> int:
    known = (*PERIODS, "P")  # P: the shoot-out
    if name not in known:
        raise InputError(f"the period {name!r} is none of {', '.join(known)}")
    return known.index(name)


def read_v2(path: Path) -> Feed:
    """Read the match in a Wyscout version 2 file: an object with `events`, or the list of them."""
    tree = read_json(path, "events of the match")
    events = tree.get("events") if isinstance(tree, dict) else tree
    if not isinstance(events, list) or not events:
        raise InputError(f"{path}: has no list of 'events'; is it a Wyscout version 2 file?")
    defects = Defects(str(path), strict=True)
    rows = []
    for i, event in enumerate(events):
        with defects.at(f"events[{i}]"):
            rows.append(_row(event))
    names = _team_names(tree.get("teams")) if isinstance(tree, dict) else {}
    return feed_of(str(events[0].get("matchId", path.stem)), "", rows, names)


def _team_names(teams: Any) -> dict[str, str]:
    """Names by id, from version 2's `teams`: {id: {"team": {"name": …}}}; nothing where they are given otherwise."""
    if not isinstance(teams, dict):
        return {}
    inner = {key: value.get("team", value) for key, value in teams.items() if isinstance(value, dict)}
    return {key: str(value["name"]) for key, value in inner.items() if isinstance(value, dict) and value.get("name")}


def _name(event: Mapping[str, Any], part: str, names: Mapping[str, str]) -> str:
    """The name of an event or sub-event, which some deliveries write as a number, under "…Name" or only "…Id"."""
    given = str(event.get(f"{part}Name") or event.get(f"{part}Id") or "")
    return names.get(given, given)


def _row(event: Any) -> Row:
    period = _period(get(event, "matchPeriod", str, "the name of a period"))
    tags = {str(get(tag, "id", int, "a number")) for tag in get(event, "tags", list, "a list of tags")}
    places = [(_number(p, "x"), _number(p, "y")) for p in get(event, "positions", list, "a list of positions")]
    seconds = _number(event, "eventSec")
    if abs(seconds) > 1e9:
        raise InputError(f"'eventSec' is {seconds:g}, which is not a time in a match")
    found = meaning(_name(event, "event", EVENT_NAMES), _name(event, "subEvent", SUB_EVENT_NAMES), tags)
    return Row(
        period,
        round(seconds * 1000),
        str(get(event, "teamId", (int, str), "a team's number")),
        found,
        places[0] if places else None,
        places[1] if len(places) > 1 else None,
        str(event.get("playerId", "")),
        goal_of(found.action, tags),
    )


def goal_of(action: int, tags: set[str]) -> int:
    """1 for a shot tagged as a goal, −1 for an own goal, else 0; the keeper's row of a goal has the tag too."""
    return GOALS["102"] if "102" in tags else GOALS["101"] * ("101" in tags and action == ACTION_INDEX["SHOT"])


def _number(record: Any, key: str) -> float:
    """Read a number, which some deliveries write as text."""
    value = get(record, key, (int, float, str), "a number")
    try:
        return finite(float(value), key)
    except (ValueError, OverflowError):  # text that is none, or hundreds of digits
        raise InputError(f"'{key}' is {show(value)} instead of a number") from None


def read_table(path: Path) -> list[Feed]:
    """Read all matches of the parquet table, in its order; one that cannot be used is an InputError."""
    feeds = []
    for found in iterate_table(path):
        if isinstance(found, Failure):
            raise InputError(f"{path}: {found.reason}")
        feeds.append(found)
    return feeds


def iterate_table(path: Path) -> Iterator[Feed | Failure]:
    """Yield the matches of the parquet table, a `Failure` for one that cannot be used.

    The meaning of an event is looked up once per combination of names and tags.
    """
    columns, names, tags = _columns(path)
    if not len(columns["match"]):
        raise InputError(f"{path}: the table of events is empty")
    event, sub_event = names["event"], names["sub_event"]
    read = (INTERCEPTION, *OUTCOMES, *GOALS)  # the tags that are used
    flags = sum(_tagged(tags, int(tag)).astype(np.int64) << bit for bit, tag in enumerate(read))
    combination = (event[1] * len(sub_event[0]) + sub_event[1]) * 2 ** len(read) + flags
    distinct, which = np.unique(combination, return_inverse=True)
    meanings = []
    for code in distinct:
        names_code, flag_bits = divmod(int(code), 2 ** len(read))
        e, s = divmod(names_code, len(sub_event[0]))
        tagged = {tag for bit, tag in enumerate(read) if flag_bits >> bit & 1}
        m = meaning(event[0][e], sub_event[0][s], tagged)
        meanings.append((m.action, m.known, m.duel, m.kind, m.outcome, goal_of(m.action, tagged)))
    action, known, duel, kind, outcome, goal = np.array(meanings, np.int8)[which].T

    match, team = columns["match"], columns["team"]
    period = np.array([_period(p) for p in names["period"][0]], np.int8)[names["period"][1]]
    start = np.stack([columns["x0"], columns["y0"]], 1).astype(np.float32)
    end = np.stack([columns["x1"], columns["y1"]], 1).astype(np.float32)
    bounds = np.flatnonzero(np.append(True, match[1:] != match[:-1]))
    for begin, stop in pairwise([*bounds.tolist(), len(match)]):
        part = slice(begin, stop)
        try:
            yield Feed(
                str(match[begin]),
                names["competition"][0][names["competition"][1][begin]],
                period[part],
                columns["t_ms"][part].astype(np.int64),
                team_numbers(str(match[begin]), team[part]),
                action[part],
                known[part],
                duel[part],
                kind[part],
                outcome[part],
                player_numbers(columns["player"][part]),
                start[part],
                end[part],
                goal[part],
                team_names(team[part], {}),
            ).checked()
        except InputError as error:
            yield Failure(str(match[begin]), str(error))


_NUMBERS = ("match", "t_ms", "team", "player", "x0", "y0", "x1", "y1")
_NAMES = ("competition", "period", "event", "sub_event")


def _columns(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[list[str], NDArray[np.int64]]], Any]:
    """Read the columns: numbers as arrays, names as (distinct names, each row's index), tags as (offsets, values)."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "events") from None
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the parquet table, or the provider of the matches with --provider")
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the parquet table of events")
    try:
        table = pq.read_table(path, columns=[*_NUMBERS, *_NAMES, "tags"])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: is not the parquet table of events ({first_line(error, 120)})") from None
    if missing := [name for name in (*_NUMBERS, *_NAMES, "tags") if name not in table.column_names]:
        raise InputError(f"{path}: the table has no column '{missing[0]}'")
    whole = {name: table[name].combine_chunks() for name in table.column_names}
    if empty := [name for name, column in whole.items() if column.null_count]:
        raise InputError(f"{path}: column '{empty[0]}' has rows without a value")
    _check_types(whole, path)
    names = {}
    for name in _NAMES:
        coded = whole[name] if pa.types.is_dictionary(whole[name].type) else whole[name].dictionary_encode()
        try:
            names[name] = (coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64))
        except UnicodeDecodeError:
            raise InputError(f"{path}: column '{name}' holds text that is not UTF-8") from None
    tags = (whole["tags"].offsets.to_numpy(), whole["tags"].values.to_numpy())
    return {name: whole[name].to_numpy() for name in _NUMBERS}, names, tags


def _check_types(columns: dict[str, Any], path: Path) -> None:
    """Check that positions are numbers, other numbers integers, names text, and tags lists of integers."""
    from pyarrow import types

    for name, column in columns.items():
        kind = column.type
        if name in _NAMES:
            text = kind.value_type if types.is_dictionary(kind) else kind
            fits = types.is_string(text) or types.is_large_string(text)
            what = "text"
        elif name == "tags":
            lists = types.is_list(kind) or types.is_large_list(kind)
            fits = lists and types.is_integer(kind.value_type) and not column.values.null_count
            what = "lists of numbers"
        elif name in ("x0", "y0", "x1", "y1"):
            fits = types.is_integer(kind) or types.is_floating(kind)
            what = "numbers"
        else:
            fits = types.is_integer(kind)
            what = "whole numbers"
        if not fits:
            raise InputError(f"{path}: column '{name}' holds {str(kind)[:60]} instead of {what}")


def _tagged(tags: tuple[NDArray[np.int64], NDArray[np.int64]], tag: int) -> NDArray[np.bool_]:
    """Find the rows that have the tag, (rows,) bool."""
    offsets, values = tags
    found = np.zeros(len(offsets) - 1, bool)
    places = np.flatnonzero(values == tag)
    places = places[(places >= offsets[0]) & (places < offsets[-1])]
    found[np.searchsorted(offsets, places, side="right") - 1] = True
    return found
