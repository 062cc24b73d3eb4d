"""An extraction under way: finished pieces of videos as small files, so that a kill costs one piece, not the run.

A piece is at most 30 s of a video. The pieces lie in the store's folder under `parts/` until all are there; then they
are merged, in order, into the store. What a piece was made of (size and time of the video) is written in it.
"""

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ballcast.core import config
from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.files import read_json, sweep, write_bytes, write_json
from ballcast.features.manifest import FILE_NAME, Header
from ballcast.features.sources import Source
from ballcast.features.store import PARTS, FeatureStore
from ballcast.video.fit import Size


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
