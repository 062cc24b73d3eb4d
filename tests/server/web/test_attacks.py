"""What somebody with bad intentions would try, each as they would try it."""

import os
import resource
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import av
import httpx
import pytest

from ballcast.core.errors import InputError
from ballcast.video.file import VideoFile
from ballcast_server.confined import decoder
from ballcast_server.settings import Limits
from tests.server.conftest import Running, Serve, paused
from tests.video.conftest import make_video

TOKEN = "a token of some length"


def raw(server: Running, text: str, seconds: float = 5) -> bytes:
    """The answer to exactly these bytes, which no client would tidy up first."""
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port), seconds) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def kept(server: Running) -> list[str]:
    """Everything below the data folder but the database."""
    data = server.service.settings.data
    return sorted(str(p.relative_to(data)) for p in (data / "jobs").rglob("*"))


# ------------------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/settings.py",
        "/static//etc/passwd",
        "/static/index.html%00.js",
        "/api/jobs/..%2f..%2f..%2fetc/video",
        "/api/jobs/../../etc/passwd/timeline",
        "/api/jobs/%2fetc%2fpasswd/timeline.csv",
        "/api/videos/../../etc/passwd",
        "/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_no_path_of_a_request_reaches_the_disk(serving: Serve, path: str) -> None:
    answer = raw(serving(), f"GET {path} HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n")
    status = int(answer.split()[1])
    assert status in (404, 405, 422), answer[:200]
    assert b"root:" not in answer


def test_a_file_name_is_never_a_path(serving: Serve, clip: Path, tmp_path: Path) -> None:
    server = serving()
    for name in ("../../../evil.mp4", "..%2F..%2Fevil.mp4", "/etc/evil.mp4", "C%3A%5Cevil.mp4", "%00evil.mp4"):
        job = server.upload(clip, name).json()
        assert job["name"] in ("evil.mp4", "C:evil.mp4"), (name, job)
    assert not list(tmp_path.rglob("*evil*"))
    assert {Path(p).name for p in kept(server)} <= {"video", "timeline.json", "timeline.csv"} | {
        job.id for job in server.service.jobs.store.all()
    }


def test_a_job_takes_ids_only(serving: Serve, tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    server = serving(videos=tmp_path / "videos")
    for video in ("../../etc/passwd", "/etc/passwd", "", "x" * 100_000, 7, None, ["0" * 16]):
        answer = server.client.post("/api/jobs", json={"video": video})
        assert answer.status_code in (413, 422), answer.text
        assert list(answer.json()) == ["error"]


# ----------------------------------------------------------------------------------------------------------- uploads


def test_a_file_that_says_it_is_too_large_is_not_even_read(serving: Serve) -> None:
    server = serving(limits={"upload_bytes": 1000})
    answer = raw(server, "POST /api/uploads HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 9999999999999\n\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert kept(server) == []


def test_an_endless_upload_ends_at_the_limit(serving: Serve) -> None:
    server = serving(limits={"upload_bytes": 3 << 20})
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b"\x00\x00\x00\x18ftypisom"
        while sent < 1 << 30:
            sent += 1 << 16
            yield bytes(1 << 16)

    try:
        status = server.client.post("/api/uploads", content=endless()).status_code
    except httpx.TransportError:  # it was cut off while it was still sending
        status = 413
    assert status == 413
    assert sent < 64 << 20
    assert kept(server) == []


@pytest.mark.parametrize("declared", [True, False])
def test_whoever_sends_too_much_is_told_so(serving: Serve, declared: bool) -> None:
    """Also a client that reads no answer before it has sent all: its connection is not cut under its hands."""
    server = serving(limits={"upload_bytes": 1 << 20, "discard_s": 30})
    at, size = urlsplit(server.url), 12 << 20  # more than any buffer between us
    length = f"Content-Length: {size}" if declared else "Transfer-Encoding: chunked"
    with socket.create_connection((at.hostname, at.port), 10) as connection:
        connection.sendall(f"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n\r\n".encode())
        for i in range(size >> 16):
            part = (b"\x00\x00\x00\x18ftypisom" if not i else b"").ljust(1 << 16, b"\0")
            connection.sendall(part if declared else b"%x\r\n%s\r\n" % (len(part), part))
        if not declared:
            connection.sendall(b"0\r\n\r\n")
        began, answer = time.monotonic(), b""
        while got := connection.recv(65536):
            answer += got
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert answer.endswith(b'{"error":"the file is larger than the 1.0 MiB allowed here (--max-upload)"}')
    assert time.monotonic() - began < 15  # nobody waits for more once all has come
    assert kept(server) == []


def test_junk_is_told_so_after_all_of_it(serving: Serve) -> None:
    server = serving()
    assert server.client.post("/api/uploads", content=b"x" * (12 << 20)).status_code == 415


@pytest.mark.parametrize("trickle", [False, True])
def test_an_upload_that_stalls_or_trickles_is_let_go(serving: Serve, trickle: bool) -> None:
    server = serving(limits={"stall_s": 0.4, "slow_bytes_s": 10_000})
    at = urlsplit(server.url)
    began = time.monotonic()
    with socket.create_connection((at.hostname, at.port), 10) as connection:
        connection.sendall(b"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n")
        connection.sendall(b"\x00\x00\x00\x18ftypisom")
        if trickle:
            connection.settimeout(0.1)
        answer = b""
        while time.monotonic() - began < 8 and not answer:
            try:
                answer = connection.recv(1000)
            except TimeoutError:
                connection.sendall(b"x")
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert kept(server) == []


def test_uploads_at_once_are_bounded(serving: Serve) -> None:
    server = serving(limits={"uploads_a_user": 1})
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port), 10) as first:
        first.sendall(b"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx")
        time.sleep(0.3)
        assert server.client.post("/api/uploads", content=b"y").status_code == 429
    for _ in range(50):  # the first one is gone
        if (status := server.client.post("/api/uploads", content=b"y").status_code) != 429:
            break
        time.sleep(0.05)
    assert status == 415


