"""Samples along whole games, for benchmarks on games and for the embedded samples."""

from collections.abc import Mapping, Sequence

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.data.samples.windows import WindowSet, cut_clip, number_rows, token_centres_ms, window_arrays
from ballcast.features.store import FeatureStore


def game_windows(
    store: FeatureStore, games: Mapping[str, Sequence[Event]], windows: int, *, every_ms: int
) -> WindowSet:
    """Make one sample every `every_ms` of whole games.

    Args:
        store: must have windows at the samples' starts.
        games: name in the store → its events, positions in ms of the game.
        windows: W, windows a sample.
        every_ms: time between the starts of samples.

    Returns:
        The samples, each a clip of its own ("match_003+35000") that can be scored and has 5 s of the game after it.
    """
    numbers, blocks, _ = number_rows(store, 0)
    index, clips = [], []
    for game, events in games.items():
        at = {start: numbers[game] + m for m, start in enumerate(store.starts(game))}  # frame → row
        last = max(at) - windows * WINDOW_FRAMES  # what comes after it must still be the game
        for frame in range(0, last + 1, every_ms * FPS // 1000):
            wanted = range(frame, frame + windows * WINDOW_FRAMES, WINDOW_FRAMES)
            if missing := [f for f in wanted if f not in at]:
                raise InputError(
                    f"{store.path}: {game} has no window at frame {missing[0]}; extract with another --every"
                )
            start_ms = frame * 1000 // FPS
            index.append([at[f] for f in wanted])
            clips.append(cut_clip(events, start_ms, f"{game}+{start_ms}"))
    if not clips:
        raise InputError(f"{store.path}: no game in it is long enough for {windows} windows of 5 s")
    coming_all, seen_all = [clip.anticipation for clip in clips], [clip.observation for clip in clips]
    centres = token_centres_ms(store.snippets, store.manifest.header.preprocessing)
    return window_arrays(blocks, centres, index, coming_all, seen_all, [clip.name for clip in clips], clips)
