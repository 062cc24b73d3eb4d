"""What a feature store says of itself: `manifest.json`, as records checked at the boundary."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ballcast.core import config
from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.backbone_config import MAX_SIDE, BackboneIdentity, is_size
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, write_json
from ballcast.video.luma import show_size

FORMAT, VERSION = "ballcast-features", 1
FILE_NAME = "manifest.json"
_ENTRY_TYPES = [str, str, *[int] * 7]
_SHARD = re.compile(r"shard-\d{5}\.safetensors")


@dataclass(frozen=True)
class Preprocessing:
    """How frames became the network's input: counts of frames, pixels, and the arithmetic."""

    frames: int  # frames a clip takes
    step: int  # frames from one sampled frame to the next
    stack: int  # sampled frames in one input of the 2D encoder
    span: int  # frames a clip covers, first to last
    stride: int  # frames from one clip to the next
    padding: int  # the picture is zero-padded, centred, to a multiple of this
    precision: str  # fp32 or fp16
    picture_size: tuple[int, int] | None = None  # H, W that pictures were fitted into first; None: left as they were

    def __post_init__(self) -> None:
        if self.picture_size is not None and not is_size(self.picture_size):
            raise InputError(f"picture_size must be a height and a width between 1 and {MAX_SIDE} pixels")


@dataclass(frozen=True)
class Shard:
    """One file of features of shape (entries, windows, clips, width), float16."""

    file: str
    entries: int
    windows: int

    def __post_init__(self) -> None:
        if not _SHARD.fullmatch(self.file):  # also keeps a foreign manifest from pointing outside its folder
            raise InputError(f"{self.file!r} is not a shard's name")
        if self.entries <= 0 or self.windows <= 0:
            raise InputError(f"{self.file} must hold at least one entry and one window")


@dataclass(frozen=True, slots=True)
class Entry:
    """One video in the store, and where its features lie."""

    name: str  # "clip_1": what labels and submissions call it
    source: str  # the file it came from, relative to the folder extracted
    size: int  # of that file, bytes; with mtime_ns it tells whether the source has changed since
    mtime_ns: int
    shard: int  # index of its shard
    index: int  # its row there
    height: int = 0  # of its pictures as the network saw them; 0: features made elsewhere
    width: int = 0
    padded: int = 0  # black frames put at its end, where a clip had fewer than it must have


@dataclass(frozen=True)
class Failure:
    """A video that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Header:
    """What all entries of a store have in common."""

    backbone: BackboneIdentity
    clips: int  # N, clips a window
    width: int  # D, features a clip
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
        mine_, theirs_ = config.to_dict(self), config.to_dict(other)
        for key in mine_:
            if key != "backbone" and mine_[key] != theirs_[key]:
                raise InputError(f"{folder}: was made with {key} {mine_[key]}, not {theirs_[key]}; {way}")


@dataclass(frozen=True)
class Manifest:
    """All of `manifest.json`. An entry with M windows has those at `window_starts[:M]`."""

    header: Header
    window_starts: tuple[int, ...]  # frame offset of each window in its video
    shards: tuple[Shard, ...]
    entries: tuple[Entry, ...] = ()
    failed: tuple[Failure, ...] = ()

    @property
    def resolution(self) -> tuple[int, int] | None:
        """H, W of the pictures as the network saw them; None: unknown, or not all the same."""
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
        write_json(folder / FILE_NAME, tree, indent=1)

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
