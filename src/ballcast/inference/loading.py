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
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ballcast.core import hub
from ballcast.core.embedded import BACKBONE, MODEL, embedded_model, named_backbone
from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.files import read_json
from ballcast.core.util import set_thread_defaults
from ballcast.inference.event_model import EventModel, is_event_model, open_event_model
from ballcast.inference.expected_precision import ExpectedPrecision, read_precision
from ballcast.inference.export_config import EMBEDDED, find_export, is_export, read_embedded
from ballcast.inference.onnx_runtime import OnnxModel, OnnxRuntime, OnnxSessions, has_graphs
from ballcast.inference.runtime import Runtime, WindowModel
from ballcast.video.luma import choose_size

RuntimeKind = Literal["auto", "torch", "onnx"]
TORCH_DEVICES = ("cuda", "mps", "cpu")  # in order of preference
SIMULATED = "trained on simulated matches"  # the embedded model of videos
UNKNOWN = "trained on data it does not name"


@dataclass(frozen=True)
class OpenedModel:
    """A model whose networks are loaded.

    - `name`: as in results. `runtime`: "onnx", or torch's device.
    - `window_model`: runs it on features of stores and feeds; None: it is an event transformer.
    - `new_runtime`: makes a runtime for one stream of frames; all share the networks. None: it has no backbone.
    - `event_model`: the event transformer, which reads feeds only.
    """

    name: str
    runtime: str
    window_model: WindowModel | None
    new_runtime: Callable[[], Runtime] | None
    event_model: EventModel | None = None

    @property
    def precision(self) -> ExpectedPrecision | None:
        """How often its predictions come true, by action and confidence; None: not measured (`ballcast tune`)."""
        return read_precision(Path(self.name))


def open_model(
    model: Path | str | None = None,
    backbone: Path | str | None = None,
    *,
    runtime: RuntimeKind = "auto",
    device: str = "auto",
    size: str | None = None,
    threads: int | None = None,
) -> OpenedModel:
    """Open a model.

    Args:
        model: the folder of a trained model or of an export, a hub id, or "events" for the embedded model of event
            feeds; None: the embedded model of videos.
        backbone: folder or hub id of the backbone a trained model was trained on; needed for videos only.
        runtime: "auto" chooses ONNX Runtime where it can run the model, but torch if it has a GPU.
        device: "auto", "cpu", "cuda" or "mps".
        size: size to scale frames to, see `choose_size`.
        threads: of ONNX Runtime; by default OMP_NUM_THREADS, or else the number of cores.
    """
    source = embedded_model(model)
    if model is None and backbone is None:
        backbone = BACKBONE
    if is_event_model(source):
        return _open_events(Path(source), backbone, runtime, device, threads)
    exported = holds_export(source)
    light = exported or has_graphs(Path(source), None if backbone is None else Path(backbone))
    if exported and (runtime == "torch" or device in ("cuda", "mps")):
        raise InputError(f"{source}: is an export, which runs on the CPU; leave out the device and --runtime torch")
    if exported and backbone is not None:
        raise InputError(f"{source}: is an export and holds its own backbone; leave out --backbone")
    if runtime == "onnx" and not light:
        raise InputError(f"{source}: is not an export; make one with `ballcast export`, which needs torch")
    if runtime == "onnx" and device in ("cuda", "mps"):
        raise InputError("--runtime onnx runs on the CPU; leave --device out, or use --runtime torch")
    if exported or runtime == "onnx" or (light and runtime == "auto" and not _wants_torch(device)):
        sessions = (
            OnnxSessions.open(source, threads=threads)
            if exported
            else OnnxSessions.embedded(Path(source), None if backbone is None else Path(backbone), threads=threads)
        )
        return _open_onnx(sessions, size)
    own = backbone or named_backbone(source)
    if runtime == "auto" and own and not _wants_torch(device) and (found := find_export(source, own)):
        return _open_onnx(OnnxSessions.open(found, threads=threads, name=str(source)), size)
    return _open_torch(source, backbone, device, size)


def needs_export(model: Path | str, backbone: Path | str, device: str) -> bool:
    """Whether a trained model would run in torch on the CPU, where an export would be faster: it has none yet."""
    here = Path(model).is_dir() and Path(backbone).exists() and find_spec("torch") is not None
    light = not here or holds_export(model) or has_graphs(Path(model), Path(backbone)) or is_event_model(Path(model))
    return not light and not _wants_torch(device) and find_export(model, backbone) is None


def _open_events(
    source: Path, backbone: Path | str | None, runtime: RuntimeKind, device: str, threads: int | None
) -> OpenedModel:
    """Open an event transformer: in ONNX Runtime, unless torch or a GPU is asked for."""
    if backbone is not None:
        raise InputError(f"{source}: reads event feeds, not videos; leave out --backbone, or give a model for videos")
    chosen = ""
    if runtime == "torch" or device in ("cuda", "mps"):
        if find_spec("torch") is None:
            raise MissingExtra("torch", "train")
        set_thread_defaults()
        from ballcast.features.device import choose_device

        chosen = str(choose_device(device, TORCH_DEVICES))
    model = open_event_model(source, torch_device=chosen, threads=threads)
    return OpenedModel(model.name, model.runtime, None, None, model)


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


def _open_onnx(sessions: OnnxSessions, size: str | None) -> OpenedModel:
    windows = OnnxModel(sessions)
    if sessions.config.backbone.config is None:
        return OpenedModel(sessions.name, "onnx", windows, None)
    opened = OnnxRuntime(sessions)
    opened.about["origin"] = origin_of(sessions.name, sessions.config.weights)
    opened.picture_size = choose_size(size, opened.picture_size, sessions.name)
    return OpenedModel(sessions.name, "onnx", windows, lambda: opened)


def _open_torch(source: Path | str, backbone: Path | str | None, device: str, size: str | None) -> OpenedModel:
    set_thread_defaults()
    if find_spec("torch") is None:
        raise MissingExtra(
            "torch", "train", f"{source}: holds the weights of a trained model; export it on a machine with torch"
        )
    from ballcast.features.device import choose_device
    from ballcast.inference.torch_runtime import TorchModel, TorchRuntime

    chosen = choose_device(device, TORCH_DEVICES)

    @cache
    def first(backbone: Path | str) -> TorchRuntime:
        opened = TorchRuntime.load(source, backbone, device=chosen)
        opened.about["origin"] = origin_of(source)
        opened.picture_size = choose_size(size, opened.picture_size, str(source))
        return opened

    if backbone is not None:
        return OpenedModel(str(source), str(chosen), TorchModel(first(backbone).model, chosen), first(backbone).another)
    # A model trained end to end names its backbone, which is loaded when a video asks for it.
    own = named_backbone(source)
    later = (lambda: first(own).another()) if own is not None else None
    return OpenedModel(str(source), str(chosen), TorchModel.load(source, chosen), later)


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
