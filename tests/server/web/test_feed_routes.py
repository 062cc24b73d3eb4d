"""Event feeds over HTTP: a match's files in, its page out; what is wrong is said."""

import json
from pathlib import Path

import httpx
import pytest
from feeds import made_up

from ballcast_server.jobs.feeds import Feeds
from ballcast_server.settings import RequestError
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


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds are read in no time: those with "bad" in them never can be, others await their second file."""

    def read(_self: Feeds, folder: Path) -> tuple[bool, str]:
        if any(b"bad" in path.read_bytes() for path in folder.iterdir()):
            raise RequestError(422, "no feed")
        return False, "second file"

    monkeypatch.setattr(Feeds, "read", read)


def contents(server: Running) -> dict[str, bytes]:
    """All files that were sent, by match and name."""
    feeds = server.service.feeds.root
    sent = [path for path in feeds.glob("*/*") if not path.name.startswith(".")]
    return {str(path.relative_to(feeds)): path.read_bytes() for path in sent}


@pytest.mark.usefixtures("read_at_once")
def test_nobody_adds_to_anothers_match(serving: Serve) -> None:
    """Before: a bad file removed the whole match, a good one became part of it."""
    server = serving()
    feed_id = send(server, F24, "f24-1.xml")[1]["id"]
    with httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
        for content in (b"bad", b"good"):
            assert other.post(f"/api/feeds?with={feed_id}", content=content).status_code == 404
    assert contents(server) == {f"{feed_id}/f24-1.xml": F24}


@pytest.mark.usefixtures("read_at_once")
def test_a_bad_file_removes_nothing_but_itself(serving: Serve) -> None:
    server = serving()
    feed_id = send(server, F24, "f24-1.xml")[1]["id"]
    assert send(server, b"bad", "f7-1.xml", f"?with={feed_id}")[0] == 422
    assert send(server, b"other", "f24-1.xml", f"?with={feed_id}")[0] == 409
    assert contents(server) == {f"{feed_id}/f24-1.xml": F24}
    assert send(server, b"good", "f7-1.xml", f"?with={feed_id}")[0] == 201
    assert len(contents(server)) == 2


@pytest.mark.usefixtures("read_at_once")
def test_a_match_has_few_files(serving: Serve) -> None:
    server = serving(limits={"feed_files": 3})
    query = f"?with={send(server, F24, 'f24-1.xml')[1]['id']}"
    statuses = [send(server, b"x", f"{n}.xml", query)[0] for n in range(4)]
    assert statuses == [201, 201, 429, 429]
    assert len(contents(server)) == 3


@pytest.mark.usefixtures("read_at_once")
def test_matches_are_kept_for_each_user(serving: Serve) -> None:
    """Who sends many displaces their own."""
    server = serving(limits={"feeds_a_user": 3, "feeds": 5})
    first = send(server, F24, "a.xml")[1]["id"]
    for number in range(2, 5):
        with httpx.Client(
            base_url=server.url, transport=httpx.HTTPTransport(local_address=f"127.0.0.{number}")
        ) as other:
            sent = [other.post("/api/feeds", content=b"x").json()["id"] for _ in range(5)]
            kept = {path.name for path in server.service.feeds.root.iterdir()}
            assert sent[-1] in kept
            assert len(kept.intersection(sent)) <= 3
    assert first in kept
    assert len(kept) == 5


def test_a_second_file_is_asked_for(serving: Serve) -> None:
    server = serving()
    status, record = send(server, F24, "f24-1.xml")
    assert (status, record["ready"]) == (201, False)
    assert "F7" in record["message"]
    assert server.client.get(f"/feeds/{record['id']}").status_code == 404