def test_a_disk_that_is_nearly_full_takes_nothing(serving: Serve, clip: Path) -> None:
    server = serving(limits={"free_bytes": 1 << 60})
    assert server.upload(clip).status_code == 507
    assert kept(server) == []


@pytest.mark.parametrize(
    "content",
    [
        b"<html><script>alert(1)</script></html>",
        b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:PORT/secret.ts\n",
        b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        b'<?xml version="1.0"?><MPD profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"></MPD>',
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
        b"PK\x03\x04 a zip",
        b"GIF89a, which begins as MPEG-TS does",
        b"G" + bytes(187) + b"X" * 1000,
    ],
)
def test_only_containers_are_taken(serving: Serve, content: bytes) -> None:
    server = serving()
    assert server.client.post("/api/uploads", content=content).status_code == 415
    assert server.client.post("/api/uploads", content=b"x", headers={"Content-Type": "text/html"}).status_code == 415
    assert kept(server) == []


def test_no_file_leads_to_an_address(tmp_path: Path) -> None:
    """Not even one that is opened as a video by hand."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(2)

        def listen() -> None:
            try:
                listener.accept()[0].close()
                asked.set()
            except OSError:
                pass

        thread = threading.Thread(target=listen)
        thread.start()
        playlist = tmp_path / "video.m3u8"
        playlist.write_text(f"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:{listener.getsockname()[1]}/a.ts\n#EXT-X-ENDLIST\n")
        with pytest.raises(InputError):
            VideoFile(playlist)
        thread.join()
    assert not asked.is_set()


# ------------------------------------------------------------------------------------------------------------- bombs


def png_video(path: Path, width: int, height: int, bits: int = 8, colour: int = 0) -> Path:
    """A few hundred bytes that claim one picture of this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    picture = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with av.open(str(path), "w", format="mov") as container:
        stream = container.add_stream("png", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "gray"
        packet = av.Packet(picture)
        packet.stream, packet.pts, packet.dts, packet.time_base = stream, 0, 0, Fraction(1, 25)
        packet.is_keyframe = True
        container.mux(packet)
    return path


def test_a_small_file_of_enormous_frames_is_refused(serving: Serve, tmp_path: Path) -> None:
    server = serving(limits={"memory_bytes": 1 << 30})
    for name, size, deep in (("wide.mov", 15_000, (8, 0)), ("deep.mov", 15_000, (16, 6))):
        bomb = png_video(tmp_path / name, size, size, *deep)
        assert bomb.stat().st_size < 10_000
        began = time.monotonic()
        answer = server.upload(bomb, name)
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"].startswith(name)
        assert time.monotonic() - began < 10
    assert kept(server) == []
    assert server.client.get("/api/health").status_code == 200


def test_frames_over_the_limit_are_refused(serving: Serve, tmp_path: Path) -> None:
    server = serving(limits={"pixels": 100 * 100})
    answer = server.upload(make_video(tmp_path / "big.mp4", range(3), size=(128, 128)), "big.mp4")
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "big.mp4: its frames are 128×128, more than the 10,000 pixels allowed here (--max-pixels); scale it down",
    )


