"""Refuse ONNX graphs that ask for too much memory or for files elsewhere, before ONNX Runtime loads them here.

ONNX Runtime computes the constant parts of a graph while it loads it, so that a file of a hundred bytes can ask for
terabytes, and it reads weights from whatever file the graph names. So the operators and the files of a graph are
checked first (`check_graph`), then it is loaded and run once in a process with a bound on memory (`try_graph`).

The graph is read as protocol buffers: of the messages of onnx.proto only the fields named in `_FIELDS`, and no `onnx`
package is needed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ballcast.core.errors import InputError, first_line
from ballcast.core.files import read_bytes

MEMORY = 1 << 30  # bytes that a graph may take to be loaded and run once, besides `COPIES` of its weights
COPIES = 4
SECONDS = 60.0
# What exporters make of networks. No control flow, no random numbers, no sequences, no text.
_OPERATORS = """
Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast CastLike Ceil Clip Concat Constant
ConstantOfShape Conv ConvInteger ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div Dropout
DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN LSTM
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Mean
Min Mod Mul Neg Not Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal
ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize Round
ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus Split Sqrt Squeeze Sub
Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where
"""
OPERATORS = frozenset(_OPERATORS.split())
_FIELDS = {
    "model": {"graph": 7, "functions": 25},
    "graph": {"nodes": 1, "initializers": 5, "sparse": 15},
    "function": {"nodes": 7},
    "node": {"op": 4, "attributes": 5, "domain": 7},
    "attribute": {"tensor": 5, "graph": 6, "tensors": 10, "graphs": 11, "sparse": 22, "sparses": 23},
    "sparse": {"values": 1, "indices": 2},
    "tensor": {"external": 13},
    "entry": {"key": 1, "value": 2},
}
_Message = dict[str, list[memoryview | int]]


def check_graph(graph: bytes | Path, where: str) -> None:
    """Raise an InputError if a graph has operators that exports do not use, or weights outside its folder.

    Args:
        graph: the file's content, which must contain its weights; or its path, where they may lie in files beside it.
        where: to name in the error.
    """
    folder = graph.parent if isinstance(graph, Path) else None
    raw = read_bytes(graph, "graph") if isinstance(graph, Path) else graph
    try:
        model = _read(memoryview(raw), "model")
        if model["functions"]:
            raise InputError(f"{where}: defines operators itself; not loaded, get the model from a source you trust")
        for message in _bytes(model["graph"]):
            _check_nodes(_read(message, "graph"), where, folder)
    except (IndexError, ValueError, RecursionError):
        raise InputError(f"{where}: is not a graph ONNX Runtime can run (it is damaged); export it again") from None


def _check_nodes(graph: _Message, where: str, folder: Path | None) -> None:
    if graph["sparse"]:
        raise InputError(f"{where}: has sparse weights, which exports do not have; not loaded, export it again")
    for message in _bytes(graph["initializers"]):
        _check_tensor(message, where, folder)
    for message in _bytes(graph["nodes"]):
        node = _read(message, "node")
        op = _text(node["op"])
        domain = _text(node["domain"])
        if op not in OPERATORS or domain not in ("", "ai.onnx"):
            fault = f"its operator {f'{domain}.{op}'.lstrip('.')[:80]!r} is not one that exports use"
            raise InputError(f"{where}: {fault}; not loaded, get the model from a source you trust")
        for given in _bytes(node["attributes"]):
            attribute = _read(given, "attribute")
            if any(attribute[kind] for kind in ("graph", "graphs", "sparse", "sparses")):
                raise InputError(f"{where}: its {op} holds a graph or a sparse tensor; not loaded, export it again")
            for constant in _bytes(attribute["tensor"]) + _bytes(attribute["tensors"]):
                _check_tensor(constant, where, folder)


def _check_tensor(message: memoryview, where: str, folder: Path | None) -> None:
    for given in _bytes(_read(message, "tensor")["external"]):
        entry = _read(given, "entry")
        if _text(entry["key"]) == "location" and not _is_beside(_text(entry["value"]), folder):
            fault = f"its weights are in another file, {_text(entry['value'])[:80]!r}"
            raise InputError(f"{where}: {fault}, outside its folder; not loaded, export the model again")


def _is_beside(location: str, folder: Path | None) -> bool:
    """Whether a file lies in the folder itself; the hub's cache has links there to its folder of blobs."""
    if folder is None or location in ("", ".", "..") or "/" in location or "\\" in location:
        return False
    home = folder.resolve()
    return (folder / location).resolve().parent in {home, home.parent.parent / "blobs"}


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


# ------------------------------------------------------------------------------------------------ in another process


def try_graph(graph: bytes | Path, where: str) -> None:
    """Load and run a graph in another process; an InputError if that takes too much memory or time, or fails.

    Arguments as in `check_graph`.
    """
    beside = graph.parent.iterdir() if isinstance(graph, Path) else ()
    weights = len(graph) if isinstance(graph, bytes) else sum(path.stat().st_size for path in beside if path.is_file())
    limit = MEMORY + COPIES * weights
    place = str(graph.absolute()) if isinstance(graph, Path) else "-"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(limit), place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(graph if isinstance(graph, bytes) else b"")
        fault = _watch(process, limit)
        reason = process.stdout.read(1000).decode(errors="replace").strip() if not fault else ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if reason:
        raise InputError(f"{where}: is not a graph ONNX Runtime can run ({reason}); export it again")
    if fault or process.returncode:
        fault = fault or f"it needs more than {limit / 1e9:.1f} GB to be loaded"
        raise InputError(f"{where}: {fault}; not loaded, get the model from a source you trust")


def _watch(process: "subprocess.Popen[bytes]", limit: int) -> str:
    """Wait for the process's end; returns why it was not waited for any longer, or ""."""
    import psutil

    end = time.monotonic() + SECONDS
    with suppress(psutil.Error):
        other = psutil.Process(process.pid)
        while process.poll() is None:
            if other.memory_info().rss > limit:
                return f"it needs more than {limit / 1e9:.1f} GB to be loaded"
            if time.monotonic() > end:
                return f"it takes more than {SECONDS:.0f} s to be loaded"
            time.sleep(0.01)
    process.wait()
    return ""


def _try(limit: int, place: str, given: IO[bytes]) -> int:
    """Load and run a graph; runs in the other process. Returns its exit code, 1 if memory is too little."""
    import numpy as np
    import onnxruntime

    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    raw = given.read()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(raw if place == "-" else place, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a different, non-public class for each fault
        if _is_memory(error):
            return 1
        sys.stdout.write(first_line(error))
        return 0
    inputs: dict[str, Any] = {}
    for wanted in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 for size in wanted.shape]
        inputs[wanted.name] = np.zeros(shape, _TYPES.get(wanted.type, "float32"))
    try:
        session.run(None, inputs)
    except Exception as error:  # the sizes chosen here may not suit it
        return int(_is_memory(error))
    return 0


_TYPES = {"tensor(bool)": "bool", "tensor(float16)": "float16"} | {
    f"tensor({kind})": kind for kind in ("int8", "uint8", "int32", "int64")
}


def _is_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "alloc" in str(error)


if __name__ == "__main__":
    sys.exit(_try(int(sys.argv[1]), sys.argv[2], sys.stdin.buffer))
