"""The feature store: a folder of float16 shards and a manifest, read by memory map and written in order.

    store = FeatureStore.open("features/train")
    store.windows("clip_1")        # (M, N, D) float16: M windows of N clips of D features

A shard is a safetensors file with one tensor, `features`, of shape (n, M, N, D): n entries of M windows each. Videos of
different lengths share no shard. The manifest is written last, so a folder with a manifest is a whole store.
"""

import json
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ballcast.core import hub
from ballcast.core.errors import InputError
from ballcast.core.files import show, write_bytes
from ballcast.features.manifest import FILE_NAME, Entry, Failure, Header, Manifest, Shard
from ballcast.publish.cards import store_card
from ballcast.video.luma import other_size, show_size

PARTS = "parts"  # an extraction under way keeps its finished clips here
LABELS = "Labels-ball.json"  # a split's labels travel with its features
SAMPLES = "windows.npz"  # so do the samples of an event feed
ENTRIES_PER_SHARD = 64  # 33 MB of six windows each; part of the format, since it decides the bytes of a store
_LONGEST_HEADER = 1 << 20  # a safetensors header with one tensor is far shorter


class FeatureStore:
    """A finished store, open for reading. Nothing is loaded until it is touched.

    Attributes:
        path: its folder.
        manifest: what it says of itself.
        names: the entries' names, in order.
        clips: N, clips a window.
        width: D, features a clip.
        window_starts: frame offset of each window in its video; an entry with M windows has the first M.
        identity: hash of the backbone.
        labels: the labels that lie in the store, or None.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.names = tuple(entry.name for entry in manifest.entries)
        self.clips = manifest.header.clips
        self.width = manifest.header.width
        self.window_starts = manifest.window_starts
        self.identity = manifest.header.backbone.hash
        self.labels = path / LABELS if (path / LABELS).is_file() else None
        self._entries = {entry.name: entry for entry in manifest.entries}

    @classmethod
    def open(cls, path: Path | str) -> "FeatureStore":
        """The store in the folder `path`, its shards checked against the manifest by size and shape."""
        path = Path(path)
        if not (path / FILE_NAME).is_file():
            if (path / PARTS).is_dir():
                raise InputError(f"{path}: the extraction into this store is not finished; run the same command again")
            raise InputError(f"{path}: no feature store here; make one with `ballcast extract`")
        store = cls(path, Manifest.read(path))
        store._places  # noqa: B018  (reads and checks every shard's header)
        return store

    @classmethod
    def from_pretrained(cls, source: Path | str, split: str) -> "FeatureStore":
        """The store of `split` below a folder of stores, or in a repository that `push_stores` made on the hub."""
        if Path(source).exists() or not hub.HUB_ID.fullmatch(str(source)):
            return cls.open(Path(source) / split)
        files = [f"{split}/{name}" for name in (FILE_NAME, "shard-*.safetensors", LABELS, SAMPLES)]
        folder = hub.locate(source, files, kind="dataset")
        if not (folder / split / FILE_NAME).is_file():
            raise InputError(f"{source}: has no features of {split!r} on the hub")
        return cls.open(folder / split)

    def push_to_hub(self, repo_id: str, *, private: bool = True, licence: str = "other") -> str:
        """Upload the store, its labels too, as the folder of its own name; see `push_stores`."""
        return push_stores([self], repo_id, private=private, licence=licence)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise InputError(f"{self.path}: has no features of {name!r}") from None

    def windows(self, name: str) -> np.ndarray:
        """(M, N, D) float16, a view of the file: copy what you keep."""
        entry = self.entry(name)
        return self.rows[entry.shard][entry.index]

    def starts(self, name: str) -> tuple[int, ...]:
        """Frame offset of each of the entry's windows."""
        return self.window_starts[: self.manifest.shards[self.entry(name).shard].windows]

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """Each shard's (n, M, N, D) float16, mapped."""
        return [np.memmap(path, "<f2", "r", offset, shape) for path, offset, shape in self._places]

    @cached_property
    def _places(self) -> list[tuple[Path, int, tuple[int, ...]]]:
        grid = (self.clips, self.width)
        return [_place(self.path / s.file, (s.entries, s.windows, *grid)) for s in self.manifest.shards]

    def check_finite(self) -> None:
        """Read everything once; a NaN or an infinity is an error that names its entry."""
        for entry in self.manifest.entries:
            if not np.isfinite(self.windows(entry.name)).all():
                raise InputError(f"{self.path}: the features of {entry.name} are not all finite; extract them again")

    def seen_in_training(self) -> list[str]:
        """The entries whose video its backbone learned from, as far as names tell: scores on them are too good."""
        games = set(self.manifest.header.backbone.trained_on)
        if self.path.name in {game.rpartition("/")[0] for game in games} - {""}:  # clips of a split it was trained on
            return list(self.names)
        return [entry.name for entry in self.manifest.entries if {entry.name, Path(entry.source).stem} & games]

    def check_same_backbone(self, other: "FeatureStore") -> None:
        """Features of two backbones, or of pictures of two sizes, do not go into one model."""
        if self.identity != other.identity:
            mine, theirs = (
                f"{s.path} is of {s.manifest.header.backbone.name} ({s.identity[:12]})" for s in (self, other)
            )
            raise InputError(f"two backbones do not mix: {mine}, {theirs}; extract both with one backbone")
        sizes = self.manifest.picture_size, other.manifest.picture_size
        if other_size(*sizes) and other_size(*sizes[::-1]):
            mine, theirs = (f"{s.path} saw them at {show_size(s.manifest.picture_size)}" for s in (self, other))
            raise InputError(f"two sizes of pictures do not mix: {mine}, {theirs}; extract both with one --size")


