"""The ONNX runtime, on the CPU: runs an export of `ballcast export` without torch."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.backbone_config import BackboneConfig, padding_sides
from ballcast.core.errors import InputError, MissingExtra
from ballcast.features.stack_index import snippet_stacks, stack_overlap
from ballcast.features.stream_encoder import Floats, Step
from ballcast.inference.export_config import INPUTS, ExportConfig, read_config, read_part
from ballcast.model.postprocess import SlotArrays


class OnnxRuntime:
    """A `Runtime`; it keeps no state of a stream, so several streams can share it.

    Args:
        config: of the export.
        graphs: the bytes of its four parts by name.
        name: of the model in results.
        threads: by default OMP_NUM_THREADS, as in torch, or else the number of cores.
    """

    def __init__(
        self, config: ExportConfig, graphs: dict[str, bytes], *, name: str = "", threads: int | None = None
    ) -> None:
        count = int(os.environ.get("OMP_NUM_THREADS", "0") or 0) if threads is None else threads
        self._sessions = {part: _session(raw, f"{name}: {part}", count) for part, raw in graphs.items()}
        self.config = config.backbone.config
        self.clips, self.lookback, self.bins = config.model.clips, config.lookback, config.model.bins
        self.counts = config.model.kind == "dense"
        self.emit, self.pos_weight, self.calibration = config.emit, config.pos_weight, config.calibration
        self.picture_size = config.picture_size
        backbone = {"name": config.backbone.name, "hash": config.backbone.hash}
        self.about: dict[str, Any] = {"model": name, "backbone": backbone, "runtime": f"onnx {config.precision}"}

    @classmethod
    def open(cls, source: Path | str, *, threads: int | None = None) -> "OnnxRuntime":
        """Load the export in a folder, or of a hub id; `threads` as in the class."""
        folder, config = read_config(source)
        if config.kind != "onnx":
            raise InputError(f"{source}: was exported for torch; export it with --format onnx")
        graphs = {part: read_part(folder, config, part) for part in config.files}
        return cls(config, graphs, name=str(source), threads=threads)

    def begin(self, size: tuple[int, int]) -> Step:
        """See `StackEncoder`; the step keeps the feature maps of the latest stacks."""
        c = self.config
        overlap, own = stack_overlap(c), snippet_stacks(c, 1)[0].tolist()  # the stacks of the first snippet
        maps: list[Floats] = []  # (C, h, w) each, at most overlap + 1

        def window(frames: NDArray[np.uint8]) -> Floats:
            return self.mix(self.stacks(_pad(frames, c))[:, None])

        def step(frames: NDArray[np.uint8]) -> Floats:
            maps.append(self.stacks(_pad(frames, c)[None])[0])
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

    def run(self, part: str, *arrays: NDArray[Any]) -> list[Floats]:
        """Run a part on its inputs, in the order of `INPUTS`; returns its outputs in the order of `OUTPUTS`."""
        session = self._sessions[part]
        wanted = {given.name for given in session.get_inputs()}  # a model of one window has no input `present`
        given = {name: array for name, array in zip(INPUTS[part], arrays, strict=True) if name in wanted}
        return session.run(None, given)


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


def _session(raw: bytes, where: str, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("ONNX Runtime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # The decoder needs the cores between two frames: waiting threads sleep, and memory is returned.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    try:
        return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a different, non-public class for each fault
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{where}: is not a graph ONNX Runtime can run ({reason}); export it again") from None
