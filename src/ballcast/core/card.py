"""Cards: the README.md of a model or a data set on the hub, written from what is known of it and from nothing else."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

HOME = "https://github.com/ballcast/ballcast"
TAGS = ("football", "soccer", "action-anticipation", "soccernet")
UNKNOWN = "not recorded"
_MARKS = re.compile(r"([\\`*_\[\]<>|#])")


def card(front: Mapping[str, Any], *sections: str) -> str:
    """The hub's fields as YAML front matter, then the sections, a blank line between them."""
    matter = yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True)
    return f"---\n{matter}---\n\n" + "\n\n".join(section.strip() for section in sections if section) + "\n"


def inline(value: object) -> str:
    """Text from elsewhere as one line that stays text: no mark-up, no table cell, no link."""
    return _MARKS.sub(r"\\\1", " ".join(str(value).split()))


def code(value: object) -> str:
    """Text from elsewhere as a span of code."""
    return f"`{' '.join(str(value).replace('`', '').split())}`"


def listed(names: Iterable[object], most: int = 20) -> str:
    """`a`, `b` and 3 more."""
    told = [code(name) for name in names]
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return (", ".join(told[:most]) + more) or UNKNOWN


def percent(value: object) -> str:
    """A fraction in percent; – where there is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{100 * value:.2f}" if is_number else "–"  # type: ignore[operator]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section_on_licence(licence: str, what: str) -> str:
    return f"""## Licence

{what}: {inline(licence)}. The videos and labels behind them have terms of their own, which this licence does not
change (SN-BAA: SoccerNet's NDA)."""


def result(name: str, task: str, data: str, metrics: Mapping[str, float]) -> dict[str, Any]:
    """One entry of the hub's `model-index`; metrics in percent."""
    told = [{"type": "mean_average_precision", "name": key, "value": round(v, 4)} for key, v in metrics.items()]
    dataset = {"name": data, "type": "ballcast-features"}
    return {"name": name, "results": [{"task": {"type": task}, "dataset": dataset, "metrics": told}]}
