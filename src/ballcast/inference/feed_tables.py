"""Files of the forecasts along a feed for analysts: the table as CSV or Parquet, and a clip list for video tools."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.feed_forecast import FeedForecast, MatchSummary, ShotChance, columns, table_rows
from ballcast.core.files import write_bytes

BEFORE_MS, AFTER_MS = 10_000, 8_000  # of a chance, in its clip


def write_table(path: Path, forecasts: Sequence[FeedForecast], match: MatchSummary) -> None:
    """Write the table, as Parquet if the name ends so, else as CSV."""
    write_rows(path, columns(), table_rows(forecasts, match))


def write_rows(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows under the names of their columns, as Parquet if the path ends so, else as CSV."""
    if path.suffix.lower() != ".parquet":
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
        write_bytes(path, text.getvalue().encode())
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "events") from None
    file = BytesIO()
    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), file)
    write_bytes(path, file.getvalue())


def read_kickoffs(text: str, begins: Mapping[str, int]) -> dict[str, int]:
    """Read "1H=12.5,2H=3925": at which second of the video each period begins → ms.

    Args:
        text: as typed.
        begins: the periods of the match.
    """
    found = {}
    for part in text.split(","):
        name, _, seconds = part.strip().partition("=")
        if name not in begins:
            raise InputError(f"--kickoff: {name!r} is none of the match's periods ({', '.join(begins)})")
        try:
            found[name] = round(1000 * float(seconds))
        except (ValueError, OverflowError):
            raise InputError(f"--kickoff: {seconds!r} is not a number of seconds; write 1H=12.5,2H=3925") from None
    if missing := [name for name in begins if name not in found]:
        raise InputError(f"--kickoff: {missing[0]} is missing; write for example 1H=12.5,2H=3925")
    return found


def write_clips(
    path: Path, chosen: Sequence[ShotChance], match: MatchSummary, kickoffs: Mapping[str, int] | None = None
) -> None:
    """Write the chances as Sportscode XML, which video analysis tools open, in order of time.

    Args:
        path: the file.
        chosen: the chances.
        match: of them.
        kickoffs: when each period begins in the video, in ms; by default the forecasts' clock, on which periods follow
            each other without a break.
    """
    root = ElementTree.Element("file")
    instances = ElementTree.SubElement(root, "ALL_INSTANCES")
    for number, chance in enumerate(sorted(chosen, key=lambda m: m.at_ms), 1):
        period, clock = match.clock(chance.at_ms).split(" ")
        at = chance.at_ms + ((kickoffs or match.begins)[period] - match.begins[period])
        outcome = "goal" if chance.goal else "shot" if chance.shot else "no shot"
        text = f"shot within 5 s: {100 * chance.probability:.0f} %"
        instance = ElementTree.SubElement(instances, "instance")
        values = {"ID": number, "start": max(at - BEFORE_MS, 0) / 1000, "end": (at + AFTER_MS) / 1000}
        for key, value in {**values, "code": match.teams[chance.team]}.items():
            ElementTree.SubElement(instance, key).text = str(value)
        for group, label in (("clock", f"{period} {clock}"), ("forecast", text), ("what came", outcome)):
            entry = ElementTree.SubElement(instance, "label")
            ElementTree.SubElement(entry, "group").text = group
            ElementTree.SubElement(entry, "text").text = label
    ElementTree.indent(root)
    write_bytes(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
