"""Read what any action spotter found: OSL JSON, SoccerNet's and FOOTPASS's JSON, or a CSV of time, label, confidence.

A file is recognised by its content. Labels are read in any case and with _ or - for a blank; those that are none of the
ten actions (GOAL, FREE KICK, …) are counted and left out. Labels of people are read too: their confidence is 1.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.core.actions import ACTION_INDEX, ACTIONS, FPS, OBSERVED_MS
from ballcast.core.checks import Defects, finite, get, show
from ballcast.core.errors import InputError
from ballcast.core.files import parse_json, read_bytes
from ballcast.core.spots import DETAILS, Spots
from ballcast.data.labels.games import GAME_TIME
from ballcast.data.labels.soccernet import clip_name

FORMATS = (
    "OSL JSON (with 'data'), SoccerNet's results_spotting.json or Labels-ball.json (with 'predictions', 'annotations' "
    "or 'videos'), FOOTPASS JSON (with 'events'), or a CSV of time,label,confidence"
)
ALIASES = {
    "BLOCK": "BALL PLAYER BLOCK",
    "TACKLE": "PLAYER SUCCESSFUL TACKLE",
    "SUCCESSFUL TACKLE": "PLAYER SUCCESSFUL TACKLE",
    "BALL OUT OF PLAY": "OUT",
    "SHOTS ON TARGET": "SHOT",
    "SHOTS OFF TARGET": "SHOT",
}
FOOTPASS = ("DRIVE", "PASS", "CROSS", "THROW IN", "SHOT", "HEADER", "PLAYER SUCCESSFUL TACKLE", "BALL PLAYER BLOCK")
COLUMNS = {  # of a CSV: what they may be called
    "time": ("time", "time_s", "seconds", "t"),
    "position_ms": ("position_ms", "time_ms", "ms", "position"),
    "label": ("label", "class", "action", "event"),
    "confidence": ("confidence", "score", "conf", "probability"),
    "team": ("team",),
    "player": ("player", "jersey", "player_id"),
    "video": ("video", "clip", "name", "file"),
}
_NOBODY = frozenset({"", "none", "null", "nan", "unknown", "not applicable", "-1"})  # teams and players
_LONGEST_MS = 86_400_000  # a day


@dataclass(frozen=True)
class SpotFile:
    """What a file holds.

    - `videos`: the spots of each video, or of each half where times begin again; a video may have none.
    - `left_out`: how many records of each label that is none of the ten actions.
    """

    videos: tuple[Spots, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_spots(path: Path) -> SpotFile:
    """Read a file of spots; the first defect is an InputError that names its place."""
    raw = read_bytes(path, "spots")
    reader = _Reader(str(path))
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        _read_json(parse_json(raw, path, "spots"), reader, path)
    else:
        _read_csv(raw, reader, path)
    return reader.finish()


@dataclass(frozen=True, slots=True)
class _Spot:
    action: int
    position_ms: int
    confidence: float | None
    team: str
    player: str


class _Reader:
    """Collects the spots of a file, video by video."""

    def __init__(self, file: str) -> None:
        self.defects = Defects(file, strict=True)
        self.videos: dict[str, list[_Spot]] = {}
        self.left_out: Counter[str] = Counter()
        self.classes: set[str] | None = None  # that the spotter has; None: those that occur

    def begin(self, name: str) -> None:
        """Begin a video, which may have no spots."""
        if name in self.videos:
            raise InputError(f"{name!r} appears a second time")
        self.videos[name] = []

    def add(self, name: str, label: str, position_ms: int, *, confidence: Any, team: Any, player: Any) -> None:
        """Add a spot to a video; `confidence` None: not given."""
        action = action_of(label)
        if not 0 <= position_ms <= _LONGEST_MS:
            raise InputError(f"the time {show(position_ms)} ms is not within a video")
        sure = None if confidence is None else _number(confidence, "confidence")
        if sure is not None and not 0 <= sure <= 1:
            raise InputError(f"confidence {show(confidence)} is not between 0 and 1")
        if action is None:
            self.left_out[label] += 1
            return
        self.videos.setdefault(name, []).append(_Spot(action, position_ms, sure, _text(team), _text(player)))

    def details(self) -> frozenset[str]:
        """What the spots that were read have of `DETAILS`."""
        every = [spot for spots in self.videos.values() for spot in spots]
        classes = self.classes if self.classes is not None else {ACTIONS[spot.action] for spot in every}
        details = {name for name in DETAILS[:2] if name in classes}
        details |= {"team"} if any(spot.team for spot in every) else set()
        details |= {"player"} if any(spot.player for spot in every) else set()
        details |= {"confidence"} if any(spot.confidence is not None for spot in every) else set()
        return frozenset(details)

    def finish(self) -> SpotFile:
        if not any(self.videos.values()):
            found = f"; its labels are {', '.join(list(self.left_out)[:5])}" if self.left_out else ""
            raise InputError(
                f"{self.defects.file}: has no spot of the ten actions{found}; they are {', '.join(ACTIONS)}"
            )
        details = self.details()
        videos = (_spots_of(name, spots, details) for name, spots in self.videos.items())
        return SpotFile(tuple(videos), dict(self.left_out.most_common()))


def action_of(label: str) -> int | None:
    """The index of a label in `ACTIONS`, however it is written; None: it is none of the ten."""
    plain = re.sub(r"[\s_-]+", " ", label.strip().upper())
    return ACTION_INDEX.get(ALIASES.get(plain, plain))


def _spots_of(name: str, found: list[_Spot], details: frozenset[str]) -> Spots:
    found = sorted(found, key=lambda spot: spot.position_ms)
    teams: dict[str, int] = {}
    players: dict[tuple[str, str], int] = {}
    team = [teams.setdefault(spot.team, len(teams)) if spot.team else -1 for spot in found]
    # The same number in the other team is another player.
    player = [players.setdefault((s.team, s.player), len(players)) if s.player else -1 for s in found]
    return Spots(
        np.array([spot.position_ms for spot in found], np.int64),
        np.array([spot.action for spot in found], np.int64),
        np.array([1.0 if spot.confidence is None else spot.confidence for spot in found], np.float32),
        np.array(team, np.int64),
        np.array(player, np.int64),
        details,
        name,
    )


# ---------------------------------------------------------------------------------------------------------------- JSON


def _read_json(tree: Any, reader: _Reader, path: Path) -> None:
    readers: dict[str, Callable[[Any, _Reader, Path], None]] = {
        "data": _read_osl,
        "videos": _read_clips,
        "predictions": _read_soccernet,
        "annotations": _read_soccernet,
        "events": _read_footpass,
    }
    key = next((key for key in readers if isinstance(tree, dict) and key in tree), None)
    if key is None:
        raise InputError(f"{path}: is no file of spots; give {FORMATS}")
    with reader.defects.at(""):
        readers[key](tree, reader, path)


def _read_osl(tree: Any, reader: _Reader, path: Path) -> None:
    """OSL JSON: items with `events`; named by `id`, or by the path of their first input."""
    heads = tree.get("labels")
    if isinstance(heads, dict):
        lists = [head.get("labels") for head in heads.values() if isinstance(head, dict)]
        listed = [str(label) for labels in lists if isinstance(labels, list) for label in labels]
        reader.classes = {ACTIONS[a] for a in map(action_of, listed) if a is not None} or None
    for i, item in enumerate(get(tree, "data", list, "a list")):
        with reader.defects.at(f"data[{i}]"):
            name = _osl_name(item) or (path.stem if len(tree["data"]) == 1 else f"{path.stem}-{i + 1}")
            reader.begin(name)
            for j, record in enumerate(get(item, "events", list, "a list")):
                with reader.defects.at(f"data[{i}].events[{j}]"):
                    _add_record(reader, name, record)


def _osl_name(item: Any) -> str:
    if not isinstance(item, dict):
        raise InputError(f"is {show(item)} instead of a record with 'events'")
    inputs = item.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    name = item.get("id") or (first.get("path") if isinstance(first, dict) else None)
    return str(name or "")


def _add_record(reader: _Reader, name: str, record: Any) -> None:
    """Add a spot of OSL JSON or of SoccerNet: "label", "position_ms" or "position", "confidence"."""
    label = get(record, "label", str, "text")
    inner = record.get("metadata")
    more = inner if isinstance(inner, dict) else {}
    reader.add(
        name,
        label,
        _position(record),
        confidence=record.get("confidence", record.get("score")),
        team=record.get("team", more.get("team")),
        player=record.get("player", more.get("player")),
    )


def _position(record: dict[str, Any]) -> int:
    for key in ("position_ms", "position"):
        if record.get(key) not in (None, ""):
            return round(_number(record[key], key))
    raise InputError("has no 'position_ms' or 'position'")


def _read_clips(tree: Any, reader: _Reader, path: Path) -> None:
    """SN-BAA's Labels-ball.json: the observed part of each clip."""
    reader.classes = set(ACTIONS)
    for i, video in enumerate(get(tree, "videos", list, "a list")):
        with reader.defects.at(f"videos[{i}]"):
            name = clip_name(get(video, "path", str, "text"))
            reader.begin(name)
            annotations = get(video, "annotations", dict, "a record")
            for j, record in enumerate(get(annotations, "observation", list, "a list")):
                with reader.defects.at(f"videos[{i}].annotations.observation[{j}]"):
                    _add_record(reader, name, record)


