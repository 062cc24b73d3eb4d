"""Index arithmetic of the backbone: which frames a stack and a snippet read, and which stacks make up a snippet.

A stack is `stack` frames, `step` frames apart: the input of the 2D network. A snippet is `frames` frames, also `step`
apart, which are J = `frames` / `stack` stacks. Snippets and stacks start every `stride` frames, so snippet i and stack
i both start at frame `stride` · i, and stack j of snippet i is stack i + hop · j, with hop = `step` · `stack` /
`stride`. This is the only place where these numbers are computed.

Worked example, the default config (frames 15, stack 3, step 2, stride 3, so J = 5 and hop = 2):

    stack 0 reads the frames 0, 2, 4             stack_span = 5
    snippet 0 reads the frames 0, 2, …, 28       snippet_span = 29
    snippet 0 is the stacks 0, 2, 4, 6, 8        they start at the frames 0, 6, 12, 18, 24
    snippet 1 is the stacks 1, 3, 5, 7, 9        stack_overlap = 8
    a window of 125 frames has 33 snippets       the last one starts at frame 96 and ends at 124
    33 × 5 = 165 stacks, of which 33 + 8 = 41 are distinct

No torch here. Functions that make an array take `arange`: NumPy's by default, torch's for an index on a device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.backbone_config import BackboneConfig

Arange = Callable[[int], Any]  # n → the integers 0 … n − 1, as a NumPy array or a tensor


def snippet_span(config: BackboneConfig) -> int:
    """Frames from the first to the last of a snippet, both counted."""
    return (config.frames - 1) * config.step + 1


def stack_span(config: BackboneConfig) -> int:
    """Frames from the first to the last of a stack, both counted."""
    return (config.stack - 1) * config.step + 1


def stack_hop(config: BackboneConfig) -> int:
    """Difference of the numbers of two consecutive stacks of one snippet."""
    return config.step * config.stack // config.stride


def stack_overlap(config: BackboneConfig) -> int:
    """Extra stacks: n consecutive snippets need n + this many distinct stacks."""
    return stack_hop(config) * (config.stacks - 1)


def snippet_count(config: BackboneConfig, frames: int = WINDOW_FRAMES) -> int:
    """Number of snippets in `frames` consecutive frames; by default N, those of a window."""
    return max(0, (frames - snippet_span(config)) // config.stride + 1)


def stack_count(config: BackboneConfig, snippets: int) -> int:
    """Number of distinct stacks in `snippets` consecutive snippets."""
    return snippets + stack_overlap(config)


def start_frame(config: BackboneConfig, number: Any) -> Any:
    """First frame of the snippet, or of the stack, `number`: an int or an array of them."""
    return config.stride * number


def snippet_middle(config: BackboneConfig) -> int:
    """The middle frame of a snippet, counted from its first."""
    return snippet_span(config) // 2


def stack_offsets(config: BackboneConfig, arange: Arange = np.arange) -> Any:
    """Frames of a stack, counted from its first: (stack,) ints."""
    return config.step * arange(config.stack)


def stack_frames(config: BackboneConfig, count: int, arange: Arange = np.arange) -> Any:
    """Frames of the stacks 0 … count − 1: (count, stack) ints."""
    return start_frame(config, arange(count))[:, None] + stack_offsets(config, arange)


def snippet_stacks(config: BackboneConfig, count: int, arange: Arange = np.arange) -> Any:
    """Numbers of the stacks of the snippets 0 … count − 1: (count, J) ints."""
    return arange(count)[:, None] + stack_hop(config) * arange(config.stacks)


# A run (`clips.run`), the sequence that pre-training draws, is n snippets that start a whole stack apart: together they
# read n + J − 1 consecutive stacks, which do not overlap, so that no frame is read twice.


def run_frames(config: BackboneConfig, count: int) -> NDArray[np.int64]:
    """Frames that a run of `count` snippets reads, counted from its first: (stack · (count + J − 1),) ints."""
    return config.step * np.arange(config.stack * (count + config.stacks - 1))


def run_middles(config: BackboneConfig, count: int) -> NDArray[np.int64]:
    """Middle frame of each of a run's `count` snippets, counted from the run's first: (count,) ints."""
    return snippet_middle(config) + config.step * config.stack * np.arange(count)


def run_stacks(config: BackboneConfig, stacks: int, arange: Arange = np.arange) -> Any:
    """Numbers of the stacks of each snippet of a run that has `stacks` stacks: (stacks − J + 1, J) ints."""
    return arange(stacks - config.stacks + 1)[:, None] + arange(config.stacks)


def batch_stacks(index: Any, *, batch: int, stacks: int, arange: Arange = np.arange) -> Any:
    """Repeat an index (n, J) into the stacks of one sample for a batch whose stacks lie one after the other.

    Args:
        index: (n, J) numbers of stacks, each below `stacks`.
        batch: B, samples in the batch.
        stacks: stacks of each sample.
        arange: what makes integers of the kind of `index`.

    Returns:
        (B, n, J) ints, into B · stacks stacks.
    """
    return stacks * arange(batch)[:, None, None] + index


def covering_windows(config: BackboneConfig, snippets: int) -> list[int]:
    """First snippet of each of the windows that cover `snippets` consecutive snippets, N or more.

    The windows lie one after the other; the last one is moved back so that it ends with the last snippet.
    """
    size = snippet_count(config)
    return [min(first, snippets - size) for first in range(0, snippets, size)]


def window_count(frames: int, every: int) -> int:
    """Number of windows, one every `every` frames, in `frames` frames."""
    return max(0, (frames - WINDOW_FRAMES) // every + 1)


def window_frames(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames of the windows that start at the frames `starts` (…): (…, 125) ints."""
    return starts[..., None] + np.arange(WINDOW_FRAMES)
