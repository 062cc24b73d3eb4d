"""Stores made from elsewhere: `.npy` files of other networks, and clips cut out of a whole game's store."""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

import numpy as np

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import InputError, first_line
from ballcast.core.files import replacing
from ballcast.core.util import natural
from ballcast.features.store import LABELS, FeatureStore, Header
from ballcast.features.store_writer import StoreWriter


def import_npy(
    source: Path, out: Path, *, name: str, snippets: int = 33, every: int = 125, expected: Sequence[str] = ()
) -> FeatureStore:
    """A store at `out` of the arrays in the folder `source`, one `clip_1.npy` per clip.

    Args:
        source: its files are (W, N, D), or (W·N, D) with the windows one after the other; numbers of any float type.
            A `Labels-ball.json` beside them is copied into the store.
        out: the new store; it must not exist.
        name: what to call the backbone that made them. Stores imported under one name count as of one backbone.
        snippets: N, to cut the rows of a (W·N, D) array into windows.
        every: frames from one window to the next.
        expected: names that must all be there; without it, only a gap in clip_1, clip_2, … is noticed.
    """
    if not source.is_dir():
        raise InputError(f"{source}: no such folder; give the folder with the .npy files")
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"{out}: is there already; give a new folder for the store")
    files = {path.stem: path for path in sorted(source.glob("*.npy"), key=lambda path: natural(path.stem))}
    if not files:
        raise InputError(f"{source}: has no .npy files")
    if missing := [clip for clip in expected or _numbered(files) if clip not in files]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{source}: {missing[0]}.npy{more} missing")
    first = _read(next(iter(files.values())), snippets)
    digest = hashlib.sha256(f"imported {name}".encode()).hexdigest()
    header = Header(BackboneIdentity(digest, name, note="imported"), first.shape[1], first.shape[2], every)
    with replacing(out) as temporary:
        temporary.mkdir(parents=True)
        writer = StoreWriter(temporary, header)
        for clip, path in files.items():
            features = _read(path, snippets)
            stat = path.stat()
            if features.shape[1:] != first.shape[1:]:
                raise InputError(f"{path}: windows of {features.shape[1:]}, the files before it have {first.shape[1:]}")
            writer.add(clip, features, source=path.name, size=stat.st_size, mtime_ns=stat.st_mtime_ns)
        if (source / LABELS).is_file():
            shutil.copyfile(source / LABELS, temporary / LABELS)
        writer.finish()
        if out.exists():
            out.rmdir()  # an empty folder was given
    return FeatureStore.open(out)


def _numbered(files: dict[str, Path]) -> list[str]:
    """clip_1 to the last clip there, if that is how the files are called."""
    numbers = [int(found.group(1)) for stem in files if (found := re.fullmatch(r"clip_(\d+)", stem))]
    return [f"clip_{i}" for i in range(1, max(numbers, default=0) + 1)]


# What numpy raises for a file that is not .npy, is cut, or whose header is no header or claims more than memory holds.
_DAMAGED = (ValueError, TypeError, EOFError, OSError, SyntaxError, TokenError, BadZipFile, MemoryError, OverflowError)


def _read(path: Path, snippets: int) -> np.ndarray:
    """(W, N, D) float16 of one file."""
    try:
        array = np.load(path, allow_pickle=False)
    except _DAMAGED as error:
        raise InputError(f"{path}: is not a .npy file of numbers ({first_line(error, 100)})") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise InputError(f"{path}: holds {getattr(array, 'dtype', 'several arrays')}, not floating-point numbers")
    if array.ndim == 2:
        if len(array) % snippets:
            raise InputError(f"{path}: {len(array)} rows are not a whole number of windows of {snippets} snippets")
        array = array.reshape(len(array) // snippets, snippets, array.shape[1])
    if array.ndim != 3 or 0 in array.shape:
        raise InputError(f"{path}: has shape {array.shape}, expected (windows, snippets, width)")
    if not np.isfinite(array).all():
        raise InputError(f"{path}: window {np.argwhere(~np.isfinite(array))[0][0]} holds NaN or infinite numbers")
    if np.abs(array).max() > np.finfo(np.float16).max:
        raise InputError(f"{path}: numbers beyond ±65504 do not fit a store; scale the features down")
    return array.astype(np.float16)


CLIP_WINDOWS = CLIP_FRAMES // WINDOW_FRAMES  # six


def cut_clips(games: FeatureStore, out: Path, names: Mapping[str, Sequence[str]]) -> FeatureStore:
    """Write a store of clips to `out`, as extraction of the clips themselves would give.

    games: a store of whole games with windows every 125 frames. names: by the game's name in it, those of its clips;
    clip i starts 5 s · i into the game, as SN-BAA cuts them.
    """
    if games.manifest.header.every != WINDOW_FRAMES:
        raise InputError(f"{games.path}: has a window every {games.manifest.header.every} frames; clips need every 125")
    writer = StoreWriter(out, games.manifest.header)
    for game, clips in names.items():
        windows, entry = games.windows(game), games.entry(game)
        if len(windows) < len(clips) + CLIP_WINDOWS - 1:
            raise InputError(f"{games.path}: {game} has {len(windows)} windows of 5 s, too few for {len(clips)} clips")
        for i, clip in enumerate(clips):
            writer.add(
                clip,
                windows[i : i + CLIP_WINDOWS],
                source=entry.source,
                size=entry.size,
                mtime_ns=entry.mtime_ns,
                resolution=(entry.height, entry.width),
            )
    return writer.finish()
