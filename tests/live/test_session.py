"""Live sessions: what `predict` says, told as it comes; machines too slow, streams that break, listeners that sleep."""

import gc
import json
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from stream_server import FolderServer, PieceServer, until

from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.stack_index import snippet_count
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.video_predictor import predict_video
from ballcast.live.reader import PreviewOptions
from ballcast.live.session import LiveSession
from ballcast.live.status import LiveForecast, MissedRecords, Preview, Record, Status
from ballcast.model.anticipator import Anticipator
from ballcast.video import stream as stream_source
from ballcast.video.file import VideoFile
from ballcast.video.sources import FileSource, LiveFrame, StreamGap
from ballcast.video.stream import StreamSource
from tests.video.conftest import make_video

ALL = EmitConfig(threshold=0.0)  # every slot is emitted
SIZES = HierarchyConfig(
    dim=16, encoder_heads=2, encoder_ffn=32, steps=1, decoder_heads=2, decoder_ffn=32, decoder_layers=1
)


def tiny(step: int = 2, stride: int = 6, every_ms: int = 1000) -> StreamPredictor:
    """The whole way from frames to predictions, with networks of a few thousand weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = BackboneConfig(
        encoder="test_efficientnet", step=step, stride=stride, channels=8, blocks=1, projected=4, se_ratio=4
    )
    backbone = Backbone(config).eval()
    model = Anticipator(ModelConfig(clips=snippet_count(config), width=config.width, hierarchy=SIZES)).eval()
    return StreamPredictor(TorchRuntime(model, backbone), every_ms=every_ms, emit=ALL)


def follow(session: LiveSession, capacity: int = 100_000) -> list[Record]:
    """All its records, from start to end."""
    with session.subscribe(capacity=capacity) as records, session:
        return list(records)


def anticipations(records: list[Record]) -> list[Forecast]:
    return [record.forecast for record in records if isinstance(record, LiveForecast)]


def states(records: list[Record]) -> list[str]:
    return [record.state for record in records if isinstance(record, Status)]


def rss_kb() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


# -- what predict says ---------------------------------------------------------------------------------------------


def test_over_a_simulated_match_it_says_what_predict_says(shared: Path, tmp_path: Path) -> None:
    """Two minutes of match_001, anticipation by anticipation, bit for bit: from the file, and through a socket."""
    cut = tmp_path / "cut.ts"
    with av.open(str(shared / "data" / "simbaa" / "match_001.mp4")) as given, av.open(str(cut), "w") as out:
        video = given.streams.video[0]
        copy = out.add_stream_from_template(video)
        assert video.time_base is not None
        for packet in given.demux(video):
            if packet.size and packet.dts is not None and packet.dts * video.time_base < 120:
                packet.stream = copy
                out.mux(packet)
    predictor = tiny()
    with VideoFile(cut) as file:
        offline = tuple(predict_video(file, predictor))
    assert len(offline) == 116
    assert len({made.predictions[0].scores for made in offline}) > 100  # or the comparison would say nothing
    with FolderServer(tmp_path) as server:
        for source in (FileSource(cut, speed=0), StreamSource(f"{server.address}/cut.ts", speed=0)):
            records = follow(LiveSession(source, predictor))
            assert tuple(anticipations(records)) == offline, source.name
            assert [*dict.fromkeys(states(records))] == ["opening", "filling", "running", "ended"]
        assert server.asked


def test_in_real_time_too(tmp_path: Path) -> None:
    path, predictor = make_video(tmp_path / "a.mp4", range(250)), tiny()
    with VideoFile(path) as file:
        offline = tuple(predict_video(file, predictor))
    began = time.monotonic()
    records = follow(LiveSession(FileSource(path, speed=5), predictor))
    assert 1.9 < time.monotonic() - began < 10
    assert tuple(anticipations(records)) == offline
    told = [r for r in records if isinstance(r, LiveForecast)]
    assert all(r.latency_ms < 1000 for r in told)
    gaps = np.diff([r.wall_ms for r in told])
    assert np.median(gaps) == pytest.approx(200, abs=60)  # a second of the video at five times its speed


def test_a_stream_cut_three_times_begins_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each cut, what `predict` says of the part that came, on the stream's clock."""
    monkeypatch.setattr(stream_source, "FIRST_WAIT_S", 0.02)
    parts = [make_video(tmp_path / f"{i}.ts", range(i, 400 + i), codec_options={"bf": "0"}) for i in range(4)]
    predictor = tiny()
    with PieceServer([part.read_bytes() for part in parts]) as server:
        session = LiveSession(StreamSource(server.address, speed=0, give_up_s=0.3), predictor)
        records = follow(session)
    assert isinstance(session.error, InputError)
    last = records[-1]
    assert isinstance(last, Status)
    assert (last.state, last.gaps) == ("error", 4)
    assert "did not come back" in last.message
    runs: list[list[Forecast]] = [[]]
    for record in records:
        if isinstance(record, Status) and record.state == "gap":
            runs.append([])
        if isinstance(record, LiveForecast):
            runs[-1].append(record.forecast)
    for part, run in zip(parts, runs[:4], strict=True):
        with VideoFile(part) as file:
            offline = tuple(predict_video(file, predictor))
        begin = run[0].at_ms - 5000
        assert [made.at_ms - begin for made in run] == [made.at_ms for made in offline]
        for a, b in zip(run, offline, strict=True):
            assert [p.scores for p in a.predictions] == [p.scores for p in b.predictions]
            assert [p.position_ms - begin for p in a.predictions] == [p.position_ms for p in b.predictions]
    times = [made.at_ms for run in runs for made in run]
    assert times == sorted(set(times))