def push_stores(stores: Sequence[FeatureStore], repo_id: str, *, private: bool = True, licence: str = "other") -> str:
    """Upload stores of one backbone, each as the folder of its own name, with a card; returns the address.

    The repository is a data set on the hub, made if it is not there; other splits in it stay. `licence`: of the
    features, by the hub's short name.
    """
    named = {store.path.resolve().name: store for store in stores}
    files: dict[str, Path | bytes] = {}
    for name, store in named.items():
        stores[0].check_same_backbone(store)
        store.check_finite()
        parts = [FILE_NAME, *(shard.file for shard in store.manifest.shards)]
        parts += [extra for extra in (LABELS, SAMPLES) if (store.path / extra).is_file()]
        files |= {f"{name}/{part}": store.path / part for part in parts}
    files[hub.CARD] = store_card(repo_id, named, licence=licence).encode()
    replaces = [f"{name}/{part}" for name in named for part in ("shard-*.safetensors", LABELS, SAMPLES)]
    return hub.push(repo_id, files, private=private, kind="dataset", replaces=replaces)


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
        its pictures as they were seen; how many black frames were put at its end.
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
        shard = Shard(f"shard-{len(self._shards):05d}.safetensors", len(block), block.shape[1])
        write_bytes(
            self.folder / shard.file, save({"features": block})
        )  # safetensors' own files are for the owner only
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


def _place(path: Path, shape: tuple[int, ...]) -> tuple[Path, int, tuple[int, ...]]:
    """The shard's path, the offset of its numbers in bytes, and their shape, read from its header and checked."""
    again = "extract the features again"
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            raw = file.read(length) if 0 < length <= _LONGEST_HEADER else b""
            total = file.seek(0, 2)
    except FileNotFoundError:
        raise InputError(f"{path}: the manifest names this shard, but it is not there; {again}") from None
    try:
        told = json.loads(raw)["features"]
        dtype, found, (begin, end) = told["dtype"], tuple(told["shape"]), told["data_offsets"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is cut off or is not a shard of features; {again}") from None
    if dtype != "F16" or found != shape:
        told = f"{show(dtype)} of shape {str(found)[:60]}"
        raise InputError(f"{path}: holds {told}, but the manifest says F16 of {shape}; {again}")
    size = 2 * math.prod(shape)
    if begin != 0 or end != size or total != 8 + length + size:
        raise InputError(f"{path}: has {total} bytes instead of {8 + length + size}; {again}")
    return path, 8 + length, shape
