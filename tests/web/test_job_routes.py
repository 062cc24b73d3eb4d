"""Jobs over HTTP: from an upload to its results, and all that can happen on the way."""

import csv
import json
from io import StringIO
from pathlib import Path

from ballcast.inference.rolling import anticipate_video
from ballcast.video.decode import VideoFile
from ballcast.web.engine import Engine
from tests.web.conftest import Serve


def test_an_upload_gives_what_predict_gives(serving: Serve, clip: Path, engine: Engine) -> None:
    server = serving()
    response = server.upload(clip, "my%20match.mp4")
    assert response.status_code == 201, response.text
    job = response.json()
    assert (job["name"], job["height"], job["width"], job["duration_ms"]) == ("my match.mp4", 64, 96, 12_000)
    done = server.until(job["id"], "done", "failed")
    assert done["state"] == "done", done
    timeline = server.client.get(f"/api/jobs/{job['id']}/timeline").json()
    with VideoFile(clip) as video:
        expected = anticipate_video(video, engine.new())
    assert timeline["anticipations"] == json.loads(json.dumps([made.to_json() for made in expected]))
    assert timeline["video"] == "my match.mp4"
    rows = list(csv.DictReader(StringIO(server.client.get(f"/api/jobs/{job['id']}/timeline.csv").text)))
    assert len(rows) == sum(len(made.predictions) for made in expected)
