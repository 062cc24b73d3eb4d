"""Samples: 6 windows of 5 s of features with the events that follow, cut from clips, joined clips or whole games."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, END_MS, FPS, FRAME_MS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS, WINDOW_FRAMES
from ballcast.core.backbone_config import Preprocessing
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.features.store import FeatureStore

STEP_MS = 5_000  # from one clip's start to the next one's
# What the paper gives of its training samples: how many, of how many clips, and the range of w_c.
PAPER_SAMPLES = 22_900
PAPER_CLIPS = 4587
PAPER_CLASS_WEIGHTS = (0.28, 2.46)


@dataclass(frozen=True)
class Stretch:
    """Consecutive clips of one game, each starting `STEP_MS` after the one before.

    `tolerance_ms`: how far apart two clips may label the same event.
    """

    clips: tuple[Clip, ...]
    tolerance_ms: int = 0

    def events(self) -> list[Event]:
        """Merge the clips' events: each once, in order of time, in ms from the first clip's start.

        An event has the position that the earliest clip gives it.
        """
        found: list[Event] = []
        for i, clip in enumerate(self.clips):
            moved: dict[tuple[int, str, str], Event] = {}
            for event in clip.observation + clip.anticipation:
                late = shift(event, i * STEP_MS)
                moved.setdefault((late.position_ms, late.label, late.team), late)
            recent = [e for e in found if e.position_ms >= i * STEP_MS - self.tolerance_ms]
            found += match_events(recent, moved.values(), self.tolerance_ms)[2]
        return sorted(found, key=lambda e: e.position_ms)


def stitch(clips: Sequence[Clip], tolerance_ms: int = FRAME_MS) -> list[Stretch]:
    """Join clips, in order, into the longest stretches that their labels show to be consecutive."""
    stretches: list[list[Clip]] = []
    for clip in clips:
        if stretches and follows(stretches[-1][-1], clip, tolerance_ms):
            stretches[-1].append(clip)
        else:
            stretches.append([clip])
    return [Stretch(tuple(group), tolerance_ms) for group in stretches]


def follows(first: Clip, second: Clip, tolerance_ms: int = FRAME_MS) -> bool:
    """Whether `second` starts `STEP_MS` after `first` in the same game, by the labels they share.

    An event that only one of them has is allowed within the tolerance of the shared time's ends, [0, 30 s).
    """
    earlier = {shift(e, -STEP_MS) for e in first.observation + first.anticipation}
    earlier = {e for e in earlier if 0 <= e.position_ms < OBSERVED_MS}
    later = {e for e in second.observation if e.position_ms < OBSERVED_MS}
    pairs, only_earlier, only_later = match_events(earlier, later, tolerance_ms)
    return pairs > 0 and all(
        e.position_ms < tolerance_ms or e.position_ms >= OBSERVED_MS - tolerance_ms for e in only_earlier + only_later
    )


def match_events(
    first: Iterable[Event], second: Iterable[Event], tolerance_ms: int
) -> tuple[int, list[Event], list[Event]]:
    """Pair events of the same label, team and visibility at most `tolerance_ms` apart, in order of time.

    Returns the number of pairs, the unpaired events of `first` and those of `second`.
    """
    groups: defaultdict[tuple[str, str, bool], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate((first, second)):
        for event in sorted(events, key=lambda e: e.position_ms):
            groups[event.label, event.team, event.visible][side].append(event)
    pairs = 0
    unpaired: tuple[list[Event], list[Event]] = ([], [])
    for a, b in groups.values():
        i = j = 0
        while i < len(a) and j < len(b):
            apart = b[j].position_ms - a[i].position_ms
            if abs(apart) <= tolerance_ms:
                pairs += 1
                i += 1
                j += 1
            elif apart > 0:
                unpaired[0].append(a[i])
                i += 1
            else:
                unpaired[1].append(b[j])
                j += 1
        unpaired[0].extend(a[i:])
        unpaired[1].extend(b[j:])
    return pairs, *unpaired


def shift(event: Event, by_ms: int) -> Event:
    return Event(event.label, event.position_ms + by_ms, event.team, event.visible)


def cut_clip(events: Sequence[Event], start_ms: int, name: str) -> Clip:
    """Cut the clip that starts at `start_ms` of a game: the events of its 30 s, and of the 5 s after them."""
    moved = [shift(e, -start_ms) for e in events if start_ms <= e.position_ms < start_ms + END_MS]
    observed = tuple(e for e in moved if e.position_ms < OBSERVED_MS)
    return Clip(name, observed, tuple(e for e in moved if e.position_ms >= OBSERVED_MS))


WINDOW_MS = 1000 * WINDOW_FRAMES // FPS
ABSENT = -1

Stores = Sequence[tuple[FeatureStore, Sequence[Clip]]]


@dataclass(frozen=True)
class WindowSet:
    """S samples of W windows; N tokens (snippets) a window, D features a token, C classes.

    - `rows`: the windows, in blocks of (R, N, D) float16; rows are numbered through all blocks.
    - `index` (S, W) int64: the rows of each sample, in order of time; −1 for a window before the start of the video.
    - `classes`, `position_ms` (S, 8) int64: the events to come, the first 8; class −1 where there is none.
    - `presence` (S, N, C) uint8: the actions of the last window, at the tokens nearest to them.
    - `names`: "clip_7", or "clip_7+3000" for a sample that starts 3 s after clip_7 does.
    - `clips`: the official clips, if the samples are these and can be scored.
    - `left_out`: the number of samples left out because the stores have no window at their times.
    - `stretches`: the number of clips of each stretch, one tuple a split; empty if the clips were not stitched.
    - `mirrored`: the features x that become 1 − x when the pitch is mirrored; none for features of a video.

    With several splits, names and clips begin with the split's: "valid/clip_7".
    """

    rows: list[NDArray[np.float16]]
    index: NDArray[np.int64]
    classes: NDArray[np.int64]
    position_ms: NDArray[np.int64]
    presence: NDArray[np.uint8]
    names: list[str]
    clips: list[Clip]
    left_out: int = 0
    stretches: tuple[tuple[int, ...], ...] = ()
    mirrored: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @classmethod
    def join(cls, parts: "Sequence[WindowSet]") -> "WindowSet":
        """Concatenate the samples of all parts."""
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(sum(map(len, part.rows)) for part in parts[:-1])])
        shifted = [np.where(p.index == ABSENT, ABSENT, p.index + b) for p, b in zip(parts, before, strict=True)]
        return cls(
            [block for part in parts for block in part.rows],
            np.concatenate(shifted),
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.position_ms for part in parts]),
            np.concatenate([part.presence for part in parts]),
            [name for part in parts for name in part.names],
            [clip for part in parts for clip in part.clips],
            mirrored=parts[0].mirrored,
        )

    def class_counts(self) -> NDArray[np.int64]:
        """Count the events of each action in all samples, (C,)."""
        return np.bincount(self.classes[self.classes >= 0], minlength=len(ACTIONS))


def official_windows(stores: Stores, windows: int) -> WindowSet:
    """Make one sample of each clip, for scoring and for training without stitching."""
    return _collect(stores, [[Stretch((clip,)) for clip in clips] for _, clips in stores], windows, every_ms=STEP_MS)


def stitched_windows(stores: Stores, windows: int, *, every_ms: int = 1000, tolerance_ms: int = FRAME_MS) -> WindowSet:
    """Make one sample every `every_ms` of each stretch that the clips can be stitched into.

    Args:
        stores: each with its clips.
        windows: W, windows a sample.
        every_ms: time between the starts of samples.
        tolerance_ms: how far apart overlapping clips may label the same event.

    Returns:
        The samples. One that needs a window which a store does not have (it was extracted with windows 5 s apart) is
        left out; at the starts of clips there always is one.
    """
    joined = [stitch(clips, tolerance_ms) for _, clips in stores]
    made = _collect(stores, joined, windows, every_ms=every_ms)
    return replace(made, stretches=tuple(tuple(len(s.clips) for s in stretches) for stretches in joined))


def _collect(stores: Stores, joined: Sequence[Sequence[Stretch]], windows: int, *, every_ms: int) -> WindowSet:
    """Make the samples of all stores, whose clips are `joined` into stretches, one list a store."""
    index: list[list[int]] = []
    events: list[tuple[Event, ...]] = []
    observed: list[tuple[Event, ...]] = []
    names: list[str] = []
    clips: list[Clip] = []
    blocks: list[NDArray[np.float16]] = []
    base = left_out = 0
    for (store, store_clips), stretches in zip(stores, joined, strict=True):
        if blocks and blocks[0].shape[1:] != (store.snippets, store.width):
            raise InputError(f"{store.path}: its windows are {store.snippets} × {store.width}, unlike those before it")
        numbers, store_blocks, count = number_rows(store, base)
        blocks += store_blocks
        base += count
        of_split = f"{store.path.name}/" if len(stores) > 1 else ""  # every split has a clip_1
        for stretch in stretches:
            happened = stretch.events()
            samples = _samples(store, stretch, numbers, windows, every_ms)
            left_out += (len(stretch.clips) - 1) * STEP_MS // every_ms + 1 - len(samples)
            for start, rows in samples:
                clip = stretch.clips[start // STEP_MS]
                since = start % STEP_MS
                index.append(rows)
                names.append(f"{of_split}{clip.name}+{since}" if since else f"{of_split}{clip.name}")
                # A sample that is a clip has the clip's own labels, also for events at exactly 30 s.
                observed.append(_between(happened, start, 0, OBSERVED_MS) if since else clip.observation)
                events.append(_between(happened, start, OBSERVED_MS, END_MS) if since else clip.anticipation)
        clips += [replace(clip, name=f"{of_split}{clip.name}") for clip in store_clips]
    if not index:
        raise InputError("no sample could be made: the feature stores hold none of the labelled clips")
    header = stores[0][0].manifest.header
    centres = token_centres_ms(header.clips, header.preprocessing)
    return replace(window_arrays(blocks, centres, index, events, observed, names, clips), left_out=left_out)


def number_rows(store: FeatureStore, base: int) -> tuple[dict[str, int], list[NDArray[np.float16]], int]:
    """Number a store's rows from `base` on: name → number of its first row, the blocks, the number of rows."""
    starts = []
    numbers = {}
    total = 0
    for block in store.rows:
        starts.append(total)
        total += block.shape[0] * block.shape[1]
    for entry in store.manifest.entries:
        numbers[entry.name] = base + starts[entry.shard] + entry.index * store.rows[entry.shard].shape[1]
    return numbers, [block.reshape(-1, *block.shape[2:]) for block in store.rows], total


