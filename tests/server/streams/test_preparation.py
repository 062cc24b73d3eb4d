"""Steps that are recorded for half a minute hold all streams up: nobody is judged by that time, and all go on after."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stream_server import until

from ballcast.core.errors import InputError
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.broadcast import Subscription
from ballcast.live.session import LiveSession
from ballcast.live.status import Record, Status
from ballcast.model.postprocess import SlotArrays
from ballcast.video.sources import FileSource, LiveFrame, StreamGap
from ballcast_server.streams import batcher as batching
from ballcast_server.streams import scheduler as scheduling
from ballcast_server.streams.scheduler import PREPARING, Scheduler
from tests.server.streams.test_scheduler import Paced, messages, torch_runtime

SPEED = 4  # a queue is full after a second
OPEN_S = 2.0  # longer than a queue holds


class Silent:
    """A `Stream` whose frames nobody reads."""

    def fill(self, frames: Any) -> None:
        pass


class SlowToOpen(TorchRuntime):
    """A `Runtime` that computes nothing, whose first stream of a size takes long to open, as recording graphs does."""

    def __init__(self) -> None:
        runtime = torch_runtime()
        super().__init__(runtime.network, runtime.encoder.backbone)
        self.picture_size = None
        self.largest = 8
        self.opened: dict[tuple[int, int], float] = {}
        self.stack_s = 0.0

    def for_streams(self, streams: int) -> "SlowToOpen":
        return self

    def open_stream(self, size: tuple[int, int]) -> Any:
        if size not in self.opened:
            time.sleep(OPEN_S)
            self.opened[size] = time.monotonic()
        return Silent()

    def close_stream(self, stream: Any) -> None:
        pass

    def encode_stacks(self, streams: Any) -> np.ndarray:
        time.sleep(self.stack_s * len(streams))
        return np.zeros((len(streams), self.backbone.width), np.float32)

    def encode_windows(self, features: np.ndarray) -> np.ndarray:
        return np.zeros((*features.shape[:2], 4), np.float32)

    def predict(self, tokens: np.ndarray, present: np.ndarray) -> SlotArrays:
        b = len(tokens)
        return SlotArrays(*(np.zeros(shape, np.float32) for shape in ((b, 2), (b, 2, 10), (b, 2, 4))), bins=4)


class Sized(Paced):
    """Frames of `side` × `side` pixels."""

    def __init__(self, side: int = 2) -> None:
        super().__init__(SPEED)
        self._side = side

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        for item in super().items():
            assert isinstance(item, LiveFrame)
            yield replace(item, pixels=np.zeros((self._side, self._side), np.uint8))


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> SlowToOpen:
    monkeypatch.setattr(scheduling, "REVIEW_S", 0.1)
    monkeypatch.setattr(batching, "LONG_CALL_S", 0.3)
    return SlowToOpen()


def states(records: Subscription[Record]) -> list[tuple[str, str]]:
    got = iter(lambda: records.get(0), None)
    return [(record.state, record.message) for record in got if isinstance(record, Status)]


def run(sessions: list[LiveSession]) -> bool:
    """Whether all make forecasts."""
    return all(session.status.state == "running" for session in sessions)


def assert_none_was_too_slow(sessions: list[LiveSession], records: list[Subscription[Record]]) -> None:
    for session, each in zip(sessions, records, strict=True):
        assert session.status.dropped == 0
        assert not session.held
        assert session.predictor.every_ms == 1000
        assert not {"slow", "skipped"} & {state for state, _ in states(each)}


def test_until_the_first_size_is_known_the_others_are_not_opened(runtime: SlowToOpen) -> None:
    """The first stream leaves out what came while it was prepared for, and no other has missed anything."""
    with Scheduler(lambda: runtime) as scheduler, ExitStack() as opened:
        sessions = [scheduler.session(Sized()) for _ in range(5)]
        records = [opened.enter_context(session.subscribe(capacity=1000)) for session in sessions]
        for session in sessions:
            session.start()
        assert until(lambda: all(messages(session) == f"waiting: {PREPARING}" for session in sessions)), sessions
        assert not runtime.opened
        assert [session.held for session in sessions] == [False] + [True] * 4
        assert until(lambda: run(sessions), 20), [messages(session) for session in sessions]
        assert [session.status.gaps for session in sessions] == [1, 0, 0, 0, 0]
        assert_none_was_too_slow(sessions, records)
        assert scheduler._most is None


def test_streams_pause_while_another_size_is_prepared(runtime: SlowToOpen) -> None:
    """They are told so, read on and leave a gap; frames that are old by then are not computed."""
    with Scheduler(lambda: runtime) as scheduler, ExitStack() as opened:
        sessions = [scheduler.session(Sized()) for _ in range(4)]
        for session in sessions:
            session.start()
        assert until(lambda: run(sessions), 20)
        before = [session.status.gaps for session in sessions]
        records = [opened.enter_context(session.subscribe(capacity=1000)) for session in sessions]
        other = scheduler.session(Sized(4))
        with other:
            assert until(lambda: all(messages(session) == f"waiting: {PREPARING}" for session in sessions))
            assert (4, 4) not in runtime.opened
            assert until(lambda: run([*sessions, other]), 20), [messages(session) for session in sessions]
            assert [session.status.gaps - gaps for session, gaps in zip(sessions, before, strict=True)] == [1] * 4
            told = [message for state, message in states(records[0]) if state == "gap"]
            assert len(told) == 1
            assert "was not followed for 2 s, while the model was prepared" in told[0]
            assert_none_was_too_slow(sessions, records)
            assert scheduler._most is None
            times = [scheduled.predictor.begin_ms for scheduled in sessions]
            assert len(set(times)) > 1  # they go on one after another, or all their forecasts would be due at once


def test_a_dead_first_stream_does_not_keep_the_others_out(runtime: SlowToOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PROBE_S", 0.5)
    dead, other = Sized(), Sized()
    monkeypatch.setattr(dead, "items", lambda: iter(lambda: dead._stopped.wait(60), True))
    with Scheduler(lambda: runtime) as scheduler:
        sessions = [scheduler.session(dead), scheduler.session(other)]
        for session in sessions:
            session.start()
        assert until(lambda: run(sessions[1:]), 20), messages(sessions[1])


def test_a_fault_while_steps_are_timed_ahead_is_told(runtime: SlowToOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not leave all streams waiting without a word."""

    def failing(size: tuple[int, int]) -> Silent:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(runtime, "open_stream", failing)
    runtime.picture_size = (2, 2)
    with Scheduler(lambda: runtime) as scheduler, scheduler.session(Sized()) as session:
        assert until(lambda: messages(session) == "error: RuntimeError: out of memory"), messages(session)


