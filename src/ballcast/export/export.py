"""Export a model and its backbone as ONNX graphs; written only if they agree with torch."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ballcast import __version__
from ballcast.core.actions import FPS
from ballcast.core.backbone_config import trained_size
from ballcast.core.embedded import SAMPLES, choose_models, named_backbone
from ballcast.core.errors import InputError
from ballcast.core.files import check_writable, replacing, write_bytes
from ballcast.export.check import (
    THOROUGH,
    WINDOWS,
    differences,
    make_reference,
    model_differences,
    require_agreement,
)
from ballcast.export.parts import make_parts, to_onnx
from ballcast.features.backbone import Backbone
from ballcast.inference.export_config import (
    CONFIG,
    PARTS,
    BackboneRecord,
    ExportConfig,
    FileRecord,
    export_key,
    is_export,
    read_export,
    read_part,
    sha256,
    write_config,
)
from ballcast.inference.feed_predictor import detail_of
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.store_predictor import check_backbone, hashes
from ballcast.model.anticipator import Anticipator
from ballcast.video.file import VideoFile

EXCERPT = SAMPLES / "test" / "excerpt.mp4"
CHECKED_S, THOROUGH_S = 8, 40  # seconds of video compared: enough for 20 and for 200 windows


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
    video: Path = EXCERPT,
    thorough: bool = False,
    log: Callable[[str], None] = lambda step: None,
) -> ExportResult:
    """Export a model and the backbone it was trained on.

    Args:
        model, backbone: folders or hub ids; no backbone for a model of event feeds.
        out: the folder to write; an export in it is replaced, or kept if it is the same one. Otherwise it must be new
            or empty.
        video: real frames, on which the export is compared with torch.
        thorough: compare 200 windows instead of 20.
        log: called with a line before each longer step.
    """
    check_target(out)
    anticipator, network = _load(model, backbone)
    count = THOROUGH if thorough else WINDOWS
    weights, key = _hashes(model, backbone)
    describe = partial(make_config, model, anticipator, network, weights=weights, key=key)
    if found := _reusable(out, describe, count):
        return found
    graphs = {}
    parts = make_parts(anticipator, network)
    for number, (name, part) in enumerate(parts.items(), 1):
        log(f"exporting the networks: part {number} of {len(parts)}")
        graphs[name] = to_onnx(*part)
    config = describe(graphs)
    run = OnnxRuntime(config, graphs, name="the export").run
    if network is None:
        log("comparing with torch on random features")
        apart = model_differences(run, anticipator, count)
        compared = count
    else:
        frames = _read_frames(video, network, THOROUGH_S if thorough else CHECKED_S)
        log(f"comparing with torch on {len(frames) / FPS:.0f} s of {video.name}")
        reference = make_reference(anticipator, network, frames, count)
        apart = differences(run, reference, network)
        compared = len(reference.windows)
    require_agreement(apart, str(out))
    figures = {**{f"{name}{_SUFFIX}": float(f"{value:.3g}") for name, value in apart.items()}, COMPARED: compared}
    config = replace(config, figures=figures)
    _write(out, config, graphs)
    return ExportResult(out, config, apart)


_SUFFIX = "_from_torch"  # of the figures that are differences
COMPARED = "windows_compared"


def _hashes(model: str, backbone: str | None) -> tuple[str, str]:
    """The hashes of an export's config: of the model's weights, and of all files it is made from."""
    used = backbone or named_backbone(model)
    return hashes([model])[0], export_key(model, used) if used else ""


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


def _reusable(out: Path, describe: Callable[..., ExportConfig], windows: int) -> ExportResult | None:
    """The export in `out`, if it is one of these very weights by this version, compared on as many windows."""
    if not is_export(out):
        return None
    with suppress(InputError):  # damaged, or of another version: exported again
        _, old = read_export(out)
        for part in old.files:
            read_part(out, old, part)
        new = replace(describe({}, files=old.files), figures=old.figures)
        if new == old and old.figures.get(COMPARED, 0) >= windows:
            apart = {n.removesuffix(_SUFFIX): value for n, value in old.figures.items() if n.endswith(_SUFFIX)}
            return ExportResult(out, old, apart, reused=True)
    return None


def _read_frames(video: Path, backbone: Backbone, seconds: int) -> NDArray[np.uint8]:
    with VideoFile(video) as file:
        return file.read(0, seconds * FPS, colour=backbone.config.colour)


def check_target(out: Path) -> None:
    """Raise an InputError unless `out` is a new folder, an empty one, or an export, even an incomplete one."""
    if out.is_file():
        raise InputError(f"{out}: is a file; give a folder to export into")
    if out.is_mount():
        raise InputError(f"{out}: is a mounted disk, which cannot be replaced in one step; give a folder in it")
    if out.is_dir():
        exported = {f"{part}{suffix}" for part in PARTS for suffix in (".onnx", ".pt2")}
        exported |= {CONFIG} if is_export(out) else set()
        if any(path.name not in exported and path.suffix != ".tmp" for path in out.iterdir()):
            raise InputError(f"{out}: holds other files than an export's; give a new folder")
    check_writable(out / CONFIG)


def make_config(
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
        source: where the model was loaded from.
        model, backbone: the networks; no backbone for a model of event feeds.
        graphs: the files by part.
        files: their records, where they are known already.
        weights, key: hashes of the model's weights, and of all files it was made from.
    """
    trained_on = model.metadata.get("backbone", {})
    record = BackboneRecord(str(trained_on.get("name", "")), str(trained_on.get("hash", "")))
    if backbone is not None:
        record = BackboneRecord(backbone.name, backbone.hash, backbone.config)
    return ExportConfig(
        kind="onnx",
        precision="fp32",
        source=source,
        backbone=record,
        model=model.config,
        emit=model.emit,
        lookback=model.network.lookback,
        pos_weight=model.pos_weight,
        files=files or {part: FileRecord(f"{part}.onnx", sha256(raw)) for part, raw in graphs.items()},
        weights=weights,
        calibration=model.score_mapping,
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