def _read_soccernet(tree: Any, reader: _Reader, path: Path) -> None:
    """SoccerNet's predictions or labels of a game; halves whose times begin again are two videos."""
    key = "predictions" if "predictions" in tree else "annotations"
    name = str(tree.get("UrlLocal") or path.stem)
    halves: dict[int, list[tuple[int, Any]]] = {}
    for i, record in enumerate(get(tree, key, list, "a list")):
        with reader.defects.at(f"{key}[{i}]"):
            if not isinstance(record, dict):
                raise InputError(f"is {show(record)} instead of a record with 'label' and 'position'")
            halves.setdefault(_half(record), []).append((i, record))
    reader.begin(name)
    one = all(half == 1 for half in halves) or not _begins_again(halves)
    for half in sorted(halves):
        part = name if one else f"{name} {half}"
        for i, record in halves[half]:
            with reader.defects.at(f"{key}[{i}]"):
                _add_record(reader, part, record)
    if not one:
        del reader.videos[name]


def _half(record: dict[str, Any]) -> int:
    clock = record.get("gameTime")
    if clock is None:
        return 2 if str(record.get("half")) == "2" else 1
    match = GAME_TIME.match(str(clock))
    if match is None:
        raise InputError(f"'gameTime' is {show(clock)} instead of something like '1 - 00:12'")
    return int(match.group(1))


