"""The stacks of streams in torch, one call for a batch of them; on a GPU as CUDA graphs of several sizes.

There the backbone is compiled, once for all batches of two and more streams.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.errors import BallcastWarning, InputError, first_line
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.cuda_graph import record
from ballcast.features.stack_index import snippet_stacks
from ballcast.inference.runtime import Floats, Frames

SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32)  # of the recorded batches: a batch is filled up to the next of them


class Buffer:
    """A tensor on the device and, for a GPU, a pinned one, from which it is filled without waiting for the copy.

    What was filled must have been used before it is filled again.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self.tensor = torch.zeros(*shape, dtype=dtype, device=device)
        self.host = torch.zeros(*shape, dtype=dtype, pin_memory=True) if pinned else self.tensor

    def fill(self, rows: NDArray[Any]) -> None:
        """Fill the first rows."""
        self.host[: len(rows)].copy_(torch.from_numpy(rows))
        self.upload(len(rows))

    def upload(self, count: int) -> None:
        """Copy the first `count` rows to the GPU, on the current stream."""
        if self.host is not self.tensor:
            self.tensor[:count].copy_(self.host[:count], non_blocking=True)


class TorchStream:
    """A `Stream` in a `StackBatch`: its number, its stacks so far, and the next stack's frames."""

    def __init__(
        self, batch: "StackBatch", number: int, shape: Sequence[int], copies: "torch.cuda.Stream | None"
    ) -> None:
        self.batch = batch
        self.number = number
        self.stacks = 0
        self._buffer = Buffer(shape, torch.uint8, batch.encoder.device)
        self._array = self._buffer.host.numpy()
        self._copies = copies  # the stream of a GPU that copies frames while others are computed
        self._copied = torch.cuda.Event() if copies is not None else None
        if copies is not None:
            tensor = self._buffer.tensor
            copies.wait_stream(torch.cuda.current_stream(tensor.device))  # which fills it with zeros
            tensor.record_stream(copies)  # it may be let go while frames are still on their way

    def fill(self, frames: Frames) -> None:
        np.stack(list(frames), out=self._array)
        if self._copied is not None:
            with torch.cuda.stream(self._copies):
                self._buffer.upload(len(self._array))
                self._copied.record(self._copies)

    def frames(self) -> Tensor:
        """(stack, H, W) uint8, with a temporal shift (N, stack, H, W); the current stream of a GPU waits for them."""
        if self._copied is not None:
            self._copied.wait()
        return self._buffer.tensor


