"""Open a model by name, in ONNX Runtime or in torch, whichever is there and fits the model and the machine.

ONNX Runtime runs exports, the embedded models, and trained models of which there is an export. torch runs everything
that was trained, and is preferred where it sees a GPU.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ballcast.core import hub
from ballcast.core.embedded import BACKBONE, MODEL, choose_models, embedded_model, named_backbone
from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.feed_config import SPOT_KIND
from ballcast.core.files import read_json
from ballcast.core.util import set_thread_defaults
from ballcast.inference.event_model import EventModel, is_event_model, open_event_model
from ballcast.inference.expected_precision import read_precision
from ballcast.inference.export_config import EMBEDDED, find_export, is_export, read_embedded
from ballcast.inference.onnx_runtime import OnnxRuntime, has_graphs
from ballcast.inference.runtime import Runtime
from ballcast.inference.spot_model import SpotModel, open_spot_model
from ballcast.video.luma import choose_size

RuntimeKind = Literal["auto", "torch", "onnx"]
TORCH_DEVICES = ("cuda", "mps", "cpu")  # in order of preference
VideoRuntime = Callable[[], Runtime]  # gives the runtime that reads frames
Exporter = Callable[[str, str], Path | None]  # model and backbone → the folder of their export; None: there is none
SIMULATED = "trained on simulated matches"  # the embedded model of videos
UNKNOWN = "trained on data it does not name"


def open_model(
    model: Path | str | None = None,
    backbone: Path | str | None = None,
    *,
    runtime: RuntimeKind = "auto",
    device: str = "auto",
    size: str | None = None,
    threads: int | None = None,
    command: str = "",
    exporter: Exporter | None = None,
) -> tuple[Runtime | EventModel | SpotModel, VideoRuntime | None]:
    """Open a model: find out what it is and what can run it here, and load its networks.

    Args:
        model: the folder of a trained model or of an export, a hub id, or "events" or "spots" for the embedded model
            of event feeds or of spots; None: the embedded model of videos.
        backbone: folder or hub id of the backbone a trained model was trained on; needed for videos only.
        runtime: "auto" chooses ONNX Runtime where it can run the model, but torch if it has a GPU.
        device: "auto", "cpu", "cuda" or "mps".
        size: size to scale frames to, see `choose_size`.
        threads: of ONNX Runtime; by default OMP_NUM_THREADS, or else the number of cores.
        command: the command that reads videos, for errors; "": videos may not be read, and the backbone be missing.
        exporter: makes an export of a trained model where torch would run it on the CPU; None: no export is made.

    Returns:
        What reads features of stores and feeds, or an event transformer, which reads feeds or spots only; and what
        gives the runtime that reads videos, None without a backbone.
    """
    exported = model is not None and holds_export(model)
    if command and not exported:
        model, backbone = choose_models(_text(model), _text(backbone), command)
    elif model is None and backbone is None:
        backbone = BACKBONE
    source = embedded_model(model)
    if is_event_model(source) or is_event_model(source, SPOT_KIND):
        return _open_events(Path(source), backbone, runtime, device, threads), None
    if exported:
        _check_export_options(source, backbone, runtime, device)
        return _open_onnx(OnnxRuntime.open(source, threads=threads), size)
    has_onnx = has_graphs(Path(source), None if backbone is None else Path(backbone))
    if runtime == "onnx":
        _check_onnx_options(source, device, has_onnx=has_onnx)
    if runtime == "onnx" or (runtime == "auto" and not _wants_torch(device)):
        if has_onnx:
            folder = None if backbone is None else Path(backbone)
            return _open_onnx(OnnxRuntime.embedded(Path(source), folder, threads=threads), size)
        if found := _export_of(source, backbone or named_backbone(source), exporter):
            return _open_onnx(OnnxRuntime.open(found, threads=threads, name=str(source)), size)
    return _open_torch(source, backbone, device, size)


def _text(name: Path | str | None) -> str | None:
    return None if name is None else str(name)


def _check_export_options(source: Path | str, backbone: Path | str | None, runtime: RuntimeKind, device: str) -> None:
    """Raise an InputError for what an export cannot do."""
    if runtime == "torch" or device in ("cuda", "mps"):
        raise InputError(f"{source}: is an export, which runs on the CPU; leave out the device and --runtime torch")
    if backbone is not None:
        raise InputError(f"{source}: is an export and holds its own backbone; leave out --backbone")


def _check_onnx_options(source: Path | str, device: str, *, has_onnx: bool) -> None:
    """Raise an InputError unless --runtime onnx can run a model that is not an export."""
    if not has_onnx:
        raise InputError(f"{source}: is not an export; make one with `ballcast export`, which needs torch")
    if device in ("cuda", "mps"):
        raise InputError("--runtime onnx runs on the CPU; leave --device out, or use --runtime torch")


def _export_of(model: Path | str, backbone: Path | str | None, exporter: Exporter | None) -> Path | None:
    """The folder of an export of a trained model and its backbone, made now if there is none; None: without one."""
    if backbone is None:
        return None
    found = find_export(model, backbone)
    if found is None and exporter is not None and Path(model).is_dir() and Path(backbone).exists():
        return exporter(str(model), str(backbone)) if find_spec("torch") is not None else None
    return found


def _open_events(
    source: Path, backbone: Path | str | None, runtime: RuntimeKind, device: str, threads: int | None
) -> EventModel | SpotModel:
    """Open an event transformer, of feeds or of spots: in ONNX Runtime, unless torch or a GPU is asked for."""
    of_spots = is_event_model(source, SPOT_KIND)
    if backbone is not None:
        kind = "spots" if of_spots else "event feeds"
        raise InputError(f"{source}: reads {kind}, not videos; leave out --backbone, or give a model for videos")
    chosen = ""
    if runtime == "torch" or device in ("cuda", "mps"):
        if find_spec("torch") is None:
            raise MissingExtra("torch", "train")
        set_thread_defaults()
        from ballcast.features.device import choose_device

        chosen = str(choose_device(device, TORCH_DEVICES))
    opened = open_spot_model if of_spots else open_event_model
    return opened(source, torch_device=chosen, threads=threads)


def origin_of(source: Path | str, weights: str = "") -> str:
    """What the model in a folder, or an export of `weights`, was trained on, in words; `metadata.origin` of its config.

    Confidences of the embedded model must not be taken for those of a model of real football: it says so everywhere.
    """
    folder = Path(source)
    embedded = read_embedded(MODEL).weights if (MODEL / EMBEDDED).is_file() else ""
    if folder.resolve() == MODEL.resolve() or (weights and weights == embedded):
        return SIMULATED
    tree = read_json(folder / "config.json", "config") if (folder / "config.json").is_file() else {}
    return str(tree.get("metadata", {}).get("origin", "")) or UNKNOWN


def _open_onnx(opened: OnnxRuntime, size: str | None) -> tuple[Runtime, VideoRuntime | None]:
    if opened.export.backbone.config is None:
        return opened, None
    opened.expected_precision = read_precision(Path(opened.name))
    opened.about["origin"] = origin_of(opened.name, opened.export.weights)
    opened.picture_size = choose_size(size, opened.picture_size, opened.name)
    return opened, lambda: opened


def _open_torch(
    source: Path | str, backbone: Path | str | None, device: str, size: str | None
) -> tuple[Runtime, VideoRuntime | None]:
    set_thread_defaults()
    if find_spec("torch") is None:
        raise MissingExtra(
            "torch", "train", f"{source}: holds the weights of a trained model; export it on a machine with torch"
        )
    from ballcast.features.device import choose_device
    from ballcast.inference.torch_runtime import TorchRuntime

    chosen = choose_device(device, TORCH_DEVICES)

    @cache
    def with_backbone(backbone: Path | str) -> TorchRuntime:
        opened = TorchRuntime.load(source, backbone, device=chosen)
        opened.expected_precision = read_precision(Path(source))
        opened.about["origin"] = origin_of(source)
        opened.picture_size = choose_size(size, opened.picture_size, str(source))
        return opened

    if backbone is not None:
        opened = with_backbone(backbone)
        return opened, lambda: opened
    # A model trained end to end names its backbone, which is loaded when a video asks for it.
    named = named_backbone(source)
    later = None if named is None else partial(with_backbone, named)
    opened = TorchRuntime.load(source, device=chosen)
    opened.expected_precision = read_precision(Path(source))
    return opened, later


def holds_export(source: Path | str) -> bool:
    """Whether a folder or a hub id holds an export."""
    if Path(source).exists() or not hub.HUB_ID.fullmatch(str(source)):
        return is_export(source)
    return is_export(hub.locate(source, ("config.json",)))


def _wants_torch(device: str) -> bool:
    """Whether to run a model that has both in torch: a GPU was asked for, or torch sees one."""
    if device != "auto":
        return device != "cpu"
    if find_spec("torch") is None or not _may_have_gpu():
        return False
    set_thread_defaults()
    from ballcast.features.device import choose_device

    return choose_device("auto", TORCH_DEVICES).type != "cpu"


def _may_have_gpu() -> bool:
    """Whether torch may see a GPU: importing torch to ask takes seconds, so drivers are looked for first."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if os.path.exists("/dev/kfd"):  # AMD
        return True
    with suppress(OSError):
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return True
    return False
