"""Read configs: YAML files and `a.b=value` overrides become frozen dataclasses; errors name the nearest key."""

import dataclasses
import functools
import inspect
import math
import re
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from ballcast.core.checks import show
from ballcast.core.embedded import find_extended, find_recipe
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes

T = TypeVar("T")
EXTENDS = "extends"  # the key of a file that builds on another recipe
LONGEST_CHAIN = 16  # of files that extend one another


@dataclasses.dataclass(frozen=True)
class Between:
    """Bounds of a number in a config: far beyond sensible values, but low enough that no value exhausts the machine.

    Args:
        low, high: the bounds.
        excluded: a bound that is not itself valid.
    """

    low: float
    high: float
    excluded: Literal["low", "high", None] = None

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.excluded or value != getattr(self, self.excluded))

    def __str__(self) -> str:
        if self.excluded == "low":
            return f"above {self.low} and at most {self.high}"
        return f"in [{self.low}, {self.high})" if self.excluded else f"between {self.low} and {self.high}"


# Types of fields with bounds; `check_bounds` checks them, `json_schema` shows them.
Count = Annotated[int, Between(1, 1024)]
Size = Annotated[int, Between(1, 2**16)]
Layers = Annotated[int, Between(0, 64)]
Rounds = Annotated[int, Between(1, 10**6)]  # epochs, steps
SaveEvery = Annotated[int, Between(0, 10**9)]
Seed = Annotated[int, Between(0, 2**32 - 1)]
Share = Annotated[float, Between(0, 1)]
BelowOne = Annotated[float, Between(0, 1, excluded="high")]
Rate = Annotated[float, Between(0, 1000, excluded="low")]  # of learning
Amount = Annotated[float, Between(0, 1000)]
Weight = Annotated[float, Between(0, 10**6)]

# PyYAML raises these when a tag does not fit its value (`!!int x`, `!!timestamp x`, `!!bool x`) or nests too deeply.
_PYYAML_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    path, overrides = find_recipe(path) if path else None, list(overrides)
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
    tree, chain = read_yaml(path), (*above, path.resolve())
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
    hints, merged = get_type_hints(cls), dict(base)
    for key, value in changes.items():
        section, below = hints.get(key), merged.get(key)
        inside = dataclasses.is_dataclass(section) and isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merged(section, below, value) if inside else value  # type: ignore[arg-type]
    return merged


def parse_overrides(overrides: Iterable[str], tree: dict[str, Any] | None = None) -> dict[str, Any]:
    """Set `a.b=value` overrides in `tree` (None: an empty one) and return it."""
    tree = tree if tree is not None else {}
    for override in overrides:
        _apply(tree, override)
    return tree


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping, or nothing."""
    try:
        tree = yaml.safe_load(read_bytes(path, "config"))
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
    """Build a dataclass from a mapping, and check keys, types and values.

    Args:
        cls: the dataclass to build.
        tree: values by field name; fields without a value keep their defaults.
        where: the file to name in errors.
        prefix: put before the keys in errors, such as "model.".
    """
    assert dataclasses.is_dataclass(cls)
    if not isinstance(tree, Mapping):
        raise InputError(
            _at(where, f"{prefix.rstrip('.') or 'this'} must be a mapping of keys to values, not {show(tree)}")
        )
    hints = get_type_hints(cls)
    values = {}
    for key, value in tree.items():
        if key not in hints:
            name = prefix + (key if isinstance(key, str) else show(key))
            raise InputError(_at(where, f"unknown key '{name}'{_nearest(cls, name, prefix)}"))
        values[key] = _convert(hints[key], value, where, f"{prefix}{key}")
    try:
        return cls(**values)
    except InputError as error:  # a check in __post_init__
        raise InputError(_at(where, f"{prefix.rstrip('.')}: {error}" if prefix else str(error))) from None
    except TypeError:
        missing = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in values
        ]
        raise InputError(_at(where, f"missing key '{prefix}{missing[0]}'")) from None


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


def keys(cls: type, prefix: str = "") -> list[str]:
    """List every dotted key of the dataclass `cls`."""
    found = []
    for name, hint in get_type_hints(cls).items():
        found.append(prefix + name)
        if dataclasses.is_dataclass(hint):
            found += keys(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
    return found


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set one `a.b=value` in the tree; the value is parsed as YAML, so `[a, b]`, `true` and `1e-3` work."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise InputError(f"override {override!r} is not of the form key=value")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, *_PYYAML_ERRORS):
        raise InputError(f"override {override!r}: the value is not valid YAML") from None
    *parents, last = dotted.strip().split(".")
    for parent in parents:
        child = tree.setdefault(parent, {})
        if not isinstance(child, dict):
            raise InputError(f"override {override!r}: '{parent}' holds a value, not a section")
        tree = child
    tree[last] = value


def _convert(hint: Any, value: Any, where: str, key: str) -> Any:
    """Convert `value` to the type `hint`, or raise an error with the expected type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(next(a for a in args if a is not type(None)), value, where, key)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(_at(where, f"'{key}' is a section with keys of its own, not {show(value)}"))
        return from_dict(hint, value, where, f"{key}.")  # type: ignore[arg-type]
    if origin is Literal:
        if value not in args:
            choices = ", ".join(map(str, args))
            raise InputError(_at(where, f"'{key}' must be one of {choices}, not {show(value)}"))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(_at(where, f"'{key}' must be a list like [a, b], not {show(value)}"))
        if args[-1] is not Ellipsis and len(value) != len(args):
            raise InputError(_at(where, f"'{key}' must have {len(args)} entries, not {len(value)}"))
        kinds = (args[0],) * len(value) if args[-1] is Ellipsis else args
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(_convert(kind, v, where, f"{key}[{i}]") for i, (kind, v) in pairs)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(_at(where, f"'{key}' must be a mapping like {{name: value}}, not {show(value)}"))
        return {_convert(args[0], k, where, key): _convert(args[1], v, where, f"{key}.{k}") for k, v in value.items()}
    if hint is float:
        if isinstance(value, str):  # YAML 1.1 reads 1e-4 (no dot) as text
            try:
                value = float(value)
            except ValueError:
                raise InputError(_at(where, f"'{key}' must be a number, not {show(value)}")) from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(_at(where, f"'{key}' must be a number, not {show(value)}"))
        try:
            number = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise InputError(_at(where, f"'{key}' must be a finite number"))
        return number
    if type(value) is not hint:
        names = {int: "a whole number", bool: "true or false", str: "text"}
        raise InputError(_at(where, f"'{key}' must be {names.get(hint, hint)}, not {show(value)}"))
    return value


