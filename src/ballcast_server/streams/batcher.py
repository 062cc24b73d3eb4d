"""The steps of many streams on few threads, on a GPU one: those that wait are computed together, the oldest first.

The thread of a stream waits for its step, so it has at most one under way and never more than one place in a batch: no
stream gets more than its share, and one that gives no frames takes nothing from the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.errors import BallcastError
from ballcast.core.util import cores
from ballcast.features.stream_encoder import Floats, Pictures, Step
from ballcast.inference.runtime import BatchRuntime
from ballcast.model.postprocess import SlotArrays

# In the order of their turn: what completes a forecast first. `call` is work that is not batched.
Kind = Literal["slots", "window", "call", "stack"]
KINDS: tuple[Kind, ...] = ("slots", "window", "call", "stack")
TRIALS = 2  # timed runs of each step; the quicker counts
LONG_CALL_S = 1.0  # a call that takes longer, such as the recording of CUDA graphs, holds all streams up


@dataclass
class _Work:
    """One stream's step: what it needs, and where its result goes. Steps with the same `key` may share a batch."""

    kind: Kind
    key: object
    given: Any
    result: Any = None
    error: BaseException | None = None
    done: threading.Lock = field(default_factory=threading.Lock)  # held until there is a result; quicker than an event


@dataclass(frozen=True)
class StepCost:
    """Seconds that the steps take, of a GPU or of a core: a stack of a large batch, and one window with its slots."""

    stack_s: float
    forecast_s: float

    def of(self, stacks_a_second: float, every_ms: int) -> float:
        """Share of the GPU, or cores, that one stream in real time takes."""
        return stacks_a_second * self.stack_s + 1000 / every_ms * self.forecast_s


