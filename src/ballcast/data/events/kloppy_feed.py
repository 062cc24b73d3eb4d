"""Read matches of any provider that kloppy supports, and Wyscout's version 2, as feeds."""

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
    """Make a record of kloppy's own type, qualifiers and result."""
    record: dict[str, Any] = {"kloppy": event.event_type.name, "result": getattr(event.result, "name", "")}
    for qualifier in event.qualifiers or ():
        record.setdefault(type(qualifier.value).__name__, []).append(getattr(qualifier.value, "name", ""))
    return record


def _of_json(event: Any) -> dict[str, Any]:
    """Add the provider's own JSON: "pass.height" is raw["pass"]["height"], or its "name" if it is an object."""
    record = _of_kloppy(event)
    for key, value in (event.raw_event or {}).items():
        record[key] = _as_text(value)
        if isinstance(value, dict):
            record |= {f"{key}.{inner}": _as_text(v) for inner, v in value.items()}
    return record


def _as_text(value: Any) -> Any:
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
    """Add the fraction of a second, which kloppy drops, from Wyscout's own clock "00:44:08.005"."""
    _, dot, rest = str((event.raw_event or {}).get("matchTimestamp", "")).partition(".")
    return event.timestamp + timedelta(seconds=float(f"0.{rest}") if dot and rest.isdecimal() else 0)


def _time_statsbomb(event: Any) -> timedelta:
    """Time a ball out at the end of the pass that put it out; at its start it would leak the future."""
    if event.event_type.name != "BALL_OUT":
        return event.timestamp
    hours, minutes, seconds = event.raw_event["timestamp"].split(":")
    begun = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return max(event.timestamp, begun + timedelta(seconds=float(event.raw_event.get("duration") or 0)))


@dataclass(frozen=True)
class Provider:
    """How a provider's matches are read: kloppy's function, its argument for the events, and where the other files are.

    `others`: argument → (part, other part): that file's path is the events' with one part of the name replaced.
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
    """Yield the match in a file, or every match in a folder and below, a `Failure` for one that cannot be read.

    `rich`: warn once of the kinds of events that the provider does not record.
    """
    warned = not rich
    for path in match_files(source, provider):
        try:
            feed = read_match(path, provider)
        except InputError as error:
            yield Failure(path.stem, str(error))
            continue
        if not warned:
            warn_missing_kinds(path, provider)
            warned = True
        yield feed


def warn_missing_kinds(path: Path, provider: str) -> None:
    """Warn of the kinds of events that the provider does not record; Wyscout's version 2 records all."""
    missing = kinds.missing_kinds(_provider(provider).kinds)
    if missing and not (provider == "wyscout" and _is_v2(path)):
        warnings.warn(
            f"{provider} does not record these kinds of events, which a model of --detail rich has columns for: "
            f"{', '.join(missing)}; they stay empty",
            BallcastWarning,
            stacklevel=2,
        )


def match_files(source: Path, provider: str) -> list[Path]:
    """Find the files with events: `source` itself, or those below it that are named as the provider names them."""
    how = _provider(provider)
    if not source.is_dir():
        return [source]
    name_parts = [part for part, _ in how.others.values()]
    found = [
        path
        for path in source.rglob("*")
        if path.suffix.lower() in how.suffixes
        and all(part in str(path.relative_to(source.parent)) for part in name_parts)
    ]
    if not found:
        named = f" with '{name_parts[0]}' in the name" if name_parts else ""
        raise InputError(f"{source}: has no {' or '.join(how.suffixes)} files{named}, as {provider} delivers matches")
    return sorted(found, key=lambda path: natural(str(path)))


def read_match(path: Path, provider: str) -> Feed:
    """Read the match whose events are in the file `path`."""
    how = _provider(provider)
    if provider == "wyscout" and _is_v2(path):
        return read_v2(path)
    files = {how.events: path}
    for argument, (part, other) in how.others.items():
        head, found, tail = str(path).rpartition(part)
        files[argument] = Path(f"{head}{other}{tail}")
        if not found or not files[argument].is_file():
            raise InputError(
                f"{path}: {provider} needs a second file beside it, named with '{other}' where this one has '{part}'"
            )
    dataset = _load(how.load, files, provider)
    match = str(dataset.metadata.game_id or path.stem)
    return feed_of(match, "", _rows(dataset, how))


def _provider(name: str) -> Provider:
    if name not in PROVIDERS:
        raise InputError(f"unknown provider {name!r}; there are {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def _is_v2(path: Path) -> bool:
    """Whether a file is of Wyscout's version 2, which has "eventSec"; version 3 does not."""
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
            warnings.simplefilter("ignore")  # of players who are in no line-up: they are not used
            return load(**{argument: str(path) for argument, path in files.items()}, coordinates="wyscout")
    except json.JSONDecodeError as error:
        raise InputError(f"{main}: line {error.lineno}: is not valid JSON; fetch it again") from None
    except Exception as error:  # kloppy may raise anything; the other matches are still read
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise InputError(f"{main}: kloppy cannot read it as a match of {provider} ({reason})") from error


def _rows(dataset: Any, how: Provider) -> Iterator[Row]:
    seen = set()
    for event in dataset.events:
        t_ms = round(how.time(event).total_seconds() * 1000)
        # kloppy repeats some events; a ball out also has the id of the throw-in or corner after it, hence the type in
        # the key. Events before the kick-off, or days later, are not of the match.
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
    """Whether positions are reversed relative to the acting team's view."""
    from kloppy.domain import AttackingDirection, Ground, Orientation

    if dataset.metadata.orientation == Orientation.ACTION_EXECUTING_TEAM:
        return False
    return (event.attacking_direction == AttackingDirection.LTR) != (event.team.ground == Ground.HOME)


def _place(point: Any, turned: bool) -> tuple[float, float] | None:
    """Return a kloppy point on Wyscout's pitch, 0 to 100 per cent."""
    if point is None or point.x is None or point.y is None:
        return None
    return (100 - point.x, 100 - point.y) if turned else (point.x, point.y)
