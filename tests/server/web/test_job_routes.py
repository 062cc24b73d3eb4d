"""Jobs over HTTP: from an upload to its results, and all that can happen on the way."""

import csv
import json
import time
from io import StringIO
from pathlib import Path

import httpx
import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Event, Forecast
from ballcast.data.labels.osl import write_osl
from ballcast.inference.video_predictor import predict_video
from ballcast.video.file import VideoFile
from ballcast_server.predictors import PredictorFactory
from benchmarks.serve import Quick
from tests.server.conftest import Running, Serve, paused
from tests.video.conftest import make_video


def events(server: Running, path: str, most: int = 1000) -> list[tuple[str, dict]]:
    """The server-sent events of an address, until it ends or there are `most`."""
    found: list[tuple[str, dict]] = []
    with server.client.stream("GET", path) as response:
        kind = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                found.append((kind, json.loads(line[6:])))
            if len(found) == most:
                break
    return found


def test_an_upload_gives_what_predict_gives(serving: Serve, clip: Path, predictors: PredictorFactory) -> None:
    server = serving(predictors=predictors)
    response = server.upload(clip, "my%20match.mp4")
    assert response.status_code == 201, response.text
    job = response.json()
    assert (job["name"], job["height"], job["width"], job["duration_ms"]) == ("my match.mp4", 32, 64, 12_000)
    told = events(server, f"/api/jobs/{job['id']}/events")
    done = server.until(job["id"], "done", "failed")
    assert done["state"] == "done", done
    timeline = server.client.get(f"/api/jobs/{job['id']}/timeline").json()
    with VideoFile(clip) as video:
        expected = tuple(predict_video(video, predictors.new()))
    trees = json.loads(json.dumps([made.to_json() for made in expected]))
    assert timeline["anticipations"] == trees
    assert timeline["video"] == "my match.mp4"
    assert [{k: v for k, v in data.items() if k != "type"} for kind, data in told if kind == "anticipation"] == trees
    assert told[-1] == ("state", {"state": "done", "message": ""})
    rows = list(csv.DictReader(StringIO(server.client.get(f"/api/jobs/{job['id']}/timeline.csv").text)))
    assert len(rows) == sum(len(made.predictions) for made in expected)


def test_a_video_of_the_folder_by_id(serving: Serve, clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    (folder / "cup").mkdir(parents=True)
    (folder / "cup" / "final.mp4").write_bytes(clip.read_bytes())
    (folder / "notes.txt").write_text("not a video")
    actions = [{"label": "PASS", "position": 6000, "team": "home"}, {"label": "GOAL", "position": 7000}]
    (folder / "cup" / "matches.json").write_text(
        json.dumps([{"video": "final.mp4", "split": "", "frames": 300, "actions": actions}])
    )
    server = serving(videos=folder)
    (video,) = server.client.get("/api/videos").json()
    assert video["name"] == "cup/final.mp4"
    job = server.client.post("/api/jobs", json={"video": video["id"]}).json()
    assert server.until(job["id"], "done", "failed")["state"] == "done"
    actual = server.client.get(f"/api/jobs/{job['id']}/actual").json()
    assert actual == {"known": True, "events": [{"label": "PASS", "position_ms": 6000, "team": "home"}]}
    assert server.client.delete(f"/api/jobs/{job['id']}").status_code == 204
    assert (folder / "cup" / "final.mp4").exists()
    assert server.client.post("/api/jobs", json={"video": "0" * 16}).status_code == 404


def test_the_video_comes_back_in_parts(serving: Serve, clip: Path) -> None:
    server = serving()
    job = server.upload(clip).json()
    part = server.client.get(f"/api/jobs/{job['id']}/video", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, clip.read_bytes()[10:20])
    assert part.headers["content-type"] == "video/mp4"


def osl(path: Path) -> None:
    write_osl(path, {"clip": [Event("SHOT", 8000)]})


def snbas(path: Path) -> None:
    path.write_text(json.dumps({"annotations": [{"label": "SHOT", "position": "8000", "team": "left"}]}))


@pytest.mark.parametrize("write", [osl, snbas])
def test_labels_say_what_happened(serving: Serve, clip: Path, tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    server = serving()
    job = server.upload(clip).json()
    address = f"/api/jobs/{job['id']}"
    assert server.client.get(f"{address}/actual").json() == {"known": False, "events": []}
    write(tmp_path / "labels.json")
    given = server.client.put(f"{address}/labels", content=(tmp_path / "labels.json").read_bytes())
    assert given.status_code == 200, given.text
    assert [(e["label"], e["position_ms"]) for e in given.json()["events"]] == [("SHOT", 8000)]
    assert server.client.get(f"{address}/actual").json() == given.json()


def match(name: str) -> bytes:
    return json.dumps({"video": f"{name}.mp4", "split": "", "frames": 1, "actions": []}).encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the labels: line 1"),
        (b"{}", "not one of Labels-ball.json"),
        (b'{"annotations": [{"label": "KICK", "position": 1}]}', "unknown label 'KICK'"),
        (b"[%s, %s]" % (match("a"), match("b")), "none of them called clip"),
    ],
)
def test_wrong_labels_are_one_sentence_and_leave_nothing(serving: Serve, clip: Path, body: bytes, said: str) -> None:
    server = serving()
    job = server.upload(clip).json()
    answer = server.client.put(f"/api/jobs/{job['id']}/labels", content=body)
    assert answer.status_code == 422
    assert said in answer.json()["error"]
    assert "/" not in answer.json()["error"].replace("Labels-ball.json, matches.json and OSL", "")
    assert not list(server.service.jobs.folder(job["id"]).glob("*labels*"))


