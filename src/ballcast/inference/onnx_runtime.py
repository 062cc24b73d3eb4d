"""The ONNX runtime, on the CPU: runs an export of `ballcast export`, or the embedded models, without torch."""

import copy
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ballcast.core.backbone_config import BackboneConfig, padding_sides
from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError, MissingExtra, first_line
from ballcast.core.util import cores
from ballcast.features.stack_index import snippet_stacks, stack_overlap
from ballcast.inference.expected_precision import ExpectedPrecision
from ballcast.inference.export_config import (
    BACKBONE_PARTS,
    EMBEDDED,
    INPUTS,
    ExportConfig,
    read_embedded,
    read_export,
    read_part,
)
from ballcast.inference.onnx_check import check_graph, try_graph
from ballcast.inference.runtime import Floats, Frames
from ballcast.model.postprocess import SlotArrays, slot_form

Graph = bytes | Path  # an ONNX file's content, or its path where its weights lie in another file beside it


class OnnxRuntime:
    """A `Runtime`: the parts of an export, run by ONNX Runtime. Its calls may come from several threads.

    Args:
        config: of the export.
        graphs: its parts by name.
        name: of the model in results and errors.
        threads: by default OMP_NUM_THREADS, as in torch, or else the number of cores.
    """

    device = "onnx"
    largest = 4  # larger batches take as long a stack, and more time until the first result
    parallel = 4  # a single call leaves cores idle between its steps
    by_cores = True

    def __init__(
        self, config: ExportConfig, graphs: Mapping[str, Graph], *, name: str = "", threads: int | None = None
    ) -> None:
        self._sessions = {part: open_session(graph, f"{name}: {part}", threads) for part, graph in graphs.items()}
        self.export = config
        self.name = name
        self.streams = 1
        self.config = config.model
        self.emit = config.emit
        self.pos_weight = config.pos_weight
        self.score_mapping = config.calibration
        self.lookback = config.lookback
        self.expected_precision: ExpectedPrecision | None = None
        self.picture_size = config.picture_size
        backbone = {"name": config.backbone.name, "hash": config.backbone.hash}
        self.metadata: dict[str, Any] = {"backbone": backbone}
        if config.picture_size:
            self.metadata["picture_size"] = list(config.picture_size)
        self.about: dict[str, Any] = {"model": name, "backbone": backbone, "runtime": f"onnx {config.precision}"}

    @classmethod
    def open(cls, source: Path | str, *, threads: int | None = None, name: str = "") -> "OnnxRuntime":
        """Open the export in a folder, or of a hub id; `threads` as in the class. name: by default the source."""
        folder, config = read_export(source)
        if config.kind != "onnx":
            raise InputError(f"{source}: was exported for torch, which ballcast does not run; export it again")
        graphs = {part: read_part(folder, config, part) for part in config.files}
        return cls(config, graphs, name=name or str(source), threads=threads)

    @classmethod
    def embedded(cls, model: Path, backbone: Path | None, *, threads: int | None = None) -> "OnnxRuntime":
        """Open the graphs that lie in the folders of a model and of its backbone, beside their weights.

        Args:
            model: has `graphs.json` (see `tools/embed_models.py`).
            backbone: None for a model of event feeds.
            threads: as in the class.
        """
        config = read_embedded(model)
        folders = {part: backbone if part in BACKBONE_PARTS else model for part in config.files}
        graphs = {part: folder / config.files[part].file for part, folder in folders.items() if folder is not None}
        return cls(config, graphs, name=str(model), threads=threads)

    def run(self, part: str, *arrays: NDArray[Any]) -> list[Floats]:
        """Run a part on its inputs, in the order of `INPUTS`; returns its outputs in the order of `OUTPUTS`."""
        session = self._sessions[part]
        wanted = {given.name for given in session.get_inputs()}  # a model of one window has no input `present`
        given = {name: array for name, array in zip(INPUTS[part], arrays, strict=True) if name in wanted}
        return session.run(None, given)

    @property
    def backbone(self) -> BackboneConfig:
        if self.export.backbone.config is None:
            raise InputError(f"{self.name}: reads event feeds, not videos; give a model for videos")
        return self.export.backbone.config

    def for_streams(self, streams: int) -> Self:
        other = copy.copy(self)
        other.streams = streams
        return other

    def prepare(self) -> None:
        """Nothing to do: the sessions are ready."""

    def open_stream(self, size: tuple[int, int]) -> "OnnxStream":
        return OnnxStream(self.backbone)

    def close_stream(self, stream: "OnnxStream") -> None:
        """Nothing to do: a stream holds no memory of the runtime."""

    def encode_stacks(self, streams: Sequence["OnnxStream"]) -> Floats:
        config = self.backbone
        frames = np.stack([stream.frames for stream in streams])  # (b, stack, H, W); if shifted (b, N, stack, …)
        if config.shift != "none":
            return np.stack([self.mix(self.encode(window)[:, None]) for window in frames])
        for stream, maps in zip(streams, self.encode(frames), strict=True):
            stream.maps.append(maps)
        features = np.zeros((len(streams), config.width), np.float32)
        snippets = {i: stream.snippet() for i, stream in enumerate(streams) if stream.has_snippet}
        if snippets:
            features[list(snippets)] = self.mix(np.stack(list(snippets.values())))
        return features

    def encode(self, frames: NDArray[np.uint8]) -> Floats:
        """Padded frames (S, stack, H, W), or I420 (S, stack, 3H/2, W) → feature maps (S, C, h, w).

        With a temporal shift, S is a multiple of the N stacks of a window.
        """
        return self.run("stacks", frames)[0]

    def mix(self, maps: Floats) -> Floats:
        """Feature maps of snippets' stacks (n, J, C, h, w) → features (n, D)."""
        return self.run("clips", maps)[0]

    def encode_windows(self, features: Floats) -> Floats:
        return self.run("window", features)[0]

    def predict(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        objectness, classes, offsets = self.run("slots", tokens, present)
        return SlotArrays(objectness, classes, offsets, self.config.bins, slot_form(self.config))

    def predict_windows(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        if present is None:
            present = np.ones(features.shape[:2], np.bool_)
        read = features[:, -self.lookback :].astype(np.float32)  # (B, `lookback`, N, D)
        tokens = self.encode_windows(read.reshape(-1, *read.shape[2:]))
        return self.predict(tokens.reshape(*read.shape[:2], *tokens.shape[1:]), present[:, -self.lookback :])


class OnnxStream:
    """A `Stream` of an `OnnxRuntime`: the maps of its latest stacks, and the next stack's frames, padded."""

    def __init__(self, config: BackboneConfig) -> None:
        self.frames: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.maps: deque[Floats] = deque(maxlen=stack_overlap(config) + 1)  # (C, h, w) each
        self._config = config
        self._stacks = snippet_stacks(config, 1)[0].tolist()  # the stacks of a snippet, counted from its first

    def fill(self, frames: Frames) -> None:
        self.frames = _pad(np.stack(list(frames)), self._config)

    @property
    def has_snippet(self) -> bool:
        """Whether there are enough stacks for a snippet."""
        return len(self.maps) == self.maps.maxlen

    def snippet(self) -> Floats:
        """The maps of the snippet that ends with the latest stack, (J, C, h, w)."""
        return np.stack([self.maps[stack] for stack in self._stacks])


def has_graphs(model: Path, backbone: Path | None) -> bool:
    """Whether the folders of a model and of its backbone, if given, hold graphs for `OnnxRuntime.embedded`."""
    names = () if backbone is None else tuple(f"{part}.onnx" for part in BACKBONE_PARTS)
    return (model / EMBEDDED).is_file() and all((Path(str(backbone)) / name).is_file() for name in names)


def _pad(frames: NDArray[np.uint8], config: BackboneConfig) -> NDArray[np.uint8]:
    """Pad frames (…, H, W), or I420 (…, 3H/2, W), as `Backbone.padded` does."""
    rows, W = frames.shape[-2:]
    H = rows * 2 // 3 if config.colour else rows
    sides = np.reshape(padding_sides(H, W, config.padding, pairs=config.colour), (2, 2))[::-1]
    none = [(0, 0)] * (frames.ndim - 2)
    y = np.pad(frames[..., :H, :], [*none, *sides], constant_values=16 if config.colour else 0)
    if not config.colour:
        return y
    uv = frames[..., H:, :].reshape(*frames.shape[:-2], 2, H // 2, W // 2)
    uv = np.pad(uv, [*none, (0, 0), *(sides // 2)], constant_values=128)
    return np.concatenate([y, uv.reshape(*y.shape[:-2], -1, y.shape[-1])], axis=-2)


def open_session(graph: Graph, where: str, threads: int | None = None) -> Any:
    """Open a graph in ONNX Runtime, on the CPU.

    Args:
        graph: an ONNX file's content, or its path where its weights lie beside it.
        where: what to name in errors.
        threads: by default OMP_NUM_THREADS, as in torch, or else the number of cores.
    """
    count = int(os.environ.get("OMP_NUM_THREADS", "0") or 0) if threads is None else threads
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("ONNX Runtime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count or cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The decoder needs the cores between two frames: waiting threads sleep, and memory is returned.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    check_graph(graph, where)
    if not (isinstance(graph, Path) and graph.resolve().is_relative_to(SAMPLES.resolve())):
        try_graph(graph, where)
    given = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a different, non-public class for each fault
        reason = first_line(error)
        raise InputError(f"{where}: is not a graph ONNX Runtime can run ({reason}); export it again") from None
