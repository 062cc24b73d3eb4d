"""The snippets that an epoch of spotting draws, and their targets.

A draw depends only on the random generator it is given, so a resumed run repeats it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, FPS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import ClipsConfig
from ballcast.data.labels.games import Game
from ballcast.features.stack_index import run_frames, run_middles

Ints = NDArray[np.int64]


def frame_targets(games: Sequence[Game], length: Ints, config: ClipsConfig) -> NDArray[np.float32]:
    """Compute the target of a snippet with its middle at each frame.

    Args:
        games: G games.
        length: (G,) number of frames of each.
        config: the target's reach and shape.

    Returns:
        (frames of all games, C): 1 at an action, smoothed around it.
    """
    table = np.zeros((int(length.sum()), len(ACTIONS)), np.float32)
    begin = 0
    for game, count in zip(games, length.tolist(), strict=True):
        ms = 1000 / FPS * np.arange(count)
        for event in game.events:
            distance = np.abs(ms - event.position_ms) / config.reach_ms
            value = np.where(distance <= 1, 1.0, 0.0)
            if config.shape == "cosine":
                value = value * (0.5 + 0.5 * np.cos(np.pi * np.minimum(distance, 1)))
            column = table[begin : begin + count, event.action]
            np.maximum(column, value, out=column)
        begin += count
    return table


class SnippetSampler:
    """Draw runs of snippets: some around actions, rare classes more often than they occur, the others from anywhere.

    Args:
        games: G games.
        first, length: (G,) the number of each one's first frame, and its number of frames (see `FrameCache`).
        network: the sizes of a snippet.
        config: how they are drawn.
    """

    def __init__(
        self, games: Sequence[Game], first: Ints, length: Ints, *, network: BackboneConfig, config: ClipsConfig
    ) -> None:
        self.config = config
        self.frame_offsets = run_frames(network, config.run)  # (P,) frames
        self.middles = run_middles(network, config.run)  # (n,) frames
        span = int(self.frame_offsets[-1]) + 1
        self._low, self._high = first, first + length - span  # (G,) where a run may begin, both included
        if (self._high < self._low).any():
            short = games[int((self._high - self._low).argmin())]
            raise InputError(f"{short.name}: is shorter than a run of {span} frames; use a smaller clips.run")
        places = [
            (g, first[g] + event.position_ms * FPS // 1000, event.action)
            for g, game in enumerate(games)
            for event in game.events
            if event.position_ms * FPS < 1000 * length[g]
        ]
        if not places:
            raise InputError("the training games have no labelled actions")
        self._game, self._frame, action = np.array(places, np.int64).T  # (E,) each
        weight = np.bincount(action, minlength=len(ACTIONS))[action] ** -config.balance
        self._probability = weight / weight.sum()

    def draw(self, steps: int, rng: np.random.Generator) -> Ints:
        """Draw the numbers of the first frames of runs, (steps, B) int64."""
        shape = (steps, self.config.batch)
        spread = self._high - self._low + 1
        anywhere = rng.integers(0, spread.sum(), shape)
        game = np.searchsorted(np.cumsum(spread), anywhere, side="right")
        begin = self._low[game] + anywhere - (np.cumsum(spread) - spread)[game]
        event = rng.choice(len(self._probability), shape, p=self._probability)
        reach = self.config.near_ms * FPS // 1000
        middle = self._frame[event] + rng.integers(-reach, reach + 1, shape)
        around = middle - int(self.middles.mean())
        around = np.clip(around, self._low[self._game[event]], self._high[self._game[event]])
        return np.where(rng.random(shape) < self.config.near, around, begin)