def test_a_small_file_of_enormous_length_is_refused(serving: Serve, tmp_path: Path) -> None:
    server = serving()
    long = make_video(tmp_path / "long.mp4", [0, 1, 25 * 3600 * 20])
    assert long.stat().st_size < 100_000
    answer = server.upload(long, "long.mp4")
    assert answer.status_code == 422
    assert answer.json()["error"] == "long.mp4: is longer than the 240 minutes allowed here (--max-minutes); cut it"


def test_a_video_that_hides_its_length_ends_at_the_limit(tmp_path: Path) -> None:
    hidden = make_video(tmp_path / "hidden.mkv", range(200), options={"live": "1"})
    assert decoder.probe(hidden, "hidden.mkv", Limits()).duration_ms is None
    with decoder.frames(hidden, "hidden.mkv", Limits(video_s=4)) as frames:
        assert len([next(frames) for _ in range(100)]) == 100
        with pytest.raises(InputError, match=r"hidden\.mkv: is longer than"):
            next(frames)


def test_a_decoder_that_dies_takes_nothing_with_it(serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving()
    taken = server.upload(clip).json()  # probed while all is well
    monkeypatch.setattr(decoder, "__name__", "no.such.module")
    answer = server.upload(clip)
    assert answer.status_code == 422
    assert "cannot be decoded" in answer.json()["error"]
    monkeypatch.undo()
    assert server.until(taken["id"], "done", "failed")


# ------------------------------------------------------------------------------------------- files of a job's folder


@pytest.mark.parametrize("what", ["video", "folder", "timeline.json", "pipe", "text"])
def test_links_in_a_jobs_folder_are_not_followed(serving: Serve, clip: Path, tmp_path: Path, what: str) -> None:
    """Before: the server sent whatever the link pointed to."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:x:0:0")
    server = serving()
    job = server.upload(clip).json()["id"]
    server.until(job, "done")
    folder = server.service.jobs.folder(job)
    path = folder / ("timeline.json" if what == "timeline.json" else "video")
    if what == "folder":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        path.unlink()
        if what == "pipe":
            os.mkfifo(path)
        elif what == "text":
            path.write_bytes(secret.read_bytes())
        else:
            path.symlink_to(secret)
    answer = server.client.get(f"/api/jobs/{job}/{'timeline' if what == 'timeline.json' else 'video'}")
    assert answer.status_code == 404, answer.text
    assert "root" not in answer.text


def test_ranges_of_a_video_and_no_descriptor_stays_open(serving: Serve, clip: Path) -> None:
    server = serving()
    job = server.upload(clip).json()["id"]
    server.until(job, "done")
    for given, status in (("bytes=4-7", 206), ("bytes=0-1,4-7", 206), ("bytes=99999999-", 416), ("bytes=x", 400)):
        answer = server.client.get(f"/api/jobs/{job}/video", headers={"Range": given})
        assert answer.status_code == status
    assert server.client.get(f"/api/jobs/{job}/video", headers={"Range": "bytes=4-7"}).content == b"ftyp"
    answer = server.client.get(f"/api/jobs/{job}/video")
    assert (answer.content, answer.headers["content-type"]) == (clip.read_bytes(), "video/mp4")
    until = time.monotonic() + 5
    while str(server.service.jobs.folder(job) / "video") in open_files():
        assert time.monotonic() < until, "still open"
        time.sleep(0.05)


def open_files() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_uploads_are_for_this_user_only(serving: Serve, clip: Path, tmp_path: Path) -> None:
    """Before: any user of the machine could read them."""
    (tmp_path / "data" / "jobs").mkdir(parents=True, mode=0o755)
    server = serving()
    job = server.upload(clip).json()["id"]
    folder = server.service.jobs.folder(job)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "video")}
    assert modes == {"jobs": 0o700, job: 0o700, "video": 0o600}


def test_the_decoder_process_knows_no_secrets(monkeypatch: pytest.MonkeyPatch, clip: Path) -> None:
    monkeypatch.setenv("BALLCAST_TOKEN", TOKEN)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    given: list[dict[str, str]] = []
    popen = subprocess.Popen

    def noted(*args: Any, env: dict[str, str], **how: Any) -> Any:
        given.append(env)
        return popen(*args, env=env, **how)

    monkeypatch.setattr(subprocess, "Popen", noted)
    assert decoder.probe(clip, "clip.mp4", Limits()).width == 64
    assert TOKEN not in given[0].values()
    assert given[0]["PATH"] == os.environ["PATH"]


def test_labels_of_too_many_values_are_refused_unread(
    serving: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: six files of 16 MiB at once took 7.7 GB."""
    server = serving(limits={"labels_entries": 1000, "labels_events": 3})
    job = server.upload(clip).json()["id"]
    put = lambda body: server.client.put(f"/api/jobs/{job}/labels", content=body)  # noqa: E731
    event = b'{"label": "PASS", "position": "1000", "gameTime": "1 - 0:01", "team": "left", "visibility": "visible"}'
    assert put(b'{"annotations": [' + b", ".join([event] * 3) + b"]}").status_code == 200
    answer = put(b'{"annotations": [' + b", ".join([event] * 4) + b"]}")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("the labels: has 4 events of the video, more than the 3 allowed here")
    assert len(server.client.get(f"/api/jobs/{job}/actual").json()["events"]) == 3
    monkeypatch.setattr("ballcast_server.jobs.labels.read_json", lambda *_: pytest.fail("parsed"))
    answer = put(b"[" * 500 + b"{}," * 400)
    assert answer.status_code == 422
    assert "more than the 1,000 values allowed here" in answer.json()["error"]
    assert len(server.client.get(f"/api/jobs/{job}/actual").json()["events"]) == 3  # kept, and not parsed again


# --------------------------------------------------------------------------------------------------- who may come in


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "", "a b"]
)
def test_names_that_are_not_ours_are_not_answered(serving: Serve, host: str) -> None:
    """DNS rebinding: a page's own name now points here, and its scripts would be of the same origin."""
    answer = raw(serving(), f"GET /api/jobs HTTP/1.1\nHost: {host}\nConnection: close\n\n")
    assert answer.split()[1] in (b"421", b"400"), answer


