"""The feature store: a folder of float16 shards and a manifest, read by memory map and written in order.

    store = FeatureStore.open("features/train")
    store.windows("clip_1")        # (M, N, D) float16: M windows of N snippets of D features

A shard is a safetensors file with one tensor, `features`, of shape (n, M, N, D): n entries of M windows each. Videos of
different lengths share no shard. The manifest is written last, so a folder with a manifest is a whole store.
"""

import json
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.core import config, hub
from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.backbone_config import EVENT_GRID, BackboneIdentity, Preprocessing
from ballcast.core.checks import check_hash, show
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, write_json
from ballcast.publish.cards import store_card
from ballcast.video.luma import other_size, show_size

FORMAT = "ballcast-features"
VERSION = 1
FILE_NAME = "manifest.json"
_ENTRY_TYPES = [str, str, *[int] * 7]
_SHARD = re.compile(r"shard-\d{5}\.safetensors")
PARTS = "parts"  # an extraction under way keeps its finished clips here
LABELS = "Labels-ball.json"  # a split's labels travel with its features
WINDOWS_FILE = "windows.npz"  # so do the samples of an event feed
_LONGEST_HEADER = 1 << 20  # a safetensors header with one tensor is far shorter


@dataclass(frozen=True)
class Shard(config.Record):
    """One file of features of shape (entries, windows, snippets, width), float16."""

    file: str
    entries: int
    windows: int
    sha256: str = ""  # of the file; older stores have none

    def __post_init__(self) -> None:
        if not _SHARD.fullmatch(self.file):  # also keeps a foreign manifest from pointing outside its folder
            raise InputError(f"{self.file!r} is not a shard's name")
        if self.entries <= 0 or self.windows <= 0:
            raise InputError(f"{self.file} must hold at least one entry and one window")


@dataclass(frozen=True, slots=True)
class Entry(config.Record):
    """One video in the store, and where its features lie."""

    name: str  # "clip_1": what labels and submissions call it
    source: str  # the file it came from, relative to the folder extracted
    size: int  # of that file, bytes; with mtime_ns it shows whether the source has changed
    mtime_ns: int
    shard: int  # index of its shard
    index: int  # its row there
    height: int = 0  # of its frames as the network saw them; 0: features made elsewhere
    width: int = 0
    padded: int = 0  # black frames put at its end, where a clip had fewer than it must have


