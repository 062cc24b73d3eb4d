"""The runtime of ONNX, on the CPU: what `ballcast export` wrote, at work without torch."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.backbone_config import padding_sides
from ballcast.core.errors import InputError, MissingExtra
from ballcast.features.stack_index import stack_hop, stack_overlap
from ballcast.features.stream_encoder import Floats, Step
from ballcast.inference.export_config import INPUTS, ExportConfig, read_config, read_part
from ballcast.model.postprocess import SlotArrays


class OnnxRuntime:
    """A `Runtime`; streams may share it, since it keeps nothing of them.

    config: what the export says. graphs: the bytes of its four parts by name.
    threads: at once; by default OMP_NUM_THREADS, as for torch, or else as many as there are cores.
    """

    def __init__(
        self, config: ExportConfig, graphs: dict[str, bytes], *, name: str = "", threads: int | None = None
    ) -> None:
        count = int(os.environ.get("OMP_NUM_THREADS", "0") or 0) if threads is None else threads
        self._sessions = {part: _session(raw, f"{name}: {part}", count) for part, raw in graphs.items()}
        self.config = config.backbone.config
        self.clips, self.lookback, self.bins = config.model.clips, config.lookback, config.model.bins
        self.emit, self.pos_weight, self.calibration = config.emit, config.pos_weight, config.calibration
        self.picture_size = config.picture_size
        backbone = {"name": config.backbone.name, "hash": config.backbone.hash}
        self.about: dict[str, Any] = {"model": name, "backbone": backbone, "runtime": f"onnx {config.precision}"}

    @classmethod
    def open(cls, source: Path | str, *, threads: int | None = None) -> "OnnxRuntime":
        """The export in a folder, or of a hub id."""
        folder, config = read_config(source)
        if config.kind != "onnx":
            raise InputError(f"{source}: was exported for torch; export it with --format onnx")
        graphs = {part: read_part(folder, config, part) for part in config.files}
        return cls(config, graphs, name=str(source), threads=threads)

    def begin(self, size: tuple[int, int]) -> Step:
        """See `StackEncoder`; it keeps the maps of the latest stacks."""
        c = self.config
        left, right, above, below = padding_sides(*size, c.padding)
        overlap = stack_overlap(c)
        maps: list[Floats] = []  # (C, h, w) each, at most overlap + 1

        def step(pictures: NDArray[np.uint8]) -> Floats:
            padded = np.pad(pictures, ((0, 0), (above, below), (left, right)))
            maps.append(self.stacks(padded[None])[0])
            if len(maps) <= overlap:
                return np.zeros(c.width, np.float32)
            features = self.mix(np.stack(maps[:: stack_hop(c)])[None])[0]
            del maps[0]
            return features

        return step

    def stacks(self, pictures: NDArray[np.uint8]) -> Floats:
        """Padded pictures (B, stack, H, W) → maps (B, C, h, w)."""
        return self.run("stacks", pictures)[0]

    def mix(self, maps: Floats) -> Floats:
        """Maps of clips' stacks (B, J, C, h, w) → features (B, D)."""
        return self.run("clips", maps)[0]

    def encode_windows(self, features: Floats) -> Floats:
        """Features (B, N, D) → tokens (B, N, d)."""
        return self.run("window", features)[0]

    def answer(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Tokens (B, W, N, d) and which windows there are (B, W) → slots of B samples."""
        objectness, classes, offsets = self.run("slots", tokens, present)
        return SlotArrays(objectness, classes, offsets, self.bins)

    def encode_window(self, features: Floats) -> Floats:
        return self.encode_windows(features[None])[0]

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        return self.answer(tokens[None], present[None])

    def run(self, part: str, *arrays: NDArray[Any]) -> list[Floats]:
        """A part's outputs, of its inputs in order."""
        session = self._sessions[part]
        wanted = {given.name for given in session.get_inputs()}  # a model of one window has no use for `present`
        given = {name: array for name, array in zip(INPUTS[part], arrays, strict=True) if name in wanted}
        return session.run(None, given)


def _session(raw: bytes, where: str, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("ONNX Runtime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Between two frames the cores are the decoder's: threads that wait sleep, and memory goes back.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    try:
        return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for each fault, none of them public
        said = str(error).strip().splitlines()[0]
        raise InputError(f"{where}: is not a graph ONNX Runtime can run ({said}); export it again") from None
