"""Scores of a model in training: on stored windows, on event feeds, and along games: official clips and spotting."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.events import Clip, Prediction, merge_arrays, merge_bins
from ballcast.core.pretrain_config import SpottingConfig
from ballcast.data.events.event_tokens import hide, tokens_before
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.feed_samples import FeedWindows, on_device
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.game_samples import evaluation_clips
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, snippet_middle, snippet_span, start_frame
from ballcast.inference.tuning import score_bins
from ballcast.metrics.average_precision import Score, score, score_arrays
from ballcast.metrics.spotting import Peaks, SpottingScore, random_score, spotting_score, suppress_non_maxima
from ballcast.model.end_to_end import EndToEnd
from ballcast.model.event_transformer import EventTransformer, decode_slots
from ballcast.model.postprocess import PEAKS, emit, emit_flat, select_times
from ballcast.model.score_mapping import REACH_MS
from ballcast.model.slots import Slots
from ballcast.training.augment import planes
from ballcast.training.data import GameCache
from ballcast.training.distributed import Ranks
from ballcast.training.switches import mode

WINDOWS_AT_ONCE = 16  # of an end-to-end model
SNIPPETS_AT_ONCE = 990  # of a backbone: a game need not be in memory all at once
SPOTTING = SpottingConfig(smooth_ms=80)  # of end-to-end models

# --------------------------------------------------------------------------------- an anticipator on stored windows


@torch.inference_mode()
def predict(
    model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None
) -> dict[str, list[Prediction]]:
    """Predict every sample: name → predictions in order, entries of one bin not merged yet.

    Several ranks share the work, and all get the result.
    """
    return dict(zip(samples.windows.names, emit(predict_slots(model, samples, ranks=ranks), config), strict=True))


@torch.inference_mode()
def predict_slots(model: nn.Module, samples: Samples, *, ranks: Ranks | None = None) -> Slots:
    """The slots of every sample, in order and in float32."""
    ranks = ranks or Ranks()
    with mode(model, training=False):
        parts = samples.run(model, rank=ranks.rank, ranks=ranks.count)
    return join_slots(parts).map(lambda t: ranks.interleave(t.float(), len(samples)))


def evaluate(model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None) -> Score:
    """Compute the official score on samples of official clips, merged as a submission is.

    Equal to `score_of(samples, predict(…))`, without an object for each prediction.
    """
    slots = predict_slots(model, samples, ranks=ranks)
    return score_arrays(samples.windows.clips, *merge_arrays(*emit_flat(slots, config)))


def score_of(samples: Samples, predictions: dict[str, list[Prediction]]) -> Score:
    """Compute the official score of predictions, merged as a submission is."""
    return score(samples.windows.clips, {name: merge_bins(emitted) for name, emitted in predictions.items()})


def join_slots(parts: list[Slots]) -> Slots:
    """Concatenate the samples of all parts."""
    presence = None if parts[0].presence is None else torch.cat([p.presence for p in parts if p.presence is not None])
    return Slots(
        torch.cat([p.objectness for p in parts]),
        torch.cat([p.classes for p in parts]),
        torch.cat([p.offsets for p in parts]),
        parts[0].bins,
        presence,
        form=parts[0].form,
    )


# ------------------------------------------------------------------------------------ an event transformer on feeds


class FeedOutputs(NamedTuple):
    """Outputs for S windows: expected actions of either team (C, S, 32), and their chance within 1 … 5 s (S, C, 5)."""

    intensity: NDArray[np.float32]
    chance: NDArray[np.float32]


@torch.inference_mode()
def predict_feed_windows(
    model: EventTransformer, windows: FeedWindows, *, ranks: Ranks | None = None, batch: int = 4096
) -> FeedOutputs:
    """Run the model on all windows. Several ranks share the work, and all get the result."""
    ranks = ranks or Ranks()
    config = model.config
    device = next(model.parameters()).device
    table = on_device(windows.table, device)
    parts = []
    with mode(model, training=False):
        for begin in range(ranks.rank, len(windows), batch * ranks.count):
            chosen = slice(begin, begin + batch * ranks.count, ranks.count)
            at = torch.from_numpy(windows.at[chosen].copy()).to(device)
            available = torch.from_numpy(windows.available[chosen].copy()).to(device)
            codes, values = tokens_before(torch, table, at, tokens=config.tokens, observed_ms=config.observed_ms)
            codes, values = hide(torch, codes, values, available)
            intensity, chance, _ = decode_slots(model(codes, values, available.float()))
            parts.append((intensity.sum(1), chance[:, 2]))
    intensity, chance = (ranks.interleave(torch.cat(part), len(windows)) for part in zip(*parts, strict=True))
    return FeedOutputs(np.ascontiguousarray(intensity.cpu().numpy().transpose(1, 0, 2)), chance.cpu().numpy())


def score_feed_windows(outputs: FeedOutputs, windows: FeedWindows) -> Score:
    """The official score of the times where most of each action is expected."""
    scores = select_times(outputs.intensity, [REACH_MS] * len(outputs.intensity), PEAKS)
    return score_bins(windows.clips, scores)


# ---------------------------------------------------------------------------------- an end-to-end model along games


@torch.no_grad()
def predict_windows(learner: EndToEnd, cache: GameCache, ends: np.ndarray, *, flip: bool = False) -> Slots:
    """The slots of windows that end before the frames `ends` (S,); `flip`: of mirrored frames, not of features."""
    if flip and isinstance(cache, FeatureCache):
        raise ValueError("features cannot be mirrored; give frames")
    device = next(learner.parameters()).device
    parts = []
    with mode(learner, training=False):
        for begin in range(0, len(ends), WINDOWS_AT_ONCE):
            first = ends[begin : begin + WINDOWS_AT_ONCE, None] - learner.span
            if isinstance(cache, FeatureCache):
                seen = cache.take(first + learner.stack_offsets)
            else:
                seen = planes(cache.take(first + learner.frame_offsets), colour=learner.colour)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                slots, _ = learner(seen.flip(-1) if flip else seen)
            parts.append(slots.map(lambda t: t.float()))
    return join_slots(parts)


def predict_clips(learner: EndToEnd, cache: GameCache, *, flip: bool = False) -> tuple[list[Clip], Slots]:
    """The official clips of the cache's games, and their slots, in order; with `flip`, of mirrored frames."""
    ends, clips = evaluation_clips(cache.games, cache.first, cache.length)
    return clips, predict_windows(learner, cache, ends, flip=flip)