@dataclass(frozen=True)
class Failure(config.Record):
    """A video that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Header(config.Record):
    """What all entries of a store have in common."""

    backbone: BackboneIdentity
    clips: int  # N, snippets per window; the key has the name of older stores
    width: int  # D, features per snippet
    every: int = WINDOW_FRAMES  # frames from one window to the next
    fps: int = FPS
    window_frames: int = WINDOW_FRAMES
    preprocessing: Preprocessing | None = None  # None: features made elsewhere

    def __post_init__(self) -> None:
        for name in ("clips", "width", "every", "fps", "window_frames"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive")

    def check_same(self, other: "Header", folder: Path) -> None:
        """A store is never mixed from two backbones or preparations; self is what `folder` was begun with."""
        way = "give another output folder, or remove this one"
        if self.backbone.hash != other.backbone.hash:
            mine, theirs = (f"{h.backbone.name} ({h.backbone.hash[:12]})" for h in (self, other))
            raise InputError(f"{folder}: holds features of the backbone {mine}, not of {theirs}; {way}")
        sizes = [show_size(h.preprocessing.picture_size) for h in (self, other) if h.preprocessing]
        if len(set(sizes)) > 1:
            raise InputError(f"{folder}: holds features of pictures seen at {sizes[0]}, not at {sizes[1]}; {way}")
        mine_, theirs_ = ({**(d.pop("preprocessing") or {}), **d} for d in map(config.to_dict, (self, other)))
        for key in {**mine_, **theirs_}:
            if key != "backbone" and mine_.get(key) != theirs_.get(key):
                raise InputError(f"{folder}: was made with {key} {mine_.get(key)}, not {theirs_.get(key)}; {way}")


@dataclass(frozen=True)
class Manifest(config.Record):
    """All of `manifest.json`. An entry with M windows has those at `window_starts[:M]`."""

    header: Header
    window_starts: tuple[int, ...]  # frame offset of each window in its video
    shards: tuple[Shard, ...]
    entries: tuple[Entry, ...] = ()
    failed: tuple[Failure, ...] = ()

    @property
    def resolution(self) -> tuple[int, int] | None:
        """H, W of the frames as the network saw them; None: unknown, or not all the same."""
        found = {(entry.height, entry.width) for entry in self.entries}
        return found.pop() if len(found) == 1 and (0, 0) not in found else None

    @property
    def picture_size(self) -> tuple[int, int] | None:
        """H, W to fit other videos into, so that their features are like these; None: unknown."""
        fitted = self.header.preprocessing.picture_size if self.header.preprocessing else None
        return fitted or self.resolution

    def check(self, where: str) -> "Manifest":
        """Itself, if its parts fit each other."""
        longest = max((shard.windows for shard in self.shards), default=0)
        # Counts first: a damaged manifest may name more windows or entries than a list can hold.
        starts = self.window_starts
        if len(starts) != longest or any(start != self.header.every * m for m, start in enumerate(starts)):
            raise InputError(f"{where}: window_starts must be 0, {self.header.every}, … for {longest} windows")
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise InputError(f"{where}: two entries have the same name")
        places = sorted((entry.shard, entry.index) for entry in self.entries)
        count = sum(shard.entries for shard in self.shards)
        rows = ((s, i) for s, shard in enumerate(self.shards) for i in range(shard.entries))
        if count != len(places) or places != list(rows):
            raise InputError(f"{where}: the entries do not fit the shards; extract the features again")
        return self

    def write(self, folder: Path) -> None:
        tree = {"format": FORMAT, "version": VERSION, **config.to_dict(self)}
        write_json(folder / FILE_NAME, tree, indent=1, checksum=True)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / FILE_NAME
        tree = read_json(path, "feature store's manifest")
        if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
            raise InputError(f"{path}: is not the manifest of a feature store")
        if (version := tree.pop("version", None)) != VERSION:
            raise InputError(
                f"{path}: format version {version!r}, this ballcast reads version {VERSION}; "
                "extract the features again, or install the ballcast that wrote them"
            )
        rows = tree.pop("entries", None)
        if not isinstance(rows, list):
            raise InputError(f"{path}: 'entries' must be a list")
        entries = tuple(_entry(row, f"{path}: entry {i}") for i, row in enumerate(rows))
        return replace(config.from_dict(cls, tree, str(path)), entries=entries).check(str(path))


def _entry(row: Any, where: str) -> Entry:
    """One entry; the straight path is for stores of thousands, which must open in milliseconds."""
    if isinstance(row, dict) and [type(v) for v in row.values()] in (_ENTRY_TYPES, _ENTRY_TYPES[:-1]):
        with suppress(TypeError):
            return Entry(**row)
    return config.from_dict(Entry, row if isinstance(row, dict) else {}, where)


class FeatureStore:
    """A finished store, open for reading. Nothing is loaded until it is touched.

    Attributes:
        path: its folder.
        manifest: its metadata and list of entries.
        names: the entries' names, in order.
        snippets: N, snippets per window.
        width: D, features per snippet.
        window_starts: frame offset of each window in its video; an entry with M windows has the first M.
        identity: hash of the backbone.
        is_event_grid: whether the features come from event feeds and not from a network.
        labels: the labels that lie in the store, or None.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.names = tuple(entry.name for entry in manifest.entries)
        self.snippets = manifest.header.clips
        self.width = manifest.header.width
        self.window_starts = manifest.window_starts
        self.identity = manifest.header.backbone.hash
        self.is_event_grid = EVENT_GRID in manifest.header.backbone.name
        self.labels = path / LABELS if (path / LABELS).is_file() else None
        self._entries = {entry.name: entry for entry in manifest.entries}
        self._mapped: dict[int, np.ndarray] = {}  # shards in use

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
        files = [f"{split}/{name}" for name in (FILE_NAME, "shard-*.safetensors", LABELS, WINDOWS_FILE)]
        folder = hub.locate(source, files, kind="dataset")
        if not (folder / split / FILE_NAME).is_file():
            raise InputError(f"{source}: has no features of {split!r} on the hub")
        return cls.open(folder / split)

    def push_to_hub(self, repo_id: str, *, private: bool = True, licence: str = "other") -> str:
        """Upload the store, its labels too, as a folder of its name; see `push_stores`."""
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
        return self._shard(self.entry(name).shard)[self.entry(name).index]

    def starts(self, name: str) -> tuple[int, ...]:
        """Frame offset of each of the entry's windows."""
        return self.window_starts[: self.manifest.shards[self.entry(name).shard].windows]

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """Each shard's (n, M, N, D) float16, mapped, its checksum verified."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self._shard, range(len(self._places))))

    def _shard(self, number: int) -> np.ndarray:
        """A shard's numbers (n, M, N, D); the checksum of its file is verified when it is first used."""
        if number not in self._mapped:
            path, offset, shape = self._places[number]
            check_hash(path, self.manifest.shards[number].sha256, "delete the store and extract the features again")
            self._mapped[number] = np.memmap(path, "<f2", "r", offset, shape)
        return self._mapped[number]

    @cached_property
    def _places(self) -> list[tuple[Path, int, tuple[int, ...]]]:
        grid = (self.snippets, self.width)
        return [_place(self.path / s.file, (s.entries, s.windows, *grid)) for s in self.manifest.shards]

    def check_finite(self) -> None:
        """Read everything once; a NaN or an infinity is an error that names its entry."""
        for entry in self.manifest.entries:
            if not np.isfinite(self.windows(entry.name)).all():
                raise InputError(f"{self.path}: the features of {entry.name} are not all finite; extract them again")

    def seen_in_training(self) -> list[str]:
        """The entries whose video its backbone learned from, by name: scores on them are too good."""
        games = set(self.manifest.header.backbone.trained_on)
        if self.path.name in {game.rpartition("/")[0] for game in games} - {""}:  # clips of a split it was trained on
            return list(self.names)
        return [entry.name for entry in self.manifest.entries if {entry.name, Path(entry.source).stem} & games]

    def check_same_backbone(self, other: "FeatureStore") -> None:
        """Features of two backbones, or of frames of two sizes, do not go into one model."""
        if self.identity != other.identity:
            named = ((s.path, s.manifest.header.backbone.name, s.identity[:12]) for s in (self, other))
            mine, theirs = (f"{path} is of {name} ({identity})" for path, name, identity in named)
            raise InputError(f"two backbones do not mix: {mine}, {theirs}; extract both with one backbone")
        sizes = self.manifest.picture_size, other.manifest.picture_size
        if sizes[0] != sizes[1] and other_size(*sizes) and other_size(*sizes[::-1]):
            mine, theirs = (f"{s.path} saw them at {show_size(s.manifest.picture_size)}" for s in (self, other))
            raise InputError(f"two sizes of pictures do not mix: {mine}, {theirs}; extract both with one --size")


