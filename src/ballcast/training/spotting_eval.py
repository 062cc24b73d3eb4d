"""Spotting with a backbone: its scores all along games, and how good they are."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import FPS
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.pretrain_config import SpottingConfig
from ballcast.data.samples.frames import FrameCache
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import snippet_count, snippet_middle, snippet_span, start_frame
from ballcast.metrics.spotting import SpottingScore, random_score, spotting_score, suppress_non_maxima

CLIPS = 990  # at a time: a game need not be in memory all at once


Read = Callable[[int, int], Tensor]  # first, stop → frames first … stop − 1, (n, H, W) uint8


@torch.no_grad()
def spot(
    encoder: BatchEncoder, classifier: torch.nn.Module, read: Read, frames: int, *, flip: bool = False
) -> np.ndarray:
    """Scores (n, C) in [0, 1] of the clips of so many consecutive frames, one every `stride` frames."""
    c = encoder.config
    count, scores = snippet_count(c, frames), []
    for first in range(0, count, CLIPS):
        last = min(first + CLIPS, count) - 1
        some = read(start_frame(c, first), start_frame(c, last) + snippet_span(c))
        logits = [classifier(encoder.clips(view)) for view in ([some, some.flip(-1)] if flip else [some])]
        scores.append(torch.stack([x.float().sigmoid() for x in logits]).mean(0))
    return torch.cat(scores).cpu().numpy().astype(np.float64)


def score_games(backbone: Backbone, cache: FrameCache, config: SpottingConfig, device: torch.device) -> SpottingScore:
    """The backbone's spotting score on the games of the cache. The backbone is left as it was."""
    training = backbone.training
    backbone.eval()
    try:
        encoder = BatchEncoder(backbone, device=device, compiled=False)
        c, found = backbone.config, []
        for g, game in enumerate(cache.games):
            begin, length = int(cache.first[g]), int(cache.length[g])

            def read(first: int, stop: int, begin: int = begin) -> Tensor:
                return cache.read(begin + first, begin + stop)

            scores = spot(encoder, backbone.classifier, read, length, flip=config.flip)
            peaks = suppress_non_maxima(
                scores, middles_ms(c, length), apart_ms=config.apart_ms, smooth_ms=config.smooth_ms
            )
            found.append((game.events, peaks))
        return spotting_score(found, tolerance_ms=config.tolerance_ms, least=config.least)
    finally:
        backbone.train(training)


def score_chance(network: BackboneConfig, cache: FrameCache, config: SpottingConfig) -> SpottingScore:
    """What scores drawn at random get on the games of the cache: the floor that a spotting score stands on."""
    times = [middles_ms(network, int(length)) for length in cache.length]
    games = [(game.events, own) for game, own in zip(cache.games, times, strict=True)]
    return random_score(games, apart_ms=config.apart_ms, tolerance_ms=config.tolerance_ms, least=config.least)


def middles_ms(network: BackboneConfig, frames: int) -> np.ndarray:
    """When the clips of so many frames have their middles, (n,) ms."""
    return 1000 / FPS * (start_frame(network, np.arange(snippet_count(network, frames))) + snippet_middle(network))