def test_our_names_are_answered(serving: Serve) -> None:
    server = serving(hosts=("anticipate.example",))
    for host in ("127.0.0.1:1234", "localhost", "[::1]:80", "192.168.0.7", "Anticipate.Example:443"):
        answer = raw(server, f"GET /api/jobs HTTP/1.1\nHost: {host}\nConnection: close\n\n")
        assert answer.startswith(b"HTTP/1.1 200"), (host, answer)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_others_can_change_and_read_nothing(serving: Serve, headers: dict[str, str]) -> None:
    client = serving().client
    assert client.post("/api/jobs", json={"video": "0" * 16}, headers=headers).status_code == 403
    assert client.get("/api/jobs", headers=headers).status_code == 403
    ours = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/jobs", json={"video": "0" * 16}, headers=ours).status_code == 404


def test_without_the_token_nothing_but_the_login(serving: Serve, clip: Path) -> None:
    server = serving(token=TOKEN)
    for path in ("/api/jobs", "/api/videos", "/api/streams", "/api/streams/x/events", f"/api/jobs/{'0' * 16}/video"):
        assert server.client.get(path).status_code == 401, path
        assert server.client.get(f"{path}?token={TOKEN}").status_code == 401  # never in an address
    assert server.upload(clip).status_code == 401
    assert server.client.get("/").headers["location"] == "/login"
    assert server.client.get("/openapi.json").status_code == 303
    for path in ("/login", "/static/login.js", "/static/style.css", "/palette.css", "/api/health"):
        assert server.client.get(path).status_code == 200
    assert kept(server) == []
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert server.client.get("/api/jobs", headers=right).json() == []
    answer = server.client.post("/api/login", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert server.client.get("/api/jobs").status_code == 200  # the client keeps the cookie
    session = server.client.cookies["ballcast_session"]
    server.client.post("/api/logout")
    assert server.client.get("/api/jobs").status_code == 401
    server.client.cookies.set("ballcast_session", session)  # who has copied the cookie
    assert server.client.get("/api/jobs").status_code == 401
    server.client.cookies.clear()
    server.client.cookies.set("ballcast_session", TOKEN)
    assert server.client.get("/api/jobs").status_code == 401


def test_guessing_the_token_is_slowed_down(serving: Serve) -> None:
    server = serving(token=TOKEN, limits={"guesses": 5, "guesses_s": 1.5})
    outputs = [server.client.post("/api/login", json={"token": f"guess {i}"}).status_code for i in range(3)]
    outputs += [server.client.get("/api/jobs", headers={"Authorization": f"Bearer {i}"}).status_code for i in range(3)]
    assert outputs == [401, 401, 401, 401, 401, 429]
    refused = server.client.post("/api/login", json={"token": TOKEN})  # nor may it be found by going on
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    with httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
        assert other.post("/api/login", json={"token": TOKEN}).status_code == 204
        assert other.get("/api/jobs").status_code == 200
    time.sleep(1.6)
    assert server.client.post("/api/login", json={"token": TOKEN}).status_code == 204


def test_behind_a_trusted_proxy_each_client_has_its_address(serving: Serve) -> None:
    """Before: wrong tokens of one client locked out all others behind the same proxy."""
    server = serving(token=TOKEN, proxies=("127.0.0.1",), limits={"guesses": 2})
    for i in range(3):
        said = {"X-Forwarded-For": f"203.0.113.{i}, 192.0.2.1"}  # the first is what the client says
        server.client.post("/api/login", json={"token": f"guess {i}"}, headers=said)
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert server.client.get("/api/jobs", headers={**right, "X-Forwarded-For": "192.0.2.1"}).status_code == 429
    assert server.client.get("/api/jobs", headers={**right, "X-Forwarded-For": "192.0.2.2"}).status_code == 200
    over_tls = {"X-Forwarded-For": "192.0.2.2", "X-Forwarded-Proto": "https"}
    assert "Secure" in server.client.post("/api/login", json={"token": TOKEN}, headers=over_tls).headers["set-cookie"]


def test_others_cannot_choose_their_address(serving: Serve) -> None:
    server = serving(token=TOKEN, proxies=("127.0.0.9",), limits={"guesses": 2})
    statuses = [
        server.client.post(
            "/api/login",
            json={"token": f"guess {i}"},
            headers={"X-Forwarded-For": f"192.0.2.{i}", "X-Forwarded-Proto": "https"},
        ).status_code
        for i in range(3)
    ]
    assert statuses == [401, 401, 429]
    with httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
        answer = other.post("/api/login", json={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" not in answer.headers["set-cookie"]


def test_streams_come_from_the_list_alone(serving: Serve) -> None:
    """A request can name a stream, never an address: neither of this machine's network nor of a file."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1)
        server = serving(streams={"pitch": "/nowhere/pitch.mp4"})
        inside = f"http://127.0.0.1:{listener.getsockname()[1]}/admin"
        for name in (inside, "rtsp://192.168.0.1/1", "file:///etc/passwd", "/etc/passwd", "-", "pitch/../x"):
            for path in (
                f"/api/streams/{httpx.QueryParams({'q': name})['q']}/events",
                f"/api/streams/x/events?url={name}",
            ):
                assert server.client.get(path).status_code == 404
            quoted = name.replace("/", "%2F").replace(":", "%3A")
            assert server.client.get(f"/api/streams/{quoted}/events").status_code == 404
            assert server.client.post("/api/streams", json={"name": "x", "url": name}).status_code == 405
        try:
            listener.accept()
            asked.set()
        except TimeoutError:
            pass
    assert not asked.is_set()
    assert "nowhere" not in server.client.get("/api/streams").text


# ----------------------------------------------------------------------------------------------------------- the rest


def test_every_answer_carries_its_bounds(serving: Serve) -> None:
    server = serving()
    for path in ("/", "/static/main.js", "/api/jobs", "/no/such/page", "/docs"):
        headers = server.client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_pages_hold_no_script_of_their_own(serving: Serve) -> None:
    client = serving().client
    for path in ("/", "/login", "/docs"):
        page = client.get(path).text
        assert '<script type="module" src="/static/' in page
        assert page.count("<script") == 1
        for word in ("onclick", "onerror", "style=", "http://", "https://", "//cdn"):
            assert word not in page, word


@pytest.mark.parametrize("body", [b"{" * 60_000, b"[" * 60_000, b"\xff\xfe", b'{"video": 1e999}', b"null"])
def test_odd_bodies_are_one_sentence(serving: Serve, body: bytes) -> None:
    answer = serving().client.post("/api/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert list(answer.json()) == ["error"]


def test_a_large_small_body_is_refused(serving: Serve) -> None:
    assert serving().client.post("/api/login", content=b"x" * 100_000).status_code == 413


def test_slow_headers_are_not_waited_for(serving: Serve) -> None:
    server = serving(limits={"headers_s": 0.5})
    at = urlsplit(server.url)
    many = [socket.create_connection((at.hostname, at.port), 5) for _ in range(50)]
    try:
        began = time.monotonic()
        for connection in many:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        for _ in range(3):
            time.sleep(0.1)
            for connection in many:
                connection.sendall(b".")  # a byte now and then does not help
        assert server.client.get("/api/health").status_code == 200
        for connection in many:
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
        assert time.monotonic() - began < 4
    finally:
        for connection in many:
            connection.close()


def test_slow_headers_of_a_second_request_are_not_waited_for_either(serving: Serve) -> None:
    server = serving(limits={"headers_s": 0.5})
    with connect(server) as connection:
        connection.settimeout(5)
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(4096)
        began = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        time.sleep(0.2)
        connection.sendall(b".")
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        assert time.monotonic() - began < 4


def test_slow_bodies_are_not_waited_for(serving: Serve) -> None:
    """Before: a byte every 25 s held a connection without end; 2000 of them gave everyone 503."""
    server = serving(limits={"body_s": 0.5})
    at = urlsplit(server.url)
    began = time.monotonic()
    with socket.create_connection((at.hostname, at.port), 10) as connection:
        connection.sendall(b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
        connection.settimeout(0.1)
        answer = b""
        while time.monotonic() - began < 8 and not answer:
            try:
                answer = connection.recv(1000)
            except TimeoutError:
                connection.sendall(b"x")
    assert answer.startswith(b"HTTP/1.1 408"), answer


def connect(server: Running, address: str = "127.0.0.1") -> socket.socket:
    at = urlsplit(server.url)
    return socket.create_connection((at.hostname, at.port), 10, source_address=(address, 0))


SLOW = b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx"
ASKED = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def answer_of(connection: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def test_one_address_cannot_take_all_connections(serving: Serve) -> None:
    """Before: one client with 2000 connections gave everyone else 503."""
    server = serving(limits={"connections_a_user": 5})
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(5)]
        for connection in slow:
            connection.sendall(SLOW)
        time.sleep(0.5)
        refused = stack.enter_context(connect(server, "127.0.0.2"))
        refused.settimeout(5)
        assert answer_of(refused).startswith(b"HTTP/1.1 429")
        assert server.client.get("/api/health").status_code == 200
        slow[0].close()
        time.sleep(0.5)
        again = stack.enter_context(connect(server, "127.0.0.2"))
        again.sendall(ASKED)
        assert answer_of(again).startswith(b"HTTP/1.1 200")


def test_idle_connections_make_room(serving: Serve) -> None:
    """Before: 2000 connections that ask nothing gave everyone 503, from any number of addresses."""
    server = serving(limits={"connections": 20, "connections_a_user": 8})
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(server, f"127.0.0.{2 + i % 8}")) for i in range(60)]
        time.sleep(0.3)
        asked = stack.enter_context(connect(server))
        asked.sendall(ASKED)
        assert answer_of(asked).startswith(b"HTTP/1.1 200")
        assert len(server.server.connections) <= 20
        idle[0].settimeout(5)
        assert answer_of(idle[0]) == b""


def test_a_trusted_proxy_may_have_more_connections(serving: Serve) -> None:
    server = serving(limits={"connections_a_user": 2}, proxies=("127.0.0.0/30",))
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(server)).sendall(SLOW)
        time.sleep(0.3)
        asked = stack.enter_context(connect(server))
        asked.sendall(ASKED)
        assert answer_of(asked).startswith(b"HTTP/1.1 200")


def test_one_address_has_so_many_viewers(serving: Serve, clip: Path) -> None:
    predictors, release = paused()
    server = serving(limits={"viewers_a_user": 2}, predictors=predictors)
    events = f"/api/jobs/{server.upload(clip).json()['id']}/events"
    try:
        with ExitStack() as stack:
            for _ in range(2):
                assert stack.enter_context(server.client.stream("GET", events)).status_code == 200
            assert server.client.get(events).status_code == 429
            with (
                httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other,
                other.stream("GET", events) as answer,
            ):
                assert answer.status_code == 200
        until = time.monotonic() + 5
        while server.service.viewers.count:
            assert time.monotonic() < until, "still counted"
            time.sleep(0.05)
    finally:
        release.set()


@pytest.mark.parametrize(
    "headers", ["A: " + "x" * 20_000, "Cookie: " + "a=b; " * 4000, "\n".join(f"A{i}: b" for i in range(200))]
)
def test_headers_are_bounded(serving: Serve, headers: str) -> None:
    """Also those that arrive at once, which the parser does not limit."""
    answer = raw(serving(), f"GET /api/health HTTP/1.1\nHost: 127.0.0.1\n{headers}\n\n")
    assert answer.split()[1] in (b"431", b"400"), answer


def test_a_reader_that_stops_reading_is_let_go(serving: Serve, tmp_path: Path) -> None:
    server = serving(limits={"stall_s": 0.5})
    with make_video(tmp_path / "a.mp4", range(150)).open("rb") as file:
        job = server.client.post("/api/uploads", content=file.read()).json()
    path = server.service.jobs.folder(job["id"]) / "video"
    server.until(job["id"], "done", "failed")
    with path.open("ab") as file:
        file.write(bytes(60 << 20))  # more than any buffer between us
    at = urlsplit(server.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((at.hostname, at.port))
        connection.sendall(f"GET /api/jobs/{job['id']}/video HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(0.3)
        connections = server.server.connections
        assert len(connections) >= 1
        until = time.monotonic() + 8
        while any(not c.idle and not c.transport.is_closing() for c in connections):
            assert time.monotonic() < until, "still held"
            time.sleep(0.05)


def test_transport_streams_are_recognised_by_their_packets(tmp_path: Path) -> None:
    stream = make_video(tmp_path / "a.ts", range(50)).read_bytes()
    assert decoder.kind_of(stream[: decoder.SNIFFED]) == "MPEG-TS"
    assert decoder.kind_of((b"G" + bytes(203)) * 5) == "MPEG-TS"
    assert decoder.kind_of(b"G" * 16) is None


def test_videos_are_decoded_with_many_descriptors_open(clip: Path) -> None:
    """Before: `select.select` failed for descriptors above 1023, as with a thousand viewers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1400:
        pytest.skip("this system does not allow 1400 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1030:
            held.append(os.dup(0))
        with decoder.frames(clip, "clip.mp4", Limits()) as frames:
            assert next(frames).shape == (32, 64)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
