"""The end-to-end model: frames through a frame encoder and an anticipator, trained together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.embedded import named_backbone
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone, pad_frames
from ballcast.features.frame_network import rgb_to_planes
from ballcast.features.stack_index import snippet_count, snippet_middle, stack_frames, start_frame
from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots


class EndToEnd(nn.Module):
    """Frames (B, W · F, H, W) in [0, 1] → `Slots`; F frames of a window are read, `frame_offsets` says which.

    In colour a frame is three planes one after the other, (B, W · 3 F, H, W).

    Args:
        backbone: the frame encoder.
        anticipator: of the same number of stacks per window (N) and features per stack (D).
        classes: numbers of classes of further label sets, for a spotting head each; for training only.

    Attributes:
        frame_offsets: (W · F,) int64, the frames it reads, counted from the first of its windows.
        stack_offsets: (W · N,) int64, the first frame of each stack, counted in the same way.
        span: frames of all its windows.
        middles: (N,) int64, the middle frame of each stack, counted from its window's first.
    """

    _index: Tensor  # (N, stack): the frames of a window that each stack reads, numbered in the order of `frame_offsets`

    def __init__(self, backbone: Backbone, anticipator: Anticipator, classes: Sequence[int] = ()) -> None:
        super().__init__()
        self.backbone = backbone
        self.anticipator = anticipator
        config = backbone.config
        self.colour = config.colour
        self.windows = anticipator.config.windows
        self.stacks = snippet_count(config)  # N
        self.span = WINDOW_FRAMES * self.windows
        read = stack_frames(config, self.stacks)  # (N, stack)
        used = np.unique(read)  # (F,)
        window_starts = WINDOW_FRAMES * np.arange(self.windows)
        stack_starts = start_frame(config, np.arange(self.stacks))  # (N,)
        self.frame_offsets = (window_starts[:, None] + used).ravel()
        self.stack_offsets = (window_starts[:, None] + stack_starts).ravel()
        self.middles = stack_starts + snippet_middle(config)
        self.register_buffer("_index", torch.from_numpy(np.searchsorted(used, read)), persistent=False)
        with torch.no_grad():
            dim = anticipator.encode_window(torch.zeros(1, self.stacks, config.width)).shape[-1] if classes else 0
        self.heads = nn.ModuleList(nn.Linear(dim, count) for count in classes)

    def features(self, frames: Tensor) -> Tensor:
        """Frames (B, W · F, H, W), or in colour (B, W · 3 F, H, W) → features (B, W, N, D)."""
        config = self.backbone.config
        if torch.is_autocast_enabled(frames.device.type):  # before they are gathered, three times each
            frames = frames.to(torch.get_autocast_dtype(frames.device.type))
        windows = frames.unflatten(1, (self.windows, -1)).flatten(0, 1)  # (B · W, F, H, W)
        windows = pad_frames(windows, config.padding, pairs=config.colour)
        stacks = rgb_to_planes(windows.unflatten(1, (-1, 3)), self._index) if self.colour else windows[:, self._index]
        stacks = stacks.flatten(0, 1)  # (B · W · N, planes, H, W)
        maps = self.backbone.encode(stacks.contiguous(memory_format=torch.channels_last))
        return self.backbone.mix(maps).unflatten(0, (-1, self.windows, self.stacks))

    def forward(self, seen: Tensor) -> tuple[Slots, list[Tensor]]:
        """Predict slots, and spotting logits (B, N, C) for each further label set.

        Args:
            seen: frames, or their features (B, W · N, D) where these are computed once.
        """
        features = seen.unflatten(1, (self.windows, self.stacks)) if seen.ndim == 3 else self.features(seen)
        tokens = self.anticipator.encode_window(features)  # (B, W, N, d)
        return self.anticipator.anticipate(tokens), [head(tokens[:, -1]) for head in self.heads]


def load_end_to_end(folder: Path, encoder: Path | None = None) -> EndToEnd:
    """Load an end-to-end model in eval mode.

    Args:
        folder: of its anticipator.
        encoder: folder of its frame encoder; None: the one that the anticipator's metadata name.
    """
    model = Anticipator.from_pretrained(folder)
    place = encoder or named_backbone(folder)
    if place is None:
        raise InputError(f"{folder}: names no encoder; give the best or last of a run with train.backbone=end_to_end")
    return EndToEnd(Backbone.from_pretrained(place), model).eval()