def _samples(
    store: FeatureStore, stretch: Stretch, numbers: dict[str, int], windows: int, every_ms: int
) -> list[tuple[int, list[int]]]:
    """Return (start in ms, rows) of every sample of the stretch whose windows are all in the store."""
    at: dict[int, int] = {}  # frame in the stretch → row; of neighbours that share a window, the earlier clip's
    for i, clip in enumerate(stretch.clips):
        if clip.name not in numbers:
            raise InputError(f"{store.path}: has no features of {clip.name}, which is in the labels; extract it")
        for m, start in enumerate(store.starts(clip.name)):
            at.setdefault(i * STEP_MS * FPS // 1000 + start, numbers[clip.name] + m)
    found = []
    for start_ms in range(0, (len(stretch.clips) - 1) * STEP_MS + 1, every_ms):
        first = start_ms * FPS // 1000
        wanted = [first + w * WINDOW_FRAMES for w in range(windows)]
        rows = [at.get(frame, ABSENT) for frame in wanted]
        if ABSENT not in rows:
            found.append((start_ms, rows))
        elif start_ms % STEP_MS == 0:
            name = stretch.clips[start_ms // STEP_MS].name
            raise InputError(
                f"{store.path}: {name} has no {windows} windows of 5 s one after the other; "
                f"is it shorter than {windows * WINDOW_MS // 1000} s?"
            )
    return found


def _between(events: Sequence[Event], start_ms: int, begin: int, end: int) -> tuple[Event, ...]:
    """Select the events of a sample that starts at `start_ms`, in [begin, end) of the sample's time in ms."""
    return tuple(shift(e, -start_ms) for e in events if begin <= e.position_ms - start_ms < end)


def window_arrays(
    blocks: list[NDArray[np.float16]],
    centres: NDArray[np.float64],
    index: list[list[int]],
    events: list[tuple[Event, ...]],
    observed: list[tuple[Event, ...]],
    names: list[str],
    clips: list[Clip],
) -> WindowSet:
    classes = np.full((len(index), MAX_EVENTS), -1, np.int64)
    position_ms = np.full((len(index), MAX_EVENTS), OBSERVED_MS, np.int64)
    presence = np.zeros((len(index), len(centres), len(ACTIONS)), np.uint8)
    for s, (coming, past) in enumerate(zip(events, observed, strict=True)):
        for m, event in enumerate(sorted(coming, key=lambda e: e.position_ms)[:MAX_EVENTS]):
            classes[s, m], position_ms[s, m] = event.action, event.position_ms
        for event in (e for e in past if e.position_ms >= OBSERVED_MS - WINDOW_MS):
            nearest = int(np.abs(centres - (event.position_ms - OBSERVED_MS + WINDOW_MS)).argmin())
            presence[s, max(nearest - 1, 0) : nearest + 2, event.action] = 1
    return WindowSet(blocks, np.array(index, np.int64), classes, position_ms, presence, names, clips)


def token_centres_ms(tokens: int, preprocessing: Preprocessing | None = None) -> NDArray[np.float64]:
    """Compute the middle of each token of a window.

    Args:
        tokens: N, tokens a window.
        preprocessing: has the stride and span of the snippets. Without it (features made elsewhere) snippets start
            every 3 frames and the last ends with the window; a grid too fine for that divides the window evenly.

    Returns:
        (N,) ms from the window's start.
    """
    stride, span = (
        (preprocessing.stride, preprocessing.span) if preprocessing else (3, WINDOW_FRAMES - 3 * (tokens - 1))
    )
    if span < 1:
        return (np.arange(tokens) + 0.5) * HORIZON_MS / tokens
    return (stride * np.arange(tokens) + (span - 1) / 2) * 1000 / FPS
