"""Scores of an end-to-end model on games: anticipation at the official clips, spotting all along."""

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.events import Clip, merge_arrays
from ballcast.core.pretrain_config import SpottingConfig
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.game_samples import evaluation_clips
from ballcast.features.stack_index import snippet_middle
from ballcast.metrics.average_precision import Score, score_arrays
from ballcast.metrics.spotting import Peaks, SpottingScore, spotting_score, suppress_non_maxima
from ballcast.model.postprocess import emit_flat
from ballcast.model.slots import Slots
from ballcast.training.augment import planes
from ballcast.training.engine import join_slots
from ballcast.training.learner import EndToEnd

GameCache = FrameCache | FeatureCache
AT_ONCE = 16  # windows of an evaluation
SPOTTING = SpottingConfig(smooth_ms=80)


@torch.no_grad()
def run_windows(learner: EndToEnd, cache: GameCache, ends: np.ndarray, *, flip: bool = False) -> Slots:
    """The slots of windows that end before the frames `ends` (S,); `flip`: of mirrored frames, not of features."""
    if flip and isinstance(cache, FeatureCache):
        raise ValueError("features cannot be mirrored; give frames")
    device, training = next(learner.parameters()).device, learner.training
    learner.eval()
    outputs = []
    try:
        for begin in range(0, len(ends), AT_ONCE):
            first = ends[begin : begin + AT_ONCE, None] - learner.span
            if isinstance(cache, FeatureCache):
                x = cache.take(first + learner.stack_offsets)
            else:
                x = planes(cache.take(first + learner.frame_offsets), colour=learner.colour)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                slots, _ = learner(x.flip(-1) if flip else x)
            outputs.append(slots.map(lambda t: t.float()))
    finally:
        learner.train(training)
    return join_slots(outputs)


def predict_clips(learner: EndToEnd, cache: GameCache, *, flip: bool = False) -> tuple[list[Clip], Slots]:
    """The official clips of the cache's games, and their slots, in order; with `flip`, of mirrored frames."""
    ends, clips = evaluation_clips(cache.games, cache.first, cache.length)
    return clips, run_windows(learner, cache, ends, flip=flip)


def score_clips(learner: EndToEnd, cache: GameCache, config: EmitConfig) -> Score:
    """The official score on the clips of the cache's games."""
    clips, slots = predict_clips(learner, cache)
    return score_arrays(clips, *merge_arrays(*emit_flat(slots, config)))


def game_scores(learner: EndToEnd, cache: GameCache, game: int, *, flip: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Spotting scores along a game: windows that overlap by half, averaged, the middles of windows counting more.

    Returns:
        Scores (n, C) in [0, 1], and their times (n,) in ms.
    """
    first, length, stride = int(cache.first[game]), int(cache.length[game]), learner.backbone.config.stride
    hop, N = learner.stacks // 2 * stride, learner.stacks
    last = (length - learner.span) // stride * stride + learner.span
    ends = np.unique([*range(learner.span, length + 1, hop), last])
    weight = 1.0 + np.minimum(np.arange(N), np.arange(N)[::-1])[:, None]  # (N, 1)
    count = (length - 1) // stride + 1
    total, mass = np.zeros((count, learner.anticipator.config.classes)), np.zeros((count, 1))
    scores = presence_scores(run_windows(learner, cache, first + ends, flip=flip)).cpu().numpy()  # (S, N, C)
    for end, own in zip(ends, scores, strict=True):
        at = (end - WINDOW_FRAMES) // stride + np.arange(N)
        total[at] += weight * own
        mass[at] += weight
    seen = mass[:, 0] > 0
    times = 1000 / FPS * (stride * np.arange(count) + snippet_middle(learner.backbone.config))
    return (total / np.maximum(mass, 1e-9))[seen], times[seen]


def presence_scores(slots: Slots) -> Tensor:
    """(B, N, C): the probability of each action at each stack of the last window."""
    assert slots.presence is not None
    classes = slots.classes.shape[-1]
    if slots.presence.shape[-1] > classes:
        return slots.presence.softmax(-1)[..., :classes]
    return slots.presence.sigmoid()


def score_spotting(learner: EndToEnd, cache: GameCache) -> SpottingScore:
    """The spotting score on the cache's games; without an auxiliary head, 0."""
    config = SPOTTING
    if not learner.anticipator.config.auxiliary:
        none = Peaks(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        return spotting_score([(game.events, none) for game in cache.games], least=config.least)
    found = []
    for g, game in enumerate(cache.games):
        scores, times = game_scores(learner, cache, g)
        peaks = suppress_non_maxima(scores, times, apart_ms=config.apart_ms, smooth_ms=config.smooth_ms)
        found.append((game.events, peaks))
    return spotting_score(found, tolerance_ms=config.tolerance_ms, least=config.least)
