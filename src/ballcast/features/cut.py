"""The store of a game's clips out of a store of the whole game: neighbouring clips share windows, so that each window
need be computed, and kept, only once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.errors import InputError
from ballcast.features.store import FeatureStore, StoreWriter

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