class StackBatch:
    """Encodes the next stacks of several streams, all of one frame size, in one call.

    The maps of the latest stacks stay on the device, a ring for each stream.

    Args:
        encoder: the backbone.
        size: of the frames, as in `Runtime.open_stream`.
        streams: that may be open at once.
        graphed: record the batches of `SIZES`; compiled, those of two and more: one stream is computed as two.
        compiled: compile the network for batches of two and more; not with a temporal shift.

    Attributes:
        took: seconds of compiling and of recording each size.
    """

    @torch.inference_mode()
    def __init__(
        self, encoder: BatchEncoder, size: tuple[int, int], *, streams: int, graphed: bool, compiled: bool = False
    ) -> None:
        self.encoder = encoder
        self._graphed = graphed
        self._shifted = encoder.config.shift != "none"
        self._ring = encoder.overlap + 1  # maps kept of each stream
        self._parts = snippet_stacks(encoder.config, 1)[0].tolist()
        self._free = list(range(streams))[::-1]
        self._spare = streams  # of the rows that fill up a batch
        lead = (encoder.stacks_per_batch, encoder.config.stack) if self._shifted else (encoder.config.stack,)
        self._shape = (*lead, *size)
        on_gpu = encoder.device.type == "cuda"
        self._copies = torch.cuda.Stream(encoder.device) if on_gpu else None
        self._given = torch.zeros(min(SIZES[-1], streams), *self._shape, dtype=torch.uint8, device=encoder.device)
        self._index = Buffer((len(self._given), 1 + len(self._parts)), torch.long, encoder.device)
        black = self._encode(self._given[:1])
        rows = 1 if self._shifted else (streams + 1) * self._ring
        self._maps = black.new_zeros(rows, *black.shape[1:]).contiguous(memory_format=torch.channels_last)
        self._index.fill(np.full(self._index.tensor.shape, self._spare * self._ring))
        self._steps: dict[int, tuple[Callable[[], None], Tensor]] = {}
        self._networks: tuple[Callable[..., Tensor], Callable[..., Tensor]] = self._encode, self._mix
        self.took: dict[str, float] = {}
        is_compiled = compiled and not self._shifted and len(self._given) > 1 and self._compile()
        if graphed:
            pool = torch.cuda.graph_pool_handle() if on_gpu else None  # the largest batch first fills it
            sizes = SIZES[1:] if is_compiled else SIZES  # four compiled took no longer than one eager (docs/live.md)
            for count in sorted({min(count, len(self._given)) for count in sizes}, reverse=True):
                began = time.perf_counter()
                self._steps[count] = record(lambda count=count: self._advance(count), warmups=1, pool=pool)  # type: ignore[misc]
                self.took[f"record {count}"] = time.perf_counter() - began

    @property
    def used(self) -> int:
        """Number of streams that are open."""
        return self._spare - len(self._free)

    def open(self) -> TorchStream:
        if not self._free:
            raise InputError(f"no place for another stream: {self._spare} are followed at once")
        return TorchStream(self, self._free.pop(), self._shape, self._copies)

    def close(self, stream: TorchStream) -> None:
        self._free.append(stream.number)

    @torch.inference_mode()
    def run(self, streams: Sequence[TorchStream]) -> Floats:
        rows = [self._rows(stream) for stream in streams]
        count = next((size for size in sorted(self._steps) if size >= len(streams)), len(streams))
        rows += [[self._spare * self._ring] * len(rows[0])] * (count - len(streams))
        self._index.fill(np.array(rows))
        for place, stream in enumerate(streams):
            self._given[place].copy_(stream.frames())
        if self._graphed:
            replay, features = self._steps[count]
            replay()
        else:
            features = self._advance(count)
        return features[: len(streams)].cpu().numpy().copy()  # a graph's next replay overwrites it

    def _rows(self, stream: TorchStream) -> list[int]:
        """Where the stack's map is written, then where the maps of the snippet that it completes are read."""
        first = stream.number * self._ring
        newest = stream.stacks
        stream.stacks += 1
        oldest = newest + 1  # the ring's place after the newest, which is overwritten next
        return [
            first + newest % self._ring,
            *(first + (oldest + stack) % self._ring for stack in self._parts),
        ]

    def _advance(self, count: int) -> Tensor:
        """Encode the first `count` of the given stacks, and mix the snippets that they complete."""
        if self._shifted:
            windows = self._encode(self._given[:count]).unflatten(0, (count, -1))
            return torch.stack([self.encoder.mix(window) for window in windows])
        encode, mix = self._networks
        index = self._index.tensor[:count]
        self._maps.index_copy_(0, index[:, 0], encode(self._given[:count]))
        return mix(index, self._maps)

    def _encode(self, given: Tensor) -> Tensor:
        """Stacks (b, …, stack, H, W) → maps (b · …, C, h, w)."""
        return self.encoder.encode(given.flatten(0, 1) if self._shifted else given)

    def _mix(self, index: Tensor, maps: Tensor) -> Tensor:
        """Snippets of the stacks `index` (b, 1 + J), but for the first, of the maps → features (b, D)."""
        picked = maps[index[:, 1:].flatten()].contiguous(memory_format=torch.channels_last)
        encoder = self.encoder
        if len(index) <= encoder.at_once:
            return encoder.backbone.mix(picked)
        return torch.cat([encoder.backbone.mix(some) for some in picked.split(encoder.at_once * len(self._parts))])

    def _compile(self) -> bool:
        """Compile the networks; where that fails, warn and continue without. Returns whether they are compiled."""
        from torch._dynamo.exc import TorchDynamoException

        eager = self._networks
        began = time.perf_counter()
        self._networks = _symbolic(self._encode), _symbolic(self._mix)
        try:
            self._advance(len(self._given))
        except TorchDynamoException as error:  # no C compiler, no Triton
            self._networks = eager
            message = f"streams run without compiling, which takes longer: {first_line(error)}"
            warnings.warn(message, BallcastWarning, stacklevel=3)
        self.took["compile"] = time.perf_counter() - began
        return self._networks is not eager


def _symbolic(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compiled at the first call, for any size of the first argument's first dimension; all others are fixed.

    It is not compiled again: sizes that the compiled code does not fit, such as 1, run eagerly.
    """
    compiled = torch.compile(function)
    first = True

    def call(batch: Tensor, *others: Tensor) -> Tensor:
        nonlocal first
        stance: Literal["default", "eager_on_recompile"] = "default" if first else "eager_on_recompile"
        first = False
        torch._dynamo.maybe_mark_dynamic(batch, 0)
        # or the second size of frame would be compiled for frames of any size, which is slower
        with torch._dynamo.config.patch(automatic_dynamic_shapes=False), torch.compiler.set_stance(stance):
            return compiled(batch, *others)

    return call
