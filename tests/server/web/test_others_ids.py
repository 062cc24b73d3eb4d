"""Every route that takes an id, called with another user's: what users share is shared, and the rest is refused.

All users of a server see its jobs, streams and pages of matches, and administrators change them (docs/serve.md, "Who
may use it"). A route that is new, or takes an id in another place, has no row here and fails.
"""

from pathlib import Path
from typing import Any

import httpx
import pytest

from ballcast_server.jobs.feeds import Feeds
from tests.server.conftest import Serve, paused

F24 = b'<?xml version="1.0"?>\n<Games timestamp="x">\n <Game id="2210271" away_score="1">\n'
# method and path → status for another administrator, for a viewer; None: shared, but not asked for (it does not end)
SHARED: dict[tuple[str, str], tuple[int | None, int | None]] = {
    ("GET", "/api/jobs/{job_id}"): (200, 200),
    ("GET", "/api/jobs/{job_id}/events"): (None, None),
    ("GET", "/api/jobs/{job_id}/timeline"): (409, 409),
    ("GET", "/api/jobs/{job_id}/timeline.csv"): (409, 409),
    ("GET", "/api/jobs/{job_id}/video"): (200, 200),
    ("GET", "/api/jobs/{job_id}/actual"): (200, 200),
    ("PUT", "/api/jobs/{job_id}/labels"): (422, 403),
    ("POST", "/api/jobs/{job_id}/renders"): (409, 403),
    ("GET", "/api/jobs/{job_id}/renders"): (200, 200),
    ("GET", "/api/jobs/{job_id}/renders/{name}"): (404, 404),
    ("GET", "/api/streams/{name}/events"): (None, None),
    ("GET", "/api/streams/{name}/actual"): (200, 200),
    ("GET", "/api/streams/{name}/clips"): (200, 200),
    ("GET", "/api/streams/{name}/clips/{clip}"): (404, 404),
    ("PUT", "/api/streams/{name}"): (200, 403),
    ("DELETE", "/api/streams/{name}"): (204, 403),
    ("POST", "/api/jobs/{job_id}/cancel"): (200, 403),
    ("DELETE", "/api/jobs/{job_id}"): (204, 403),
}
OWNED = {("POST", "/api/feeds"): (404, 403)}  # ?with=
WITHOUT_ID = {
    *((method, "/api/jobs") for method in ("GET", "POST")),
    *(("GET", path) for path in ("/api/videos", "/api/streams", "/api/health", "/api/about", "/healthz", "/readyz")),
    *(("POST", path) for path in ("/api/uploads", "/api/login", "/api/logout")),
    ("GET", "/metrics"),
}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/api/jobs/{job_id}/labels"): {"content": b"{}"},
    ("POST", "/api/jobs/{job_id}/renders"): {"json": {"begin_ms": 0, "end_ms": 5000}},
    ("PUT", "/api/streams/{name}"): {"json": {"address": "rtsp://127.0.0.1:1/1", "always": False}},
    ("POST", "/api/feeds"): {"content": b"bad"},
}


def test_each_route_with_another_users_ids(serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feeds, "read", lambda *_: (False, "second file"))
    held, release = paused()
    token = "a token of the operator"
    server = serving(token=token, predictors=held)
    server.client.headers["Authorization"] = f"Bearer {token}"
    routes = {
        (method.upper(), path)
        for path, methods in server.client.get("/openapi.json").json()["paths"].items()
        for method in methods
    }
    assert routes == {*SHARED, *OWNED, *WITHOUT_ID}

    job = server.upload(clip).json()["id"]
    feed = server.client.post("/api/feeds", content=F24, headers={"X-File-Name": "f24.xml"}).json()["id"]
    server.client.put("/api/streams/pitch", json={"address": "rtsp://127.0.0.1:1/1", "always": False})
    server.until(job, "running")
    others = {
        role: httpx.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.service.tokens.add(role, role)}"},
            transport=httpx.HTTPTransport(local_address="127.0.0.2"),
        )
        for role in ("admin", "viewer")
    }
    ids = {"{job_id}": job, "{name}": "pitch", "{clip}": "none.mp4"}
    found: dict[tuple[str, str], list[int | None]] = {}
    try:
        for route, expected in {**OWNED, **SHARED}.items():  # in order: the last ones change and remove
            method, path = route
            address = path.replace("renders/{name}", "renders/overlay.mp4")
            for mark, own in ids.items():
                address = address.replace(mark, own)
            query = {"with": feed} if route in OWNED else {}
            found[route] = [None, None]
            for i, role in ((1, "viewer"), (0, "admin")):
                if expected[i] is not None:
                    answer = others[role].request(method, address, params=query, **BODIES.get(route, {}))
                    found[route][i] = answer.status_code
    finally:
        release.set()
        for client in others.values():
            client.close()
    assert {route: tuple(statuses) for route, statuses in found.items()} == {**OWNED, **SHARED}
    assert [(p.parent.name, p.read_bytes()) for p in server.service.feeds.root.glob("*/f24.xml")] == [(feed, F24)]
    assert len(list(server.service.feeds.root.iterdir())) == 1
