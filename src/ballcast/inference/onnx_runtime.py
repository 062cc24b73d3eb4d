"""The ONNX runtime, on the CPU: runs an export of `ballcast export`, or the embedded models, without torch."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.backbone_config import BackboneConfig, padding_sides
from ballcast.core.errors import InputError, MissingExtra, first_line
from ballcast.core.util import cores
from ballcast.features.stack_index import snippet_stacks, stack_overlap
from ballcast.features.stream_encoder import Floats, Pictures, Step
from ballcast.inference.export_config import (
    BACKBONE_PARTS,
    EMBEDDED,
    INPUTS,
    ExportConfig,
    read_embedded,
    read_export,
    read_part,
)
from ballcast.inference.onnx_check import check_graph
from ballcast.model.postprocess import SlotArrays

Graph = bytes | Path  # an ONNX file's content, or its path where its weights lie in another file beside it


class OnnxSessions:
    """The parts of an export, run by ONNX Runtime; used by both classes below, and from several threads.

    Args:
        config: of the export.
        graphs: its parts by name.
        name: of the model in results and errors.
        threads: by default OMP_NUM_THREADS, as in torch, or else the number of cores.
    """

    def __init__(
        self, config: ExportConfig, graphs: Mapping[str, Graph], *, name: str = "", threads: int | None = None
    ) -> None:
        self._sessions = {part: open_session(graph, f"{name}: {part}", threads) for part, graph in graphs.items()}
        self.config, self.name = config, name

    @classmethod
    def open(cls, source: Path | str, *, threads: int | None = None, name: str = "") -> "OnnxSessions":
        """Open the export in a folder, or of a hub id; `threads` as in the class. name: by default the source."""
        folder, config = read_export(source)
        if config.kind != "onnx":
            raise InputError(f"{source}: was exported for torch, which ballcast does not run; export it again")
        graphs = {part: read_part(folder, config, part) for part in config.files}
        return cls(config, graphs, name=name or str(source), threads=threads)

    @classmethod
    def embedded(cls, model: Path, backbone: Path | None, *, threads: int | None = None) -> "OnnxSessions":
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


def has_graphs(model: Path, backbone: Path | None) -> bool:
    """Whether the folders of a model and of its backbone, if given, hold graphs for `OnnxSessions.embedded`."""
    names = () if backbone is None else tuple(f"{part}.onnx" for part in BACKBONE_PARTS)
    return (model / EMBEDDED).is_file() and all((Path(str(backbone)) / name).is_file() for name in names)


class OnnxModel:
    """A `WindowModel`: runs the parts `window` and `slots` on features of stores and feeds."""

    def __init__(self, sessions: OnnxSessions) -> None:
        export = sessions.config
        self._sessions, self._lookback = sessions, export.lookback
        self.config, self.emit, self.pos_weight = export.model, export.emit, export.pos_weight
        self.calibration = export.calibration
        self.metadata: dict[str, Any] = {"backbone": {"name": export.backbone.name, "hash": export.backbone.hash}}
        if export.picture_size:
            self.metadata["picture_size"] = list(export.picture_size)

    def slots(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        """See `WindowModel`."""
        if present is None:
            present = np.ones(features.shape[:2], np.bool_)
        read = features[:, -self._lookback :].astype(np.float32)  # (B, W, N, D)
        tokens = self._sessions.run("window", read.reshape(-1, *read.shape[2:]))[0]
        tokens = tokens.reshape(*read.shape[:2], *tokens.shape[1:])
        objectness, classes, offsets = self._sessions.run("slots", tokens, present[:, -self._lookback :])
        return SlotArrays(objectness, classes, offsets, self.config.bins, self.config.kind == "dense")


class OnnxRuntime:
    """A `Runtime`; it keeps no state of a stream, so several streams can share it.

    Args:
        sessions: of an export with a backbone.
    """

    def __init__(self, sessions: OnnxSessions) -> None:
        export = sessions.config
        if export.backbone.config is None:
            raise InputError(f"{sessions.name}: reads event feeds, not videos; give a model for videos")
        self._sessions = sessions
        self.run = sessions.run
        self.config = export.backbone.config
        self.clips, self.lookback, self.bins = export.model.clips, export.lookback, export.model.bins
        self.counts = export.model.kind == "dense"
        self.emit, self.pos_weight, self.calibration = export.emit, export.pos_weight, export.calibration
        self.picture_size = export.picture_size
        backbone = {"name": export.backbone.name, "hash": export.backbone.hash}
        self.about: dict[str, Any] = {
            "model": sessions.name,
            "backbone": backbone,
            "runtime": f"onnx {export.precision}",
        }

    @classmethod
    def open(cls, source: Path | str, *, threads: int | None = None) -> "OnnxRuntime":
        """Load the export in a folder, or of a hub id; `threads` as in `OnnxSessions`."""
        return cls(OnnxSessions.open(source, threads=threads))

    def begin(self, size: tuple[int, int]) -> Step:
        """See `StackEncoder`; the step keeps the feature maps of the latest stacks."""
        c = self.config
        overlap, own = stack_overlap(c), snippet_stacks(c, 1)[0].tolist()  # the stacks of the first snippet
        maps: list[Floats] = []  # (C, h, w) each, at most overlap + 1

        def window(frames: Pictures) -> Floats:
            return self.mix(self.stacks(_pad(np.asarray(frames), c))[:, None])

        def step(frames: Pictures) -> Floats:
            maps.append(self.stacks(_pad(np.stack(list(frames)), c)[None])[0])
            if len(maps) <= overlap:
                return np.zeros(c.width, np.float32)
            features = self.mix(np.stack([maps[stack] for stack in own])[None])[0]
            del maps[0]
            return features

        return step if c.shift == "none" else window

    def stacks(self, frames: NDArray[np.uint8]) -> Floats:
        """Padded frames (B, stack, H, W), or I420 (B, 1, 3H/2, W) → feature maps (B, C, h, w).

        With a temporal shift, B is a multiple of the N stacks of a window.
        """
        return self.run("stacks", frames)[0]

    def mix(self, maps: Floats) -> Floats:
        """Feature maps of snippets' stacks (B, J, C, h, w) → features (B, D)."""
        return self.run("clips", maps)[0]

    def encode_windows(self, features: Floats) -> Floats:
        """Features (B, N, D) → tokens (B, N, d)."""
        return self.run("window", features)[0]

    def anticipate_batch(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Tokens (B, W, N, d), and which windows are present (B, W) → slots of B samples."""
        objectness, classes, offsets = self.run("slots", tokens, present)
        return SlotArrays(objectness, classes, offsets, self.bins, self.counts)

    def encode_window(self, features: Floats) -> Floats:
        """See `Runtime`."""
        return self.encode_windows(features[None])[0]

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """See `Runtime`."""
        return self.anticipate_batch(tokens[None], present[None])

    def batched(self, streams: int) -> "OnnxBatch":
        """See `Runtime`."""
        return OnnxBatch(self, streams=streams)


class OnnxStreamState:
    """One stream's place in an `OnnxBatch`: the maps of its latest stacks, and the next stack's frames, padded."""

    def __init__(self, config: BackboneConfig, size: tuple[int, int]) -> None:
        self.size, self._config = size, config
        self.maps: deque[Floats] = deque(maxlen=stack_overlap(config) + 1)  # (C, h, w) each

    def fill(self, pictures: Pictures) -> None:
        """Take the next stack, on the thread of its stream."""
        self.frames = _pad(np.stack(list(pictures)), self._config)


class OnnxBatch:
    """A `BatchRuntime` of ONNX Runtime."""

    largest = 4  # larger batches take as long a stack, and more time until the first result
    parallel, by_cores = 4, True  # a single call leaves cores idle between its steps

    def __init__(self, runtime: OnnxRuntime, *, streams: int) -> None:
        self.runtime, self.streams = runtime, streams
        self._own = snippet_stacks(runtime.config, 1)[0].tolist()
        self.encode_windows, self.anticipate_batch = runtime.encode_windows, runtime.anticipate_batch

    def open(self, size: tuple[int, int]) -> OnnxStreamState:
        """See `BatchRuntime`."""
        return OnnxStreamState(self.runtime.config, size)

    def close(self, state: OnnxStreamState) -> None:
        """See `BatchRuntime`."""

    def prepare(self) -> None:
        """See `BatchRuntime`."""

    def encode_stacks(self, states: Sequence[OnnxStreamState]) -> Floats:
        """See `BatchRuntime`."""
        frames = np.stack([state.frames for state in states])  # (b, stack, H, W); if shifted (b, N, stack, …)
        if self.runtime.config.shift != "none":
            return np.stack([self.runtime.mix(self.runtime.stacks(window)[:, None]) for window in frames])
        for state, maps in zip(states, self.runtime.stacks(frames), strict=True):
            state.maps.append(maps)
        features = np.zeros((len(states), self.runtime.config.width), np.float32)
        whole = [i for i, state in enumerate(states) if len(state.maps) == state.maps.maxlen]  # the others lack stacks
        if whole:
            read = np.stack([np.stack([states[i].maps[own] for own in self._own]) for i in whole])
            features[whole] = self.runtime.mix(read)
        return features


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
    options.intra_op_num_threads, options.inter_op_num_threads = count or cores(), 1
    options.log_severity_level = 3
    # The decoder needs the cores between two frames: waiting threads sleep, and memory is returned.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    check_graph(graph, where)
    given = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a different, non-public class for each fault
        reason = first_line(error)
        raise InputError(f"{where}: is not a graph ONNX Runtime can run ({reason}); export it again") from None
