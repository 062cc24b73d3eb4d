"""Reading records out of JSON trees: every defect with its place, so that one pass can name them all."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ballcast.core.errors import InputError

_WHOLE = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class Defect:
    """Something wrong in a file, at `place` ("videos[3].annotations.anticipation[0]")."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class _Placed(InputError):
    """An error that names its place already."""


@dataclass
class Defects:
    """The defects found so far. `strict` raises the first as an InputError instead of collecting it."""

    file: str
    strict: bool = False
    found: list[Defect] = field(default_factory=list)

    def add(self, place: str, message: str) -> None:
        defect = Defect(self.file, place, message)
        if self.strict:
            raise _Placed(str(defect))
        self.found.append(defect)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """An InputError in the block becomes a defect at `place`; what the block was building is left out."""
        try:
            yield
        except _Placed:  # from a block within, which knew the place better
            raise
        except InputError as error:
            try:
                self.add(place, str(error))
            except _Placed as placed:
                raise placed from None


def get(record: Any, key: str, kind: type | tuple[type, ...], what: str) -> Any:
    """`record[key]`, which must be there and of the type `kind`; `what` names the type for the reader."""
    if not isinstance(record, dict):
        raise InputError(f"is {show(record)} instead of a record with the key '{key}'")
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"'{key}' is {show(value)} instead of {what}")
    return value


def whole_number(record: Any, key: str) -> int:
    """A whole number, written as a number or, as SoccerNet does, as text."""
    value = get(record, key, (int, str, float), "a whole number")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise InputError(f"'{key}' is {show(value)} instead of a whole number of milliseconds")


def finite(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"'{name}' is {show(value)} instead of a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"'{name}' is {show(value)} instead of a finite number")
    return number


def show(value: Any) -> str:
    """`value` for the reader of an error: short, whatever it is."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a record"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "…"
