"""Graphs that ask for terabytes or for files elsewhere are refused before ONNX Runtime sees them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError
from ballcast.inference.onnx_check import check_graph
from ballcast.inference.onnx_runtime import open_session

OUT = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def as_file(graph: Any) -> bytes:
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def graph_of(nodes: list[Any], **constants: Any) -> bytes:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return as_file(helper.make_graph(nodes, "g", [], [OUT], tensors))


HUGE = np.array([1_000_000, 1_000_000], np.int64)
ONE = np.float32(1)
HOSTILE = {
    "Expand": graph_of([helper.make_node("Expand", ["one", "shape"], ["y"])], one=ONE, shape=HUGE),
    "ConstantOfShape": graph_of([helper.make_node("ConstantOfShape", ["shape"], ["y"])], shape=HUGE),
    "Tile": graph_of([helper.make_node("Tile", ["x", "shape"], ["y"])], x=np.ones((1, 1), np.float32), shape=HUGE),
    "of a Constant": graph_of(
        [
            helper.make_node("Constant", [], ["shape"], value_ints=HUGE.tolist()),
            helper.make_node("ConstantOfShape", ["shape"], ["y"]),
        ]
    ),
    "of parts": graph_of(
        [
            helper.make_node("Concat", ["a", "b"], ["joined"], axis=0),
            helper.make_node("Cast", ["joined"], ["shape"], to=TensorProto.INT64),
            helper.make_node("Expand", ["one", "shape"], ["y"]),
        ],
        a=HUGE[:1].astype(np.int32),
        b=HUGE[:1].astype(np.int32),
        one=ONE,
    ),
    "RandomUniform": graph_of([helper.make_node("RandomUniform", [], ["y"], shape=HUGE.tolist())]),
}


@pytest.mark.parametrize("graph", HOSTILE.values(), ids=HOSTILE)
def test_terabytes_out_of_nothing_are_refused(graph: bytes) -> None:
    assert len(graph) < 300
    with pytest.raises(InputError, match=r"model: stacks: its \w+ would make more than 268435456 numbers"):
        open_session(graph, "model: stacks", 1)


def external(location: str) -> bytes:
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    external_data_helper.set_external_data(weights, location=location)
    weights.ClearField("raw_data")
    node = helper.make_node("Identity", ["w"], ["y"])
    return as_file(helper.make_graph([node], "g", [], [OUT], [weights]))


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
