"""What a runtime answers at the ends of 5 s steps along a video, as slots to be scored; no torch here."""

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.clips import Clip
from ballcast.core.errors import InputError
from ballcast.core.grid import merge_arrays
from ballcast.features.stream import ClipStream, Floats
from ballcast.inference.runtime import Runtime
from ballcast.metrics.average_precision import Score, score_arrays
from ballcast.model.emit import emit_flat
from ballcast.model.slot_arrays import SlotArrays
from ballcast.video.sampling import snap


def clip_features(runtime: Runtime, frames: Iterable[np.ndarray]) -> Floats:
    """Frames (H, W) uint8 of a video, in order → features (n, D) of its clips, one every `stride` frames."""
    stream = ClipStream(runtime)
    return np.concatenate([stream.push(frame) for frame in frames])


def answers_along(runtime: Runtime, features: Floats, windows: int) -> SlotArrays:
    """Features (n, D) of a video's clips → the slots at 30 s, 35 s, … of it, as `predict` gives them.

    `windows`: W of the model's config, which says how much must have been seen before the first answer.
    """
    stride, answers = runtime.config.stride, []
    tokens: dict[int, Floats] = {}
    for end in count(windows * WINDOW_FRAMES, WINDOW_FRAMES):
        starts = [snap(end - WINDOW_FRAMES * w, stride) // stride for w in range(runtime.lookback, 0, -1)]
        if starts[-1] + runtime.clips > len(features):
            break
        for start in starts:
            if start not in tokens:
                tokens[start] = runtime.encode_window(features[start : start + runtime.clips])
        present = np.ones(len(starts), np.bool_)
        answers.append(runtime.anticipate(np.stack([tokens[start] for start in starts]), present))
    if not answers:
        raise InputError(f"{len(features)} clips are too few for {windows} windows of 5 s")
    return join(answers)


def join(answers: Sequence[SlotArrays]) -> SlotArrays:
    """The samples of all, one after the other."""
    return SlotArrays(
        np.concatenate([a.objectness for a in answers]),
        np.concatenate([a.classes for a in answers]),
        np.concatenate([a.offsets for a in answers]),
        answers[0].bins,
    )


def score_answers(runtime: Runtime, slots: SlotArrays, clips: Sequence[Clip]) -> Score:
    """The official score of slots, one sample a clip in order, merged as a submission is.

    Answers beyond the last clip, at the end of a video, have nothing after them to be held against.
    """
    if len(slots.objectness) < len(clips):
        raise InputError(f"only {len(slots.objectness)} answers were made for {len(clips)} labelled clips")
    return score_arrays(list(clips), *merge_arrays(*emit_flat(slots.first(len(clips)), runtime.emit)))
