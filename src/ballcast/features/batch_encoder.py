"""Features of many overlapping snippets, each distinct stack encoded once.

The 165 stacks of a 5 s window are only 41 distinct ones (see `stack_index`). The 2D network, nearly all of the cost,
runs on those, then the 3D blocks on all snippets at once. Every batch has the size of one window, the last of a run
filled up: one shape to compile, and a snippet's features do not depend on the other snippets of the call.

With a temporal shift, features depend on their whole window: windows are then computed one by one and share nothing.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ballcast.core.actions import WINDOW_FRAMES
from ballcast.core.errors import InputError
from ballcast.core.util import keep_freed_memory
from ballcast.features.backbone import Backbone
from ballcast.features.frame_network import mirror, to_channels_last
from ballcast.features.stack_index import (
    covering_windows,
    snippet_count,
    snippet_stacks,
    stack_count,
    stack_offsets,
    stack_overlap,
    start_frame,
)

CPU_BATCH = 8  # stacks or snippets at once on a CPU: more do not fit its caches, and take up to twice the time
CPU_PIXELS = CPU_BATCH * 224 * 416  # fewer stacks of larger frames: no slower, and half of the memory at 720p


class BatchEncoder:
    """Computes features without gradients: fp16 on a GPU with norms and pooling in fp32, fp32 on the CPU.

    Args:
        backbone: the network; it is left as it is, and later changes to it are not seen here on a GPU.
        device: where to compute; by default where the backbone lies.
        compiled: compile for the GPU, which takes a minute at the first window of each frame size; ignored on the CPU.

    On the CPU, it lets the process keep memory that it frees (`keep_freed_memory`).
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        device: torch.device | str | None = None,
        compiled: bool = True,
    ) -> None:
        self.config = c = backbone.config
        self.device = torch.device(device) if device is not None else next(backbone.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.precision: Literal["fp16", "fp32"] = "fp16" if on_gpu else "fp32"
        self.dtype = torch.float16 if on_gpu else torch.float32
        self.snippets_per_batch = snippet_count(c)  # N
        self.overlap = stack_overlap(c)
        self.stacks_per_batch = stack_count(c, self.snippets_per_batch)
        self._whole = on_gpu or c.shift != "none"  # a window goes through the network at once
        self.at_once = self.stacks_per_batch if self._whole else CPU_BATCH
        self.backbone = _prepared(backbone, self.device, self.dtype)
        arange = partial(torch.arange, device=self.device)
        self._index = snippet_stacks(c, self.snippets_per_batch, arange)  # (N, J), into a batch of stacks
        self._offsets = stack_offsets(c, arange)  # (stack,), frames of a stack
        self._copies = torch.cuda.Stream(self.device) if on_gpu else None  # frames come while others are computed
        self._encode: Callable[[Tensor], Tensor] = self.encode
        self._mix: Callable[[Tensor], Tensor] = self.mix
        if not on_gpu:
            keep_freed_memory()
        elif compiled:
            self._encode = _graphed(self.encode)
            self._mix = _graphed(self.mix)

    def snippets(self, frames: np.ndarray | Tensor) -> Tensor:
        """Consecutive frames (T, H, W) uint8, or I420 → features (n, D) float32 of every snippet.

        With a temporal shift, of consecutive windows: those of `covering_windows`, the later one where two overlap.
        """
        count = snippet_count(self.config, len(frames))
        if self.config.shift != "none":
            if count < self.snippets_per_batch:
                raise InputError(
                    f"{len(frames)} frames are fewer than the {WINDOW_FRAMES} of the window that is shifted"
                )
            firsts = covering_windows(self.config, count)
            windows = self.windows(frames, [start_frame(self.config, first) for first in firsts])
            features = windows.new_empty(count, self.config.width)
            for first, window in zip(firsts, windows, strict=True):
                features[first : first + len(window)] = window
            return features
        return self._features(frames, [start_frame(self.config, i) for i in range(count)])

    def windows(self, frames: np.ndarray | Tensor, starts: Sequence[int]) -> Tensor:
        """Consecutive frames (T, H, W) uint8, or I420 → features (M, N, D) float32 of the windows at frames `starts`.

        Any start will do: windows apart by a multiple of `stride` share their stacks and snippets, unless shifted.
        """
        c = self.config
        for start in starts:
            if start < 0 or start + WINDOW_FRAMES > len(frames):
                raise InputError(f"a window at frame {start} needs frames {start} to {start + WINDOW_FRAMES - 1}")
        if c.shift != "none":
            return self._shifted_windows(frames, starts)
        grid = [
            [start + start_frame(c, i) for i in range(self.snippets_per_batch)] for start in starts
        ]  # (M, N) frames
        distinct = sorted({snippet for row in grid for snippet in row}, key=lambda frame: (frame % c.stride, frame))
        place = {frame: i for i, frame in enumerate(distinct)}
        index = torch.tensor([[place[snippet] for snippet in row] for row in grid])
        if self._copies is not None:  # from pageable memory it would wait for all that is being computed
            index = index.pin_memory().to(self.device, non_blocking=True)
        return self._features(frames, distinct)[index]

    def start_windows(
        self, frames: np.ndarray | Tensor, starts: Sequence[int], *, mirrored: bool = False
    ) -> "AsyncFeatures":
        """Start computing `windows`, of frames with left and right exchanged if `mirrored`, as float16 on the CPU;
        there may be none."""
        if mirrored:
            frames = mirror(self._upload(frames), colour=self.config.colour)
        none = (0, self.snippets_per_batch, self.config.width)
        return AsyncFeatures(self.windows(frames, starts).half() if starts else torch.empty(none, dtype=torch.float16))

    @torch.no_grad()
    def _shifted_windows(self, frames: np.ndarray | Tensor, starts: Sequence[int]) -> Tensor:
        """Features (M, N, D) of windows, each computed on its own."""
        pixels = self._upload(frames)
        apart = start_frame(self.config, torch.arange(self.snippets_per_batch, device=self.device))
        windows = [self._mix(self.maps(pixels, start + apart)) for start in starts]
        return torch.stack(windows) if windows else torch.zeros(0, len(apart), self.config.width, device=self.device)

    @torch.no_grad()
    def _features(self, frames: np.ndarray | Tensor, starts: list[int]) -> Tensor:
        """Features (n, D) float32 of the snippets at the frames `starts`, which are sorted by phase, then by time."""
        if not starts:
            return torch.zeros(0, self.config.width, device=self.device)
        pixels = self._upload(frames)
        return torch.cat([self._run(pixels, first, count) for first, count in _runs(starts, self.config.stride)])

    def _run(self, pixels: Tensor, first: int, count: int) -> Tensor:
        """Features (count, D) of consecutive snippets, the first at the frame `first`."""
        c = self.config
        N = self.snippets_per_batch
        S = self.stacks_per_batch
        stacks = stack_count(c, count)
        begins = first + start_frame(c, torch.arange(stacks, device=self.device))
        begins = torch.cat([begins, begins[-1:].expand(-stacks % S)])  # the last batch filled up with its last stack
        maps = torch.cat([self.maps(pixels, batch) for batch in begins.split(S)])[:stacks]
        maps = torch.cat([maps, maps.new_zeros(-count % N, *maps.shape[1:])])
        # snippets i to i + N − 1 read the maps i to i + S − 1
        return torch.cat([self._mix(maps[i : i + S]) for i in range(0, count, N)])[:count]

    def load(self, frames: np.ndarray | Tensor) -> Tensor:
        """Frames (T, H, W) uint8, or I420 (T, 3H/2, W), on the device and padded."""
        return self.backbone.padded(self._upload(frames))

    def _upload(self, frames: np.ndarray | Tensor) -> Tensor:
        """Frames on the device as they are; from page-locked memory they come while earlier work is computed."""
        pixels = torch.as_tensor(frames)
        colour = self.config.colour
        if pixels.ndim != 3 or pixels.dtype != torch.uint8 or (colour and (pixels.shape[1] % 3 or pixels.shape[2] % 2)):
            wanted = "I420 (T, 3H/2, W)" if colour else "(T, H, W)"
            raise InputError(f"frames must be {wanted} uint8, not {tuple(pixels.shape)} {pixels.dtype}")
        if self._copies is None or pixels.is_cuda:
            return pixels.to(self.device)
        computing = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._copies):
            pixels = pixels.to(self.device, non_blocking=True)
        computing.wait_stream(self._copies)
        pixels.record_stream(computing)
        return pixels

    def maps(self, pixels: Tensor, begins: Tensor) -> Tensor:
        """Maps (n, C, h, w) of the stacks that begin at the frames `begins` (n,) of `pixels`, padded or not."""
        return self._encode(pixels[begins[:, None] + self._offsets])  # (n, stack, H, W)

    def encode(self, frames: Tensor) -> Tensor:
        """Stacks (S, stack, H, W) uint8, or I420 (S, stack, 3H/2, W), padded here if need be → maps (S, C, h, w)."""
        frames = self.backbone.padded(frames)  # here, where compiling makes one kernel of it and the next
        if self.config.colour:
            x = self.backbone.scaled(frames).to(self.dtype, memory_format=torch.channels_last)
        else:
            x = frames.to(self.dtype, memory_format=torch.channels_last) / 255
        # Frame encoders may have layers of any kind; outside convolutions, fp16 is for autocast to choose.
        mixed = self.dtype == torch.float16 and not self.config.blocks
        with torch.autocast(self.device.type, self.dtype, enabled=mixed, cache_enabled=False):
            pixels = x.shape[-2] * x.shape[-1]
            at_once = self.at_once if self._whole else min(self.at_once, max(1, CPU_PIXELS // pixels))
            if len(x) <= at_once:
                return self.backbone.encode(x)
            return torch.cat([self.backbone.encode(some) for some in x.split(at_once)])

    def mix(self, maps: Tensor) -> Tensor:
        """Maps of stacks in a row (n + overlap, C, h, w), n up to N → features of their snippets (n, D) float32."""
        maps = maps.contiguous(memory_format=torch.channels_last)
        features = []
        count = len(maps) - self.overlap
        for first in range(0, count, self.at_once):
            index = self._index[: min(self.at_once, count - first)]
            features.append(self.backbone.mix(maps[first : first + len(index) + self.overlap], index))
        return torch.cat(features)


class AsyncFeatures:
    """A result on its way from the device to the CPU, while the device computes what comes next."""

    def __init__(self, result: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._result = result
        if result.is_cuda:
            self._result = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            self._result.copy_(result, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(result.device))

    def ready(self) -> bool:
        """Whether it has come."""
        return self._event is None or self._event.query()

    def array(self) -> np.ndarray:
        """Wait for it."""
        if self._event is not None:
            self._event.synchronize()
        return self._result.numpy()


def _prepared(backbone: Backbone, device: torch.device, dtype: torch.dtype) -> Backbone:
    """The network in eval mode on its device: convolutions in `dtype` and channels last, norms as they are."""
    if dtype == torch.float32 and next(backbone.parameters()).device == device and not backbone.training:
        return backbone
    ready = copy.deepcopy(backbone).eval().to(device)
    for module in ready.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            module.to(dtype)  # not the norms: their variances can leave fp16's range
    if device.type == "cuda":
        to_channels_last(ready)
    return ready


def _graphed(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compiled, in a CUDA graph; the copy is needed because the graph's next run overwrites its output."""
    compiled = torch.compile(function, dynamic=False, mode="reduce-overhead")
    return lambda x: compiled(x).clone()


def _runs(starts: list[int], stride: int) -> Iterator[tuple[int, int]]:
    """(first, count) of each longest sequence of frames `stride` apart."""
    first = previous = starts[0]
    for start in starts[1:]:
        if start != previous + stride:
            yield first, (previous - first) // stride + 1
            first = start
        previous = start
    yield first, (previous - first) // stride + 1


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """On the CPU use one torch thread, so that features do not depend on the workers; make a GPU the current device."""
    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    try:
        yield
    finally:
        torch.set_num_threads(before)
