"""Read matches of any provider that kloppy supports, and Wyscout's version 2, as feeds."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ballcast.core.errors import BallcastWarning, InputError, MissingExtra
from ballcast.core.event_schema import GROUPS, OTHER
from ballcast.core.files import read_bytes
from ballcast.core.util import natural
from ballcast.data.events import event_kinds as kinds
from ballcast.data.events.feed import LONGEST_MS, Feed, Row, Rule, apply_rules, feed_of
from ballcast.data.events.feed_files import find_lineup, is_events, name_part, recognise
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
    fields = {"type": str(raw.type_id), "outcome": str(raw.outcome), "qualifier": [str(q) for q in raw.qualifiers]}
    return _of_kloppy(event) | fields


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
    """How a provider's matches are read: kloppy's function, its argument for the events and for the second file.

    `missing_details`: what its feeds lack besides the kinds that have no row, by the names of `event_schema.DETAILS`.
    """

    load: str
    events: str
    rules: tuple[Rule, ...]
    kinds: kinds.Kinds
    record: Callable[[Any], Mapping[str, Any]]
    lineup: str = ""
    time: Callable[[Any], timedelta] = _time
    suffixes: tuple[str, ...] = (".json",)
    missing_details: tuple[str, ...] = ()


PROVIDERS = {
    "wyscout": Provider("wyscout.load", "event_data", WYSCOUT_V3, kinds.WYSCOUT_V3, _of_json, time=_time_v3),
    "statsbomb": Provider(
        "statsbomb.load",
        "event_data",
        STATSBOMB,
        kinds.STATSBOMB,
        _of_json,
        "lineup_data",
        _time_statsbomb,
        missing_details=("DRIVE",),  # a carry follows nearly every pass, three times as often as Wyscout's touches
    ),
    "opta": Provider("opta.load", "f24_data", OPTA, kinds.OPTA, _of_opta, "f7_data", suffixes=(".xml",)),
    "statsperform": Provider(
        "statsperform.load_event", "ma3_data", OPTA, kinds.OPTA, _of_opta, "ma1_data", suffixes=(".json", ".xml")
    ),
    "sportec": Provider(
        "sportec.load_event",
        "event_data",
        KLOPPY,
        kinds.KLOPPY,
        _of_kloppy,
        "meta_data",
        suffixes=(".xml",),
        missing_details=("HEADER", "BALL PLAYER BLOCK", "PLAYER SUCCESSFUL TACKLE", "DRIVE", "end"),
    ),
    "datafactory": Provider(
        "datafactory.load",
        "event_data",
        KLOPPY,
        kinds.KLOPPY,
        _of_kloppy,
        missing_details=("HEADER", "HIGH PASS", "BALL PLAYER BLOCK", "PLAYER SUCCESSFUL TACKLE"),
    ),
}


AUTO = "auto"  # the provider that a file is recognised as


def read_folder(source: Path, provider: str = AUTO, *, rich: bool = False) -> Iterator[Feed | Failure]:
    """Yield the match in a file, or every match in a folder and below, a `Failure` for one that cannot be read.

    `rich`: warn once of the kinds of events that the provider does not record.
    """
    warned = not rich
    provider = recognise(source) if provider == AUTO else provider
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


def missing_details(path: Path, provider: str) -> tuple[str, ...]:
    """What a provider's feeds lack, by the names of `event_schema.DETAILS`; Wyscout's version 2 lacks nothing."""
    if provider == "wyscout" and _is_v2(path):
        return ()
    how = _provider(provider)
    missing = kinds.missing_kinds(how.kinds)
    groups = (name for name, kinds in GROUPS.items() if all(kind in missing for kind in kinds))
    return (*groups, *how.missing_details)


def match_files(source: Path, provider: str) -> list[Path]:
    """Find the files with events: `source` itself, or those below it that are recognised as the provider's."""
    how = _provider(provider)
    if not source.is_dir():
        return [source]
    there = [path for path in source.rglob("*") if path.suffix.lower() in how.suffixes and path.is_file()]
    found = [path for path in there if is_events(path, provider, source.parent)]
    if not found:
        named = f", such as ones with '{name_part(provider)}' in the name" if how.lineup else ""
        raise InputError(
            f"{source}: has no {' or '.join(how.suffixes)} files of events{named}, as {provider} delivers matches"
        )
    return sorted(found, key=lambda path: natural(str(path)))


def read_match(path: Path, provider: str = AUTO, lineup: Path | None = None) -> Feed:
    """Read the match whose events are in the file `path`.

    Args:
        path: the file of events.
        provider: one of `PROVIDERS`, or "auto".
        lineup: the second file that some providers deliver; by default found beside it (`find_lineup`).
    """
    provider = recognise(path) if provider == AUTO else provider
    how = _provider(provider)
    if lineup is not None and not how.lineup:
        raise InputError(f"{lineup}: {provider} has no second file; leave --lineup out")
    if provider == "wyscout" and _is_v2(path):
        return _check_mapped(read_v2(path), path, provider)
    files = {how.events: path}
    if how.lineup:
        files[how.lineup] = lineup or find_lineup(path, provider)
    dataset = _load(how.load, files, provider)
    match = str(dataset.metadata.game_id or path.stem)
    names = {str(team.team_id): str(team.name or "") for team in dataset.metadata.teams or ()}
    return _check_mapped(feed_of(match, "", _rows(dataset, how), names), path, provider)


class OpenedFeed(NamedTuple):
    """A match, its provider, and what its feeds lack (`missing_details`)."""

    feed: Feed
    provider: str
    missing_details: tuple[str, ...]


def open_feed(path: Path, provider: str = AUTO, lineup: Path | None = None) -> OpenedFeed:
    """Read a match as `read_match` does, with what its provider's feeds lack."""
    provider = recognise(path) if provider == AUTO else provider
    return OpenedFeed(read_match(path, provider, lineup), provider, missing_details(path, provider))


LEAST_MAPPED = 0.25  # share of the events that are one of the ten actions; whole matches have 0.6 and more
FEW = 100  # events: an excerpt may hold anything


def _check_mapped(feed: Feed, path: Path, provider: str) -> Feed:
    """Raise an InputError if the provider's table knows hardly any of the events."""
    mapped = float((feed.action != OTHER).mean())
    if len(feed) >= FEW and mapped < LEAST_MAPPED:
        raise InputError(
            f"{path}: only {100 * mapped:.0f} % of its {len(feed)} events are known as actions of {provider}; "
            "is it the right provider, and a whole feed?"
        )
    return feed


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
            replace(
                apply_rules(how.rules, record), kind=kinds.kind_of(how.kinds, record), outcome=kinds.outcome_of(record)
            ),
            _place(event.coordinates, turned),
            _place(end, turned),
            str(getattr(event.player, "player_id", "")),
            {"GOAL": 1, "OWN_GOAL": -1}.get(str(record["result"]), 0),
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
