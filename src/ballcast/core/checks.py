"""Check what a file holds: checksums against damage, the values of JSON records, the tensors of a network."""

import hashlib
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError

KEY = "weights_sha256"  # in the config of a model; older files have none
CHECKSUM_KEY = "ballcast_sha256"  # key of the checksum inside a file; older files have none
_TAIL = f',\n "{CHECKSUM_KEY}": "'.encode()  # before it, at the end of a JSON file,
_HEAD = f'{{"__metadata__":{{"{CHECKSUM_KEY}":"'.encode()  # and in the header of a safetensors file
_END, _BLANK = b'"\n}\n', b"0" * 64  # the checksum is computed with zeros in its place
_WHOLE = re.compile(r"[+-]?\d{1,18}")


# --- Checksums ---


def add_json_checksum(text: bytes) -> bytes:
    """Add the checksum to the text of a JSON object, as its last key."""
    body = text.rstrip().removesuffix(b"}").rstrip() + _TAIL
    return body + hashlib.sha256(body + _BLANK + _END).hexdigest().encode() + _END


def add_safetensors_checksum(raw: bytes) -> bytes:
    """Add the checksum to a safetensors file with at least one tensor, as the first key of its metadata."""
    length = 8 + int.from_bytes(raw[:8], "little")
    header = raw[8:length].rstrip()
    numbers = memoryview(raw)[length:]
    rest = header.removeprefix(b'{"__metadata__":{')
    rest = b'",' + rest if rest != header else b'"},' + header[1:]
    rest += b" " * (-len(_HEAD + _BLANK + rest) % 8)
    begin = len(_HEAD + _BLANK + rest).to_bytes(8, "little") + _HEAD
    digest = hashlib.sha256(begin + _BLANK + rest)
    digest.update(numbers)
    return b"".join((begin, digest.hexdigest().encode(), rest, numbers))


def verify_checksum(raw: bytes, path: Path | str, advice: str = "make or fetch it again") -> bool:
    """Verify the checksum inside a file's content `raw`; False if it has none, as files of older versions.

    An InputError that names `path` if the content is not what was written. A mark of which a byte or two differ is
    damage as well, and not the lack of a checksum.
    """
    placed = raw.rfind(_TAIL, max(0, len(raw) - 256))
    last = placed if placed >= 0 else len(raw) - len(_TAIL + _BLANK + _END)
    for mark, at in ((_TAIL, max(last, 0)), (_HEAD, 8)):
        found = raw[at : at + len(mark)]
        if len(found) < len(mark) or sum(a != b for a, b in zip(found, mark, strict=True)) > 2:
            continue
        begin = at + len(mark)
        end = at + len(mark) + len(_BLANK)
        digest = hashlib.sha256(memoryview(raw)[:begin])
        digest.update(_BLANK)
        digest.update(memoryview(raw)[end:])
        if found != mark or raw[begin:end] != digest.hexdigest().encode():
            edited = f"; if you edited it yourself, remove its key {CHECKSUM_KEY}" if mark == _TAIL else ""
            raise InputError(f"{path}: its checksum differs, so it was damaged or changed; {advice}{edited}")
        return True
    return False


def check_pair(weights_path: Path, weights: bytes, config_path: Path, config: dict[str, Any]) -> None:
    """Raise an InputError if `config` was written for other weights; both are given as read from their files."""
    if config.get(KEY) not in (None, hashlib.sha256(weights).hexdigest()):
        raise InputError(
            f"{weights_path}: does not belong to {config_path.name} beside it; one of them was replaced or saving was "
            "interrupted between them, so save or download both again"
        )


def check_hash(path: Path, sha256: str, advice: str) -> None:
    """Raise an InputError unless the file has this hash; "": it is not known, as in older files."""
    if not sha256:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise InputError(f"{path}: its checksum differs, so it was damaged or replaced; {advice}")


def crc32_of(path: Path) -> int:
    """The CRC-32 of a file: it notices any flipped bit, and costs half of what SHA-256 does."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


# --- JSON records ---


@dataclass(frozen=True)
class Defect:
    """A fault in a file, at `place` ("videos[3].annotations.anticipation[0]")."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class _Placed(InputError):
    """An error whose message contains its place."""


@dataclass
class Defects:
    """The defects found in a file; with `strict`, the first is raised as an InputError instead of collected."""

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
        """Record an InputError in the block as a defect at `place`, and leave the block."""
        try:
            yield
        except _Placed:  # from an inner block, whose place is more exact
            raise
        except InputError as error:
            try:
                self.add(place, str(error))
            except _Placed as placed:
                raise placed from None


def get(record: Any, key: str, kind: type | tuple[type, ...], what: str) -> Any:
    """Return `record[key]`, which must exist and have the type `kind`; `what` names the type in the error."""
    if not isinstance(record, dict):
        raise InputError(f"is {show(record)} instead of a record with the key '{key}'")
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"'{key}' is {show(value)} instead of {what}")
    return value


def whole_number(record: Any, key: str) -> int:
    """Return `record[key]`, a whole number written as a number or, as SoccerNet does, as text."""
    value = get(record, key, (int, str, float), "a whole number")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise InputError(f"'{key}' is {show(value)} instead of a whole number")


def finite(value: Any, name: str) -> float:
    """Return `value` as a float, or raise an InputError if it is not a finite number; `name` is its key."""
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
    """Format a value for an error message: at most 40 characters of any value."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a record"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "…"


# --- Tensors ---


def check_weights(expected: Mapping[str, Any], given: Mapping[str, Any], where: str, hint: str = "") -> None:
    """Raise an InputError unless a file's tensors have the names, shapes and kinds of number that a network has.

    Args:
        expected: the network's `state_dict()`, on any device, also "meta".
        given: the file's tensors by name.
        where: the file, for the error.
        hint: what to do about it, added to the error.
    """
    if missing := expected.keys() - given.keys():
        raise InputError(f"{where}: lacks weight {min(missing)!r}{hint}")
    if unknown := given.keys() - expected.keys():
        raise InputError(f"{where}: has an unknown weight {min(unknown)!r}{hint}")
    for key, value in given.items():
        shape = tuple(expected[key].shape)
        if (found := tuple(value.shape) if hasattr(value, "shape") else "none") != shape:
            raise InputError(f"{where}: {key} has shape {found} instead of {shape}{hint}")
        if value.is_floating_point() != expected[key].is_floating_point():
            kind = "floating-point numbers" if expected[key].is_floating_point() else "integers"
            raise InputError(f"{where}: {key} holds {value.dtype} instead of {kind}{hint}")
