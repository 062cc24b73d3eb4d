"""Files of event feeds: which provider a file is of, and which second file belongs to it.

A file is recognised by its content, never by its name. The second file (line-ups, match information) is found by name,
as each provider's documentation has it, or else by the match's id in the files beside it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ballcast.core.errors import InputError

HEAD = 1 << 16  # bytes of a file that are looked at
MOST_FILES = 2000  # beside a feed that are looked at


@dataclass(frozen=True)
class Marks:
    """How a provider's files are recognised, by patterns in the first bytes.

    Files come from anyone: a pattern must take a time proportional to a file's length (`tests/test_patterns.py`). So
    nothing that repeats may run past the place where the pattern could begin again.

    - `events`: all must be there. `lineup`: the same, for its second file.
    - `match_id`: a group that holds the match's id, in both files.
    - `named`: pairs (part of the events' name, part of the second file's name instead of it).
    """

    events: tuple[str, ...]
    lineup: tuple[str, ...] = ()
    match_id: str = ""
    named: tuple[tuple[str, str], ...] = ()


MARKS = {
    "statsbomb": Marks(
        (r'"possession_team"', r'"play_pattern"'), (r'"lineup"\s*:', r'"team_name"'), "", (("event", "lineup"),)
    ),
    "opta": Marks(
        (r"<Games\b",),
        (r"<SoccerFeed\b",),
        r'(?:<Game\b[^<>]*?\bid|<SoccerDocument\b[^<>]*?\buID)="f?(\d+)"',
        (("f24", "f7"),),
    ),
    "statsperform": Marks(
        (r'<matchEvents\b|"liveData"', r'<matchEvents\b|"event"\s*:'),
        (r"<match>|\"matchInfo\"\s*:",),
        r'(?:<matchInfo\b[^<>]*?\bid=|"matchInfo"\s*:\s*\{\s*"id"\s*:\s*)"(\w+)"',
        (("ma3", "ma1"), ("MA3", "MA1")),
    ),
    "sportec": Marks(
        (r"<PutDataRequest\b", r"<Event\b"),
        (r"<PutDataRequest\b", r"<MatchInformation\b"),
        r'MatchId="([\w-]+)"',
        (("events", "meta"),),
    ),
    "datafactory": Marks((r'"incidences"|"homeTeamName"',)),
    "wyscout": Marks((r'"eventSec"|"primary"\s*:|"matchTimestamp"',)),
    "parquet": Marks((r"^PAR1",)),
}
SECOND = {
    "statsbomb": "line-ups",
    "opta": "F7 file",
    "statsperform": "MA1 file",
    "sportec": "match information",
}


def read_head(path: Path) -> str:
    """The first bytes of a file, as text; an InputError if it is missing or cannot be read."""
    if not path.exists():
        raise InputError(f"{path}: no such file; give a file of events")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the file of events of one match")
    try:
        with path.open("rb") as file:
            return file.read(HEAD).decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def recognise(path: Path) -> str:
    """The provider of a file of events, or of the first such file in a folder.

    Raises:
        InputError: if it is of none, or only the second file of one.
    """
    if path.is_dir():
        for inner in _files(path):
            head = read_head(inner)
            if found := _provider_of(head):
                return found
        raise InputError(f"{path}: has no file of events of a known provider; name it with --provider")
    head = read_head(path)
    if found := "parquet" if path.suffix.lower() == ".parquet" else _provider_of(head):
        return found
    for provider, marks in MARKS.items():
        if marks.lineup and _all_in(marks.lineup, head):
            raise InputError(f"{path}: is a match's {SECOND[provider]} of {provider}; give its file of events")
    raise InputError(
        f"{path}: is no file of events of a known provider ({', '.join(MARKS)}); if it is one of them, say which "
        "with --provider"
    )


def is_events(path: Path, provider: str, root: Path) -> bool:
    """Whether a file below `root` looks like a provider's events, or is named so and is not its second file."""
    marks = MARKS[provider]
    try:
        head = read_head(path)
    except InputError:
        return True  # might be; it fails when it is read
    if _all_in(marks.events, head):
        return True
    named = name_part(provider) in str(path.relative_to(root))
    return named and not (marks.lineup and _all_in(marks.lineup, head))


def name_part(provider: str) -> str:
    """What is in the names of a provider's files of events; "": anything."""
    named = MARKS[provider].named
    return named[0][0] if named else ""


def _provider_of(head: str) -> str:
    return next((name for name, marks in MARKS.items() if _all_in(marks.events, head)), "")


def _all_in(patterns: tuple[str, ...], head: str) -> bool:
    return all(re.search(pattern, head) for pattern in patterns)


def find_lineup(path: Path, provider: str) -> Path:
    """Find the second file of a match's events; an InputError if there is none."""
    marks = MARKS[provider]
    for part, other in marks.named:
        head, found, tail = str(path).rpartition(part)
        if found and (named := Path(f"{head}{other}{tail}")).is_file():
            return named
    match_id = _match_id(marks, read_head(path))
    for beside in _files(path.parent) if match_id else ():
        if beside != path and beside.suffix.lower() == path.suffix.lower():
            head = read_head(beside)
            if _all_in(marks.lineup, head) and not _all_in(marks.events, head) and _match_id(marks, head) == match_id:
                return beside
    part, other = marks.named[0]
    looked = f"named with '{other}' where this one has '{part}'"
    looked += f", or of the same match ({match_id})" if match_id else ""
    raise InputError(
        f"{path}: {provider} needs a second file, the {SECOND[provider]}; none is beside it, {looked}; "
        "give it with --lineup"
    )


def _match_id(marks: Marks, head: str) -> str:
    found = re.search(marks.match_id, head) if marks.match_id else None
    return found.group(1) if found else ""


def _files(folder: Path) -> Iterator[Path]:
    """Files of a folder and below that may be feeds, in order of name."""
    kinds = (".json", ".xml", ".parquet")
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in kinds and path.is_file())
    return islice(found, MOST_FILES)
