"""Refuse ONNX graphs that ask for too much memory or for files elsewhere, before ONNX Runtime loads them.

ONNX Runtime computes constant parts of a graph while it loads it, so that a file of a hundred bytes can ask for
terabytes; and it reads weights from whatever file the graph names. The graph is read here as protocol buffers: of the
messages of onnx.proto only the fields named in `_FIELDS`, and no `onnx` package is needed.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes

LARGEST = 1 << 28  # numbers that an operation may make out of constants: 1 GiB as float32
SHAPE_INPUTS = {"Expand": 1, "ConstantOfShape": 0, "Tile": 1, "Resize": 3, "Pad": 1}  # which input is a size
FILLED = {"RandomNormal", "RandomUniform"}  # their size is an attribute
FORWARDED = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Concat", "Abs"}
_INTEGERS = {6: 4, 7: 8}  # data types int32 and int64, with their bytes
_FIELDS = {
    "model": {"graph": 7, "functions": 25},
    "graph": {"nodes": 1, "initializers": 5},
    "function": {"nodes": 7},
    "node": {"inputs": 1, "outputs": 2, "op": 4, "attributes": 5},
    "attribute": {"name": 1, "int": 3, "tensor": 5, "graph": 6, "ints": 8, "graphs": 11},
    "tensor": {"dims": 1, "type": 2, "int32": 5, "int64": 7, "name": 8, "raw": 9, "external": 13},
    "entry": {"key": 1, "value": 2},
}
_Message = dict[str, list[memoryview | int]]


def check_graph(graph: bytes | Path, where: str) -> None:
    """Raise an InputError unless a graph is safe to load.

    Args:
        graph: the file's content, which must contain its weights; or its path, where they may lie in files beside it.
        where: to name in the error.
    """
    folder = graph.parent if isinstance(graph, Path) else None
    raw = read_bytes(graph, "graph") if isinstance(graph, Path) else graph
    try:
        model = _read(memoryview(raw), "model")
        for message in _bytes(model["graph"]):
            _check_nodes(_read(message, "graph"), where, folder, {})
        for message in _bytes(model["functions"]):
            _check_nodes({"initializers": [], **_read(message, "function")}, where, folder, {})
    except (IndexError, ValueError, RecursionError):
        raise InputError(f"{where}: is not a graph ONNX Runtime can run (it is damaged); export it again") from None


def _check_nodes(graph: _Message, where: str, folder: Path | None, outer: dict[str, list[int]]) -> None:
    known = dict(outer)  # constants of whole numbers, by name
    for message in _bytes(graph["initializers"]):
        tensor = _check_tensor(message, where, folder)
        known[_text(tensor["name"])] = _integers(tensor)
    for message in _bytes(graph["nodes"]):
        node = _read(message, "node")
        op = _text(node["op"])
        inputs = [str(name, "utf-8") for name in _bytes(node["inputs"])]
        values: list[int] = []
        for given in _bytes(node["attributes"]):
            attribute = _read(given, "attribute")
            for constant in _bytes(attribute["tensor"]):
                values += _integers(_check_tensor(constant, where, folder))
            if op == "Constant" or (op in FILLED and _text(attribute["name"]) == "shape"):
                values += _numbers(attribute["int"]) + _numbers(attribute["ints"])
            for inner in _bytes(attribute["graph"]) + _bytes(attribute["graphs"]):
                _check_nodes(_read(inner, "graph"), where, folder, known)
        if op in FORWARDED:
            values = [value for name in inputs for value in known.get(name, [])]
        elif op in SHAPE_INPUTS and len(inputs) > SHAPE_INPUTS[op]:
            values = known.get(inputs[SHAPE_INPUTS[op]], [])
        if op in SHAPE_INPUTS or op in FILLED:
            if math.prod(max(1, value) for value in values) > LARGEST:
                fault = f"its {op} would make more than {LARGEST} numbers out of constants"
                raise InputError(f"{where}: {fault}; not loaded, get the model from a source you trust")
        elif op in FORWARDED or op == "Constant":
            known |= {str(name, "utf-8"): values for name in _bytes(node["outputs"])}


def _check_tensor(message: memoryview, where: str, folder: Path | None) -> _Message:
    tensor = _read(message, "tensor")
    for given in _bytes(tensor["external"]):
        entry = _read(given, "entry")
        if _text(entry["key"]) == "location" and not _is_beside(_text(entry["value"]), folder):
            fault = f"its weights are in another file, {_text(entry['value'])[:80]!r}"
            raise InputError(f"{where}: {fault}, outside its folder; not loaded, export the model again")
    return tensor


def _is_beside(location: str, folder: Path | None) -> bool:
    """Whether a file lies in the folder itself; the hub's cache has links there to its folder of blobs."""
    if folder is None or location in ("", ".", "..") or "/" in location or "\\" in location:
        return False
    home = folder.resolve()
    return (folder / location).resolve().parent in {home, home.parent.parent / "blobs"}


def _integers(tensor: _Message) -> list[int]:
    """The whole numbers of a small tensor of int32 or int64; none of any other."""
    kind = _numbers(tensor["type"])
    size = _INTEGERS.get(kind[-1] if kind else 0)
    if size is None or math.prod(_numbers(tensor["dims"])) > 64:
        return []
    raw = b"".join(_bytes(tensor["raw"]))
    values = [int.from_bytes(raw[i : i + size], "little", signed=True) for i in range(0, len(raw), size)]
    return values + _numbers(tensor["int32"]) + _numbers(tensor["int64"])


def _read(message: memoryview, kind: str) -> _Message:
    """The named fields of a message, each with its values in order."""
    names = {number: name for name, number in _FIELDS[kind].items()}
    found: _Message = {name: [] for name in names.values()}
    for number, value in _fields(message):
        if number in names:
            found[names[number]].append(value)
    return found


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and value of each field: a number, or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        length, at = _varint(message, at) if wire == 2 else ({1: 8, 5: 4}[wire] if wire in (1, 5) else -1, at)
        if length < 0 or at + length > len(message):
            raise ValueError("not a protocol buffer")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        value = value | (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
    raise ValueError("not a protocol buffer")


def _bytes(values: list[memoryview | int]) -> list[memoryview]:
    return [value for value in values if isinstance(value, memoryview)]


def _text(values: list[memoryview | int]) -> str:
    return str(values[-1], "utf-8") if values and isinstance(values[-1], memoryview) else ""


def _numbers(values: list[memoryview | int]) -> list[int]:
    """Whole numbers, packed or one by one; negative ones are written as 64 bits."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in found]
