"""The steps of many streams in torch, one call for a batch of them; on a GPU as CUDA graphs of several sizes.

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
from ballcast.features.batch_encoder import CPU_BATCH, BatchEncoder
from ballcast.features.stack_index import snippet_stacks
from ballcast.features.stream_encoder import Floats, Pictures
from ballcast.features.torch_stream_encoder import record
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotArrays

SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32)  # of the recorded batches: a batch is filled up to the next of them


class _Buffer:
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


class TorchStreamState:
    """One stream's place in a `StackBatch`: its number, its stacks so far, and the next stack's frames."""

    def __init__(self, batch: "StackBatch", number: int, shape: Sequence[int], copies: Any) -> None:
        self.batch, self.number, self.stacks = batch, number, 0
        self._buffer = _Buffer(shape, torch.uint8, batch.encoder.device)
        self._array = self._buffer.host.numpy()
        self._copies = copies  # the stream of a GPU that copies frames while others are computed
        self._copied = torch.cuda.Event() if copies is not None else None
        if copies is not None:
            tensor = self._buffer.tensor
            copies.wait_stream(torch.cuda.current_stream(tensor.device))  # which fills it with zeros
            tensor.record_stream(copies)  # it may be let go while frames are still on their way

    def fill(self, pictures: Pictures) -> None:
        """Copy the next stack, on the thread of its stream."""
        np.stack(list(pictures), out=self._array)
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

    The maps of the latest stacks stay on the device, those of a stream in a ring of its own.

    Args:
        encoder: the backbone.
        size: of the frames, as in `StackEncoder.begin`.
        streams: places for streams.
        graphed: record the batches of `SIZES`; compiled, those of two and more: one stream is computed as two.
        compiled: compile the network for batches of two and more; not with a temporal shift.

    Attributes:
        took: seconds of compiling and of recording each size.
    """

    @torch.inference_mode()
    def __init__(
        self, encoder: BatchEncoder, size: tuple[int, int], *, streams: int, graphed: bool, compiled: bool = False
    ) -> None:
        self.encoder, self.size, self._graphed = encoder, size, graphed
        self._shifted = encoder.config.shift != "none"
        self._ring, self._own = encoder.overlap + 1, snippet_stacks(encoder.config, 1)[0].tolist()
        self._free = list(range(streams))[::-1]
        self._spare = streams  # of the rows that fill up a batch
        lead = (encoder.stacks_per_batch, encoder.config.stack) if self._shifted else (encoder.config.stack,)
        self._shape = (*lead, *size)
        on_gpu = encoder.device.type == "cuda"
        self._copies = torch.cuda.Stream(encoder.device) if on_gpu else None
        self._given = torch.zeros(min(SIZES[-1], streams), *self._shape, dtype=torch.uint8, device=encoder.device)
        self._index = _Buffer((len(self._given), 1 + len(self._own)), torch.long, encoder.device)
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
        """Number of streams that have a place."""
        return self._spare - len(self._free)

    def open(self) -> TorchStreamState:
        """Give a stream its place."""
        if not self._free:
            raise InputError(f"no place for another stream: {self._spare} are followed at once")
        return TorchStreamState(self, self._free.pop(), self._shape, self._copies)

    def close(self, state: TorchStreamState) -> None:
        """Take the place of a stream back."""
        self._free.append(state.number)

    @torch.inference_mode()
    def run(self, states: Sequence[TorchStreamState]) -> Floats:
        """The next stack of each of these streams → features (b, D), with a temporal shift (b, N, D)."""
        rows = [self._rows(state) for state in states]
        count = next((size for size in sorted(self._steps) if size >= len(states)), len(states))
        rows += [[self._spare * self._ring] * len(rows[0])] * (count - len(states))
        self._index.fill(np.array(rows))
        for place, state in enumerate(states):
            self._given[place].copy_(state.frames())
        if self._graphed:
            replay, features = self._steps[count]
            replay()
        else:
            features = self._advance(count)
        return features[: len(states)].cpu().numpy().copy()  # a graph's next replay overwrites it

    def _rows(self, state: TorchStreamState) -> list[int]:
        """Where the stack's map is written, then where the maps of the snippet that it completes are read."""
        first, newest = state.number * self._ring, state.stacks
        state.stacks += 1
        oldest = newest + 1  # the ring's place after the newest, which is overwritten next
        return [first + newest % self._ring, *(first + (oldest + own) % self._ring for own in self._own)]

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
        return torch.cat([encoder.backbone.mix(some) for some in picked.split(encoder.at_once * len(self._own))])

    def _compile(self) -> bool:
        """Compile the networks; where that fails, warn and go on without. Returns whether they are compiled."""
        from torch._dynamo.exc import TorchDynamoException

        eager, began = self._networks, time.perf_counter()
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
    compiled, first = torch.compile(function), True

    def call(batch: Tensor, *others: Tensor) -> Tensor:
        nonlocal first
        stance: Literal["default", "eager_on_recompile"] = "default" if first else "eager_on_recompile"
        first = False
        torch._dynamo.maybe_mark_dynamic(batch, 0)
        # or the second size of frame would be compiled for frames of any size, which is slower
        with torch._dynamo.config.patch(automatic_dynamic_shapes=False), torch.compiler.set_stance(stance):
            return compiled(batch, *others)

    return call


