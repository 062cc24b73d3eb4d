"""Verify the checksums of all files below a folder: feature stores, runs, models, exports."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ballcast.core.checks import KEY, SIGNATURE, check_hash, check_signature
from ballcast.core.errors import InputError
from ballcast.core.files import parse_json, read_bytes

KINDS = {".json", ".safetensors", ".onnx", ".pt2", ".npz"}
AGAIN = "make or fetch it again"


@dataclass(frozen=True)
class Verified:
    """What was found: numbers of files, and a sentence for each that is damaged or missing."""

    whole: int  # files with a checksum that fits
    unknown: int  # files without a checksum
    damaged: tuple[str, ...]


def verify(folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Verified:
    """Read every JSON, safetensors, ONNX, torch.export and npz file below `folder` and verify its checksum.

    Args:
        folder: of stores, runs, models or exports, at any depth.
        progress: called with the bytes read and in all.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of stores, runs, models or exports")
    found = sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
    if not found:
        raise InputError(f"{folder}: holds no file that ballcast writes; give one of stores, runs, models or exports")
    sizes = {path: path.stat().st_size for path in found}
    total, done = sum(sizes.values()), 0
    hashes: dict[Path, str] = {}  # of other files, as JSON files beside them record it
    damaged: list[str] = []
    whole = 0
    for path in sorted(found, key=lambda path: path.suffix != ".json"):
        try:
            if path.suffix == ".json":
                whole += _verify_json(path, hashes)
            else:
                whole += _verify_binary(path, hashes.pop(path, ""))
        except InputError as error:
            damaged.append(str(error))
        done += sizes[path]
        progress(done, total)
    damaged += [str(InputError(f"{path}: is missing; {AGAIN}")) for path in hashes]  # escapes what a name may hold
    return Verified(whole, len(found) - whole - (len(damaged) - len(hashes)), tuple(damaged))


def _verify_json(path: Path, hashes: dict[Path, str]) -> bool:
    """Verify a JSON file and add the hashes it records of the files beside it; whether it has a checksum."""
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
    return SIGNATURE.encode() in raw[-256:]


def _records(found: Any) -> list[dict[str, str]]:
    """The records with a file beside and its hash, of a store's manifest or an export's config."""
    listed = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    texts = [r for r in listed if isinstance(r, dict) and all(isinstance(r.get(k), str) for k in ("file", "sha256"))]
    return [r for r in texts if r["sha256"] and Path(r["file"]).name == r["file"]]


def _verify_binary(path: Path, sha256: str) -> bool:
    """Verify a file by its recorded hash, or by the checksum it contains; False if there is neither."""
    if sha256:
        check_hash(path, sha256, AGAIN)
        return True
    if path.suffix == ".safetensors":
        return check_signature(read_bytes(path, "file"), path)
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