def test_results_before_the_end_are_refused(serving: Serve, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held)
    job = server.upload(clip).json()
    answer = server.client.get(f"/api/jobs/{job['id']}/timeline")
    assert (answer.status_code, "there are results when it is done" in answer.json()["error"]) == (409, True)
    release.set()


def test_a_running_job_is_cancelled(serving: Serve, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held)
    job = server.upload(clip).json()
    server.until(job["id"], "running")
    cancelled = server.client.post(f"/api/jobs/{job['id']}/cancel")
    assert cancelled.json()["state"] == "cancelled"
    assert server.client.post(f"/api/jobs/{job['id']}/cancel").status_code == 409
    release.set()
    second = server.upload(clip).json()
    assert server.until(second["id"], "done", "failed")["state"] == "done"
    assert server.client.get(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    assert server.client.get(f"/api/jobs/{job['id']}/timeline").status_code == 409
    assert not server.service.workers._started


def test_deleting_removes_everything(serving: Serve, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held)
    job = server.upload(clip).json()
    server.until(job["id"], "running")
    folder = server.service.jobs.folder(job["id"])
    assert server.client.delete(f"/api/jobs/{job['id']}").status_code == 204
    release.set()
    until = time.monotonic() + 10
    while server.service.workers._started and time.monotonic() < until:
        time.sleep(0.02)
    assert not folder.exists()
    assert server.client.get(f"/api/jobs/{job['id']}").status_code == 404
    assert server.client.get("/api/jobs").json() == []


def test_jobs_survive_a_restart(serving: Serve, clip: Path) -> None:
    held, release = paused()
    first = serving(predictors=held)
    done = first.upload(clip, "first.mp4").json()
    running, waiting = first.upload(clip, "second.mp4").json(), first.upload(clip, "third.mp4").json()
    first.service.jobs.store.end(done["id"], "failed", "a test")
    first.until(running["id"], "running", "queued")
    release.set()
    first.server.end()
    first.gone()
    second = serving()
    assert second.client.get(f"/api/jobs/{done['id']}").json()["message"] == "a test"
    for job in (running, waiting):
        assert second.until(job["id"], "done", "failed")["state"] == "done"


def test_a_video_that_is_too_short_fails_and_a_damaged_one_has_gaps(serving: Serve, tmp_path: Path, clip: Path) -> None:
    server = serving()
    short = make_video(tmp_path / "short.mp4", range(50))
    job = server.until(server.upload(short, "short.mp4").json()["id"], "failed", "done")
    assert job["message"] == "short.mp4: is only 2.0 s long; anticipation needs a whole window of 5 s behind it"
    damaged = bytearray(clip.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 2000] = bytes(2000)
    (tmp_path / "damaged.mp4").write_bytes(damaged)
    job = server.until(server.upload(tmp_path / "damaged.mp4", "damaged.mp4").json()["id"], "failed", "done")
    assert job["state"] == "done", job["message"]
    (gap,) = server.client.get(f"/api/jobs/{job['id']}/timeline").json()["gaps"]
    assert 0 < gap["from"] < gap["to"]
    assert gap["reason"] == "a picture is damaged"


def test_users_take_turns(serving: Serve, clip: Path) -> None:
    """One user's many videos do not hold up another's one, which comes last; nor does a long one that has begun."""

    class Slow(Quick):
        def push(self, frame: np.ndarray) -> Forecast | None:
            time.sleep(0.004)
            return super().push(frame)

    server = serving(predictors=PredictorFactory(Slow, {}))  # type: ignore[arg-type]
    mine = [server.upload(clip).json()["id"] for _ in range(4)]
    with httpx.Client(
        base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=30
    ) as other:
        theirs = other.post("/api/uploads", content=clip.read_bytes()).json()
        assert not other.get(f"/api/jobs/{mine[0]}").json()["mine"]
        server.until(theirs["id"], "done")
    jobs = {job["id"]: job for job in server.client.get("/api/jobs").json()}
    assert [jobs[job]["state"] for job in mine].count("done") <= 2
    assert jobs[mine[-1]]["state"] == "queued"


def test_the_queue_of_one_user_is_bounded(serving: Serve, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held, limits={"waiting_a_user": 2})
    assert [server.upload(clip).status_code for _ in range(3)] == [201, 201, 429]
    release.set()


def test_openapi_describes_the_interface(serving: Serve) -> None:
    server = serving()
    paths = server.client.get("/openapi.json").json()["paths"]
    for path in ("uploads", "jobs/{job_id}/timeline", "jobs/{job_id}/cancel", "streams/{name}/events"):
        assert f"/api/{path}" in paths
    assert server.client.get("/api/about").json()["actions"] == list(ACTIONS)
    assert server.client.get("/api/health").json()["status"] == "ok"
