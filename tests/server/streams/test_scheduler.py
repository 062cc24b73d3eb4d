"""Many streams on one model: what each says alone, batched; fair, bounded, and only as many as hold real time."""

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import torch
from stream_server import PieceServer, until

from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.errors import BallcastError
from ballcast.core.events import Forecast
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.inference import torch_runtime as torch_runtimes
from ballcast.inference import torch_stacks
from ballcast.inference.onnx_runtime import OnnxRuntime
from ballcast.inference.runtime import Runtime
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.session import LiveSession
from ballcast.live.status import Record
from ballcast.model.anticipator import Anticipator
from ballcast.video.sources import FileSource, LiveFrame, Pacer, StreamGap
from ballcast.video.stream import StreamSource
from ballcast_server.streams import scheduler as scheduling
from ballcast_server.streams.batcher import Batcher
from ballcast_server.streams.scheduler import Scheduler
from tests.live.test_session import ALL, SIZES, Camera, anticipations, follow, states, tiny
from tests.video.conftest import make_video


def torch_runtime() -> TorchRuntime:
    runtime = tiny().runtime
    assert isinstance(runtime, TorchRuntime)
    return runtime


def together(sessions: list[LiveSession]) -> list[list[Record]]:
    """All records of sessions that run at the same time."""
    received: list[list[Record]] = [[] for _ in sessions]
    threads = [
        threading.Thread(target=lambda s=s, r=r: r.extend(follow(s))) for s, r in zip(sessions, received, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return received


def assert_close(got: list[Forecast], expected: list[Forecast]) -> None:
    assert [made.at_ms for made in got] == [made.at_ms for made in expected]
    assert len(expected) > 3
    for a, b in zip(got, expected, strict=True):
        assert [p.label for p in a.predictions] == [p.label for p in b.predictions]
        for p, q in zip(a.predictions, b.predictions, strict=True):
            assert np.allclose(p.scores, q.scores, atol=1e-5, rtol=1e-5)
            assert p.position_ms == q.position_ms


@pytest.fixture
def videos(tmp_path: Path) -> list[Path]:
    """Different videos, one of them of another size."""
    first = [make_video(tmp_path / f"{i}.mp4", range(40 * i, 40 * i + 260), size=(32, 64)) for i in range(5)]
    return [*first, make_video(tmp_path / "other.mp4", range(260), size=(64, 32))]


@pytest.mark.parametrize("kind", ["torch", "graphs"])
def test_each_stream_says_what_it_says_alone(kind: str, videos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [anticipations(follow(LiveSession(FileSource(video, speed=0), tiny()))) for video in videos]
    sizes: list[int] = []
    run = torch_stacks.StackBatch.run
    monkeypatch.setattr(torch_stacks.StackBatch, "run", lambda self, some: sizes.append(len(some)) or run(self, some))
    runtime = torch_runtime()
    with Scheduler(lambda: runtime) as scheduler:
        if kind == "graphs":  # a stand-in: what is recorded is run again into the same tensors
            for module in (torch_runtimes, torch_stacks):
                monkeypatch.setattr(module, "record", graphs.record)
            scheduler.batcher.runtime._graphed = True  # type: ignore[attr-defined]
        sessions = [scheduler.session(FileSource(video, speed=0), emit=ALL) for video in videos]
        received = together(sessions)
        assert scheduler.load.running == scheduler.load.waiting == 0
        stacks = scheduler.batcher.runtime._stacks.values()  # type: ignore[attr-defined]
        assert [batch.used for batch in stacks] == [0, 0]  # places are given back
    for records, alone in zip(received, expected, strict=True):
        assert states(records)[-1] == "ended"
        assert_close(anticipations(records), alone)
    assert max(sizes) > 2  # they were computed together


def encoder_runtime(**config: Any) -> Runtime:
    """A frame encoder's."""
    torch.manual_seed(0)
    sizes = BackboneConfig(encoder="test_efficientnet", blocks=0, projected=16, **config)
    model = ModelConfig(clips=snippet_count(sizes), width=sizes.width, windows=2, hierarchy=SIZES)
    return TorchRuntime(Anticipator(model).eval(), Backbone(sizes).eval())


RUNTIMES = {
    "onnx": lambda: OnnxRuntime.embedded(MODEL, BACKBONE, threads=1),
    "colour": lambda: encoder_runtime(frames=1, stack=1, step=1, stride=5, colour=True),
    "shift": lambda: encoder_runtime(frames=3, stack=3, step=1, stride=5, shift="gated"),
}


@pytest.mark.parametrize("kind", RUNTIMES)
def test_every_runtime_gives_in_batches_what_it_gives_alone(kind: str, videos: list[Path]) -> None:
    torch.set_num_threads(1)
    runtime = RUNTIMES[kind]()
    runtime.picture_size = None
    some, every = videos[:3], 2000
    colour = runtime.backbone.colour
    expected = [
        anticipations(
            follow(LiveSession(FileSource(v, speed=0, colour=colour), StreamPredictor(runtime, every_ms=every)))
        )
        for v in some
    ]
    runtime.picture_size = (32, 64)  # as the videos are; known beforehand, or the first would run alone for a while
    for _ in range(5):  # on a busy machine the streams may take turns
        with Scheduler(lambda: runtime, every_ms=every) as scheduler:
            received = together([scheduler.session(FileSource(v, speed=0, colour=scheduler.colour)) for v in some])
            load = scheduler.load
        if load.steps > load.batches:
            break
    else:
        pytest.fail(f"{load.steps} steps in {load.batches} batches: never two together")
    for records, alone in zip(received, expected, strict=True):
        got = anticipations(records)
        assert [made.at_ms for made in got] == [made.at_ms for made in alone] == [5000, 7000, 9000]
        for a, b in zip(got, alone, strict=True):
            assert [p.label for p in a.predictions] == [p.label for p in b.predictions]
            assert np.allclose([p.scores for p in a.predictions], [p.scores for p in b.predictions], atol=1e-5)


class SlowRuntime(TorchRuntime):
    """Takes `stack_s` more for each stack; keeps which streams were computed together."""

    stack_s = 0.0

    def _set_streams(self, streams: int) -> None:
        super()._set_streams(streams)
        self.largest, self.order = 2, []  # type: ignore[var-annotated]

    def encode_stacks(self, streams: Sequence[Any]) -> Any:
        time.sleep(self.stack_s * len(streams))
        self.order.append([stream.number for stream in streams])
        return super().encode_stacks(streams)


def slow_runtime() -> SlowRuntime:
    runtime = torch_runtime()
    return SlowRuntime(runtime.network, runtime.encoder.backbone)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> type[SlowRuntime]:
    monkeypatch.setattr(SlowRuntime, "stack_s", 0.0)
    monkeypatch.setattr(scheduling, "REVIEW_S", 0.1)
    return SlowRuntime


def test_streams_take_turns(slow: type[SlowRuntime], videos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files read as fast as they are computed, three streams for two places: none gets more than its share."""
    monkeypatch.setattr(slow, "stack_s", 0.002)
    with Scheduler(slow_runtime) as scheduler:
        together([scheduler.session(FileSource(video, speed=0)) for video in videos[:3]])
        order = scheduler.batcher.runtime.order  # type: ignore[attr-defined]
    begun = next(i for i, batch in enumerate(order) if {n for b in order[i : i + 3] for n in b} == {0, 1, 2})
    turns = [number for batch in order[begun : begun + 60] for number in batch]
    counts = np.bincount(turns)
    assert counts.max() - counts.min() <= 6, counts
    assert all(len(set(batch)) == len(batch) for batch in order)


def test_a_dead_stream_and_one_that_fails_cost_the_others_nothing(tmp_path: Path, videos: list[Path]) -> None:
    expected = anticipations(follow(LiveSession(FileSource(videos[0], speed=0), tiny())))
    head = make_video(tmp_path / "head.ts", range(130), codec_options={"bf": "0"}).read_bytes()
    with PieceServer([head], hold=True) as silent, Scheduler(torch_runtime) as scheduler:
        dead = scheduler.session(StreamSource(silent.address, speed=0))
        unreachable = scheduler.session(StreamSource("tcp://127.0.0.1:1", speed=0, give_up_s=0))
        with dead, unreachable:
            assert until(lambda: dead.predictor.frames > 100, 20)
            records = follow(scheduler.session(FileSource(videos[0], speed=0), emit=ALL))
            assert until(lambda: unreachable.status.state == "error")
        assert_close(anticipations(records), expected)
        assert dead.status.state == "stopped"
        assert scheduler.load.running == 0


class Paced(Camera):
    """Frames without end, `speed` times as fast as in real time; after a pause they go on as a file's do."""

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__(0, 25 * speed)
        self._pacer = Pacer(speed, self._stopped)

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        for n in count():
            if not self._pacer.wait(40 * n):
                return
            yield LiveFrame(np.full((2, 2), n % 256, np.uint8), 40 * n, time.time())


def messages(session: LiveSession) -> str:
    return f"{session.status.state}: {session.status.message}"


def test_as_many_as_hold_real_time_and_the_rest_are_told(
    slow: type[SlowRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.2 stacks a second take 37 % of the thread: two streams fit, the third runs when one of them ends."""
    monkeypatch.setattr(slow, "stack_s", 0.09)
    runtime = slow_runtime()
    runtime.picture_size = (2, 2)
    with Scheduler(lambda: runtime) as scheduler:
        sessions = [scheduler.session(Paced()) for _ in range(3)]
        for session in sessions:
            session.start()
        told = "waiting: no room: this machine follows 2 streams in real time; waiting for one to end"
        assert until(lambda: messages(sessions[2]) == told), messages(sessions[2])
        assert until(lambda: all(session.predictor.frames > 10 for session in sessions[:2]))
        assert sessions[2].predictor.frames == 0
        assert (scheduler.load.running, scheduler.load.waiting, scheduler.room()) == (2, 1, 2)
        sessions[0].close()
        assert until(lambda: sessions[2].predictor.frames > 10)
        assert not sessions[2].held
        assert sessions[2].status.state == "filling"
    assert [session.status.state for session in sessions] == ["stopped"] * 3


def test_where_the_estimate_was_wrong_the_last_waits_and_the_first_goes_on(
    slow: type[SlowRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timed as quick, then three times too slow for two: the second is held, the first loses nothing more."""
    runtime = slow_runtime()
    runtime.picture_size = (2, 2)
    with Scheduler(lambda: runtime) as scheduler:
        sessions = [scheduler.session(Paced(4)) for _ in range(2)]
        for session in sessions:
            session.start()
            assert until(lambda: session.predictor.frames > 10)  # noqa: B023
        monkeypatch.setattr(slow, "stack_s", 0.035)  # 16.7 stacks a second each
        assert until(lambda: sessions[1].held, 20)
        assert until(lambda: "no room" in messages(sessions[1]))
        assert until(lambda: sessions[0].load[0] < 5, 20)
        time.sleep(1.0)
        dropped = sessions[0].load[1]
        time.sleep(0.5)
        assert sessions[0].load[1] == dropped
        assert scheduler.room() == 1
        monkeypatch.setattr(slow, "stack_s", 0.0)
        monkeypatch.setattr(scheduler, "_most_until", 0.0)  # the time to try one more has come
        assert until(lambda: not sessions[1].held)
        assert until(lambda: "was not followed" in messages(sessions[1])), messages(sessions[1])


def test_a_machine_that_was_busy_when_the_steps_were_timed_follows_more_later(
    slow: type[SlowRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "stack_s", 0.18)  # 75 % of the thread at 4.2 stacks a second: room for one
    monkeypatch.setattr(scheduling, "REVIEW_S", 0.1)
    runtime = slow_runtime()
    runtime.picture_size = (2, 2)
    with Scheduler(lambda: runtime) as scheduler:
        sessions = [scheduler.session(Paced(8)) for _ in range(2)]
        for session in sessions:
            session.start()
        assert until(lambda: "follows 1 stream in real time" in messages(sessions[1])), messages(sessions[1])
        monkeypatch.setattr(slow, "stack_s", 0.0)
        assert until(lambda: sessions[1].predictor.frames > 10, 20), messages(sessions[1])
        assert scheduler.room() > 1


def test_streams_that_wait_for_the_device_do_not_seem_cheap(slow: type[SlowRuntime]) -> None:
    """Nothing is computed for a while, as when graphs are recorded for another size of frames."""
    runtime = slow_runtime()
    runtime.picture_size = (2, 2)
    with Scheduler(lambda: runtime) as scheduler:
        session = scheduler.session(Paced())
        with session:
            assert until(lambda: session.predictor.frames > 5)
            session._session_status.publish("running", "anticipating every 1 s")
            with scheduler._lock:
                scheduler.batcher.busy_s += 1.0
                scheduler._sample()
                for _ in range(2 * scheduling.USE_LOOKS):
                    scheduler._sampled = (scheduler._sampled[0], scheduler.batcher.busy_s)
                    scheduler._sample()
                assert scheduler._least_use > 0
                assert scheduler.room() >= 1


def test_a_session_closed_before_it_starts_takes_no_place() -> None:
    with Scheduler(torch_runtime) as scheduler:
        session = scheduler.session(Paced())
        session.close()
        session.start()
        assert until(lambda: (scheduler.load.running, scheduler.load.waiting) == (0, 0))
        assert until(lambda: not session.running)


def test_where_calls_may_be_parallel_two_streams_compute_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two steps waits until the other is under way: on one thread they would wait for ever."""
    runtime, both = torch_runtime().for_streams(2), threading.Barrier(2)
    monkeypatch.setattr(runtime, "largest", 1)
    monkeypatch.setattr(runtime, "parallel", 2)
    monkeypatch.setattr(runtime, "encode_windows", lambda features: (both.wait(10), features)[1])
    batcher, made = Batcher(runtime), list[np.ndarray]()
    for n in range(2):
        given = np.full((1, 2, 3), n, np.float32)
        threading.Thread(target=lambda given=given: made.append(batcher.encode_windows(given))).start()
    assert until(lambda: len(made) == 2, 10)
    assert sorted(float(result.mean()) for result in made) == [0, 1]
    assert (batcher.batches, batcher.steps) == (2, 2)
    batcher.close()


def test_a_closed_batcher_says_so() -> None:
    batcher = Batcher(torch_runtime().for_streams(2))
    stream = batcher.open_stream((2, 2))
    batcher.open_stream((2, 2))
    with pytest.raises(BallcastError, match="no place for another stream: 2"):
        batcher.open_stream((2, 2))
    batcher.close()
    stream.fill(np.zeros((3, 2, 2), np.uint8))
    with pytest.raises(BallcastError, match="has been stopped"):
        batcher.encode_stacks([stream])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu(videos: list[Path]) -> None:
    """Recorded batches, frames in pinned memory, fp16."""
    alone = torch_runtime()
    runtime = TorchRuntime(alone.network.cuda(), alone.encoder.backbone.cuda(), device="cuda")
    expected = [
        anticipations(follow(LiveSession(FileSource(v, speed=0), StreamPredictor(runtime, emit=ALL)))) for v in videos
    ]
    with Scheduler(lambda: runtime, streams=8) as scheduler:
        received = together([scheduler.session(FileSource(v, speed=0), emit=ALL) for v in videos])
    for records, single in zip(received, expected, strict=True):
        got = anticipations(records)
        assert [made.at_ms for made in got] == [made.at_ms for made in single]
        for a, b in zip(got, single, strict=True):
            sure = [sorted(p.confidence for p in made.predictions) for made in (a, b)]
            assert sure[0] == pytest.approx(sure[1], abs=0.02)
