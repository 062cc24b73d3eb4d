"""Verify the checksums of all files below a folder: feature stores, runs, models, exports, downloads."""

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ballcast.core.checks import CHECKSUM_KEY, KEY, check_hash, crc32_of, verify_checksum
from ballcast.core.errors import InputError
from ballcast.core.files import parse_json, read_bytes
from ballcast.core.progress import ProgressCallback, no_progress

KINDS = {".json", ".safetensors", ".onnx", ".pt2", ".npz"}
AGAIN = "make or fetch it again"


@dataclass(frozen=True)
class Verified:
    """What was found: numbers of files, and a sentence for each that is damaged or missing."""

    whole: int  # files with a checksum that fits
    unknown: int  # files without a checksum
    damaged: tuple[str, ...]


def verify(folder: Path, progress: ProgressCallback = no_progress) -> Verified:
    """Read every JSON, safetensors, ONNX, torch.export and npz file below `folder`, and all files of a download.

    Args:
        folder: of stores, runs, models, exports or downloads, at any depth.
        progress: called with the bytes read and in all.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of stores, runs, models or exports")
    found = sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
    if not found:
        raise InputError(f"{folder}: holds no file that ballcast writes; give one of stores, runs, models or exports")
    hashes: dict[Path, str | int] = {}  # SHA-256 or CRC-32 of other files, as JSON files record it
    whole: set[Path] = set()
    damaged: dict[Path, str] = {}
    done = 0

    def judge(path: Path, check: Callable[[Path], bool], total: int, size: int) -> None:
        nonlocal done
        try:
            if check(path):
                whole.add(path)
        except InputError as error:
            damaged[path] = str(error)
        except OSError as error:
            damaged[path] = f"{path}: cannot be read: {error.strerror}; {AGAIN}"
        done += size
        progress(done, total)

    sizes = {path: path.stat().st_size for path in found}
    for path in (path for path in found if path.suffix == ".json"):
        judge(path, lambda path: _verify_json(path, hashes), sum(sizes.values()), sizes[path])
    sizes |= {path: path.stat().st_size for path in hashes if os.path.isfile(path)}  # a name may be impossible
    for path in (path for path in {**sizes, **hashes} if path in hashes or path.suffix != ".json"):
        size = 0 if path.suffix == ".json" else sizes.get(path, 0)
        judge(path, lambda path: _verify_binary(path, hashes.get(path, "")), sum(sizes.values()), size)
    return Verified(len(whole - damaged.keys()), len(sizes.keys() - whole - damaged.keys()), tuple(damaged.values()))


def _verify_json(path: Path, hashes: dict[Path, str | int]) -> bool:
    """Verify a JSON file and add the hashes it records of other files; whether it has a checksum."""
    raw = read_bytes(path, "file")
    tree = parse_json(raw, path, "file")
    if isinstance(tree, dict):
        if isinstance(tree.get(KEY), str):
            hashes[path.with_name("model.safetensors")] = tree[KEY]
        records = tree.get("shards") or tree.get("files")
        for record in _records(records):
            beside = path.with_name(record["file"])
            if path.name != "graphs.json" or beside.is_file():  # the embedded backbone's graphs lie in its own folder
                hashes[beside] = record["sha256"]
        sums = tree.get("crc32")  # of a download, by the paths below its folder
        for name, value in sums.items() if isinstance(sums, dict) else ():
            if isinstance(value, int) and ".." not in Path(name).parts and not Path(name).is_absolute():
                hashes[path.parent / name] = value
    return CHECKSUM_KEY.encode() in raw[-256:]


def _records(found: Any) -> list[dict[str, str]]:
    """The records with a file beside and its hash, of a store's manifest or an export's config."""
    listed = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    texts = [r for r in listed if isinstance(r, dict) and all(isinstance(r.get(k), str) for k in ("file", "sha256"))]
    return [r for r in texts if r["sha256"] and Path(r["file"]).name == r["file"]]


def _verify_binary(path: Path, recorded: str | int) -> bool:
    """Verify a file by its recorded hash, or by the checksum it contains; False if there is neither."""
    if recorded != "" and not os.path.isfile(path):
        raise InputError(f"{path}: is missing; {AGAIN}")
    if isinstance(recorded, int):
        if crc32_of(path) != recorded:
            raise InputError(
                f"{path}: its checksum differs, so it was damaged or replaced; "
                f"remove it, and `ballcast download` will {AGAIN}"
            )
        return True
    if recorded:
        check_hash(path, recorded, AGAIN)
        return True
    if path.suffix == ".safetensors":
        return verify_checksum(read_bytes(path, "file"), path)
    if path.suffix != ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError):
        bad = "its list of arrays"
    if bad is not None:
        raise InputError(f"{path}: {bad} is damaged; {AGAIN}")
    return True
