"""The server's folder: found from anywhere, and nothing in it thrown away that is not ours."""

import json
from pathlib import Path

import pytest

from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from tests.server.conftest import LIMITS, Serve, running


def test_an_upload_into_a_folder_given_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: PredictorFactory, clip: Path
) -> None:
    """As by default: the decoder's process works in another folder than the server."""
    monkeypatch.chdir(tmp_path)
    with running(Settings(data=Path("ballcast-data"), limits=LIMITS), quick) as server:
        answer = server.upload(clip)
        assert answer.status_code == 201, answer.text
        assert server.until(answer.json()["id"], "done", "failed")["state"] == "done"


def test_only_what_cut_off_uploads_left_is_swept(tmp_path: Path, quick: PredictorFactory, clip: Path) -> None:
    settings = Settings(data=tmp_path / "data", limits=LIMITS)
    with running(settings, quick) as server:
        job = server.upload(clip).json()
        server.until(job["id"], "done")
    jobs = tmp_path / "data" / "jobs"
    cut_off, empty, foreign, marked, file = ("0" * 16, "1" * 16, "holiday", "unfinished-business", "2" * 16)
    for name in (cut_off, empty, foreign, marked):
        (jobs / name).mkdir()
    for name in (cut_off, foreign, marked):
        (jobs / name / "video").write_bytes(b"x")
    for name in (cut_off, marked, job["id"]):  # the last: killed just after the job was written down
        (jobs / name / "unfinished").touch()
    (jobs / file).write_bytes(b"not a folder")
    with running(settings, quick) as server:
        assert sorted(p.name for p in jobs.iterdir()) == sorted([foreign, marked, file, job["id"]])
        assert (jobs / foreign / "video").exists()
        assert {p.name for p in (jobs / job["id"]).iterdir()} == {"video", "timeline.json", "timeline.csv"}


def test_uploads_outlive_the_database(tmp_path: Path, quick: PredictorFactory, clip: Path) -> None:
    settings = Settings(data=tmp_path / "data", limits=LIMITS)
    with running(settings, quick) as server:
        job = server.upload(clip).json()
        server.until(job["id"], "done")
    for file in (tmp_path / "data").glob("jobs.sqlite*"):
        file.unlink()
    for _ in range(2):  # the second time there is a database again, which does not know it
        with running(settings, quick) as server:
            assert server.client.get("/api/jobs").json() == []
    assert (tmp_path / "data" / "jobs" / job["id"] / "video").read_bytes() == clip.read_bytes()


@pytest.mark.parametrize("labels", ["[]", '[{"video": "other.mp4", "split": "", "frames": 9, "actions": []}]'])
def test_labels_of_other_videos_are_not_of_this_one(serving: Serve, clip: Path, tmp_path: Path, labels: str) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "final.mp4").write_bytes(clip.read_bytes())
    (folder / "matches.json").write_text(labels)
    server = serving(videos=folder)
    (video,) = server.client.get("/api/videos").json()
    job = server.client.post("/api/jobs", json={"video": video["id"]}).json()
    assert server.client.get(f"/api/jobs/{job['id']}/actual").json() == {"known": False, "events": []}


@pytest.mark.parametrize("where", ["videos/cup", "videos", "."])
def test_viewers_are_not_told_where_files_lie(serving: Serve, clip: Path, tmp_path: Path, where: str) -> None:
    """Neither of damaged labels beside a video nor of those above its folder, which may be above all videos."""
    (tmp_path / "videos" / "cup").mkdir(parents=True)
    (tmp_path / "videos" / ("final.mp4" if where == "." else "cup/final.mp4")).write_bytes(clip.read_bytes())
    (tmp_path / where / "Labels-ball.json").write_text("{")
    server = serving(videos=tmp_path / "videos")
    (video,) = server.client.get("/api/videos").json()
    job = server.client.post("/api/jobs", json={"video": video["id"]}).json()
    answer = server.client.get(f"/api/jobs/{job['id']}/actual")
    assert answer.status_code == 422
    assert "Labels-ball.json: line 1" in answer.json()["error"]
    assert str(tmp_path) not in answer.text
    assert json.loads(answer.text)["error"][0] != "/"


def test_a_name_that_is_not_text_breaks_nothing(serving: Serve, clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    odd = Path(bytes(folder).decode() + "/caf\udce9.mp4")  # Latin-1
    odd.write_bytes(clip.read_bytes())
    (folder / "gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    server = serving(videos=folder)
    (video,) = server.client.get("/api/videos").json()
    assert video["name"] == "caf\N{REPLACEMENT CHARACTER}.mp4"
    job = server.client.post("/api/jobs", json={"video": video["id"]}).json()
    assert server.until(job["id"], "done", "failed")["state"] == "done", job
    assert server.client.get(f"/api/jobs/{job['id']}/video").content == clip.read_bytes()
    odd.unlink()
    for answer in (
        server.client.get(f"/api/jobs/{job['id']}/video"),
        server.client.post("/api/jobs", json={"video": video["id"]}),
    ):
        assert answer.status_code in (404, 422)
        assert list(answer.json()) == ["error"]
        assert str(tmp_path) not in answer.text


def test_a_video_that_vanishes_while_they_are_listed(
    serving: Serve, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    for name in ("a.mp4", "b.mp4"):
        (folder / name).write_bytes(clip.read_bytes())
    right = Path.is_file

    def taken_away(self: Path, **how: bool) -> bool:
        found = right(self, **how)
        if self.name == "a.mp4":
            self.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", taken_away)
    assert [v["name"] for v in serving(videos=folder).client.get("/api/videos").json()] == ["b.mp4"]


def test_errors_of_the_server_are_one_sentence_too(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("/etc/secret")

    monkeypatch.setattr(server.service.jobs.store, "all", broken)
    answer = server.client.get("/api/jobs")
    assert (answer.status_code, list(answer.json())) == (500, ["error"])
    assert "secret" not in answer.text