def _nearest(cls: type, key: str, prefix: str) -> str:
    near = get_close_matches(key, keys(cls, prefix), n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; the keys are {', '.join(f.name for f in dataclasses.fields(cls))}"


def _at(where: str, message: str) -> str:
    return f"{where}: {message}" if where else message


def require(ok: bool, message: str) -> None:
    """Raise an InputError with this message unless `ok`."""
    if not ok:
        raise InputError(message)


@functools.cache
def _bounds(cls: type) -> dict[str, Between]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: b for name, hint in hints.items() for b in getattr(hint, "__metadata__", ()) if isinstance(b, Between)
    }


def check_bounds(config: Any) -> None:
    """Raise an InputError unless every field of a config is within the bounds of its type."""
    for name, bounds in _bounds(type(config)).items():  # type: ignore[arg-type]  # mypy: a class is not Hashable
        require(getattr(config, name) in bounds, f"{name} must be {bounds}")


def json_schema(cls: type) -> dict[str, Any]:
    """Return the JSON schema of a config, which editors use to complete and check YAML files.

    Descriptions are the comments beside the fields.
    """
    hints = get_type_hints(cls, include_extras=True)
    comments = dict(re.findall(r"^    (\w+): .*  # (.*)$", inspect.getsource(cls), re.MULTILINE))
    defaults, properties = to_dict(cls()), {}
    for field in dataclasses.fields(cls):
        schema = properties[field.name] = _type_schema(hints[field.name])
        if field.name in comments:
            schema["description"] = comments[field.name]
        if not dataclasses.is_dataclass(hints[field.name]):
            schema["default"] = defaults[field.name]
    doc = inspect.getdoc(cls) or ""
    return {
        "type": "object",
        "description": doc.partition("\n")[0],
        "properties": properties,
        "additionalProperties": False,
    }


def _type_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a field's type."""
    if get_origin(hint) is Annotated:
        schema, bounds = _type_schema(hint.__origin__), hint.__metadata__[0]
        low = "exclusiveMinimum" if bounds.excluded == "low" else "minimum"
        high = "exclusiveMaximum" if bounds.excluded == "high" else "maximum"
        return {**schema, low: bounds.low, high: bounds.high}
    if dataclasses.is_dataclass(hint):
        return json_schema(hint)  # type: ignore[arg-type]
    args = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(args)}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _type_schema(args[0])}
    if get_origin(hint) is dict:
        return {"type": "object", "additionalProperties": _type_schema(args[1])}
    return {"type": {int: "integer", float: "number", bool: "boolean", str: "string"}[hint]}