def read_rows(blocks: Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Rows (n,) numbered through all blocks, each (R, N, D) float16 → (n, N, D), read block by block."""
    offsets = np.cumsum([0, *(len(block) for block in blocks)])
    block = np.searchsorted(offsets, rows, side="right") - 1
    result = np.empty((len(rows), *blocks[0].shape[1:]), np.float16)
    order = np.argsort(block, kind="stable")  # stores of a thousand matches have as many blocks
    used, begin = np.unique(block[order], return_index=True)
    for b, mine in zip(used, np.split(order, begin[1:]), strict=True):
        result[mine] = blocks[b][rows[mine] - offsets[b]]
    return result


def push_stores(stores: Sequence[FeatureStore], repo_id: str, *, private: bool = True, licence: str = "other") -> str:
    """Upload stores of one backbone, each as a folder of its name, with a card; returns the address.

    The repository is a data set on the hub; other splits in it stay. `licence`: of the features, its short name there.
    """
    named = {store.path.resolve().name: store for store in stores}
    files: dict[str, Path | bytes] = {}
    for name, store in named.items():
        stores[0].check_same_backbone(store)
        store.check_finite()
        parts = [FILE_NAME, *(shard.file for shard in store.manifest.shards)]
        parts += [extra for extra in (LABELS, WINDOWS_FILE) if (store.path / extra).is_file()]
        files |= {f"{name}/{part}": store.path / part for part in parts}
    files[hub.CARD] = store_card(repo_id, named, licence=licence).encode()
    replaces = [f"{name}/{part}" for name in named for part in ("shard-*.safetensors", LABELS, WINDOWS_FILE)]
    return hub.push(repo_id, files, private=private, kind="dataset", replaces=replaces)


def _place(path: Path, shape: tuple[int, ...]) -> tuple[Path, int, tuple[int, ...]]:
    """The shard's path, the offset of its numbers in bytes, and their shape, read from its header and checked."""
    again = "extract the features again"
    if not path.is_file():
        raise InputError(f"{path}: the manifest names this shard, but it is not there; {again}")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        raw = file.read(length) if 0 < length <= _LONGEST_HEADER else b""
        total = file.seek(0, 2)
    try:
        tensor = json.loads(raw)["features"]
        dtype = tensor["dtype"]
        found = tuple(tensor["shape"])
        begin, end = tensor["data_offsets"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is cut off or is not a shard of features; {again}") from None
    if dtype != "F16" or found != shape:
        kind = f"{show(dtype)} of shape {str(found)[:60]}"
        raise InputError(f"{path}: holds {kind}, but the manifest says F16 of {shape}; {again}")
    size = 2 * math.prod(shape)
    if begin != 0 or end != size or total != 8 + length + size:
        raise InputError(f"{path}: has {total} bytes instead of {8 + length + size}; {again}")
    return path, 8 + length, shape
