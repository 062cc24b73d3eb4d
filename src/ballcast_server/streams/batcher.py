"""The steps of many streams on few threads, on a GPU one: those that wait are computed together, the oldest first.

The thread of a stream waits for its step, so it has at most one under way and never more than one place in a batch: no
stream gets more than its share, and one that gives no frames takes nothing from the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import BallcastError
from ballcast.core.util import cores
from ballcast.inference.runtime import Floats, Frames, Runtime, Stream
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


@dataclass(frozen=True)
class BatchedStream:
    """A stream that is open in a `Batcher`, and the size of its frames: only those of one size share a batch."""

    stream: Stream
    size: tuple[int, int]

    def fill(self, frames: Frames) -> None:
        self.stream.fill(frames)


class Batcher:
    """A `Runtime` for streams on many threads: each calls for itself alone, and the calls are computed in batches.

    It computes them on its threads.

    Args:
        runtime: the networks, for all the streams together.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.name = runtime.name
        self.device = runtime.device
        self.config = runtime.config
        self.emit = runtime.emit
        self.metadata = runtime.metadata
        self.pos_weight = runtime.pos_weight
        self.score_mapping = runtime.score_mapping
        self.lookback = runtime.lookback
        self.expected_precision = runtime.expected_precision
        self.picture_size = runtime.picture_size
        self.about = runtime.about
        self.streams = runtime.streams
        self.largest = runtime.largest
        self.parallel = runtime.parallel
        self.by_cores = runtime.by_cores
        self._waiting: dict[Kind, deque[_Work]] = {kind: deque() for kind in KINDS}
        self._changed = threading.Condition()
        self._closed = False
        self.busy_s = 0.0  # computing, since the start
        self.batches, self.steps = 0, 0  # computed since the start
        self.costs: dict[tuple[int, int], StepCost] = {}  # by frame size, measured when its first stream opens
        self._calls: list[float] = []  # when each call that runs now began, on time.monotonic
        self.long_call_ended = -inf  # the latest, on time.monotonic
        self._threads = [
            threading.Thread(target=self._run, name="live-batches", daemon=True) for _ in range(runtime.parallel)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def backbone(self) -> BackboneConfig:
        return self.runtime.backbone

    def for_streams(self, streams: int) -> Self:
        """Return itself: it has room for all streams."""
        return self

    def prepare(self) -> None:
        self.compute("call", self.runtime.prepare)

    @property
    def used_s(self) -> float:
        """Seconds of the device that were used since the start: of a GPU, or of all cores together by this process."""
        return time.process_time() if self.by_cores else self.busy_s

    @property
    def capacity(self) -> int:
        """Device-seconds per second (see `used_s`): 1 for a GPU, the number of cores for a CPU."""
        return cores() if self.by_cores else 1

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

    def open_stream(self, size: tuple[int, int]) -> BatchedStream:
        """Open a stream; the first of a size has its steps timed."""

        def opened() -> Stream:
            stream = self.runtime.open_stream(size)
            if size not in self.costs:
                self.costs[size] = self._measure(size)
            return stream

        return BatchedStream(self.compute("call", opened), size)

    def close_stream(self, stream: BatchedStream) -> None:
        self.compute("call", lambda: self.runtime.close_stream(stream.stream))

    def encode_stacks(self, streams: Sequence[BatchedStream]) -> Floats:
        """Encode the newest stack of one stream, in a batch with those of others."""
        (stream,) = streams
        return self.compute("stack", stream.stream, stream.size)[None]

    def encode_windows(self, features: Floats) -> Floats:
        """Encode the window of one stream, in a batch with those of others."""
        (window,) = features
        return self.compute("window", np.asarray(window, np.float32))[None]

    def predict(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Compute the slots of one stream, in a batch with those of others."""
        return self.compute("slots", (tokens[0], present[0]))

    def predict_windows(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        return self.compute("call", lambda: self.runtime.predict_windows(features, present))

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
                self.batches += 1
                self.steps += len(works)
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
            taken = [first]
            rest = list[_Work]()
            if first.kind != "call":
                while waiting and len(taken) < self.runtime.largest:
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
            return list(self.runtime.encode_stacks(given))
        if kind == "window":
            return list(self.runtime.encode_windows(np.stack(given)))
        slots = self.runtime.predict(np.stack([g[0] for g in given]), np.stack([g[1] for g in given]))
        return [slots[i : i + 1] for i in range(len(works))]

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
        clock = time.process_time if self.by_cores else time.perf_counter
        runtime, backbone = self.runtime, self.backbone
        shifted = backbone.shift != "none"
        frames = np.zeros((self.config.clips,) * shifted + (backbone.stack, *size), np.uint8)
        streams: list[Stream] = []
        try:
            while len(streams) < min(runtime.largest, runtime.streams):
                streams.append(runtime.open_stream(size))
        except BallcastError:  # as many as there are places left
            pass
        for stream in streams:
            stream.fill(frames)
        features = np.zeros((1, self.config.clips, backbone.width), np.float32)
        tokens = np.repeat(runtime.encode_windows(features)[:, None], self.lookback, axis=1)  # (1, W, N, d)
        present = np.ones((1, self.lookback), np.bool_)
        stack_s = _timed(lambda: runtime.encode_stacks(streams), clock) / len(streams) if streams else 0.0
        forecast_s = _timed(lambda: runtime.encode_windows(features), clock)
        forecast_s += _timed(lambda: runtime.predict(tokens, present), clock)
        for stream in streams:
            runtime.close_stream(stream)
        return StepCost(0.0, forecast_s + stack_s) if shifted else StepCost(stack_s, forecast_s)


def _timed(step: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds, by a clock, of the quickest of a few runs, after one that is not counted."""
    step()
    times = []
    for _ in range(TRIALS):
        began = clock()
        step()
        times.append(clock() - began)
    return min(times)
