"""Which videos there are to extract, and the pieces they are cut into, finished ones kept as small files."""

import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ballcast.core import config
from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, sweep, write_bytes, write_json
from ballcast.core.util import natural
from ballcast.features.manifest import FILE_NAME, Header
from ballcast.features.store import PARTS, FeatureStore
from ballcast.video.luma import Size

SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".ts", ".mpg", ".mpeg")
_CLIP = re.compile(r"clip_\d+")


@dataclass(frozen=True)
class Source:
    """One video.

    Attributes:
        name: its entry's name in the store.
        path: the file.
        label: the file relative to what was given, as the store records it.
        frames: how many frames it must have, for a clip of SN-BAA; None: as many as it has.
    """

    name: str
    path: Path
    label: str
    frames: int | None
    size: int
    mtime_ns: int


def find_sources(given: Path) -> list[Source]:
    """The videos at `given`, in natural order; folders clip_1, clip_2, … make it a split of SN-BAA."""
    if given.is_file():
        return [_source(given.stem, given, given.parent, None)]
    if not given.is_dir():
        raise InputError(f"{given}: no such file or folder; give a video, a folder of videos or a split of SN-BAA")
    inside = sorted(given.iterdir(), key=lambda path: natural(path.name))
    clips = [path for path in inside if path.is_dir() and _CLIP.fullmatch(path.name)]
    if clips:
        return [_source(clip.name, clip_video(clip, missing_ok=True), given, CLIP_FRAMES) for clip in clips]
    videos = [path for path in inside if _is_video(path)]
    if not videos:
        splits = [
            path.name for path in inside if path.is_dir() and any(_CLIP.fullmatch(p.name) for p in path.iterdir())
        ]
        hint = f"; give one of its splits, such as {given / splits[0]}" if splits else ""
        raise InputError(f"{given}: has no videos ({', '.join(SUFFIXES)}) and no folders clip_1, clip_2, …{hint}")
    stems = [path.stem for path in videos]
    names = [path.stem if stems.count(path.stem) == 1 else path.name for path in videos]
    if len(set(names)) < len(names):  # a.mp4, a.mkv and a.mp4.mkv
        names = [path.name for path in videos]
    return [_source(name, path, given, None) for name, path in zip(names, videos, strict=True)]


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def clip_video(folder: Path, *, missing_ok: bool = False) -> Path:
    """Find the only video of a clip's folder; an InputError if there are several, such as two resolutions.

    Args:
        folder: such as `train/clip_1`.
        missing_ok: if there is none, return the path it should have instead of raising an InputError.
    """
    videos = sorted(path for path in folder.glob("*") if _is_video(path))
    if len(videos) > 1 or not (videos or missing_ok):
        raise InputError(f"{folder}: has {len(videos)} videos; a clip's folder must have one")
    return videos[0] if videos else folder / "224p.mp4"  # missing: listed as failed, the others are still extracted


def _source(name: str, path: Path, root: Path, frames: int | None) -> Source:
    found = path.stat() if path.exists() else None
    label = _readable(path.relative_to(root).as_posix())
    return Source(
        _readable(name), path, label, frames, found.st_size if found else 0, found.st_mtime_ns if found else 0
    )


def _readable(name: str) -> str:
    """The name with bytes that are not UTF-8 written out: manifests and terminals hold text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Piece:
    """Consecutive windows of one video: `windows` of them from the window number `first`, `every` frames apart."""

    source: Source
    number: int  # of the piece in its video
    first: int
    windows: int
    every: int
    decoder: str = "cpu"  # what decodes it: "cpu", or "cuda" for NVDEC
    picture_size: Size | None = None  # H, W that its pictures are fitted into; None: they stay as they are
    pad: int = 0  # frames that may be missing at the end of a clip

    @property
    def start(self) -> int:
        """Its first frame."""
        return self.first * self.every

    @property
    def stop(self) -> int:
        """The frame after its last."""
        return (self.first + self.windows - 1) * self.every + WINDOW_FRAMES


def cut(source: Source, frames: int, every: int) -> list[Piece]:
    """The pieces of a video of so many frames."""
    windows = max(0, (frames - WINDOW_FRAMES) // every + 1)
    most = (CLIP_FRAMES - WINDOW_FRAMES) // every + 1  # windows a piece
    return [Piece(source, i, at, min(most, windows - at), every) for i, at in enumerate(range(0, windows, most))]


class Parts:
    """The folder of pieces of the store at `out`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out / PARTS
        self._made_by = ""  # the header, so that no piece of another backbone is ever trusted

    def begin(self, header: Header) -> None:
        """Make the folder, or take it up again if it was begun with the same backbone and preparation."""
        self._made_by = hashlib.sha256(repr(header).encode()).hexdigest()
        told = self.folder / "header.json"
        if told.is_file():
            config.from_dict(Header, read_json(told, "header of the parts"), str(told)).check_same(header, self.out)
        else:
            write_json(told, config.to_dict(header), indent=1)
        sweep(self.out)

    def write(self, piece: Piece, features: np.ndarray, resolution: Size, padded: int = 0) -> None:
        """Keep a piece: features (M, N, D) float16, H and W of its pictures as seen, black frames at its end."""
        about = {**self._stamp(piece), "resolution": "{} {}".format(*resolution), "padded": str(padded)}
        write_bytes(self._path(piece), save({"features": features}, about))

    def read(self, piece: Piece) -> tuple[np.ndarray, Size, int]:
        """A kept piece: features (M, N, D) float16, H and W, and the black frames at its end."""
        with safe_open(self._path(piece), "numpy") as file:
            about = file.metadata()
            height, width = map(int, about["resolution"].split())
            return file.get_tensor("features"), (height, width), int(about.get("padded", 0))

    def has(self, piece: Piece) -> bool:
        """Whether the piece is kept, whole, and of the video as it is now."""
        try:
            with safe_open(self._path(piece), "numpy") as file:  # checks the file's length against its header
                told = file.metadata() or {}
        except (FileNotFoundError, SafetensorError):
            return False
        return all(told.get(key) == value for key, value in self._stamp(piece).items())

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