def score_clips(learner: EndToEnd, cache: GameCache, config: EmitConfig) -> Score:
    """The official score on the clips of the cache's games."""
    clips, slots = predict_clips(learner, cache)
    return score_arrays(clips, *merge_arrays(*emit_flat(slots, config)))


def game_scores(learner: EndToEnd, cache: GameCache, game: int, *, flip: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Spotting scores along a game: windows that overlap by half, averaged, the middles of windows counting more.

    Returns:
        Scores (n, C) in [0, 1], and their times (n,) in ms.
    """
    first = int(cache.first[game])
    length = int(cache.length[game])
    stride = learner.backbone.config.stride
    N = learner.stacks
    hop = N // 2 * stride
    last = (length - learner.span) // stride * stride + learner.span
    ends = np.unique([*range(learner.span, length + 1, hop), last])
    weight = 1.0 + np.minimum(np.arange(N), np.arange(N)[::-1])[:, None]  # (N, 1)
    count = (length - 1) // stride + 1
    total = np.zeros((count, learner.anticipator.config.classes))
    mass = np.zeros((count, 1))
    scores = presence_scores(predict_windows(learner, cache, first + ends, flip=flip)).cpu().numpy()  # (S, N, C)
    for end, of_window in zip(ends, scores, strict=True):
        at = (end - WINDOW_FRAMES) // stride + np.arange(N)
        total[at] += weight * of_window
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
    spotted = []
    for g, game in enumerate(cache.games):
        scores, times = game_scores(learner, cache, g)
        peaks = suppress_non_maxima(scores, times, apart_ms=config.apart_ms, smooth_ms=config.smooth_ms)
        spotted.append((game.events, peaks))
    return spotting_score(spotted, tolerance_ms=config.tolerance_ms, least=config.least)


# -------------------------------------------------------------------------------------------- a backbone along games


@torch.no_grad()
def spot(
    encoder: BatchEncoder,
    classifier: nn.Module,
    read: Callable[[int, int], Tensor],
    frames: int,
    *,
    flip: bool = False,
) -> np.ndarray:
    """Spotting scores along consecutive frames.

    Args:
        encoder: runs the backbone.
        classifier: its head.
        read: first, stop → frames first … stop − 1, (n, H, W) uint8.
        frames: how many there are.
        flip: average with the scores of mirrored frames.

    Returns:
        Scores (n, C) in [0, 1] of the snippets, one every `stride` frames.
    """
    config = encoder.config
    count = snippet_count(config, frames)
    scores = []
    for first in range(0, count, SNIPPETS_AT_ONCE):
        last = min(first + SNIPPETS_AT_ONCE, count) - 1
        part = read(start_frame(config, first), start_frame(config, last) + snippet_span(config))
        logits = [classifier(encoder.snippets(view)) for view in ([part, part.flip(-1)] if flip else [part])]
        scores.append(torch.stack([x.float().sigmoid() for x in logits]).mean(0))
    return torch.cat(scores).cpu().numpy().astype(np.float64)


def score_games(backbone: Backbone, cache: FrameCache, config: SpottingConfig, device: torch.device) -> SpottingScore:
    """The backbone's spotting score on the games of the cache."""
    with mode(backbone, training=False):
        encoder = BatchEncoder(backbone, device=device, compiled=False)
        spotted = []
        for g, game in enumerate(cache.games):
            begin, length = int(cache.first[g]), int(cache.length[g])

            def read(first: int, stop: int, begin: int = begin) -> Tensor:
                return cache.read(begin + first, begin + stop)

            scores = spot(encoder, backbone.classifier, read, length, flip=config.flip)
            times = middles_ms(backbone.config, length)
            peaks = suppress_non_maxima(scores, times, apart_ms=config.apart_ms, smooth_ms=config.smooth_ms)
            spotted.append((game.events, peaks))
    return spotting_score(spotted, tolerance_ms=config.tolerance_ms, least=config.least)


def score_chance(network: BackboneConfig, cache: FrameCache, config: SpottingConfig) -> SpottingScore:
    """What scores drawn at random get on the games of the cache: the floor that a spotting score stands on."""
    times = [middles_ms(network, int(length)) for length in cache.length]
    games = [(game.events, of_game) for game, of_game in zip(cache.games, times, strict=True)]
    return random_score(games, apart_ms=config.apart_ms, tolerance_ms=config.tolerance_ms, least=config.least)


def middles_ms(network: BackboneConfig, frames: int) -> np.ndarray:
    """The middles of the snippets of consecutive frames, (n,) ms."""
    return 1000 / FPS * (start_frame(network, np.arange(snippet_count(network, frames))) + snippet_middle(network))
