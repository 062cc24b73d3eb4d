"""Matches of any provider that kloppy reads, and Wyscout's version 2, as feeds."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from ballcast.core.errors import BallcastWarning, InputError, MissingExtra
from ballcast.core.files import read_bytes
from ballcast.core.util import natural
from ballcast.data.events import event_kinds as kinds
from ballcast.data.events.feed import LONGEST_MS, Feed, Row, Rule, apply, feed_of
from ballcast.data.events.providers import KLOPPY, OPTA, STATSBOMB, WYSCOUT_V3
from ballcast.data.events.wyscout import read_v2
from ballcast.features.store import Failure


def _of_kloppy(event: Any) -> dict[str, Any]:
    """kloppy's own type, qualifiers and result."""
    record: dict[str, Any] = {"kloppy": event.event_type.name, "result": getattr(event.result, "name", "")}
    for qualifier in event.qualifiers or ():
        record.setdefault(type(qualifier.value).__name__, []).append(getattr(qualifier.value, "name", ""))
    return record


def _of_json(event: Any) -> dict[str, Any]:
    """The provider's own JSON too: "pass.height" is raw["pass"]["height"], by its name if it is an object with one."""
    record = _of_kloppy(event)
    for key, value in (event.raw_event or {}).items():
        record[key] = _told(value)
        if isinstance(value, dict):
            record |= {f"{key}.{inner}": _told(v) for inner, v in value.items()}
    return record


