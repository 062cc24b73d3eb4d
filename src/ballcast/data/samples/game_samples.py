"""Samples of games for end-to-end training: any frame with the windows before it and the actions of 5 s after it.

A draw depends only on the random generator it is given, so a resumed run repeats it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import (
    ACTIONS,
    CLIP_FRAMES,
    FRAME_MS,
    HORIZON_MS,
    MAX_EVENTS,
    OBSERVED_MS,
    WINDOW_FRAMES,
)
from ballcast.core.anticipator_config import DataConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Clip
from ballcast.data.labels.games import STEP_FRAMES, Game
from ballcast.data.samples.batches import sample_weights
from ballcast.data.samples.windows import cut_clip

Ints = NDArray[np.int64]
HORIZON_FRAMES = HORIZON_MS // FRAME_MS


@dataclass(frozen=True)
class GameSamples:
    """S samples of games.

    - `frame` (S,): the number of the first frame that is not seen, in a `FrameCache`.
    - `game` (S,): the number of its game.
    - `classes`, `position_ms` (S, 8): the actions of the next 5 s, as in `WindowSet`; class −1 where there is none.
    """

    frame: Ints
    game: Ints
    classes: Ints
    position_ms: Ints

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, chosen: slice | Ints) -> "GameSamples":
        """Some of the samples."""
        return GameSamples(self.frame[chosen], self.game[chosen], self.classes[chosen], self.position_ms[chosen])


class GameSampler:
    """Draws samples of games.

    Args:
        games: G games.
        first, length: (G,) number of each one's first frame, and its number of frames (see `FrameCache`).
        windows: W, windows of 5 s that are seen of a sample.
        config: `every_ms`, the length of a segment of a game; one sample is drawn per segment; `boost`, as in
            `plan_epoch`.
        grid: observations start at multiples of `grid` frames.
    """

    def __init__(
        self, games: Sequence[Game], first: Ints, length: Ints, *, windows: int, config: DataConfig, grid: int = 1
    ) -> None:
        self.config = config
        self._grid = grid
        self._low = first + windows * WINDOW_FRAMES  # (G,) where `frame` may lie, both included
        self._high = first + length - HORIZON_FRAMES
        if (self._high < self._low).any():
            short = games[int((self._high - self._low).argmin())]
            raise InputError(f"{short.name}: is shorter than {5 * windows} s to see and 5 s to anticipate")
        every = config.every_ms // FRAME_MS
        count = (self._high - self._low) // every + 1  # (G,) parts of each game
        self._begin = np.concatenate(
            [low + every * np.arange(n) for low, n in zip(self._low, count, strict=True)]
        )  # (S,) first frame of each part
        self._end = np.minimum(self._begin + every - 1, np.repeat(self._high, count))
        self._game = np.repeat(np.arange(len(games)), count)
        self._first = first
        self._events = [
            (
                np.array([e.position_ms for e in game.events], np.int64),
                np.array([e.action for e in game.events], np.int64),
            )
            for game in games
        ]

    def __len__(self) -> int:
        return len(self._begin)

    def draw(self, rng: np.random.Generator) -> GameSamples:
        """Draw one sample from every part, in random order; with boosts, parts with rare actions more often."""
        frame = rng.integers(self._begin, self._end + 1)
        frame -= (frame - self._low[self._game]) % self._grid
        samples = self._label(frame, self._game)
        weights = sample_weights(samples.classes, self.config)
        if weights is None:
            return samples[rng.permutation(len(frame))]
        return samples[rng.choice(len(frame), len(frame), p=weights / weights.sum())]

    def _label(self, frame: Ints, game: Ints) -> GameSamples:
        """The samples at the frames `frame` (S,) of the games number `game` (S,)."""
        classes = np.full((len(frame), MAX_EVENTS), -1, np.int64)
        position_ms = np.full((len(frame), MAX_EVENTS), OBSERVED_MS, np.int64)
        now_ms = (frame - self._first[game]) * FRAME_MS
        for g, (times, actions) in enumerate(self._events):
            chosen = np.flatnonzero(game == g)
            begin = np.searchsorted(times, now_ms[chosen])
            end = np.searchsorted(times, now_ms[chosen] + HORIZON_MS)
            for m in range(MAX_EVENTS):
                there = begin + m < end
                rows = chosen[there]
                event = (begin + m)[there]
                classes[rows, m] = actions[event]
                position_ms[rows, m] = times[event] - now_ms[rows] + OBSERVED_MS
        return GameSamples(frame, game, classes, position_ms)


def evaluation_clips(games: Sequence[Game], first: Ints, length: Ints) -> tuple[Ints, list[Clip]]:
    """The ends of official clips: those of SN-BAA where a game is made of them, else one every 5 s from 30 s on.

    Args:
        games, first, length: see `GameSampler`.

    Returns:
        The number of the first frame after each clip (S,), and the clips.
    """
    frames: list[int] = []
    clips: list[Clip] = []
    for game, begin, count in zip(games, first.tolist(), length.tolist(), strict=True):
        starts = game.clips or {
            f"{game.name}+{start * FRAME_MS}": start
            for start in range(0, count - CLIP_FRAMES - HORIZON_FRAMES + 1, STEP_FRAMES)
        }
        for name, start in starts.items():
            frames.append(begin + start + CLIP_FRAMES)
            clips.append(cut_clip(game.events, start * FRAME_MS, name))
    return np.array(frames, np.int64), clips


def spotting_targets(
    events: Sequence[Sequence[tuple[int, int]]], length: Ints, sigma_ms: float, classes: int = len(ACTIONS)
) -> NDArray[np.float32]:
    """The spotting target of each frame of some games: exp(−d²/2σ²) for an action at distance d.

    Args:
        events: (position in ms, class) of each action, for each of G games.
        length: (G,) number of frames of each game.
        sigma_ms: σ.
        classes: C.

    Returns:
        (frames of all games, C), the largest of several actions of a class.
    """
    table = np.zeros((int(length.sum()), classes), np.float32)
    reach = int(4 * sigma_ms / FRAME_MS) + 1
    begin = 0
    for labelled, count in zip(events, length.tolist(), strict=True):
        for position, action in labelled:
            middle = position // FRAME_MS
            frames = np.arange(max(middle - reach, 0), min(middle + reach + 2, count))
            value = np.exp(-0.5 * ((frames * FRAME_MS - position) / sigma_ms) ** 2)
            column = table[begin + frames, action]
            table[begin + frames, action] = np.maximum(column, value)
        begin += count
    return table
