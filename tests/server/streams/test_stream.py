"""Streams: one computation however many watch; viewers who are many, slow, or gone."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ballcast.core.errors import InputError
from ballcast.inference.video_predictor import predict_video
from ballcast.live.session import LiveSession
from ballcast.video.file import VideoFile
from ballcast.video.sources import LiveFrame, StreamGap, open_source
from ballcast_server.predictors import PredictorFactory
from ballcast_server.server_sent_events import MAX_QUEUED, Channel
from ballcast_server.streams import stream as streams
from tests.server.conftest import Running, Serve, paused

VIEWERS = 200
SECRET = "rtsp://admin:secret@camera.local/1"


def fast(
    predictors: PredictorFactory, ready: Callable[[], bool] = lambda: True
) -> dict[str, Callable[[str], LiveSession]]:
    """Streams that are files, read as fast as they are computed, from when it is `ready` on."""

    def open_(address: str) -> LiveSession:
        until = time.monotonic() + 20
        while not ready() and time.monotonic() < until:
            time.sleep(0.01)
        return LiveSession(open_source(address, speed=0), predictors.new())

    return {"sessions": open_}


async def watch(
    url: str, path: str, *, most: int = 10**9, stop: Callable[[dict], bool] = lambda r: False
) -> list[dict]:
    """The records one viewer gets, until the stream ends."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    records: list[dict] = []
    try:
        while line := await reader.readline():
            if line.startswith(b"data: "):
                records.append(json.loads(line[6:]))
                if len(records) == most or stop(records[-1]):
                    break
    finally:
        writer.close()
    return records


def made(records: list[dict]) -> list[dict]:
    return [{k: r[k] for k in ("at_ms", "predictions")} for r in records if r.get("type") == "anticipation"]


