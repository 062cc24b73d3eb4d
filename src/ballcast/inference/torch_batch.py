"""The steps of many streams in torch, one call for a batch of them; on a GPU as CUDA graphs of several sizes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.errors import InputError
from ballcast.features.batch_encoder import CPU_BATCH, BatchEncoder
from ballcast.features.stack_index import snippet_stacks
from ballcast.features.stream_encoder import Floats, Pictures
from ballcast.features.torch_stream_encoder import record
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotArrays

SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)  # of the recorded batches: a batch is filled up to the next of them


class TorchStackSlot:
    """One stream's place in a `StackBatch`: its number, its stacks so far, and the next stack's frames."""

    def __init__(self, batch: "StackBatch", number: int, frames: Tensor) -> None:
        self.batch, self.number, self.stacks = batch, number, 0
        self.frames = frames  # (stack, H, W) uint8, with a temporal shift (N, stack, H, W); pinned for a GPU
        self._array = frames.numpy()

    def fill(self, pictures: Pictures) -> None:
        """Copy the next stack, on the thread of its stream."""
        np.stack(list(pictures), out=self._array)


class StackBatch:
    """Encodes the next stacks of several streams, all of one frame size, in one call.

    The maps of the latest stacks stay on the device, those of a stream in a ring of its own.

    Args:
        engine: the backbone.
        size: of the frames, as in `StackEncoder.begin`.
        streams: places for streams.
        graphed: record the batches of `SIZES`.
    """

    @torch.inference_mode()
    def __init__(self, engine: BatchEncoder, size: tuple[int, int], *, streams: int, graphed: bool) -> None:
        self.engine, self.size, self._graphed = engine, size, graphed
        self._shifted = engine.config.shift != "none"
        self._ring, self._own = engine.overlap + 1, snippet_stacks(engine.config, 1)[0].tolist()
        self._free = list(range(streams))[::-1]
        self._spare = streams  # of the rows that fill up a batch
        lead = (engine.stacks_per_batch, engine.config.stack) if self._shifted else (engine.config.stack,)
        self._shape = (*lead, *size)
        self._pinned = engine.device.type == "cuda"
        self._given = torch.zeros(min(SIZES[-1], streams), *self._shape, dtype=torch.uint8, device=engine.device)
        self._index = torch.zeros(len(self._given), 1 + len(self._own), dtype=torch.long, device=engine.device)
        black = self._encode(self._given[:1])
        rows = 1 if self._shifted else (streams + 1) * self._ring
        self._maps = black.new_zeros(rows, *black.shape[1:])
        self._steps: dict[int, tuple[Callable[[], None], Tensor]] = {}
        if graphed:
            self._index.fill_(self._spare * self._ring)
            pool = torch.cuda.graph_pool_handle() if self._pinned else None  # the largest batch first fills it
            for count in sorted({min(count, len(self._given)) for count in SIZES}, reverse=True):
                self._steps[count] = record(lambda count=count: self._advance(count), pool=pool)  # type: ignore[misc]

    @property
    def used(self) -> int:
        """Number of streams that have a place."""
        return self._spare - len(self._free)

    def open(self) -> TorchStackSlot:
        """Give a stream its place."""
        if not self._free:
            raise InputError(f"no place for another stream: {self._spare} are followed at once")
        frames = torch.zeros(self._shape, dtype=torch.uint8, pin_memory=self._pinned)
        return TorchStackSlot(self, self._free.pop(), frames)

    def close(self, slot: TorchStackSlot) -> None:
        """Take the place of a stream back."""
        self._free.append(slot.number)

    @torch.inference_mode()
    def run(self, slots: Sequence[TorchStackSlot]) -> Floats:
        """The next stack of each of these streams → features (b, D), with a temporal shift (b, N, D)."""
        rows = [self._rows(slot) for slot in slots]
        count = next((size for size in sorted(self._steps) if size >= len(slots)), len(slots))
        rows += [[self._spare * self._ring] * len(rows[0])] * (count - len(slots))
        self._index[:count].copy_(torch.tensor(rows))
        for place, slot in enumerate(slots):
            self._given[place].copy_(slot.frames, non_blocking=True)
        if self._graphed:
            replay, features = self._steps[count]
            replay()
        else:
            features = self._advance(count)
        return features[: len(slots)].cpu().numpy().copy()  # a graph's next replay overwrites it

    def _rows(self, slot: TorchStackSlot) -> list[int]:
        """Where the stack's map is written, then where the maps of the snippet that it completes are read."""
        first, newest = slot.number * self._ring, slot.stacks
        slot.stacks += 1
        oldest = newest + 1  # the ring's place after the newest, which is overwritten next
        return [first + newest % self._ring, *(first + (oldest + own) % self._ring for own in self._own)]

    def _advance(self, count: int) -> Tensor:
        """Encode the first `count` of the given stacks, and mix the snippets that they complete."""
        engine, encoded = self.engine, self._encode(self._given[:count])
        if self._shifted:
            windows = encoded.unflatten(0, (count, -1))
            return torch.stack([engine.mix(window) for window in windows])
        self._maps.index_copy_(0, self._index[:count, 0], encoded)
        maps = self._maps[self._index[:count, 1:].flatten()].contiguous(memory_format=torch.channels_last)
        most = engine.at_once * len(self._own)
        return torch.cat([engine.backbone.mix(some) for some in maps.split(most)])

    def _encode(self, given: Tensor) -> Tensor:
        """Stacks (b, …, stack, H, W) → maps (b · …, C, h, w)."""
        return self.engine.encode(given.flatten(0, 1) if self._shifted else given)


