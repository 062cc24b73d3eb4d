"""Graphs that ask for terabytes or for files elsewhere are refused before ONNX Runtime sees them."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError
from ballcast.inference import onnx_check
from ballcast.inference.onnx_check import check_graph
from ballcast.inference.onnx_runtime import open_session

OUT = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def as_file(graph: Any) -> bytes:
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def graph_of(nodes: list[Any], **constants: Any) -> bytes:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return as_file(helper.make_graph(nodes, "g", [], [OUT], tensors))


MILLION = np.array([1_000_000], np.int64)
HUGE = np.array([1_000_000, 1_000_000], np.int64)
WIDE = np.array([60_000], np.int64)
ONE = np.float32(1)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attributes)


WALL = [  # 60 000 ones as a column and as a row
    node("ConstantOfShape", "wide", "ones"),
    node("Unsqueeze", "ones last", "column"),
    node("Unsqueeze", "ones first", "row"),
]
AXES = {"wide": WIDE, "first": np.array([0]), "last": np.array([1])}
HUNGRY = {
    "Expand": graph_of([node("Expand", "one shape")], one=ONE, shape=HUGE),
    "ConstantOfShape": graph_of([node("ConstantOfShape", "shape")], shape=HUGE),
    "Tile": graph_of([node("Tile", "x shape")], x=np.ones((1, 1), np.float32), shape=HUGE // 33),
    "of a Constant": graph_of(
        [helper.make_node("Constant", [], ["shape"], value_ints=HUGE.tolist()), node("ConstantOfShape", "shape")]
    ),
    "of parts": graph_of(
        [
            helper.make_node("Concat", ["a", "b"], ["joined"], axis=0),
            node("Cast", "joined", "shape", to=TensorProto.INT64),
            node("Expand", "one shape"),
        ],
        a=HUGE[:1].astype(np.int32),
        b=HUGE[:1].astype(np.int32),
        one=ONE,
    ),
    "Range": graph_of([node("Range", "zero far step")], zero=np.float32(0), far=np.float32(1e9), step=ONE),
    "of a sum": graph_of([node("Add", "a a", "shape"), node("ConstantOfShape", "shape")], a=1000 * MILLION),
    "of a product": graph_of([node("Mul", "a a", "shape"), node("ConstantOfShape", "shape")], a=MILLION),
    "MatMul": graph_of([*WALL, node("MatMul", "column row")], **AXES),
    "a broadcast": graph_of([*WALL, node("Add", "column row")], **AXES),
    "of its input": as_file(
        helper.make_graph(
            [node("Shape", "x", "size"), node("Mul", "size a", "shape"), node("ConstantOfShape", "shape")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
            [OUT],
            [numpy_helper.from_array(1000 * MILLION, "a")],
        )
    ),
}


@pytest.mark.parametrize("graph", HUNGRY.values(), ids=HUNGRY)
def test_gigabytes_out_of_nothing_are_refused(graph: bytes) -> None:
    assert len(graph) < 400
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"model: stacks: it needs more than 1\.1 GB to be loaded; not loaded"):
        open_session(graph, "model: stacks", 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_what_takes_too_long_to_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_check, "SECONDS", 0.01)
    with pytest.raises(InputError, match="it takes more than 0 s to be loaded"):
        open_session(graph_of([node("Identity", "one")], one=ONE), "a", 1)


BODY = helper.make_graph([node("Identity", "one", "z")], "body", [], [helper.make_value_info("z", OUT.type)])
STRANGE = {
    "RandomUniform": graph_of([helper.make_node("RandomUniform", [], ["y"], shape=[2])]),
    "If": graph_of([node("If", "yes", then_branch=BODY, else_branch=BODY)], yes=np.bool_(True), one=ONE),
    "Loop": graph_of([node("Loop", "times yes", body=BODY)], times=np.int64(1 << 60), yes=np.bool_(True)),
    "SequenceEmpty": graph_of([helper.make_node("SequenceEmpty", [], ["y"])]),
    "com.example.Add": graph_of([node("Add", "one one", domain="com.example")], one=ONE),
}


@pytest.mark.parametrize("op", STRANGE)
def test_operators_that_exports_do_not_use_are_refused(op: str) -> None:
    with pytest.raises(InputError, match=f"a: its operator '{op}' is not one that exports use"):
        check_graph(STRANGE[op], "a")


def test_operators_of_its_own_are_refused() -> None:
    own = helper.make_function("here", "Twice", ["x"], ["y"], [node("Add", "x x")], [helper.make_opsetid("", 17)])
    graph = helper.make_graph([node("Add", "one one")], "g", [], [OUT], [numpy_helper.from_array(ONE, "one")])
    with pytest.raises(InputError, match="a: defines operators itself"):
        check_graph(helper.make_model(graph, functions=[own]).SerializeToString(), "a")


def test_sparse_weights_are_refused() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], [0]), [1 << 40])
    graph = helper.make_graph([node("Identity", "w")], "g", [], [OUT], sparse_initializer=[sparse])
    with pytest.raises(InputError, match="a: has sparse weights"):
        check_graph(as_file(graph), "a")
    constant = helper.make_node("Constant", [], ["y"], sparse_value=sparse)
    with pytest.raises(InputError, match="a: its Constant holds a graph or a sparse tensor"):
        check_graph(graph_of([constant]), "a")


def external(location: str) -> bytes:
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    external_data_helper.set_external_data(weights, location=location)
    weights.ClearField("raw_data")
    return as_file(helper.make_graph([node("Identity", "w")], "g", [], [OUT], [weights]))


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret.bin", "deep/../../secret.bin", "link.bin", ".."])
def test_weights_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "a.onnx").write_bytes(external(location))
    with pytest.raises(InputError, match=r"its weights are in another file, .*outside its folder"):
        check_graph(folder / "a.onnx", "a.onnx")


def test_weights_beside_a_graph_are_read_and_an_export_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "a.onnx").write_bytes(external("w.bin"))
    assert open_session(tmp_path / "a.onnx", "a", 1).run(None, {})[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="outside its folder"):
        open_session(external("w.bin"), "a", 1)


@pytest.mark.parametrize("path", sorted(SAMPLES.rglob("*.onnx")), ids=lambda path: path.stem)
def test_the_embedded_graphs_pass(path: Path) -> None:
    check_graph(path, path.name)


@pytest.mark.parametrize("raw", [b"\xff" * 20, b"\x3a\xff\x01", b"\x3b\x00"])
def test_what_is_no_graph_is_one_sentence(raw: bytes) -> None:
    with pytest.raises(InputError, match="x: is not a graph ONNX Runtime can run"):
        check_graph(raw, "x")
