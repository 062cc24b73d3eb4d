"""Export a model and its backbone as ONNX or torch.export graphs; written only if they agree with torch."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ballcast import __version__
from ballcast.core.actions import FPS
from ballcast.core.backbone_config import trained_size
from ballcast.core.errors import InputError
from ballcast.core.files import check_writable, replacing, write_bytes
from ballcast.core.hub import SAMPLES, choose_models, named_backbone
from ballcast.data.labels.soccernet import read_labels
from ballcast.export.check import (
    THOROUGH,
    WINDOWS,
    Run,
    differences,
    make_reference,
    model_differences,
    require_agreement,
)
from ballcast.export.parts import make_parts, quantise, to_onnx, to_pt2
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import stack_offsets, stack_span
from ballcast.inference.export_config import (
    CONFIG,
    PARTS,
    BackboneRecord,
    ExportConfig,
    FileRecord,
    export_key,
    is_export,
    read_config,
    read_part,
    sha256,
    write_config,
)
from ballcast.inference.feed_predictor import detail_of
from ballcast.inference.onnx_runtime import OnnxRuntime, OnnxSessions
from ballcast.inference.store_predictor import check_backbone, hashes
from ballcast.inference.stream_predictor import clip_features, score_slots, slots_along
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile
from ballcast.video.luma import picture_shape

EXCERPT = SAMPLES / "test" / "excerpt.mp4"
CHECKED_S, THOROUGH_S = 8, 40  # seconds of video compared: enough for 20 and for 200 windows
CALIBRATED = 48  # stacks that the INT8 ranges are computed from

Kind = Literal["onnx", "torch"]


@dataclass(frozen=True)
class ExportResult:
    """A written export: its folder, its config, and output → largest difference from torch (see `differences`).

    `reused`: it was there already.
    """

    folder: Path
    config: ExportConfig
    apart: dict[str, float]
    reused: bool = False


def export(
    model: str,
    backbone: str | None,
    out: Path,
    *,
    kind: Kind = "onnx",
    int8: bool = False,
    video: Path = EXCERPT,
    thorough: bool = False,
    log: Callable[[str], None] = lambda step: None,
) -> ExportResult:
    """Export a model and the backbone it was trained on.

    Args:
        model, backbone: folders or hub ids; no backbone for a model of event feeds.
        out: the folder to write; an export in it is replaced, or kept if it is the same one. Otherwise it must be new
            or empty.
        kind: the format.
        int8: quantise the backbone's 2D encoder (ONNX only).
        video: real frames, on which the export is compared with torch and the INT8 ranges are computed.
        thorough: compare 200 windows instead of 20.
        log: called with a line before each longer step.
    """
    if int8 and kind != "onnx":
        raise InputError("--int8 goes with --format onnx")
    check_target(out)
    anticipator, network = _load(model, backbone)
    _check_network(network, kind, int8)
    count = THOROUGH if thorough else WINDOWS
    weights, key = _hashes(model, backbone)
    describe = partial(make_config, kind, model, anticipator, network, weights=weights, key=key)
    if not int8 and (found := _reusable(out, describe, count)):
        return found
    graphs, parts = {}, make_parts(anticipator, network)
    for number, (name, part) in enumerate(parts.items(), 1):
        log(f"exporting the networks: part {number} of {len(parts)}")
        padding = network.config.padding if network else 1
        graphs[name] = to_onnx(*part) if kind == "onnx" else to_pt2(*part, padding)
    config = describe(graphs)
    run = OnnxSessions(config, graphs, name="the export").run if kind == "onnx" else _pt2(graphs)
    if network is None:
        log("comparing with torch on random features")
        apart, compared = model_differences(run, anticipator, count), count
    else:
        frames = _read_frames(video, network, kind, THOROUGH_S if thorough else CHECKED_S)
        log(f"comparing with torch on {len(frames) / FPS:.0f} s of {video.name}")
        reference = make_reference(anticipator, network, frames, count)
        apart, compared = differences(run, reference, network), len(reference.windows)
    require_agreement(apart, str(out))
    figures = {**{f"{name}{_SUFFIX}": float(f"{value:.3g}") for name, value in apart.items()}, COMPARED: compared}
    if int8 and network is not None:
        log("computing the ranges for INT8")
        small = {**graphs, "stacks": quantise(graphs["stacks"], _stacks(reference.frames, network))}
        log("scoring INT8 beside fp32 on the embedded excerpt")
        full, coarse = (OnnxRuntime(OnnxSessions(config, own)) for own in (graphs, small))
        figures |= int8_loss(full, coarse, config)
        graphs, config = small, replace(describe(small), precision="int8")
    config = replace(config, figures=figures)
    _write(out, config, graphs)
    return ExportResult(out, config, apart)


_SUFFIX = "_from_torch"  # of the figures that are differences
COMPARED = "windows_compared"


def _hashes(model: str, backbone: str | None) -> tuple[str, str]:
    """The hashes of an export's config: of the model's weights, and of all files it is made from."""
    own = backbone or named_backbone(model)
    return hashes([model])[0], export_key(model, own) if own else ""


def _load(model: str, backbone: str | None) -> tuple[Anticipator, Backbone | None]:
    """Load a model and its backbone; an InputError if they do not belong together."""
    anticipator = Anticipator.from_pretrained(model)
    backbone = backbone or named_backbone(model)
    if backbone is None:
        if detail_of(anticipator) is None:
            choose_models(model, None, "export")
        return anticipator, None
    network = Backbone.load(backbone)
    check_backbone(anticipator, network, model, backbone)
    return anticipator, network


def _check_network(network: Backbone | None, kind: Kind, int8: bool) -> None:
    """Raise an InputError if the backbone cannot be exported in this way."""
    if int8 and network is None:
        raise InputError("--int8 applies to the backbone; a model of event feeds has none")
    if network is None or network.config.shift == "none":
        return
    if int8:
        raise InputError("--int8: ranges are computed stack by stack, and a temporal shift reads windows; leave it out")
    if kind == "torch":
        raise InputError("--format torch: not for a backbone with a temporal shift, which reads windows; use onnx")


def _reusable(out: Path, describe: Callable[..., ExportConfig], windows: int) -> ExportResult | None:
    """The export in `out`, if it is one of these very weights by this version, compared on as many windows."""
    if not is_export(out):
        return None
    with suppress(InputError):  # damaged, or of another version: exported again
        _, old = read_config(out)
        for part in old.files:
            read_part(out, old, part)
        new = replace(describe({}, files=old.files), figures=old.figures)
        if new == old and old.figures.get(COMPARED, 0) >= windows:
            apart = {n.removesuffix(_SUFFIX): value for n, value in old.figures.items() if n.endswith(_SUFFIX)}
            return ExportResult(out, old, apart, reused=True)
    return None


def _read_frames(video: Path, backbone: Backbone, kind: Kind, seconds: int) -> NDArray[np.uint8]:
    with VideoFile(video) as file:
        frames = file.read(0, seconds * FPS, colour=backbone.config.colour)
    padding = backbone.config.padding
    height, width = picture_shape(frames.shape, colour=backbone.config.colour)
    if kind == "torch" and min(height, width) <= padding:
        fault = f"its frames of {width}×{height} are too small for --format torch"
        raise InputError(f"{video}: {fault}, which needs sides above {padding} pixels; give another --video")
    return frames


def int8_loss(full: OnnxRuntime, small: OnnxRuntime, config: ExportConfig) -> dict[str, float]:
    """Score both on the embedded excerpt (mAP in points), and measure how far INT8's features are from fp32's."""
    clips = read_labels(EXCERPT.parent)
    with VideoFile(EXCERPT) as file:
        frames = file.read(0, 1 << 20, colour=full.config.colour)
    found, features = {}, []
    for name, runtime in (("fp32", full), ("int8", small)):
        features.append(clip_features(runtime, frames))
        outputs = slots_along(runtime, features[-1], config.model.windows)
        found[f"excerpt_map_{name}"] = round(100 * score_slots(runtime, outputs, clips).avg, 3)
    moved = np.linalg.norm(features[1] - features[0]) / np.linalg.norm(features[0])
    return {**found, "int8_features_from_fp32": float(f"{moved:.3g}")}


def check_target(out: Path) -> None:
    """Raise an InputError unless `out` is a new folder, an empty one, or an export, even an incomplete one."""
    if out.is_file():
        raise InputError(f"{out}: is a file; give a folder to export into")
    if out.is_mount():
        raise InputError(f"{out}: is a mounted disk, which cannot be replaced in one step; give a folder in it")
    if out.is_dir():
        own = {f"{part}{suffix}" for part in PARTS for suffix in (".onnx", ".pt2")}
        own |= {CONFIG} if is_export(out) else set()
        if any(path.name not in own and path.suffix != ".tmp" for path in out.iterdir()):
            raise InputError(f"{out}: holds other files than an export's; give a new folder")
    check_writable(out / CONFIG)


def make_config(
    kind: Kind,
    source: str,
    model: Anticipator,
    backbone: Backbone | None,
    graphs: dict[str, bytes],
    *,
    files: dict[str, FileRecord] | None = None,
    weights: str = "",
    key: str = "",
) -> ExportConfig:
    """Describe an export.

    Args:
        kind: its format.
        source: where the model was loaded from.
        model, backbone: the networks; no backbone for a model of event feeds.
        graphs: the files by part.
        files: their records, where they are known already.
        weights, key: hashes of the model's weights, and of all files it was made from.
    """
    suffix = "onnx" if kind == "onnx" else "pt2"
    trained_on = model.metadata.get("backbone", {})
    record = BackboneRecord(str(trained_on.get("name", "")), str(trained_on.get("hash", "")))
    if backbone is not None:
        record = BackboneRecord(backbone.name, backbone.hash, backbone.config)
    return ExportConfig(
        kind=kind,
        precision="fp32",
        source=source,
        backbone=record,
        model=model.config,
        emit=model.emit,
        lookback=model.network.lookback,
        pos_weight=model.pos_weight,
        files=files or {part: FileRecord(f"{part}.{suffix}", sha256(raw)) for part, raw in graphs.items()},
        weights=weights,
        calibration=model.calibration,
        picture_size=trained_size(model.metadata) or (trained_size(backbone.metadata) if backbone else None),
        ballcast=__version__,
        key=key,
    )


def _write(out: Path, config: ExportConfig, graphs: dict[str, bytes]) -> None:
    """Write the export into a new folder, which then takes the place of an old one."""
    with replacing(out.resolve()) as folder:
        for part, raw in graphs.items():
            write_bytes(folder / config.files[part].file, raw)
        write_config(folder, config)


def _stacks(frames: NDArray[np.uint8], backbone: Backbone) -> list[NDArray[np.uint8]]:
    """Take stacks (1, stack, H, W) spread over the padded frames (T, H, W), or of I420."""
    c = backbone.config
    begins = np.unique(np.linspace(0, len(frames) - stack_span(c), CALIBRATED).astype(np.int64))
    return [frames[None, begin + stack_offsets(c)] for begin in begins]


def _pt2(graphs: dict[str, bytes]) -> Run:
    """Read the programs back from their bytes, to run them as they will be loaded."""
    programs = {part: torch.export.load(BytesIO(raw)).module() for part, raw in graphs.items()}

    def run(part: str, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        with torch.inference_mode():
            given = programs[part](*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
        return [tensor.numpy() for tensor in (given if isinstance(given, tuple) else (given,))]

    return run
