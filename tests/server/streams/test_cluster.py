"""Streams on two Ray nodes of this machine, one of which is killed; and both sides of it without Ray."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import Nodes, needs_ray, run_apart
from stream_server import DrippingServer

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.core.util import cores
from ballcast.live.reader import PreviewOptions
from ballcast.live.status import LiveForecast, Preview, Status, wall_ms
from ballcast.video.sources import SourceOptions
from ballcast_server.streams.cluster import ClusterSession, ClusterSessions
from ballcast_server.streams.cluster_actor import Follower, Item, StreamOrder
from tests.video.conftest import make_video


@needs_ray
def test_streams_go_on_when_a_machine_dies(tmp_path: Path, ray_nodes: Nodes) -> None:
    raw = make_video(tmp_path / "a.ts", range(2000)).read_bytes()
    pieces = [raw[at : at + len(raw) // 400] for at in range(0, len(raw), len(raw) // 400)]
    file = make_video(tmp_path / "b.mp4", range(300))
    with DrippingServer(pieces, every_s=0.1) as one, DrippingServer(pieces, every_s=0.1) as two:
        program = "tests.server.streams.streams_on_cluster"
        assert "all shown" in run_apart(program, file, ray_nodes.door, one.address, two.address)


@needs_ray
def test_two_followers_on_one_machine(tmp_path: Path, ray_nodes: Nodes) -> None:
    file = make_video(tmp_path / "a.mp4", range(200))
    assert "all shown" in run_apart("tests.server.streams.followers_on_cluster", file, ray_nodes.door)


class StandIn:
    """Stands in for Ray, which starts no actor: what it was asked for."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._nodes = [{"Alive": bool(each), "Resources": each} for each in resources]

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes

    def remote(self, _: type) -> "StandIn":
        return self

    def options(self, **how: Any) -> "StandIn":
        self.asked.append(how)
        return self


@pytest.mark.parametrize(
    ("per_machine", "device", "actors", "gpu"),
    [(1, "auto", 4, 0), (3, "cpu", 9, 0), (1, "cuda", 2, 1.0), (3, "cuda", 5, 0.3333), (6, "cuda", 8, 0.1666)],
)
def test_actors_a_machine(
    monkeypatch: pytest.MonkeyPatch, per_machine: int, device: str, actors: int, gpu: float
) -> None:
    """Machines times followers, but one a core at most; those of a machine fit on its one GPU."""
    ray = StandIn({"CPU": 16.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}, {"CPU": 3.0}, {"CPU": 1.0}, {"GPU": 1.0}, {})
    monkeypatch.setattr("ballcast_server.streams.cluster_actor.threading.Thread.start", lambda _: None)
    streams = ClusterSessions("cluster", model={"device": device}, per_machine=per_machine)
    streams._ray = ray
    sessions = [streams.session(f"rtsp://camera/{n}").start() for n in range(2 * actors + 1)]
    assert len(ray.asked) == actors
    assert [how["num_gpus"] for how in ray.asked] == [gpu] * actors
    followed = [len(follower.sessions) for follower in streams._followers]
    assert sorted(followed) == [2] * (actors - 1) + [3]
    assert sessions[0].follower is sessions[actors].follower


def test_no_followers_follow_nothing() -> None:
    with pytest.raises(InputError, match="0 followers a machine: give 1 or more"):
        ClusterSessions("cluster", per_machine=0)


class Owner:
    """Stands in for the cluster."""

    def begin(self, session: ClusterSession) -> None: ...

    def end(self, session: ClusterSession) -> None: ...


def status(at_ms: int, **counts: int) -> Status:
    return Status("running", "anticipating", at_ms, wall_ms(), 1000, **counts)


def forecast(at_ms: int) -> LiveForecast:
    made = Forecast(at_ms, (Prediction("PASS", at_ms + 500, 0.5, (0.5,) * 10),))
    return LiveForecast(made, wall_ms(), 10.0, 0, 1000)


def session_on(address: str) -> Any:
    return ClusterSession(Owner(), StreamOrder(address, ring_s=30.0), 1000)  # type: ignore[arg-type]