def _begins_again(halves: Mapping[int, list[tuple[int, Any]]]) -> bool:
    """Whether times of the second half count from its own start."""
    times = {half: [_position(record) for _, record in records] for half, records in halves.items()}
    return len(times) > 1 and min(times[2]) < max(times[1])


def _read_footpass(tree: Any, reader: _Reader, path: Path) -> None:
    """FOOTPASS: for each half [frame, team, shirt number, class, …]; five entries: the last is the confidence."""
    reader.classes = set(FOOTPASS)
    for name, rows in get(tree, "events", dict, "a record of halves").items():
        with reader.defects.at(f"events[{name!r}]"):
            reader.begin(name)
            if not isinstance(rows, list):
                raise InputError(f"is {show(rows)} instead of a list")
            for j, row in enumerate(rows):
                with reader.defects.at(f"events[{name!r}][{j}]"):
                    if not isinstance(row, list) or len(row) < 4:
                        raise InputError(f"is {show(row)} instead of [frame, team, player, class, confidence]")
                    frame, number = (_number(row[k], what) for k, what in ((0, "frame"), (3, "class")))
                    if number not in range(1, len(FOOTPASS) + 1):
                        raise InputError(f"class {show(row[3])} is not one of 1 to {len(FOOTPASS)}")
                    confidence = row[4] if len(row) == 5 else None
                    label = FOOTPASS[int(number) - 1]
                    position_ms = round(frame * 1000 / FPS)
                    reader.add(name, label, position_ms, confidence=confidence, team=row[1], player=row[2])


# ----------------------------------------------------------------------------------------------------------------- CSV


