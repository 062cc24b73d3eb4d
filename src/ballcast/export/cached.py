"""Exports of trained models in the cache, made once, so that they run in ONNX Runtime where there is no GPU."""

import shutil
from collections.abc import Callable
from pathlib import Path

from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.files import check_writable, write_bytes
from ballcast.export.check import ExportMismatch
from ballcast.export.export import export
from ballcast.inference.export_config import CONFIG, cached_export, export_key, find_export

KEPT = 8  # exports in the cache; the oldest go
REFUSED = ".refused"  # beside the folder: why this model cannot be exported, so that it is tried once only


def export_once(model: str, backbone: str, log: Callable[[str], None] = lambda step: None) -> tuple[Path | None, str]:
    """Export a model into the cache, compared with torch as `ballcast export` does.

    Args:
        model, backbone: their folders.
        log: called with a line before each longer step.

    Returns:
        The folder; or None, and why there is no export.

    Raises:
        NoSpace: the disk is full. In torch the forecasts would differ in their last digits from those with room.
    """
    folder = cached_export(export_key(model, backbone))
    refused = folder.with_suffix(REFUSED)
    if refused.is_file():
        return None, refused.read_text()
    if (found := find_export(model, backbone)) is not None:  # another process has made it meanwhile
        return found, ""
    try:
        check_writable(folder / CONFIG)
    except InputError as error:  # of the cache, not of the model
        return None, str(error)
    shutil.rmtree(folder, ignore_errors=True)  # one that is there was not used, so it is damaged
    try:
        export(model, backbone, folder, log=log)
    except (InputError, ExportMismatch) as error:
        write_bytes(refused, str(error).encode())
        return None, str(error)
    except MissingExtra as error:  # no onnx: of this machine, so it is tried again
        return None, str(error)
    _prune(folder.parent)
    return folder, ""


def _prune(folder: Path) -> None:
    """Keep the newest exports."""
    exports = [path for path in folder.iterdir() if path.is_dir() and len(path.name) == 32]
    for path in sorted(exports, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