# -- an hour -------------------------------------------------------------------------------------------------------


def hour(tmp_path: Path) -> bytes:
    """A minute of video sixty times over, its clock running on."""
    whole = BytesIO()
    minute = make_video(tmp_path / "minute.ts", range(1500), size=(32, 32), codec_options={"bf": "0"})
    with av.open(str(minute)) as given:
        video = given.streams.video[0]
        packets = [(packet.pts, packet.dts, packet.is_keyframe, bytes(packet)) for packet in given.demux(video)]
        with av.open(whole, "w", format="mpegts") as out:
            copy = out.add_stream_from_template(video)
            for n in range(60):
                for pts, dts, key, content in packets:
                    if content:
                        packet = av.Packet(content)
                        packet.pts, packet.dts = pts + n * 60 * 90_000, dts + n * 60 * 90_000
                        packet.time_base, packet.stream, packet.is_keyframe = video.time_base, copy, key
                        out.mux(packet)
    return whole.getvalue()


def test_an_hour_of_stream_in_flat_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "FIRST_WAIT_S", 0.02)
    content, predictor = hour(tmp_path), tiny(step=8, stride=24, every_ms=4000)
    sizes, at_ms = [], []
    with PieceServer([content]) as server:
        del content
        session = LiveSession(
            StreamSource(server.address, speed=0, give_up_s=0.1), predictor, previews=PreviewOptions(every_ms=500)
        )
        with session.subscribe(previews=True, capacity=8) as records, session:
            for record in records:
                if isinstance(record, LiveForecast):
                    at_ms.append(record.forecast.at_ms)
                    if record.forecast.at_ms // 4000 % 15 == 1:
                        gc.collect()
                        sizes.append(rss_kb())
    assert at_ms[-1] > 3_590_000
    assert len(at_ms) > 800
    settled = sizes[len(sizes) // 6 :]  # from ten minutes on
    assert max(settled) < 1.05 * settled[0], sizes


# -- a machine too slow --------------------------------------------------------------------------------------------


class Camera:
    """`count` frames, `rate` a second whatever happens, or by default as they are read; a break where told."""

    name = "camera"

    def __init__(self, count: int, rate: float = 0, break_at: int | None = None) -> None:
        self._count, self._rate, self._break_at = count, rate, break_at
        self.blocking = not rate
        self._stopped = threading.Event()

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        began = time.monotonic()
        for n in range(self._count):
            due = began + n / self._rate if self._rate else began
            if self._stopped.wait(max(0.0, due - time.monotonic())):
                return
            if n == self._break_at:
                yield StreamGap("gap", "camera: blinked")
            yield LiveFrame(np.full((2, 2), n % 256, np.uint8), 40 * n, time.time())

    def close(self) -> None:
        self._stopped.set()


class Clockwork:
    """Stands in for a StreamPredictor: takes its time, and checks that frames follow each other between resets."""

    def __init__(self, frame_s: float = 0.0, made_s: float = 0.0, *, checks: bool = True) -> None:
        self.every_ms, self.frame_s, self.made_s, self.checks = 1000, frame_s, made_s, checks
        self.resets = 0
        self.reset()

    def reset(self, begin_ms: int = 0) -> None:
        self.frames, self.last, self.begin_ms, self.due_ms = 0, None, begin_ms, begin_ms + 5000
        self.resets += 1

    def push(self, frame: np.ndarray) -> Forecast | None:
        number = int(frame[0, 0])
        if self.checks:
            assert self.last is None or number == (self.last + 1) % 256, "a hole that nobody told of"
        self.last, self.frames = number, self.frames + 1
        time.sleep(self.frame_s)
        if self.begin_ms + 40 * self.frames < self.due_ms:
            return None
        time.sleep(self.made_s)
        made = Forecast(self.due_ms, (Prediction("PASS", self.due_ms + 100, 0.5),))
        self.due_ms += self.every_ms
        return made


def test_behind_it_speaks_less_often_and_says_so_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 times real time: a second is 50 ms, and an anticipation takes 90 ms at first."""
    monkeypatch.setattr("ballcast.live.status.RECOVERY_MS", 5000)
    work = Clockwork(made_s=0.09)
    session = LiveSession(Camera(2500, 500.0), work)  # type: ignore[arg-type]
    with session.subscribe(capacity=10_000) as records, session:
        told = [record for record in iter(lambda: records.get(10), None) if _quicker(record, work)]
    slow = [r for r in told if isinstance(r, Status) and r.state == "slow"]
    assert slow
    assert slow[0].every_ms == 2000
    assert "every 2 s" in slow[0].message
    assert max(r.every_ms for r in slow) <= 8000
    last = [r for r in told if isinstance(r, Status)][-1]
    assert (last.state, last.every_ms, last.dropped) == ("ended", 1000, 0)
    times = [r.forecast.at_ms for r in told if isinstance(r, LiveForecast)]
    assert times == sorted(times)
    assert {1000, 2000} <= set(np.diff(times))


def _quicker(record: Record, work: Clockwork) -> bool:
    """The machine has nothing else to do from 50 s on."""
    if isinstance(record, LiveForecast) and record.forecast.at_ms > 50_000:
        work.made_s = 0.0
    return True


def test_too_far_behind_it_skips_ahead_and_says_so() -> None:
    """Frames are dropped, windows fill anew, and no hole passes unnoticed."""
    work = Clockwork(frame_s=0.0062)
    session = LiveSession(Camera(1000, 200.0), work)  # type: ignore[arg-type]
    records = follow(session)
    assert session.error is None, session.error
    skipped = [r for r in records if isinstance(r, Status) and r.state == "skipped"]
    assert skipped
    assert work.resets >= 1 + len(skipped)
    assert "were dropped" in skipped[0].message
    assert skipped[-1].dropped == 100 * len(skipped)
    made = [r for r in records if isinstance(r, LiveForecast)]
    assert made
    assert all(r.behind_ms <= 4000 for r in records if isinstance(r, LiveForecast | Status))
    assert all(r.forecast.predictions[0].position_ms == r.forecast.at_ms + 100 for r in made)


def test_a_machine_that_never_gets_there_says_so() -> None:
    session = LiveSession(Camera(1000, 500.0), Clockwork(frame_s=0.01))  # type: ignore[arg-type]
    records = follow(session)
    assert not anticipations(records)
    skipped = [r for r in records if isinstance(r, Status) and r.state == "skipped"]
    assert len(skipped) > 2
    assert "no window of 5 s can be read in time" in skipped[-1].message
    assert "--device cuda" in skipped[-1].message


def test_a_gap_in_the_stream_begins_a_new_window() -> None:
    work = Clockwork()
    records = follow(LiveSession(Camera(400, break_at=150), work))  # type: ignore[arg-type]
    assert [m.at_ms for m in anticipations(records)] == [5000, 6000, 11_000, 12_000, 13_000, 14_000, 15_000, 16_000]
    assert states(records) == ["opening", "filling", "running", "gap", "filling", "running", "ended"]
    told = [r for r in records if isinstance(r, Status) and r.state == "filling"]
    assert [r.message for r in told] == [
        "a window of 5 s has to fill first",
        "camera: blinked; a window of 5 s has to fill",
    ]


def test_it_runs_only_from_an_anticipation_on() -> None:
    """From the start and after each skip: `filling`, its reason kept, until the window is full."""
    records = follow(LiveSession(Camera(1000, 200.0), Clockwork(frame_s=0.0062)))  # type: ignore[arg-type]
    assert "skipped" in states(records)
    full, why = False, "a window of 5 s has to fill first"
    for record in records:
        if isinstance(record, LiveForecast):
            full = True
        elif isinstance(record, Status) and record.state == "skipped":
            full, why = False, record.message
        elif isinstance(record, Status) and record.state in ("filling", "running", "slow"):
            assert (record.state != "filling") == full, record
            assert full or record.message == why


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"count": 75}, "camera: is only 3.0 s long; anticipation needs a whole window of 5 s behind it"),
        ({"count": 0}, "camera: is only 0 s long; anticipation"),
        ({"count": 200, "break_at": 100}, "camera: no 5 s of its 8.0 s came without a gap; anticipation"),
    ],
)
def test_a_stream_too_short_says_so(source: dict[str, int], words: str) -> None:
    session = LiveSession(Camera(**source), Clockwork())  # type: ignore[arg-type]
    last = follow(session)[-1]
    assert isinstance(last, Status)
    assert last.state == "error"
    assert isinstance(session.error, InputError)
    assert last.message.startswith(words)


def test_frames_that_come_late_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file whose decoding takes twice its time: nothing waits in the ring, and still it is behind."""
    path = make_video(tmp_path / "a.mp4", range(200))
    sampled = VideoFile.sampled_and_gaps
    monkeypatch.setattr(VideoFile, "sampled_and_gaps", lambda self: (time.sleep(0.008) or x for x in sampled(self)))
    session = LiveSession(FileSource(path, speed=10), Clockwork(checks=False))  # type: ignore[arg-type]
    records = follow(session)
    slow = [r for r in records if isinstance(r, Status) and r.state == "slow"]
    assert slow
    assert "frames come in" in slow[0].message
    assert slow[0].behind_ms > 2000
    assert states(records)[-1] == "ended"


def test_closed_before_it_began() -> None:
    session = LiveSession(Camera(10), Clockwork())  # type: ignore[arg-type]
    records = session.subscribe()
    session.close()
    assert states(list(records)) == ["stopped"]


# -- listeners -----------------------------------------------------------------------------------------------------


def test_a_listener_that_sleeps_slows_nobody_and_is_told() -> None:
    session = LiveSession(Camera(1000), Clockwork())  # type: ignore[arg-type]
    asleep, gone = session.subscribe(capacity=3), session.subscribe(capacity=3)
    records = follow(session)
    assert len(anticipations(records)) == 36
    gone.close()
    late = list(asleep)
    assert isinstance(late[0], MissedRecords)
    assert late[0].count == len(records) - 3
    assert late[1:] == records[-3:]


def test_a_late_listener_and_many_of_them() -> None:
    session = LiveSession(Camera(100_000, 1000.0), Clockwork())  # type: ignore[arg-type]
    with session:
        assert until(lambda: session.status.state == "running")
        listeners = [session.subscribe() for _ in range(200)]
        firsts = [listener.get(5) for listener in listeners]
        assert all(isinstance(first, Status | LiveForecast) for first in firsts)
        assert until(lambda: any(isinstance(r, LiveForecast) for r in iter(lambda: listeners[7].get(0), None)), 20)
    assert all(states(list(listener))[-1:] == ["stopped"] for listener in listeners)
    assert not session.running


def test_previews_are_made_while_somebody_looks(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4", range(250), size=(64, 96), rotate=90)
    session = LiveSession(FileSource(path, speed=10), Clockwork(checks=False), previews=PreviewOptions(every_ms=50))  # type: ignore[arg-type]
    monitor = session.subscribe(previews=True, capacity=1000)
    assert not any(isinstance(r, Preview) for r in follow(session))
    pictures = [r for r in monitor if isinstance(r, Preview)]
    assert 5 < len(pictures) < 25
    with Image.open(BytesIO(pictures[3].jpeg)) as image:
        assert image.size == (pictures[3].width, pictures[3].height) == (64, 96)  # upright
        assert image.mode == "RGB"
    assert json.dumps(pictures[0].to_json())


# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_fault_of_ours_is_not_swallowed() -> None:
    class Broken(Clockwork):
        def push(self, frame: np.ndarray) -> Forecast | None:
            raise ZeroDivisionError("oh")

    session = LiveSession(Camera(10, 1000.0), Broken())  # type: ignore[arg-type]
    last = follow(session)[-1]
    assert isinstance(last, Status)
    assert (last.state, last.message) == ("error", "ZeroDivisionError: oh")
    assert isinstance(session.error, ZeroDivisionError)


def test_silence_is_told_and_close_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ballcast.live.session.SILENCE_S", 0.1)
    session = LiveSession(Camera(100, 0.01), Clockwork())  # type: ignore[arg-type]
    with session.subscribe() as records, session:
        assert until(lambda: session.status.state == "waiting")
        began = time.monotonic()
        session.close()
        assert time.monotonic() - began < 2
        assert states(list(records))[-1] == "stopped"
    session.close()  # twice does no harm


def test_every_record_is_json() -> None:
    made = LiveForecast(Forecast(5000, (Prediction("PASS", 5100, 0.5, (0.1,) * 10),)), 1, 2.345, 0, 1000)
    assert json.loads(json.dumps(made.to_json())) == {
        "type": "anticipation",
        "at_ms": 5000,
        "predictions": [{"label": "PASS", "position_ms": 5100, "confidence": 0.5, "scores": [0.1] * 10}],
        "wall_ms": 1,
        "latency_ms": 2.35,
        "behind_ms": 0,
        "every_ms": 1000,
    }
    assert Status("running", "so", 1, 2, 1000).to_json()["type"] == "status"
    assert MissedRecords(3).to_json() == {"type": "lost", "count": 3}


def test_a_preview_that_fails_does_not_end_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such colours")

    monkeypatch.setattr("ballcast.video.stills.to_jpeg", broken)
    path = make_video(tmp_path / "a.mp4", range(150))
    session = LiveSession(FileSource(path, speed=0), Clockwork(checks=False), previews=PreviewOptions(every_ms=0))  # type: ignore[arg-type]
    warned = pytest.warns(BallcastWarning, match="no preview .no such colours")
    with warned, session.subscribe(previews=True, capacity=1000) as records, session:
        list(records)
    assert session.error is None
    assert session.status.state == "ended"