def test_two_hundred_viewers_cost_one_computation(
    serving: Serve, clip: Path, predictors: PredictorFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_there = fast(predictors, lambda: server.service.viewers.count == VIEWERS)
    server = serving(streams={"pitch": str(clip)}, how=all_there)
    with VideoFile(clip) as video:
        expected = json.loads(json.dumps([m.to_json() for m in predict_video(video, predictors.new())]))
    waits: list[float] = []

    async def health() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.to_thread(server.client.get, "/api/health")
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(0.1)

    async def all_() -> list[list[dict]]:
        asking = asyncio.create_task(health())
        seen = await asyncio.gather(*(watch(server.url, "/api/streams/pitch/events") for _ in range(VIEWERS)))
        asking.cancel()
        return seen

    began = time.perf_counter()
    seen = asyncio.run(all_())
    took = time.perf_counter() - began
    for records in seen:
        assert made(records) == expected
        assert records[-1]["state"] == "ended"
        assert not [r for r in records if r["type"] == "lost"]
    assert server.service.streams["pitch"].started == 1
    assert max(waits) < 3, "others must be answered meanwhile"
    until = time.monotonic() + 5
    while server.service.viewers.count and time.monotonic() < until:
        time.sleep(0.02)
    assert server.service.viewers.count == 0
    with capsys.disabled():
        each, worst = sum(map(len, seen)) / VIEWERS, 1000 * max(waits)
        sys.stderr.write(
            f" [{VIEWERS} viewers: {each:.0f} records each in {took:.1f} s, others answered in {worst:.0f} ms]"
        )


def test_who_comes_later_sees_what_was_and_what_comes(serving: Serve, clip: Path) -> None:
    held, release = paused(250)
    server = serving(streams={"pitch": str(clip)}, how=fast(held))
    stream = server.service.streams["pitch"]

    async def two() -> list[list[dict]]:
        first = asyncio.create_task(watch(server.url, "/api/streams/pitch/events"))
        await asyncio.sleep(0.6)  # half of it is anticipated
        second = asyncio.create_task(watch(server.url, "/api/streams/pitch/events"))
        while stream.viewers < 2:
            await asyncio.sleep(0.02)
        release.set()
        return await asyncio.gather(first, second)

    first, second = asyncio.run(two())
    assert [r["at_ms"] for r in made(first)] == list(range(5000, 12_001, 1000))
    assert made(second) == made(first)
    assert {"status", "preview"} <= {r["type"] for r in second}
    assert stream.started == 1


def test_viewers_that_vanish_leave_nothing_running(serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER_S", 0.3)
    server = serving(streams={"pitch": str(clip)})
    stream = server.service.streams["pitch"]

    async def leave() -> None:
        await asyncio.gather(*(watch(server.url, "/api/streams/pitch/events", most=2) for _ in range(20)))

    asyncio.run(leave())
    until = time.monotonic() + 10
    while (stream.viewers or stream.state != "idle") and time.monotonic() < until:
        time.sleep(0.02)
    assert (stream.viewers, stream.state) == (0, "idle")
    assert asyncio.run(watch(server.url, "/api/streams/pitch/events", most=1))  # and it starts again
    assert stream.started == 2


def test_viewers_take_no_threads(serving: Serve, clip: Path) -> None:
    """Fifty viewers of a stream come and go: as many threads as with the first one."""
    server = serving(streams={"pitch": str(clip)})
    address = "/api/streams/pitch/events"
    asyncio.run(watch(server.url, address, most=2))
    before = threading.active_count()

    async def all_of_them() -> None:
        await asyncio.gather(*(watch(server.url, address, most=2) for _ in range(50)))

    asyncio.run(all_of_them())
    assert threading.active_count() <= before + 2  # of the pool that handles requests


def test_a_stream_that_cannot_be_opened_says_so_without_its_address(serving: Serve) -> None:
    server = serving(streams={"camera": "/secret/place/nothing.mp4"})
    (record,) = [r for r in asyncio.run(watch(server.url, "/api/streams/camera/events")) if r["state"] == "error"]
    assert record["message"] == "camera: no such file"  # what to do about it is no viewer's business
    assert server.client.get("/api/health").status_code == 200


class Broken:
    """A camera whose messages name it, as people see it and with its password."""

    name, blocking = "rtsp://camera.local/1", False

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        time.sleep(1)  # until somebody watches
        yield StreamGap("reconnecting", f"{self.name}: broke off; it is opened again; --give-up would help")
        raise InputError(f"{SECRET}: cannot be opened any more, is {self.name} on?; give another --stream")

    def close(self) -> None:
        pass


def test_messages_on_the_way_name_the_stream_not_its_address(serving: Serve, quick: PredictorFactory) -> None:
    how = {"sessions": lambda address: LiveSession(Broken(), quick.new())}
    server = serving(streams={"pitch": SECRET}, how=how)
    records = asyncio.run(watch(server.url, "/api/streams/pitch/events"))
    said = [r["message"] for r in records if r["type"] == "status"]
    assert "pitch: broke off; it is opened again" in said
    assert said[-1] == "pitch: cannot be opened any more, is pitch on?"
    assert "camera.local" not in json.dumps(records)
    assert "secret" not in json.dumps(records)


def test_who_comes_back_learns_whether_it_is_the_same_clock(
    serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LINGER_S", 0.2)
    server = serving(streams={"pitch": str(clip)})
    stream = server.service.streams["pitch"]

    async def sessions() -> list[str]:
        path = "/api/streams/pitch/events"
        first = asyncio.create_task(watch(server.url, path))
        while not stream.started:
            await asyncio.sleep(0.02)
        found = [(await watch(server.url, path, most=1))[0]["id"] for _ in range(2)]
        first.cancel()
        while stream.state != "idle":
            await asyncio.sleep(0.02)
        return [*found, (await watch(server.url, path, most=1))[0]["id"]]

    first, second, third = asyncio.run(sessions())
    assert first == second != third


def test_labels_beside_a_stream_that_is_a_file(serving: Serve, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "match.mp4").write_bytes(clip.read_bytes())
    (tmp_path / "matches.json").write_text(
        json.dumps([{"video": "match.mp4", "split": "", "frames": 9, "actions": [{"label": "SHOT", "position": 7000}]}])
    )
    server = serving(streams={"a": str(tmp_path / "match.mp4"), "b": "rtsp://127.0.0.1:9/x"})
    actual = server.client.get("/api/streams/a/actual").json()
    assert actual == {"known": True, "events": [{"label": "SHOT", "position_ms": 7000, "team": ""}]}
    assert server.client.get("/api/streams/b/actual").json() == {"known": False, "events": []}
    (tmp_path / "matches.json").write_text("[")  # told, as it is of a video: not the same as none
    refused = server.client.get("/api/streams/a/actual")
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("matches.json: line 1 column 2: the file ends too early")


def test_viewers_are_bounded(serving: Serve, clip: Path) -> None:
    server: Running = serving(streams={"pitch": str(clip)}, limits={"viewers": 2})

    async def three() -> int:
        others = [asyncio.create_task(watch(server.url, "/api/streams/pitch/events")) for _ in range(2)]
        while server.service.viewers.count < 2:
            await asyncio.sleep(0.02)
        status = (await asyncio.to_thread(server.client.get, "/api/streams/pitch/events")).status_code
        for other in others:
            other.cancel()
        return status

    assert asyncio.run(three()) == 503


def test_a_slow_viewer_loses_the_oldest_and_is_told() -> None:
    async def run() -> list[bytes]:
        channel = Channel(asyncio.get_running_loop(), {"a": 2})
        channel.publish("a", "before")
        viewer = channel.follow()
        got = [await anext(viewer), await anext(viewer)]
        for i in range(MAX_QUEUED + 5):
            channel.publish("a", i)
        channel.close()
        return got + [written async for written in viewer]

    got = asyncio.run(run())
    assert got[1] == b'event: a\ndata: "before"\n\n'
    assert got[2] == b'event: lost\ndata: {"type": "lost", "count": 5}\n\n'
    assert got[3] == b"event: a\ndata: 5\n\n"
    assert len(got) == 3 + MAX_QUEUED


def test_newcomers_get_the_latest_state_and_the_last_few() -> None:
    async def run() -> list[bytes]:
        channel = Channel(asyncio.get_running_loop(), {"status": 1, "made": 2})
        for i in range(4):
            channel.publish("made", i)
            channel.publish("status", i)
        channel.close()
        return [written async for written in channel.follow()]

    got = b"".join(asyncio.run(run())).decode()
    assert [line for line in got.splitlines() if line.startswith("data")] == ["data: 3", "data: 2", "data: 3"]
