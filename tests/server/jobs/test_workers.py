"""Workers: they outlive whatever happens to a job, and hold nothing for jobs that are no more."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from ballcast.core.events import Forecast
from ballcast_server.jobs import workers as worker
from ballcast_server.jobs.store import Job
from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from benchmarks.serve import Quick
from tests.server.conftest import LIMITS, Running, Serve, paused, running


def wait(for_: Callable[[], object], seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while not for_():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def other(server: Running) -> httpx.Client:
    """Somebody at another address."""
    return httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=30)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    filling = disk / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filling


def test_a_full_disk_stops_nothing_for_good(
    small_disk: Path, quick: PredictorFactory, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_S", 0.2)
    release = threading.Event()

    class Held(Quick):
        def push(self, frame: np.ndarray) -> Forecast | None:
            if self.frames == 299:
                release.wait(20)
            return super().push(frame)

    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(clip.read_bytes())
    settings = Settings(data=small_disk / "data", videos=tmp_path / "videos", limits=LIMITS)
    with running(settings, PredictorFactory(Held, {})) as server:  # type: ignore[arg-type]
        (video,) = server.client.get("/api/videos").json()
        job = server.client.post("/api/jobs", json={"video": video["id"]}).json()
        server.until(job["id"], "running")
        wait(lambda: server.service.workers.done_ms(job["id"]) >= 11_960)
        filling = fill(small_disk)
        release.set()  # neither its results nor that it failed can be written down now
        time.sleep(1)
        answer = server.client.post("/api/jobs", json={"video": video["id"]})
        assert answer.status_code == 507, answer.text
        assert "disk is nearly full" in answer.json()["error"]
        filling.unlink()
        ended = server.until(job["id"], "done", "failed")
        assert ended["state"] == "done" or ended["message"].startswith("a.mp4: the server's disk is full"), ended
        assert str(small_disk) not in ended["message"]
        again = server.client.post("/api/jobs", json={"video": video["id"]}).json()
        assert server.until(again["id"], "done", "failed")["state"] == "done"


def test_a_disk_without_room_takes_no_job(serving: Serve, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(clip.read_bytes())
    server = serving(videos=tmp_path / "videos", limits={"free_bytes": 1 << 60})
    (video,) = server.client.get("/api/videos").json()
    assert server.client.post("/api/jobs", json={"video": video["id"]}).status_code == 507


def test_a_store_that_fails_is_asked_again(
    serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "RETRY_S", 0.05)
    server = serving()
    store, failures = server.service.jobs.store, 0
    take, end = store.take, store.end

    def fails_thrice(right: Callable) -> Callable:
        def call(*args: object, **how: object) -> object:
            nonlocal failures
            failures += 1
            if failures in (1, 2, 4):  # `take` twice, then `end`
                raise OSError(28, "No space left on device", "/srv/data/jobs.sqlite")
            return right(*args, **how)

        return call

    monkeypatch.setattr(store, "take", fails_thrice(take))
    monkeypatch.setattr(store, "end", fails_thrice(end))
    job = server.upload(clip).json()
    done = server.until(job["id"], "done", "failed")
    assert failures > 4
    assert "/srv" not in done["message"]
    second = server.upload(clip).json()
    assert server.until(second["id"], "done", "failed")["state"] == "done"
    assert "trying again" in caplog.text


def test_turns_and_cancels_are_looked_at_after_each_frame(serving: Serve, clip: Path) -> None:
    """A frame that takes half a second must not hold others up for 25 of them."""
    pushed: list[int] = []

    class Slow(Quick):
        def push(self, frame: np.ndarray) -> Forecast | None:
            pushed.append(id(self))
            time.sleep(0.4)
            return super().push(frame)

    server = serving(predictors=PredictorFactory(Slow, {}), limits={"slice_s": 0.1})  # type: ignore[arg-type]
    mine = server.upload(clip).json()
    wait(lambda: pushed)
    with other(server) as ben:
        theirs = ben.post("/api/uploads", content=clip.read_bytes()).json()
        came = len(pushed)
        wait(lambda: len(set(pushed)) == 2)
        assert pushed.index(next(p for p in pushed if p != pushed[0])) <= came + 4
        for job in (mine, theirs):
            server.client.post(f"/api/jobs/{job['id']}/cancel")
        cancelled = len(pushed)
    wait(lambda: not server.service.workers._started)
    assert len(pushed) <= cancelled + 4


@pytest.mark.parametrize("how", ["cancelled", "deleted", "ended elsewhere"])
def test_a_job_that_was_put_aside_and_cancelled_holds_nothing(serving: Serve, clip: Path, how: str) -> None:
    """While others are at work, and for as long as they are."""
    may = threading.Semaphore(0)

    class Stepped(Quick):
        def push(self, frame: np.ndarray) -> Forecast | None:
            may.acquire(timeout=20)
            return super().push(frame)

    server = serving(predictors=PredictorFactory(Stepped, {}), limits={"slice_s": 0.0})  # type: ignore[arg-type]
    workers = server.service.workers
    mine = server.upload(clip).json()["id"]
    wait(lambda: workers._started)
    with other(server) as ben:
        theirs = ben.post("/api/uploads", content=clip.read_bytes()).json()["id"]
        may.release()
        wait(lambda: workers._busy == {theirs} and len(workers._started) == 2)  # mine is put aside
        decoder = workers._started[mine]._stack
        if how == "cancelled":
            server.client.post(f"/api/jobs/{mine}/cancel")
        elif how == "deleted":
            server.client.delete(f"/api/jobs/{mine}")
        else:  # as if it happened while it was still at work: noticed at the next round
            server.service.jobs.store.end(mine, "cancelled")
            third = ben.post("/api/uploads", content=clip.read_bytes()).json()["id"]
            last = server.upload(clip).json()["id"]
            for _ in range(2):
                may.release()
            wait(lambda: mine not in workers._started)
            wait(lambda: {third, theirs, last} & workers._busy)
        assert workers._started  # others are at work
        assert mine not in workers._started
        assert not decoder._exit_callbacks  # type: ignore[attr-defined]
        for _ in range(1200):
            may.release()
        server.until(theirs, "done")
    assert server.service.jobs.folder(mine).exists() != (how == "deleted")


def test_no_more_jobs_are_open_than_allowed(serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: workers counted jobs only once their decoders ran, so that each could start one at the same time."""
    predictors, release = paused()
    server = serving(predictors=predictors, workers=3, limits={"open_jobs": 1})
    workers, video_of = server.service.workers, server.service.jobs.video_of

    def slow(job: Job) -> Path | None:
        time.sleep(0.5)
        return video_of(job)

    monkeypatch.setattr(server.service.jobs, "video_of", slow)
    jobs = [server.upload(clip).json()["id"] for _ in range(3)]
    wait(lambda: workers._started)
    time.sleep(1.5)
    assert len(workers._started) == 1
    release.set()
    for job in jobs:
        assert server.until(job, "done", "failed")["state"] == "done"
