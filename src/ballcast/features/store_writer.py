"""Writing a feature store: the folder of finished pieces of an extraction, then its shards and manifest."""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ballcast.core import config
from ballcast.core.checks import add_safetensors_checksum, verify_checksum
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json, sweep, write_bytes, write_json
from ballcast.features.store import FILE_NAME, PARTS, Entry, Failure, FeatureStore, Header, Manifest, Shard
from ballcast.features.videos import Piece
from ballcast.video.luma import Size

ENTRIES_PER_SHARD = 64  # 33 MB of six windows each; part of the format, since it decides the bytes of a store


class StoreWriter:
    """Writes a store entry by entry, in the order given; the bytes depend on nothing but what is added.

    Args:
        folder: where the store goes; files of an older store there are replaced.
        header: what all entries have in common.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self.header = header
        self._pending: list[np.ndarray] = []
        self._shards: list[Shard] = []
        self._entries: list[Entry] = []
        self._failed: list[Failure] = []
        (folder / FILE_NAME).unlink(missing_ok=True)  # from here to `finish` it is not a store

    def add(
        self,
        name: str,
        features: np.ndarray,
        *,
        source: str,
        size: int,
        mtime_ns: int,
        resolution: tuple[int, int] = (0, 0),
        padded: int = 0,
    ) -> None:
        """One video: `features` (M, N, D) float16, all finite; `source`, `size`, `mtime_ns` of its file; H and W of
        its frames as they were seen; how many black frames were put at its end.
        """
        check_features(features, self.header, name)
        if self._pending and (self._pending[0].shape != features.shape or len(self._pending) == ENTRIES_PER_SHARD):
            self._flush()
        place = (len(self._shards), len(self._pending))
        self._entries.append(Entry(name, source, size, mtime_ns, *place, *resolution, padded))
        self._pending.append(features)

    def fail(self, name: str, reason: str) -> None:
        """One video that gave no features."""
        self._failed.append(Failure(name, reason))

    def finish(self) -> FeatureStore:
        """Write what is left, then the manifest, and open the store."""
        if not self._entries:
            raise InputError(f"{self.folder}: there is nothing to store")
        self._flush()
        for stale in self.folder.glob("shard-*.safetensors"):
            if stale.name not in {shard.file for shard in self._shards}:
                stale.unlink()
        longest = max(shard.windows for shard in self._shards)
        Manifest(
            self.header,
            tuple(self.header.every * m for m in range(longest)),
            tuple(self._shards),
            tuple(self._entries),
            tuple(self._failed),
        ).check(str(self.folder)).write(self.folder)
        return FeatureStore.open(self.folder)

    def _flush(self) -> None:
        block = np.stack(self._pending)  # (n, M, N, D)
        raw = save({"features": block})
        name = f"shard-{len(self._shards):05d}.safetensors"
        shard = Shard(name, len(block), block.shape[1], hashlib.sha256(raw).hexdigest())
        write_bytes(self.folder / name, raw)  # safetensors' own files are for the owner only
        self._shards.append(shard)
        self._pending = []


def check_features(features: np.ndarray, header: Header, name: str) -> None:
    """(M, N, D) float16 with the header's N and D and every number finite, or an error that names the entry."""
    grid = (header.clips, header.width)
    if features.ndim != 3 or features.shape[1:] != grid or len(features) == 0:
        raise InputError(f"{name}: features of shape {features.shape}, expected (windows, {grid[0]}, {grid[1]})")
    if features.dtype != np.float16:
        raise InputError(f"{name}: features of type {features.dtype}, expected float16")
    if not np.isfinite(features).all():
        raise InputError(f"{name}: the features hold NaN or infinite numbers")


class Parts:
    """The folder of pieces of the store at `out`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out / PARTS
        self._made_by = ""  # the header, so that no piece of another backbone is ever trusted

    def begin(self, header: Header) -> None:
        """Make the folder, or take it up again if it was begun with the same backbone and preparation."""
        self._made_by = hashlib.sha256(repr(header).encode()).hexdigest()
        path = self.folder / "header.json"
        if path.is_file():
            config.from_dict(Header, read_json(path, "header of the parts"), str(path)).check_same(header, self.out)
        else:
            write_json(path, config.to_dict(header), indent=1, checksum=True)
        sweep(self.out)

    def write(self, piece: Piece, features: np.ndarray, resolution: Size, padded: int = 0) -> None:
        """Keep a piece: features (M, N, D) float16, H and W of its frames as seen, black frames at its end."""
        about = {**self._stamp(piece), "resolution": "{} {}".format(*resolution), "padded": str(padded)}
        write_bytes(self._path(piece), add_safetensors_checksum(save({"features": features}, about)))

    def read(self, piece: Piece) -> tuple[np.ndarray, Size, int]:
        """A kept piece: features (M, N, D) float16, H and W, and the black frames at its end."""
        path = self._path(piece)
        try:
            verify_checksum(read_bytes(path, "features of a piece"), path)
        except InputError:
            path.unlink(missing_ok=True)
            raise InputError(f"{path}: was damaged and is removed; run the same command again") from None
        with safe_open(path, "numpy") as file:
            about = file.metadata()
            height, width = map(int, about["resolution"].split())
            return file.get_tensor("features"), (height, width), int(about.get("padded", 0))

    def has(self, piece: Piece) -> bool:
        """Whether the piece is kept, whole, and of the video as it is now."""
        try:
            verify_checksum(self._path(piece).read_bytes(), self._path(piece))
            with safe_open(self._path(piece), "numpy") as file:  # checks the file's length against its header
                stamp = file.metadata() or {}
        except (FileNotFoundError, SafetensorError, InputError):
            return False
        return all(stamp.get(key) == value for key, value in self._stamp(piece).items())

    def unpack(self, store: FeatureStore, pieces: Iterable[Piece]) -> None:
        """Turn a finished store back into pieces, those of unchanged videos; after this it is a store no more."""
        for piece in pieces:
            source = piece.source
            entry = store.entry(source.name) if source.name in store else None
            if entry and (entry.size, entry.mtime_ns, entry.source) == (source.size, source.mtime_ns, source.label):
                features = store.windows(source.name)[piece.first : piece.first + piece.windows]
                if len(features):
                    self.write(piece, np.array(features), (entry.height, entry.width), entry.padded)
        (self.out / FILE_NAME).unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, piece: Piece) -> Path:
        key = hashlib.sha256(piece.source.name.encode()).hexdigest()[:24]  # names may hold what file names may not
        return self.folder / f"{key}-{piece.number:05d}.safetensors"

    def _stamp(self, piece: Piece) -> dict[str, str]:
        """What the piece was made of, and by."""
        source = piece.source
        what = (source.label, source.size, source.mtime_ns, piece.first, piece.windows, piece.every, self._made_by)
        keys = ("source", "size", "mtime_ns", "first", "windows", "every", "made_by")
        return dict(zip(keys, map(str, what), strict=True))