def test_clock_and_counts_go_on_after_a_machine_dies() -> None:
    session = session_on("rtsp://user:secret@camera/1")
    with session.subscribe(previews=True) as records, session:
        session.take(Item("k", status(20_000, dropped=3, gaps=1, reconnects=2), 100.0, 121.0))
        assert session.ring.newest_s == 121.0
        assert session.timestamp(21_000) == 121.0
        time.sleep(0.1)
        session.lost()
        assert session.timestamp(21_000) is None
        assert (session.status.state, session.status.reconnects) == ("reconnecting", 3)
        assert "secret" not in session.status.message
        session.take(Item("k", forecast(5000), 7.0, 12.5))
        session.take(Item("k", Preview(5040, wall_ms(), 1, 1, b"jpeg"), 7.0, 12.5))
        session.take(Item("k", status(6000, dropped=1, reconnects=1), 7.0, 13.0))
        seen = [records.get(0) for _ in range(6)]
    made = seen[3].forecast
    offset = made.at_ms - 5000
    assert 20_100 <= offset < 25_000  # where it was, and the time that passed
    assert made.predictions[0].position_ms == made.at_ms + 500
    assert seen[4].at_ms == 5040 + offset
    assert (seen[5].at_ms, seen[5].dropped, seen[5].gaps, seen[5].reconnects) == (6000 + offset, 4, 1, 4)
    assert session.timestamp(made.at_ms) == 12.0
    assert session.status.state == "stopped"
    assert not session.running


def test_a_file_begins_at_its_own_time_0() -> None:
    session = session_on("match.mp4").start()
    session.take(Item("k", status(20_000), 0.0, -1.0))
    session.lost()
    session.take(Item("k", status(1000), 0.0, -1.0))
    assert session.status.at_ms == 1000


def test_what_is_over_stays_over() -> None:
    session = session_on("rtsp://camera/1").start()
    session.publish("error", "rtsp://camera/1: is gone")
    assert str(session.error) == "rtsp://camera/1: is gone"  # the name is not said twice
    session.take(Item("k", status(20_000), 0.0, -1.0))
    session.close()
    assert session.status.state == "error"


def test_an_actor_follows_what_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an object here, without Ray; all the machine's cores are its own, though Ray says 1."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    video = make_video(tmp_path / "a.mp4", range(200))
    actor = Follower({"runtime": "onnx", "size": "own"}, 1000, None, any_video=True)
    assert actor.fault() == ""
    assert os.environ["OMP_NUM_THREADS"] == str(cores())
    orders = {
        "a": StreamOrder(str(video), source=SourceOptions(speed=0)),
        "b": StreamOrder(str(tmp_path / "nowhere.mp4")),
        "c": StreamOrder(str(video), source=SourceOptions(speed=0.1), previews=PreviewOptions(50, 64)),
    }
    found: dict[str, list[Any]] = {key: [] for key in orders}
    end = time.monotonic() + 60
    while not any(isinstance(r, Status) and r.state == "ended" for r in found["a"]) or not found["c"][3:]:
        assert time.monotonic() < end, found
        items, load, _ = actor.follow(orders, 0.5)
        for item in items:
            found[item.key].append(item.record)
    assert [r.forecast.at_ms for r in found["a"] if isinstance(r, LiveForecast)] == [5000, 6000, 7000, 8000]
    assert [(r.state, "nowhere.mp4: no such file" in r.message) for r in found["b"]] == [("error", True)]
    assert any(isinstance(r, Preview) for r in found["c"])
    assert not any(isinstance(r, Preview) for r in found["a"])
    assert actor.clip("a", 0.0, 1.0) == b""  # no packets are kept of it
    while load.running:
        assert time.monotonic() < end, load
        _, load, _ = actor.follow({}, 0.1)


def test_an_actor_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "nowhere" in Follower({"model": str(tmp_path / "nowhere")}, 1000, None, any_video=True).fault()
    assert "TypeError" in Follower({"no such argument": 1}, 1000, None, any_video=True).fault()


def test_a_full_queue_does_not_stop_the_actor_that_empties_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    actor = Follower({"runtime": "onnx", "size": "own"}, 1000, None, any_video=True)
    for _ in range(actor._items.maxsize):
        actor._items.put(Item("before", status(0), None, -1.0))
    orders, received = {"b": StreamOrder(str(tmp_path / "nowhere.mp4"))}, list[Item]()
    asking = threading.Thread(target=lambda: received.extend(actor.follow(orders, 0.1)[0]), daemon=True)
    asking.start()
    asking.join(20)
    assert not asking.is_alive()
    end = time.monotonic() + 20
    while received[-1].key != "b":
        assert time.monotonic() < end
        received += actor.follow(orders, 0.1)[0]
