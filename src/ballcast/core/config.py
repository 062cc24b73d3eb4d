"""Configs and records: dataclasses that pydantic fills from YAML, JSON and `a.b=value` overrides.

A fault is an InputError of one sentence that names the file, the key, what it may be, and the nearest known key.
"""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from annotated_types import Interval
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs, CoreSchema, PydanticCustomError, core_schema

from ballcast.core.checks import show
from ballcast.core.embedded import find_extended, find_recipe
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes

if TYPE_CHECKING:  # mypy allows `replace` for dataclasses of the standard library only
    from dataclasses import dataclass as config
else:
    from pydantic.dataclasses import dataclass as config  # noqa: F401

T = TypeVar("T")
EXTENDS = "extends"  # the key of a file that builds on another recipe
LONGEST_CHAIN = 16  # of files that extend one another

# Types of numbers with bounds: far beyond sensible values, but low enough that no value exhausts the machine.
Count = Annotated[int, Interval(ge=1, le=1024)]
Size = Annotated[int, Interval(ge=1, le=2**16)]
Layers = Annotated[int, Interval(ge=0, le=64)]
Rounds = Annotated[int, Interval(ge=1, le=10**6)]  # epochs, steps
SaveEvery = Annotated[int, Interval(ge=0, le=10**9)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Share = Annotated[float, Interval(ge=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
Rate = Annotated[float, Interval(gt=0, le=1000)]  # of learning
Amount = Annotated[float, Interval(ge=0, le=1000)]
Weight = Annotated[float, Interval(ge=0, le=10**6)]

# PyYAML raises these when a tag does not fit its value (`!!int x`, `!!timestamp x`, `!!bool x`) or nests too deeply.
_PYYAML_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Loader(yaml.SafeLoader):
    """YAML's safe loader, to which 1e-4 is a number, as in YAML 1.2; in YAML 1.1 it is text."""


Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


class Record:
    """Base of the dataclasses that `from_dict` fills: no value is converted to another type, no key is unknown.

    A check in `__post_init__` raises an InputError, to which `from_dict` adds the file and the section. A class that is
    a `config` too checks its values when it is built in Python.
    """

    __slots__ = ()
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        record: Any = handler.resolve_ref_schema(schema)
        record["strict"] = False  # it is built from a mapping

        def checked(value: Any, build: Callable[[Any], Any]) -> Any:
            if isinstance(value, ArgsKwargs):  # built in Python
                try:
                    return build(value)
                except ValidationError as error:
                    raise InputError(_sentence(cls, error)) from None
            try:
                return build(value)
            except InputError as error:
                raise PydanticCustomError("check", "{text}", {"text": str(error)}) from None

        return core_schema.no_info_wrap_validator_function(checked, schema)


def setting(default: T | Callable[[], T], description: str) -> T:
    """The default of a field, or a function that makes it, and a description, which editors show beside the key."""
    if callable(default):
        return Field(default_factory=default, description=description)
    return Field(default, description=description)


def load(cls: type[T], path: Path | None = None, overrides: Iterable[str] = ()) -> T:
    """Load a config.

    Args:
        cls: the dataclass to build.
        path: a YAML file, or the name of a recipe in the package, such as `paper`; None: all defaults. A file with
            `extends: NAME`, a recipe of the package or a file beside it, gives only what differs from that one.
        overrides: `a.b=value` texts, applied after the file.

    Returns:
        An instance of `cls`.
    """
    path = find_recipe(path) if path else None
    overrides = list(overrides)
    tree = parse_overrides(overrides, _read_extended(cls, path) if path else {})
    where = "" if path is None or (overrides and _is_valid(cls, path)) else str(path)
    return from_dict(cls, tree, where)


def _is_valid(cls: type[Any], path: Path) -> bool:
    """Return whether the file is valid without overrides; if it is, an error with them does not name the file."""
    try:
        from_dict(cls, _read_extended(cls, path))
    except InputError:
        return False
    return True


def _read_extended(cls: type[Any], path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the values of a file, over those of the recipe it extends; `above`: the files that extend it."""
    tree = read_yaml(path)
    chain = (*above, path.resolve())
    if EXTENDS not in tree:
        return tree
    name = tree.pop(EXTENDS)
    if not isinstance(name, str) or not name:
        raise InputError(f"{path}: '{EXTENDS}' must be the name of a recipe or a file, not {show(name)}")
    base = find_extended(path, name)
    if base.resolve() in chain:
        raise InputError(f"{path}: extends {name}, which extends it in turn; give one of them all its keys")
    if len(chain) == LONGEST_CHAIN:
        raise InputError(f"{path}: more than {LONGEST_CHAIN} files extend one another")
    given = _read_extended(cls, base, chain)
    from_dict(cls, given, str(base))  # so that an error in it names it
    return _merged(cls, given, tree)


def _merged(cls: type[Any], base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: sections key by key; lists and mappings of names, such as `data.boost`, as a whole."""
    hints = get_type_hints(cls)
    merged = dict(base)
    for key, value in changes.items():
        section = hints.get(key)
        below = merged.get(key)
        inside = dataclasses.is_dataclass(section) and isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merged(section, below, value) if inside else value  # type: ignore[arg-type]
    return merged


def parse_overrides(overrides: Iterable[str], tree: dict[str, Any] | None = None) -> dict[str, Any]:
    """Set `a.b=value` overrides in `tree` (None: an empty one) and return it."""
    tree = tree if tree is not None else {}
    for override in overrides:
        _apply(tree, override)
    return tree


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set one `a.b=value` in the tree; the value is parsed as YAML, so `[a, b]`, `true` and `1e-3` work."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise InputError(f"override {override!r} is not of the form key=value")
    try:
        value = yaml.load(text, Loader)
    except (yaml.YAMLError, *_PYYAML_ERRORS):
        raise InputError(f"override {override!r}: the value is not valid YAML") from None
    *parents, last = dotted.strip().split(".")
    for parent in parents:
        child = tree.setdefault(parent, {})
        if not isinstance(child, dict):
            raise InputError(f"override {override!r}: '{parent}' holds a value, not a section")
        tree = child
    tree[last] = value


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping, or nothing."""
    try:
        tree = yaml.load(read_bytes(path, "config"), Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1} column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise InputError(f"{path}: {place}not valid YAML ({problem})") from None
    except _PYYAML_ERRORS:
        raise InputError(f"{path}: not valid YAML (a value does not fit its type)") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a config is a mapping of keys to values, this is a {type(tree).__name__}")
    return tree


def from_dict(cls: type[T], tree: Mapping[str, Any], where: str = "", prefix: str = "") -> T:
    """Build a config or a record from plain values, and check keys, types and values.

    Args:
        cls: a dataclass with `Record` as its base.
        tree: values by field name; fields without a value keep their defaults.
        where: the file to name in errors.
        prefix: put before the keys in errors, such as "model.".
    """
    try:
        return _adapter(cls).validate_python(_with_tuples(tree))  # type: ignore[arg-type]  # mypy: no Hashable
    except ValidationError as error:
        sentence = _sentence(cls, error, prefix)
    except RecursionError:  # YAML whose value contains itself
        sentence = f"{prefix.rstrip('.') or 'this'} is nested too deeply"
    raise InputError(f"{where}: {sentence}" if where else sentence)


@functools.cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _with_tuples(value: Any) -> Any:
    """`value` with tuples for lists, which YAML and JSON have in their place."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(entry) for key, entry in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


# What a value must be, by the type of pydantic's error.
_EXPECTED = {
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "float_type": "a number",
    "tuple_type": "a list like [a, b]",
    "dict_type": "a mapping like {name: value}",
}


def _sentence(cls: type, error: ValidationError, prefix: str = "") -> str:
    """The first fault as a sentence: the key and what it may be, or the section and what a check of it found."""
    fault = error.errors(include_url=False)[0]
    kind = fault["type"]
    loc = fault["loc"]
    if loc and isinstance(loc[0], int):  # an argument by its position
        loc = (dataclasses.fields(cls)[loc[0]].name, *loc[1:])
    if loc[-1:] == ("[key]",):
        loc = loc[:-1]
    key = prefix + _dotted(loc)
    hint = _hint(cls, loc[:-1] if kind in ("missing", "unexpected_keyword_argument", "invalid_key") else loc)
    given = list(fault["input"]) if isinstance(fault["input"], tuple) else fault["input"]
    if kind == "check":
        return f"{key.rstrip('.')}: {fault['msg']}" if key else fault["msg"]
    if kind in ("unexpected_keyword_argument", "invalid_key"):
        return f"unknown key '{key}'{_nearest(_plain(hint), key, prefix + _dotted(loc[:-1], end='.'))}"
    if kind in ("missing", "too_long") and isinstance(given, list):
        listed = prefix + _dotted(loc[:-1] if kind == "missing" else loc)
        return f"'{listed}' must have {len(get_args(_plain(hint)))} entries, not {len(given)}"
    if kind == "missing":
        return f"missing key '{key}'"
    if kind == "finite_number" or (kind == "float_type" and type(given) is int):  # of hundreds of digits
        return f"'{key}' must be a finite number"
    if kind.startswith(("greater_than", "less_than")):
        section = (prefix + _dotted(loc[:-1])).rstrip(".")
        return f"{section}{': ' if section else ''}{loc[-1]} must be {_bounds(hint)}"
    if kind.startswith("dataclass") and not loc:
        return f"{prefix.rstrip('.') or 'this'} must be a mapping of keys to values, not {show(given)}"
    if kind.startswith("dataclass"):
        return f"'{key}' is a section with keys, not {show(given)}"
    if kind == "literal_error":
        return f"'{key}' must be one of {', '.join(map(str, get_args(_plain(hint))))}, not {show(given)}"
    return f"'{key}' must be {_EXPECTED[kind]}, not {show(given)}" if kind in _EXPECTED else f"'{key}': {fault['msg']}"


def _dotted(loc: Sequence[int | str], end: str = "") -> str:
    """`a.b[0]` for ("a", "b", 0), with `end` unless it is empty."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".") + end if text else ""


def _hint(cls: Any, loc: Sequence[int | str]) -> Any:
    """The type hint of the value at a place of a config."""
    hint = cls
    for part in loc:
        hint = _plain(hint)
        if dataclasses.is_dataclass(hint):
            hint = get_type_hints(hint, include_extras=True)[str(part)]
        elif get_origin(hint) is dict:
            hint = get_args(hint)[1]
        else:
            kinds = get_args(hint)
            hint = kinds[0] if kinds[-1] is Ellipsis else kinds[int(part)]
    return hint


def _plain(hint: Any) -> Any:
    """The type in `Annotated[type, …]` and in `type | None`."""
    if get_origin(hint) is Annotated:
        return _plain(hint.__origin__)
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(kind for kind in get_args(hint) if kind is not type(None)))
    return hint


def _bounds(hint: Any) -> str:
    interval = next(data for data in hint.__metadata__ if isinstance(data, Interval))
    if interval.gt is not None:
        return f"above {interval.gt} and at most {interval.le}"
    if interval.lt is not None:
        return f"in [{interval.ge}, {interval.lt})"
    return f"between {interval.ge} and {interval.le}"


def _nearest(cls: type, key: str, prefix: str) -> str:
    near = get_close_matches(key, keys(cls, prefix), n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; the keys are {', '.join(f.name for f in dataclasses.fields(cls))}"


def keys(cls: type, prefix: str = "") -> list[str]:
    """List every dotted key of the dataclass `cls`."""
    found = []
    for name, hint in get_type_hints(cls).items():
        found.append(prefix + name)
        if dataclasses.is_dataclass(hint):
            found += keys(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
    return found


def require(ok: bool, message: str) -> None:
    """Raise an InputError with this message unless `ok`."""
    if not ok:
        raise InputError(message)


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a config to plain YAML and JSON types (tuples become lists)."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, list | tuple) else value

    return plain(dataclasses.asdict(config))


def to_yaml(config: Any) -> str:
    """Format a config as YAML."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