def _told(value: Any) -> Any:
    value = value.get("name", "") if isinstance(value, dict) else value
    if isinstance(value, list):
        return [str(v) for v in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_opta(event: Any) -> dict[str, Any]:
    raw = event.raw_event
    own = {"type": str(raw.type_id), "outcome": str(raw.outcome), "qualifier": [str(q) for q in raw.qualifiers]}
    return _of_kloppy(event) | own


def _time(event: Any) -> timedelta:
    return event.timestamp


def _time_v3(event: Any) -> timedelta:
    """kloppy keeps whole seconds; Wyscout's own clock, "00:44:08.005", has the rest."""
    _, dot, rest = str((event.raw_event or {}).get("matchTimestamp", "")).partition(".")
    return event.timestamp + timedelta(seconds=float(f"0.{rest}") if dot and rest.isdecimal() else 0)


def _time_statsbomb(event: Any) -> timedelta:
    """The ball is out when the pass that put it out has ended: at its start, that would be its future."""
    if event.event_type.name != "BALL_OUT":
        return event.timestamp
    hours, minutes, seconds = event.raw_event["timestamp"].split(":")
    begun = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return max(event.timestamp, begun + timedelta(seconds=float(event.raw_event.get("duration") or 0)))


@dataclass(frozen=True)
class Provider:
    """How a provider's matches are read: kloppy's function, its argument for the events, and where the other files are.

    `others`: argument → (word, other word): that file's path is the events' with the word replaced.
    """

    load: str
    events: str
    rules: tuple[Rule, ...]
    kinds: kinds.Kinds
    record: Callable[[Any], Mapping[str, Any]]
    others: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    time: Callable[[Any], timedelta] = _time
    suffixes: tuple[str, ...] = (".json",)


PROVIDERS = {
    "wyscout": Provider("wyscout.load", "event_data", WYSCOUT_V3, kinds.WYSCOUT_V3, _of_json, time=_time_v3),
    "statsbomb": Provider(
        "statsbomb.load",
        "event_data",
        STATSBOMB,
        kinds.STATSBOMB,
        _of_json,
        {"lineup_data": ("event", "lineup")},
        _time_statsbomb,
    ),
    "opta": Provider(
        "opta.load", "f24_data", OPTA, kinds.OPTA, _of_opta, {"f7_data": ("f24", "f7")}, suffixes=(".xml",)
    ),
    "statsperform": Provider(
        "statsperform.load_event",
        "ma3_data",
        OPTA,
        kinds.OPTA,
        _of_opta,
        {"ma1_data": ("ma3", "ma1")},
        suffixes=(".json", ".xml"),
    ),
    "sportec": Provider(
        "sportec.load_event",
        "event_data",
        KLOPPY,
        kinds.KLOPPY,
        _of_kloppy,
        {"meta_data": ("events", "meta")},
        suffixes=(".xml",),
    ),
    "datafactory": Provider("datafactory.load", "event_data", KLOPPY, kinds.KLOPPY, _of_kloppy),
}


def read_folder(source: Path, provider: str, *, rich: bool = False) -> Iterator[Feed | Failure]:
    """The match in a file, or every match in a folder and below, a failure in the place of one that cannot be read.

    `rich`: the kinds of events are asked for, so those that the provider does not tell are named, once.
    """
    told = not rich
    for path in match_files(source, provider):
        try:
            feed = read_match(path, provider)
        except InputError as error:
            yield Failure(path.stem, str(error))
            continue
        if not told:
            warn_missing_kinds(path, provider)
            told = True
        yield feed


def warn_missing_kinds(path: Path, provider: str) -> None:
    """Warn of the kinds of events that matches like the one in `path` do not tell; Wyscout's version 2 tells all."""
    missing = kinds.missing_kinds(_provider(provider).kinds)
    if missing and not (provider == "wyscout" and _is_v2(path)):
        warnings.warn(
            f"{provider} does not tell these kinds of events, which a model of --detail rich has a place for: "
            f"{', '.join(missing)}; they stay empty",
            BallcastWarning,
            stacklevel=2,
        )


def match_files(source: Path, provider: str) -> list[Path]:
    """The files with events: the file itself, or all below a folder that the provider's naming says are."""
    how = _provider(provider)
    if not source.is_dir():
        return [source]
    words = [word for word, _ in how.others.values()]
    found = [
        path
        for path in source.rglob("*")
        if path.suffix.lower() in how.suffixes and all(word in str(path.relative_to(source.parent)) for word in words)
    ]
    if not found:
        named = f" with '{words[0]}' in the name" if words else ""
        raise InputError(f"{source}: has no {' or '.join(how.suffixes)} files{named}, as {provider} delivers matches")
    return sorted(found, key=lambda path: natural(str(path)))


def read_match(path: Path, provider: str) -> Feed:
    """The match whose events are in the file `path`."""
    how = _provider(provider)
    if provider == "wyscout" and _is_v2(path):
        return read_v2(path)
    files = {how.events: path}
    for argument, (word, other) in how.others.items():
        head, found, tail = str(path).rpartition(word)
        files[argument] = Path(f"{head}{other}{tail}")
        if not found or not files[argument].is_file():
            raise InputError(
                f"{path}: {provider} needs a second file beside it, named with '{other}' where this one has '{word}'"
            )
    dataset = _load(how.load, files, provider)
    match = str(dataset.metadata.game_id or path.stem)
    return feed_of(match, "", _rows(dataset, how))


def _provider(name: str) -> Provider:
    if name not in PROVIDERS:
        raise InputError(f"unknown provider {name!r}; there are {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def _is_v2(path: Path) -> bool:
    """Version 2 calls its times eventSec, version 3 does not know the word."""
    return b'"eventSec"' in read_bytes(path, "events of the match")


def _load(function: str, files: Mapping[str, Path], provider: str) -> Any:
    module, name = function.split(".")
    try:
        load = getattr(import_module(f"kloppy.{module}"), name)
    except ImportError:
        raise MissingExtra("kloppy", "events") from None
    main = next(iter(files.values()))
    read_bytes(main, "events of the match")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of players who are in no line-up: we do not ask for players
            return load(**{argument: str(path) for argument, path in files.items()}, coordinates="wyscout")
    except json.JSONDecodeError as error:
        raise InputError(f"{main}: line {error.lineno}: is not valid JSON; fetch it again") from None
    except Exception as error:  # whatever a parser of foreign files trips over, the other matches go on
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise InputError(f"{main}: kloppy cannot read it as a match of {provider} ({reason})") from error


def _rows(dataset: Any, how: Provider) -> Iterator[Row]:
    seen = set()
    for event in dataset.events:
        t_ms = round(how.time(event).total_seconds() * 1000)
        # kloppy repeats events where it knows no better, but gives a ball out the id of the throw-in or corner to come
        # as well; events before the whistle, or days later, are not the match's.
        key = (event.event_id, event.event_type)
        if event.team is None or key in seen or not 0 <= t_ms <= LONGEST_MS:
            continue
        seen.add(key)
        turned = _turned(event, dataset)
        end = next((p for n in _ENDS if (p := getattr(event, n, None)) is not None), None)
        record = how.record(event)
        yield Row(
            event.period.id - 1,
            t_ms,
            str(event.team.team_id),
            replace(apply(how.rules, record), kind=kinds.kind_of(how.kinds, record), outcome=kinds.outcome_of(record)),
            _place(event.coordinates, turned),
            _place(end, turned),
            str(getattr(event.player, "player_id", "")),
        )


_ENDS = ("receiver_coordinates", "end_coordinates", "result_coordinates")


def _turned(event: Any, dataset: Any) -> bool:
    """Whether positions are the other way round than the acting team sees them."""
    from kloppy.domain import AttackingDirection, Ground, Orientation

    if dataset.metadata.orientation == Orientation.ACTION_EXECUTING_TEAM:
        return False
    return (event.attacking_direction == AttackingDirection.LTR) != (event.team.ground == Ground.HOME)


def _place(point: Any, turned: bool) -> tuple[float, float] | None:
    """A kloppy point on Wyscout's pitch, 0 to 100 per cent."""
    if point is None or point.x is None or point.y is None:
        return None
    return (100 - point.x, 100 - point.y) if turned else (point.x, point.y)