class TorchBatch:
    """A `BatchRuntime` of torch: used on one thread, but for `TorchStreamState.fill`; torch shares a CPU's cores.

    Args:
        runtime: the networks.
        streams: followed at once, at most.
    """

    parallel, by_cores = 1, False

    def __init__(self, runtime: TorchRuntime, *, streams: int) -> None:
        self.runtime, self.streams = runtime, streams
        self._graphed = self._compiled = runtime.encoder.device.type == "cuda"
        self.largest = min(streams, SIZES[-1] if self._graphed else CPU_BATCH)
        self._stacks: dict[tuple[int, int], StackBatch] = {}
        self._models: dict[int, _BatchedModel] = {}

    def open(self, size: tuple[int, int]) -> TorchStreamState:
        """See `BatchRuntime`."""
        if size not in self._stacks:
            self._stacks = {key: batch for key, batch in self._stacks.items() if batch.used}  # memory of other sizes
            self._stacks[size] = StackBatch(
                self.runtime.encoder, size, streams=self.streams, graphed=self._graphed, compiled=self._compiled
            )
        return self._stacks[size].open()

    def close(self, state: TorchStreamState) -> None:
        """See `BatchRuntime`."""
        state.batch.close(state)

    def encode_stacks(self, states: Sequence[TorchStreamState]) -> Floats:
        """See `BatchRuntime`."""
        return states[0].batch.run(states)

    @torch.inference_mode()
    def encode_windows(self, features: Floats) -> Floats:
        """See `BatchRuntime`."""
        model = self._model(len(features))
        return model.encode(_filled(features, model.count))[: len(features)].cpu().numpy().copy()

    @torch.inference_mode()
    def anticipate_batch(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """See `BatchRuntime`."""
        model = self._model(len(tokens))
        return model.anticipate(_filled(tokens, model.count), _filled(present, model.count)).first(len(tokens))

    def prepare(self) -> None:
        """Record what does not depend on the size of frames."""
        for count in SIZES if self._graphed else ():
            if count <= self.largest:
                self._model(count)

    def _model(self, count: int) -> "_BatchedModel":
        """The model for batches of at least `count`."""
        size = next(size for size in (*SIZES, count) if size >= count) if self._graphed else count
        if size not in self._models:
            if not self._graphed:
                self._models.clear()
            self._models[size] = _BatchedModel(self.runtime.model, size, graphed=self._graphed)
        return self._models[size]


class _BatchedModel:
    """The model's two steps for batches of `count` streams."""

    @torch.inference_mode()
    def __init__(self, model: Anticipator, count: int, *, graphed: bool) -> None:
        self.count, self._model, self._graphed = count, model, graphed
        self._device = next(model.parameters()).device
        if graphed:
            config, lookback = model.config, model.network.lookback
            self._features = _Buffer((count, config.clips, config.width), torch.float32, self._device)
            self._present = _Buffer((count, lookback), torch.bool, self._device)
            self._present.fill(np.ones((count, lookback), np.bool_))
            self._encode, self._encoded = record(lambda: model.encode_window(self._features.tensor))
            self._tokens = _Buffer((count, lookback, *self._encoded.shape[1:]), self._encoded.dtype, self._device)
            given = self._tokens.tensor, self._present.tensor
            self._anticipate, self._slots = record(lambda: model.anticipate(*given))

    def encode(self, features: Floats) -> Tensor:
        """(count, N, D) → tokens (count, N, d)."""
        if not self._graphed:
            return self._model.encode_window(torch.from_numpy(features).to(self._device))
        self._features.fill(features)
        self._encode()
        return self._encoded

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """(count, W, N, d), (count, W) → slots."""
        if not self._graphed:
            given = torch.from_numpy(tokens), torch.from_numpy(present)
            return self._model.anticipate(*(array.to(self._device) for array in given)).arrays()
        self._tokens.fill(tokens)
        self._present.fill(present)
        self._anticipate()
        return self._slots.arrays()


def _filled(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Rows of an array filled up to `count` with its last row."""
    return array if len(array) == count else np.concatenate([array, np.repeat(array[-1:], count - len(array), 0)])