def _read_csv(raw: bytes, reader: _Reader, path: Path) -> None:
    """Rows of time, label and confidence, and of team, player and video if there are such columns."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; give {FORMATS}") from None
    separator = _separator(next((line for line in text.splitlines() if line.strip()), ""))
    with reader.defects.at(""):
        columns: dict[str, int] | None = None
        for number, row in _rows(text, separator):
            with reader.defects.at(f"line {number}"):
                if columns is None:
                    columns, is_header = _columns(row)
                    if is_header:
                        continue
                cells = _cells(row, columns)
                if not cells.get("label"):
                    raise InputError("has no label; write rows of time,label,confidence")
                _add_cells(reader, cells.get("video") or path.stem, cells)


def _separator(line: str) -> str:
    return next((mark for mark in ("\t", ";", ",") if mark in line), ",")


def _cells(row: list[str], columns: Mapping[str, int]) -> dict[str, str]:
    return {name: row[i].strip() for name, i in columns.items() if i < len(row)}


def _add_cells(reader: _Reader, video: str, cells: Mapping[str, str]) -> None:
    reader.add(
        video,
        cells["label"],
        _csv_time(cells),
        confidence=cells.get("confidence") or None,
        team=cells.get("team"),
        player=cells.get("player"),
    )


def _rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    try:
        for row in rows:
            if any(cell.strip() for cell in row):
                yield rows.line_num, row
    except csv.Error as error:
        raise InputError(f"line {rows.line_num}: {error}") from None


def _columns(row: list[str]) -> tuple[dict[str, int], bool]:
    """The place of each column by its name, and whether the row is a header; without one: as in the docs."""
    names = [re.sub(r"[\s-]+", "_", cell.strip().lower()) for cell in row]
    found = {
        name: next(i for i, cell in enumerate(names) if cell in called)
        for name, called in COLUMNS.items()
        if any(cell in called for cell in names)
    }
    if "label" in found and ("time" in found or "position_ms" in found):
        return found, True
    if _seconds(row[0]) is None:
        shown = ", ".join(map(show, names[:6]))
        raise InputError(f"the columns are {shown}; name them time,label,confidence (and team,player,video)")
    return {name: i for i, name in enumerate(("time", "label", "confidence", "team", "player"))}, False


def _csv_time(cells: Mapping[str, str]) -> int:
    if cells.get("position_ms"):
        return round(_number(cells["position_ms"], "position_ms"))
    seconds = _seconds(cells.get("time", ""))
    if seconds is None:
        raise InputError(f"the time is {show(cells.get('time', ''))}; write seconds, or 1:02:03.5")
    return round(1000 * seconds)


def _seconds(text: str) -> float | None:
    """Seconds of "12.5", "1:12.5" or "1:02:03.5"; None: it is no time."""
    if not re.fullmatch(r"\s*(\d{1,4}:)?(\d{1,4}:)?\d{1,9}(\.\d{1,9})?\s*", text):
        return None
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def _number(value: Any, name: str) -> float:
    """A number, which some files write as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"'{name}' is {show(value)} instead of a number") from None
    return finite(value, name)


def _text(value: Any) -> str:
    """The name or number of a team or player; "": unknown."""
    text = "" if value is None or isinstance(value, dict | list) else str(value).strip()[:100]
    return "" if text.lower() in _NOBODY else text


# ---------------------------------------------------------------------------------------------------------------- live


class SpotLines:
    """Spots that arrive one by one, as lines: rows as in a CSV, with or without a header, or JSON records.

    A line with a time and no label asks for a forecast at that time.
    """

    def __init__(self, name: str = "live") -> None:
        self.name = name
        self._reader = _Reader(name)
        self._reader.begin(name)
        self._columns: dict[str, int] | None = None
        self._details: frozenset[str] = frozenset()
        self._newest = 0

    @property
    def left_out(self) -> Mapping[str, int]:
        """How many lines of each label that is none of the ten actions."""
        return self._reader.left_out

    def read(self, line: str) -> int | None:
        """Take a line.

        Returns:
            The time of the forecast that it asks for, in ms: just after its spot. None: it asks for none, as a header,
            or a label that is none of the ten actions. An InputError if it is not understood.
        """
        text = line.strip().removeprefix("\ufeff")
        if not text:
            return None
        spots = self._reader.videos[self.name]
        known = len(spots)
        if text.startswith("{"):
            record = parse_json(text.encode(), self.name, "spots")
            asked = None if record.get("label") else _position(record)
            if asked is None:
                _add_record(self._reader, self.name, record)
        else:
            row = next(csv.reader([text], delimiter=_separator(text)))
            if self._columns is None:
                self._columns, is_header = _columns(row)
                if is_header:
                    return None
            cells = _cells(row, self._columns)
            asked = None if cells.get("label") else _csv_time(cells)
            if asked is None:
                _add_cells(self._reader, self.name, cells)
        if asked is None and len(spots) == known:
            return None
        self._newest = max(self._newest, spots[-1].position_ms + 1 if asked is None else asked)
        self._details |= self._reader.details()
        spots[:] = [spot for spot in spots if spot.position_ms >= self._newest - 2 * OBSERVED_MS]
        return self._newest

    def spots(self) -> Spots:
        """The spots of the last minute. A class that has not occurred is one that the spotter does not have."""
        return _spots_of(self.name, self._reader.videos[self.name], self._details)