class Played(FileSource):
    """A file without end."""

    def __init__(self) -> None:
        self.name, self._speed, self._stopped = "file", SPEED, threading.Event()

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        return Paced.items(Paced(SPEED))


def decoding(session: LiveSession) -> bool:
    return session._decoding.is_alive()


def test_a_file_that_fails_in_a_pause_is_let_go(runtime: SlowToOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(size: tuple[int, int]) -> Silent:
        time.sleep(OPEN_S)
        raise InputError("no place")

    monkeypatch.setattr(runtime, "open_stream", failing)
    with Scheduler(lambda: runtime) as scheduler:
        session = scheduler.session(Played()).start()
        assert until(lambda: messages(session) == f"waiting: {PREPARING}"), messages(session)
        assert until(lambda: messages(session) == "error: no place"), messages(session)
        assert until(lambda: not decoding(session), 2)


@pytest.mark.parametrize("stop", [LiveSession.pause, LiveSession.hold])
def test_a_closed_session_does_not_wait(runtime: SlowToOpen, stop: Callable[[LiveSession, str], None]) -> None:
    """Whoever pauses it may not know yet that it was closed."""
    session = LiveSession(Played(), StreamPredictor(runtime))
    session.close()
    stop(session, "wait")
    session._decoding.start()
    assert until(lambda: not decoding(session), 2)
    assert not session._gate.paused
    assert not session.held


class Measured:
    """Stands in for a session: its frames that wait and those dropped are given."""

    source = Sized()

    def __init__(self) -> None:
        self.load, self.held = (0, 0), False

    def hold(self, message: str) -> None:
        self.held = True


def test_a_large_overload_is_met_in_a_few_looks_and_counts_as_one(runtime: SlowToOpen) -> None:
    """A tenth of the streams at a look; not while the backlog shrinks; the next try comes later only if one failed."""
    with Scheduler(lambda: runtime, streams=100) as scheduler, scheduler._lock:
        streams: list[Any] = [Measured() for _ in range(100)]
        scheduler._admitted = list(streams)

        def look(waiting: int) -> int:
            for stream in streams:
                stream.load = (waiting, 0)
            scheduler._review()
            return len(scheduler._admitted)

        assert [look(waiting) for waiting in (50, 60, 70, 80)] == [100, 90, 81, 73]
        assert [look(waiting) for waiting in (75, 70, 60, 40, 0)] == [73] * 5
        assert scheduler._retry_s == scheduling.RETRY_S
        assert [stream.held for stream in streams] == [False] * 73 + [True] * 27
        scheduler._most_until = 0.0
        look(0)
        assert scheduler.room() == 80
        scheduler._admitted = streams[:80]
        assert look(60) == 72
        assert scheduler._retry_s == 2 * scheduling.RETRY_S
        scheduler._admitted, scheduler._waiting = [], []
