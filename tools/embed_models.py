"""Write ONNX graphs beside the weights of the embedded models, so that they run without torch.

    python -m tools.embed_models            # after a change of src/ballcast/samples/{backbone,anticipator}
    python -m tools.embed_models --check    # only compare what is there with torch

The weights are stored once: a graph's weights are records of external data, which point into the `model.safetensors`
beside it by offset and length. Half-precision weights are cast in the graph; ONNX Runtime does that, and folds the
norms, when it opens the graph. What is not in the file as it is (constants of the graph) stays in the graph.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import typer
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from ballcast.core.actions import FPS
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.files import write_bytes
from ballcast.export.check import differences, make_reference, model_differences, require_agreement
from ballcast.export.export import EXCERPT, make_config
from ballcast.export.parts import make_parts, to_onnx
from ballcast.features.backbone import Backbone
from ballcast.inference.export_config import BACKBONE_PARTS, EMBEDDED, write_config
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile

WEIGHTS = "model.safetensors"
CHECKED_S = 40
TYPES = {"F32": (np.float32, TensorProto.FLOAT), "F16": (np.float16, TensorProto.FLOAT16)}
Place = tuple[str, int, int]  # type, offset, length of a tensor in the weights' file


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    pairs: list[tuple[Path, Path | None]] = [(MODEL, BACKBONE)]  # the model of feeds: tools/make_feed_model.py
    for model, backbone in pairs:
        if not args.check:
            embed(model, backbone)
        for name, apart in check(model, backbone).items():
            typer.echo(f"{model.name}: {name} {apart:.1e} from torch")


def embed(model: Path, backbone: Path | None) -> None:
    """Write the graphs of a model and its backbone into their folders, then their config into the model's."""
    anticipator = Anticipator.from_pretrained(model)
    network = None if backbone is None else Backbone.load(backbone)
    graphs = {}
    for part, (module, examples) in make_parts(anticipator, network).items():
        folder = backbone if part in BACKBONE_PARTS and backbone is not None else model
        graphs[part] = refer(to_onnx(module, examples, folded=False), folder / WEIGHTS)
        write_bytes(folder / f"{part}.onnx", graphs[part])
        typer.echo(f"{folder.name}/{part}.onnx: {len(graphs[part]) / 1000:.0f} kB")
    write_config(model, replace(make_config(str(model), anticipator, network, graphs), source=model.name), EMBEDDED)


def refer(raw: bytes, weights: Path) -> bytes:
    """Replace the weights in a graph by references into the safetensors file beside it.

    Args:
        raw: the ONNX file with its weights.
        weights: the safetensors file; each weight is found in it by shape and value.
    """
    content = weights.read_bytes()
    model: Any = onnx.load_from_string(raw)
    places = index_tensors(content)
    kept, casts = [], []
    for tensor in model.graph.initializer:
        key = (tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes())
        place = places.get(key)
        if place is None or tensor.data_type != TensorProto.FLOAT:
            kept.append(tensor)
            continue
        kind, offset, length = place
        name = tensor.name if kind == "F32" else f"{tensor.name}_half"
        record = TensorProto(name=name, dims=tensor.dims, data_type=TYPES[kind][1], raw_data=b"")
        external_data_helper.set_external_data(record, weights.name, offset=offset, length=length)
        record.ClearField("raw_data")
        kept.append(record)
        if kind == "F16":
            casts.append(helper.make_node("Cast", [name], [tensor.name], to=TensorProto.FLOAT))
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def index_tensors(content: bytes) -> dict[tuple[tuple[int, ...], bytes], Place]:
    """Shape and value in single precision → place of every floating-point tensor of a safetensors file."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    found: dict[tuple[tuple[int, ...], bytes], Place] = {}
    for name, record in header.items():
        if name == "__metadata__" or record["dtype"] not in TYPES:
            continue
        begin, end = (start + offset for offset in record["data_offsets"])
        values = np.frombuffer(content[begin:end], TYPES[record["dtype"]][0]).astype(np.float32)
        found[tuple(record["shape"]), values.tobytes()] = (record["dtype"], begin, end - begin)
    return found


def check(model: Path, backbone: Path | None) -> dict[str, float]:
    """Compare the embedded graphs with torch; an error if they differ. Returns output → largest difference."""
    anticipator = Anticipator.from_pretrained(model)
    run = OnnxRuntime.embedded(model, backbone).run
    if backbone is None:
        found = model_differences(run, anticipator)
    else:
        network = Backbone.load(backbone)
        with VideoFile(EXCERPT) as file:
            frames = file.read(0, CHECKED_S * FPS)
        found = differences(run, make_reference(anticipator, network, frames), network)
    require_agreement(found, str(model))
    return found


if __name__ == "__main__":
    main()
