"""Event feeds over HTTP: a match's files in, its page out; what is wrong is said."""

import json

import pytest
from feeds import made_up

from tests.server.conftest import Running, Serve

F24 = b'<?xml version="1.0"?>\n<Games timestamp="x">\n <Game id="2210271" away_score="1">\n'


def send(server: Running, content: bytes, name: str, query: str = "") -> tuple[int, dict]:
    response = server.client.post(f"/api/feeds{query}", content=content, headers={"X-File-Name": name}, timeout=120)
    return response.status_code, response.json()


def test_a_match_becomes_a_page(serving: Serve) -> None:
    server = serving()
    status, record = send(server, json.dumps({"events": made_up(60, 0)}).encode(), "../my%20match.json")
    assert status == 201, record
    assert record["ready"]
    page = server.client.get(f"/feeds/{record['id']}")
    assert page.status_code == 200
    assert 'id="timeline"' in page.text
    assert '<script src="/feed_page.js">' in page.text
    for name in ("feed_page.js", "feed_page.css"):
        assert server.client.get(f"/{name}").status_code == 200
    assert server.client.get("/feed_page.py").status_code == 404
    assert server.client.get(f"/feeds/{'0' * 16}").status_code == 404
    assert [path.name for path in server.service.feeds.root.iterdir()] == [record["id"]]


def test_what_is_no_feed_is_refused_and_not_kept(serving: Serve) -> None:
    server = serving(limits={"labels_bytes": 10_000})
    status, answer = send(server, b"{}", "x.json")
    assert status == 422
    assert "known provider" in answer["error"]
    assert str(server.service.feeds) not in answer["error"]
    assert send(server, b"x" * 20_000, "x.json")[0] == 413
    assert send(server, b"{}", "x.json", f"?with={'0' * 16}")[0] == 404
    assert send(server, b"{}", "x.json", "?with=../..")[0] == 422
    assert not list(server.service.feeds.root.glob("*/x.json"))


def test_a_feed_is_never_taken_for_its_page(serving: Serve) -> None:
    """Before: error 500, and a page of the sender's making for whoever opens it."""
    server = serving()
    status, answer = send(server, b"{}", "page.json")
    assert (status, "known provider" in answer["error"]) == (422, True)
    status, record = send(server, json.dumps({"events": made_up(60, 0)}).encode(), "page.json")
    assert (status, record["ready"]) == (201, True)
    assert 'id="timeline"' in server.client.get(f"/feeds/{record['id']}").text


def test_a_feed_is_recognised_outside_the_server(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs one thread at a time: what takes long in the server's process stops it as a whole."""
    from ballcast.data.events import feed_files

    def reached(*_: object) -> None:
        raise AssertionError("a file of a user is read in the server's process")

    monkeypatch.setattr(feed_files, "read_head", reached)
    server = serving()
    assert send(server, json.dumps({"events": made_up(60, 0)}).encode(), "match.json")[0] == 201
    assert send(server, F24, "f24-1.xml")[1]["ready"] is False


def test_a_second_file_is_asked_for(serving: Serve) -> None:
    server = serving()
    status, record = send(server, F24, "f24-1.xml")
    assert (status, record["ready"]) == (201, False)
    assert "F7" in record["message"]
    assert server.client.get(f"/feeds/{record['id']}").status_code == 404
