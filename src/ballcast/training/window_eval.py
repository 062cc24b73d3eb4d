"""An end-to-end model, and its scores on games: anticipation at the official clips, spotting all along."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.events import merge_arrays
from ballcast.core.pretrain_config import SpottingConfig
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.moments import Moments, official_moments
from ballcast.features.backbone import Backbone, pad_frames
from ballcast.features.stack_index import snippet_count, snippet_middle, stack_frames, start_frame
from ballcast.metrics.average_precision import Score, score_arrays
from ballcast.metrics.spotting import Peaks, SpottingScore, spotting_score, suppress_non_maxima
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit_flat
from ballcast.model.slots import Slots
from ballcast.training.augment import planes

AT_ONCE = 16  # windows of an evaluation
SPOTTING = SpottingConfig(smooth_ms=80)


class EndToEnd(nn.Module):
    """Frames (B, W · F, H, W) in [0, 1] → `Slots`; F frames of a window are read, `frame_offsets` says which.

    In colour a frame is three planes one after the other, (B, W · 3 F, H, W).

    Args:
        backbone: the frame encoder.
        anticipator: of the same clips and width.
        classes: of other label sets, for a spotting head each; for training only.

    Attributes:
        frame_offsets: (W · F,) int64, the frames it reads, counted from the first of its windows.
        span: frames of all its windows. last_span: of one.
        middles: (N,) int64, the middle frame of each stack, counted from its window's first.
    """

    def __init__(self, backbone: Backbone, anticipator: Anticipator, classes: Sequence[int] = ()) -> None:
        super().__init__()
        self.backbone, self.anticipator = backbone, anticipator
        config, self.windows = backbone.config, anticipator.config.windows
        self.stacks = snippet_count(config)  # N
        read = stack_frames(config, self.stacks)  # (N, stack)
        used = np.unique(read)  # (F,)
        self.colour = config.colour
        starts = WINDOW_FRAMES * np.arange(self.windows)
        self.frame_offsets = (starts[:, None] + used).ravel()
        self.span, self.last_span = WINDOW_FRAMES * self.windows, WINDOW_FRAMES
        self.middles = start_frame(config, np.arange(self.stacks)) + snippet_middle(config)
        planes = np.searchsorted(used, read)  # (N, stack), or in colour (N, 3)
        planes = 3 * planes + np.arange(3) if config.colour else planes
        self.register_buffer("_index", torch.from_numpy(planes), persistent=False)
        with torch.no_grad():
            dim = anticipator.encode_window(torch.zeros(1, self.stacks, config.width)).shape[-1] if classes else 0
        self.heads = nn.ModuleList(nn.Linear(dim, count) for count in classes)

    def features(self, frames: Tensor) -> Tensor:
        """Frames (B, W · F, H, W), or in colour (B, W · 3 F, H, W) → features (B, W, N, D)."""
        x = pad_frames(frames.unflatten(1, (self.windows, -1)).flatten(0, 1), self.backbone.config.padding)
        stacks = x[:, self._index].flatten(0, 1)  # (B · W · N, stack, H, W)
        maps = self.backbone.encode(stacks.contiguous(memory_format=torch.channels_last))
        return self.backbone.mix(maps).unflatten(0, (-1, self.windows, self.stacks))

    def forward(self, frames: Tensor) -> tuple[Slots, list[Tensor]]:
        """The slots, and spotting logits (B, N, C) of each further label set."""
        tokens = self.anticipator.encode_window(self.features(frames))
        return self.anticipator.anticipate(tokens), [head(tokens[:, -1]) for head in self.heads]


@torch.no_grad()
def run_windows(learner: EndToEnd, bank: FrameCache, ends: np.ndarray, *, flip: bool = False) -> list[Slots]:
    """The slots at the moments `ends` (S,), numbers of frames; with `flip`, those of mirrored frames."""
    device, training = next(learner.parameters()).device, learner.training
    learner.eval()
    outputs = []
    try:
        for begin in range(0, len(ends), AT_ONCE):
            frames = ends[begin : begin + AT_ONCE, None] - learner.span + learner.frame_offsets
            x = planes(bank.take(frames), colour=learner.colour)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                slots, _ = learner(x.flip(-1) if flip else x)
            outputs.append(slots.map(lambda t: t.float()))
    finally:
        learner.train(training)
    return outputs


def predict_moments(learner: EndToEnd, bank: FrameCache, *, flip: bool = False) -> tuple[Moments, list[Slots]]:
    """The official moments of the bank's games, and their slots, in order; with `flip`, of mirrored frames."""
    moments = official_moments(bank.games, bank.first, bank.length)
    return moments, run_windows(learner, bank, moments.frame, flip=flip)


def score_moments(learner: EndToEnd, bank: FrameCache, config: EmitConfig) -> Score:
    """The official score on the clips of the bank's games."""
    moments, outputs = predict_moments(learner, bank)
    emitted, done = [], 0
    for slots in outputs:
        sample, position_ms, vectors = emit_flat(slots, config)
        emitted.append((sample + done, position_ms, vectors))
        done += len(slots.objectness)
    sample, position_ms, vectors = (np.concatenate(parts) for parts in zip(*emitted, strict=True))
    return score_arrays(list(moments.clips), *merge_arrays(sample, position_ms, vectors))


def game_scores(learner: EndToEnd, bank: FrameCache, game: int, *, flip: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Spotting scores along a game: windows that overlap by half, averaged, the middles of windows counting more.

    Returns:
        Scores (n, C) in [0, 1], and their times (n,) in ms.
    """
    first, length, stride = int(bank.first[game]), int(bank.length[game]), learner.backbone.config.stride
    hop, N = learner.stacks // 2 * stride, learner.stacks
    last = (length - learner.span) // stride * stride + learner.span
    ends = np.unique([*range(learner.span, length + 1, hop), last])
    weight = 1.0 + np.minimum(np.arange(N), np.arange(N)[::-1])[:, None]  # (N, 1)
    count = (length - 1) // stride + 1
    total, mass = np.zeros((count, learner.anticipator.config.classes)), np.zeros((count, 1))
    slots = run_windows(learner, bank, first + ends, flip=flip)
    scores = torch.cat([presence_scores(s) for s in slots]).cpu().numpy()  # (S, N, C)
    for end, own in zip(ends, scores, strict=True):
        at = (end - learner.last_span) // stride + np.arange(N)
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


def score_spotting(learner: EndToEnd, bank: FrameCache) -> SpottingScore:
    """The spotting score on the bank's games; without an auxiliary head, 0."""
    config = SPOTTING
    if not learner.anticipator.config.auxiliary:
        none = Peaks(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        return spotting_score([(game.events, none) for game in bank.games], least=config.least)
    found = []
    for g, game in enumerate(bank.games):
        scores, times = game_scores(learner, bank, g)
        peaks = suppress_non_maxima(scores, times, apart_ms=config.apart_ms, smooth_ms=config.smooth_ms)
        found.append((game.events, peaks))
    return spotting_score(found, tolerance_ms=config.tolerance_ms, least=config.least)