class TorchBatch:
    """A `BatchRuntime` of torch: used on one thread, but for `TorchStackSlot.fill`; torch shares a CPU's cores itself.

    Args:
        runtime: the networks.
        streams: followed at once, at most.
    """

    parallel, by_cores = 1, False

    def __init__(self, runtime: TorchRuntime, *, streams: int) -> None:
        self.runtime, self.streams = runtime, streams
        self._graphed = runtime.engine.device.type == "cuda"
        self.largest = min(streams, SIZES[-1] if self._graphed else CPU_BATCH)
        self._stacks: dict[tuple[int, int], StackBatch] = {}
        self._models: dict[int, _BatchedModel] = {}

    def open(self, size: tuple[int, int]) -> TorchStackSlot:
        """See `BatchRuntime`."""
        if size not in self._stacks:
            self._stacks = {key: batch for key, batch in self._stacks.items() if batch.used}  # memory of other sizes
            engine = self.runtime.engine
            self._stacks[size] = StackBatch(engine, size, streams=self.streams, graphed=self._graphed)
        return self._stacks[size].open()

    def close(self, slot: TorchStackSlot) -> None:
        """See `BatchRuntime`."""
        slot.batch.close(slot)

    def encode_stacks(self, slots: Sequence[TorchStackSlot]) -> Floats:
        """See `BatchRuntime`."""
        return slots[0].batch.run(slots)

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
            self._features = torch.zeros(count, config.clips, config.width, device=self._device)
            self._present = torch.ones(count, lookback, dtype=torch.bool, device=self._device)
            self._encode, self._encoded = record(lambda: model.encode_window(self._features))
            shape = (count, lookback, *self._encoded.shape[1:])
            self._tokens = torch.zeros(shape, device=self._device, dtype=self._encoded.dtype)
            self._anticipate, self._slots = record(lambda: model.anticipate(self._tokens, self._present))

    def encode(self, features: Floats) -> Tensor:
        """(count, N, D) → tokens (count, N, d)."""
        if not self._graphed:
            return self._model.encode_window(torch.from_numpy(features).to(self._device))
        self._features.copy_(torch.from_numpy(features))
        self._encode()
        return self._encoded

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """(count, W, N, d), (count, W) → slots."""
        given = torch.from_numpy(tokens), torch.from_numpy(present)
        if not self._graphed:
            return self._model.anticipate(*(array.to(self._device) for array in given)).arrays()
        self._tokens.copy_(given[0])
        self._present.copy_(given[1])
        self._anticipate()
        return self._slots.arrays()


def _filled(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Rows of an array filled up to `count` with its last row."""
    return array if len(array) == count else np.concatenate([array, np.repeat(array[-1:], count - len(array), 0)])