class Batcher:
    """Runs a `BatchRuntime` on threads of its own for any number of streams, each with a `SharedRuntime`.

    Args:
        batch: the networks.
    """

    def __init__(self, batch: BatchRuntime) -> None:
        self.batch = batch
        self._waiting: dict[Kind, deque[_Work]] = {kind: deque() for kind in KINDS}
        self._changed = threading.Condition()
        self._closed = False
        self.busy_s = 0.0  # computing, since the start
        self.batches, self.steps = 0, 0  # computed since the start
        self.costs: dict[tuple[int, int], StepCost] = {}  # by frame size, measured when its first stream opens
        self._calls: list[float] = []  # when each call that runs now began, on time.monotonic
        self.long_call_ended = -inf  # the latest, on time.monotonic
        self._threads = [
            threading.Thread(target=self._run, name="live-batches", daemon=True) for _ in range(batch.parallel)
        ]
        for thread in self._threads:
            thread.start()

    def runtime(self) -> "SharedRuntime":
        """A `Runtime` for one stream."""
        return SharedRuntime(self)

    @property
    def used_s(self) -> float:
        """Seconds of the device that were used since the start: of a GPU, or of all cores together by this process."""
        return time.process_time() if self.batch.by_cores else self.busy_s

    @property
    def capacity(self) -> int:
        """Seconds of the device a second, as of `used_s`."""
        return cores() if self.batch.by_cores else 1

    @property
    def queued(self) -> int:
        """Number of steps that wait."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    @property
    def in_long_call(self) -> bool:
        """Whether something that takes long is computed, such as the recording of the steps for a new frame size."""
        with self._changed:
            return any(time.monotonic() - began > LONG_CALL_S for began in self._calls)

    def compute(self, kind: Kind, given: Any, key: object = None) -> Any:
        """Have a step computed, and wait for its result."""
        work = _Work(kind, key, given)
        work.done.acquire()
        with self._changed:
            if self._closed:
                raise BallcastError("the computation has been stopped")
            self._waiting[kind].append(work)
            self._changed.notify()
        work.done.acquire()
        if work.error is not None:
            raise work.error
        return work.result

    def open(self, size: tuple[int, int]) -> Any:
        """A place for a stream of frames of this shape; the first of a size has its steps timed."""

        def opened() -> Any:
            state = self.batch.open(size)
            if size not in self.costs:
                self.costs[size] = self._measure(size)
            return state

        return self.compute("call", opened)

    def close_stream(self, state: Any) -> None:
        """Take a stream's place back."""
        self.compute("call", lambda: self.batch.close(state))

    def close(self) -> None:
        """Stop the threads; steps that wait fail."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # ---------------------------------------------------------------------------------------------------- the threads

    def _run(self) -> None:
        while (works := self._next()) is not None:
            began = time.perf_counter()
            try:
                for work, result in zip(works, self._compute(works), strict=True):
                    work.result = result
            except BaseException as error:  # raised in the threads of the streams
                for work in works:
                    work.error = error
            with self._changed:
                self.busy_s += time.perf_counter() - began
                self.batches, self.steps = self.batches + 1, self.steps + len(works)
            for work in works:
                work.done.release()

    def _next(self) -> list[_Work] | None:
        """The next batch; None: closed."""
        with self._changed:
            while not (self._closed or any(self._waiting.values())):
                self._changed.wait()
            if self._closed:
                for waiting in self._waiting.values():
                    while waiting:
                        work = waiting.popleft()
                        work.error = BallcastError("the computation has been stopped")
                        work.done.release()
                return None
            waiting = next(self._waiting[kind] for kind in KINDS if self._waiting[kind])
            first = waiting.popleft()
            taken, rest = [first], list[_Work]()
            if first.kind != "call":
                while waiting and len(taken) < self.batch.largest:
                    work = waiting.popleft()
                    (taken if work.key == first.key else rest).append(work)
                waiting.extendleft(reversed(rest))
            return taken

    def _compute(self, works: list[_Work]) -> Sequence[Any]:
        given = [work.given for work in works]
        kind = works[0].kind
        if kind == "call":
            return [self._call(given[0])]
        if kind == "stack":
            return list(self.batch.encode_stacks(given))
        if kind == "window":
            return list(self.batch.encode_windows(np.stack(given)))
        slots = self.batch.anticipate_batch(np.stack([g[0] for g in given]), np.stack([g[1] for g in given]))
        return [_sample(slots, i) for i in range(len(works))]

    def _call(self, given: Callable[[], Any]) -> Any:
        began = time.monotonic()
        with self._changed:
            self._calls.append(began)
        try:
            return given()
        finally:
            with self._changed:
                self._calls.remove(began)
                if time.monotonic() - began > LONG_CALL_S:
                    self.long_call_ended = time.monotonic()

    def _measure(self, size: tuple[int, int]) -> StepCost:
        """Time the steps on black frames, before the first stream of this size."""
        clock = time.process_time if self.batch.by_cores else time.perf_counter
        batch, runtime = self.batch, self.batch.runtime
        shifted = runtime.config.shift != "none"
        frames = np.zeros((runtime.clips,) * shifted + (runtime.config.stack, *size), np.uint8)
        states: list[Any] = []
        try:
            while len(states) < min(batch.largest, batch.streams):
                states.append(batch.open(size))
        except BallcastError:  # as many as there are places left
            pass
        for state in states:
            state.fill(frames)
        features = np.zeros((1, runtime.clips, runtime.config.width), np.float32)
        tokens = batch.encode_windows(features)
        known = np.repeat(tokens[:, None], runtime.lookback, axis=1), np.ones((1, runtime.lookback), np.bool_)
        stack_s = _timed(lambda: batch.encode_stacks(states), clock) / len(states) if states else 0.0
        forecast_s = _timed(lambda: batch.encode_windows(features), clock)
        forecast_s += _timed(lambda: batch.anticipate_batch(*known), clock)
        for state in states:
            batch.close(state)
        return StepCost(0.0, forecast_s + stack_s) if shifted else StepCost(stack_s, forecast_s)


class SharedRuntime:
    """A `Runtime` for one stream, whose steps a `Batcher` computes together with those of other streams."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher, own = batcher, batcher.batch.runtime
        self.config, self.clips, self.lookback = own.config, own.clips, own.lookback
        self.emit, self.pos_weight, self.about = own.emit, own.pos_weight, own.about
        self.picture_size: tuple[int, int] | None = own.picture_size
        self._state: Any = None

    def begin(self, size: tuple[int, int]) -> Step:
        """See `StackEncoder`."""
        self.close()
        state = self._state = self._batcher.open(size)

        def step(pictures: Pictures) -> Floats:
            state.fill(pictures)
            return self._batcher.compute("stack", state, size)

        return step

    def encode_window(self, features: Floats) -> Floats:
        """See `Runtime`."""
        return self._batcher.compute("window", np.asarray(features, np.float32))

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """See `Runtime`."""
        return self._batcher.compute("slots", (tokens, present))

    def batched(self, streams: int) -> BatchRuntime:
        """See `Runtime`."""
        return self._batcher.batch

    def close(self) -> None:
        """Give the stream's place back."""
        state, self._state = self._state, None
        if state is not None:
            self._batcher.close_stream(state)


def _sample(slots: SlotArrays, i: int) -> SlotArrays:
    """Sample i of a batch, as a batch of one."""
    own = slice(i, i + 1)
    return changed(slots, objectness=slots.objectness[own], classes=slots.classes[own], offsets=slots.offsets[own])


def _timed(step: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds, by a clock, of the quickest of a few runs, after one that is not counted."""
    step()
    times = []
    for _ in range(TRIALS):
        began = clock()
        step()
        times.append(clock() - began)
    return min(times)
