"""Downloads with the forecasts drawn below the video."""

import json
import subprocess
import sys
import time
from pathlib import Path

from ballcast.core.actions import ACTIONS
from ballcast.core.files import _machine
from ballcast.video.file import VideoFile
from ballcast_server.confined.rendering import shown_forecasts
from ballcast_server.jobs.renders import MAX_FILES
from tests.server.conftest import Running, Serve
from tests.video.conftest import make_video


def ready(server: Running, address: str, name: str, *states: str) -> dict:
    until = time.monotonic() + 60
    while True:
        found = {record["name"]: record for record in server.client.get(address).json()}
        if name in found and found[name]["state"] in (states or ("done", "failed")):
            return found[name]
        assert time.monotonic() < until, found
        time.sleep(0.1)


def test_the_video_with_its_forecasts_and_a_clip_of_it(serving: Serve, clip: Path) -> None:
    server = serving()
    job = server.upload(clip, "K%C3%B6ln.mp4").json()["id"]
    address = f"/api/jobs/{job}/renders"
    server.until(job, "done")
    assert server.client.get(address).json() == []
    assert server.client.post(address, json={}).status_code == 202
    part = {"begin_ms": 6000, "end_ms": 9000}
    assert server.client.post(address, json=part).json()["name"] == "clip-6000-9000.mp4"
    lengths = {}
    for name in ("overlay.mp4", "clip-6000-9000.mp4"):
        assert ready(server, address, name)["state"] == "done", ready(server, address, name)
        answer = server.client.get(f"{address}/{name}")
        assert answer.headers["content-type"] == "video/mp4"
        assert f"K%C3%B6ln-{name}" in answer.headers["content-disposition"]
        path = clip.parent / name
        path.write_bytes(answer.content)
        with VideoFile(path) as video:
            assert video.size[0] > 32  # the strip below
            lengths[name] = video.frame_count()
    assert lengths == {"overlay.mp4": 300, "clip-6000-9000.mp4": 75}
    assert server.client.post(address, json=part).json()["state"] == "done"  # not again
    ranged = server.client.get(f"{address}/overlay.mp4", headers={"Range": "bytes=4-7"})
    assert (ranged.status_code, ranged.content) == (206, b"ftyp")


def test_names_are_not_paths_and_failures_are_sentences(serving: Serve, clip: Path, tmp_path: Path) -> None:
    server = serving()
    job = server.upload(clip).json()["id"]
    server.until(job, "done")
    address, folder = f"/api/jobs/{job}/renders", server.service.jobs.folder(job)
    for part in ({"begin_ms": 5}, {"begin_ms": 9, "end_ms": 9}, {"end_ms": 10**8}, {"end_ms": -1}):
        assert server.client.post(address, json=part).status_code == 422, part
    for name in ("video", "timeline.json", "..%2fvideo", "clip-1-2.mp4"):
        assert server.client.get(f"{address}/{name}").status_code in (404, 422), name
    secret = tmp_path / "secret"
    secret.write_text("root")
    (folder / "clip-3-4.mp4").symlink_to(secret)
    assert server.client.get(f"{address}/clip-3-4.mp4").status_code == 404
    (folder / "timeline.json").write_text("{")
    server.client.post(address, json={})
    failed = ready(server, address, "overlay.mp4", "failed")
    assert "timeline.json" in failed["message"]
    assert str(folder) not in failed["message"]
    (folder / "video").unlink()
    assert server.client.post(address, json={}).status_code == 202  # tried again
    until = time.monotonic() + 30
    while "no longer there" not in ready(server, address, "overlay.mp4", "failed")["message"]:
        assert time.monotonic() < until
    for i in range(MAX_FILES):
        (folder / f"clip-{i}-{i + 10}.mp4").write_bytes(b"x")
    assert server.client.post(address, json={"end_ms": 999}).status_code == 429


def test_what_is_drawn_is_what_the_page_shows() -> None:
    """By expected precision, from the default on."""
    made = {"at_ms": 5000, "predictions": [
        {"label": "SHOT", "position_ms": 6000, "confidence": 0.9},
        {"label": "PASS", "position_ms": 7000, "confidence": 0.5},
    ]}  # fmt: skip
    gap = {"from": 1.0, "to": 2.0, "reason": "damaged", "kind": "damage"}
    curves = dict.fromkeys(ACTIONS, ((1.0, 1.0),)) | {"SHOT": ((0.9, 0.05),)}
    result = {"gaps": [gap], "anticipations": [made], "precision": {"default": 0.1, "actions": curves}}
    (forecast,), (lost,) = shown_forecasts(json.loads(json.dumps(result)))
    assert [(p.label, p.confidence) for p in forecast.predictions] == [("PASS", 0.5)]
    assert (lost.begin_ms, lost.end_ms) == (1000, 2000)
    del result["precision"]
    (forecast,), _ = shown_forecasts(result)
    assert [p.confidence for p in forecast.predictions] == [0.9, 0.5]


def test_4k_is_accepted(serving: Serve, tmp_path: Path) -> None:
    """As by `predict`; 8K is not, and the refusal names the option."""
    server = serving()
    wide = server.upload(make_video(tmp_path / "4k.mp4", range(2), size=(2160, 3840)), "4k.mp4")
    assert wide.status_code == 201, wide.text
    assert (wide.json()["width"], wide.json()["codec"]) == (3840, "h264")
    wider = server.upload(make_video(tmp_path / "8k.mp4", range(1), size=(4320, 7680)), "8k.mp4")
    assert wider.status_code == 422
    assert "(--max-pixels)" in wider.json()["error"]


def test_what_a_killed_rendering_left_is_removed_by_the_next(serving: Serve, clip: Path) -> None:
    """The sandbox hides other processes, so this is looked up before it."""
    server = serving()
    job = server.upload(clip).json()["id"]
    server.until(job, "done")
    folder = server.service.settings.data / "jobs" / job
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    left = folder / f".overlay.mp4.{_machine()}-{gone.pid}-0123abcd.tmp"
    left.write_bytes(b"half")
    address = f"/api/jobs/{job}/renders"
    server.client.post(address, json={"begin_ms": 6000, "end_ms": 7000})
    assert ready(server, address, "clip-6000-7000.mp4")["state"] == "done"
    assert not left.exists()
