"""What `ballcast serve` keeps and is sent besides videos: streams, tokens, forms, headers, feeds."""

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from ballcast.core.errors import InputError
from ballcast.video.addresses import is_stream, scheme_of, shown
from ballcast_server.access.tokens import TokenStore
from ballcast_server.settings import AlertTargets, RequestError, Settings
from ballcast_server.streams.store import StreamStore, check_address
from ballcast_server.web.multipart import MultipartFile
from tests.video.conftest import make_video
from tools.fuzzing.feeds import mutate_feed, uploaded_feeds
from tools.fuzzing.judge import check_message
from tools.fuzzing.media import Upload
from tools.fuzzing.mutate import mutate_bytes, mutate_json, mutate_lines
from tools.fuzzing.target import Target

NOWHERE = "rtsp://127.0.0.1:9/x"  # nobody listens there
ADDRESSES = (
    *("rtsp://user:pa@ss@camera.local:554/1?token=abc", "srt://h:9000?passphrase=x&mode=listener", "-", "/dev/null"),
    *("http://[::1]:8080/live.m3u8", "https://x/a;key=1/b.m3u8", "v4l2:/dev/video0", "udp://@239.0.0.1:1234"),
    *("rtmp://h/app/streamid=secret", "match.mp4", "file:///etc/passwd", "tcp://h:99999", "http://[", "rtp://h:1"),
)


class StreamsFile(Target):
    """`streams.json`, read when the server starts."""

    kind = "serve"

    def prepare(self) -> None:
        row = {"name": "pitch", "address": NOWHERE, "always": False, "alerts": {"SHOT": 0.5}, "clips": True}
        rows = [{**row, "fixed": False}, {"name": "b-2", "address": "udp://127.0.0.1:9", "always": False}]
        self.seeds = [json.dumps(rows).encode()]

    def drive(self, path: Path, out: Path) -> None:
        (out / "streams.json").write_bytes(path.read_bytes())
        asyncio.run(self.start(out))

    async def start(self, data: Path) -> None:
        """Start and end the streams of a server."""

        def none(address: str, *_: object) -> object:
            raise InputError(f"{shown(address)}: cannot be opened")

        store = StreamStore(Settings(data=data), none, asyncio.get_running_loop())  # type: ignore[arg-type]
        try:
            await asyncio.sleep(0)
            for name in list(store):
                assert store.config(name).name == name
                store.remove(name)
        finally:
            store.close()


class TokensFile(Target):
    """`tokens.json`, read with every request."""

    kind = "serve"

    def prepare(self) -> None:
        (self.base / "data").mkdir()
        store = TokenStore(self.base / "data")
        self.token = store.add("desk-2", "viewer")
        store.add("admin@x", "admin")
        self.seeds = [(self.base / "data" / "tokens.json").read_bytes()]

    def drive(self, path: Path, out: Path) -> None:
        (out / "tokens.json").write_bytes(path.read_bytes())
        store = TokenStore(out)
        for known in store.all():
            assert store.role(known.name, known.digest) == known.role
        store.find(self.token)
        store.find("\udcff")
        store.add("another", "viewer")
        store.revoke("another")

    def command(self, path: Path, out: Path) -> list[str]:
        data = path.parent / "data"
        data.mkdir(exist_ok=True)
        (data / "tokens.json").write_bytes(path.read_bytes())
        return ["token", "list", "--data", str(data)]


class Addresses(Target):
    """Addresses of streams, one a line: known or refused, and shown without their passwords."""

    kind, suffix = "serve", ".args"

    def prepare(self) -> None:
        self.seeds = ["\n".join(ADDRESSES).encode()]

    def mutate(self, rng: random.Random) -> bytes:
        return rng.choice((mutate_lines, mutate_bytes))(self.seeds[0], rng)

    def drive(self, path: Path, out: Path) -> None:
        for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
            shown(line)
            scheme_of(line)
            for use in (is_stream, check_address, _as_target):
                try:
                    use(line)
                except InputError as error:
                    check_message(str(error))


def _as_target(address: str) -> None:
    AlertTargets(webhook=address)
    AlertTargets(mqtt=address.replace("http", "mqtt"))


class Form(Target):
    """A multipart body, arriving in pieces."""

    kind, suffix = "serve", ".form"
    mutation = staticmethod(mutate_bytes)
    pieces = (1, 7, 100, 10**6)

    def prepare(self) -> None:
        head = b'--XY\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
        field = head % (b"note", b"") + b"hello\r\n"
        named = head % (b"file", b'; filename="a \\" b.mp4"') + bytes(range(256)) + b"\r\n"
        extended = head % (b"file", b"; filename*=utf-8''%C3%A9.mp4") + b"\r\n--X\r\n--\r\n"
        end = b"--XY--\r\n"
        self.seeds = [b"\n".join((b"multipart/form-data; boundary=XY", body + end)) for body in (field + named, named)]
        self.seeds.append(b'multipart/form-data; boundary="XY"\n' + extended + field + end)

    def drive(self, path: Path, out: Path) -> None:
        kind, _, body = path.read_bytes().partition(b"\n")
        results = set()
        for size in self.pieces:
            results.add(asyncio.run(self.read(kind.decode("latin-1"), body, size)))
        assert len(results) == 1, f"depends on how it arrives: {results}"

    async def read(self, kind: str, body: bytes, size: int) -> object:
        """The name and content, or the status of the refusal."""

        async def arriving() -> AsyncIterator[bytes]:
            for at in range(0, len(body), size):
                yield body[at : at + size]

        try:
            form = MultipartFile(arriving(), kind)
            name = await form.open()
            return quote(name, safe="%"), b"".join([part async for part in form])
        except RequestError as error:
            check_message(str(error))
            return error.status


class StreamBody(Upload):
    """Streams added and changed by an administrator; nothing is followed."""

    suffix = ".json"
    mutation = staticmethod(mutate_json)

    def prepare(self) -> None:
        self.client = None
        body = {"address": NOWHERE, "always": False, "alerts": {"SHOT": 0.5, "PASS": 1}, "clips": True}
        self.seeds = [json.dumps({"name": name, "body": body}).encode() for name in ("pitch", "a_b-3")]

    def mutate(self, rng: random.Random) -> bytes:
        return Target.mutate(self, rng)

    def drive(self, path: Path, out: Path) -> None:
        try:
            case = json.loads(path.read_bytes())
            name, content = str(case["name"]), json.dumps(case["body"]).encode()
            where = f"/api/streams/{quote(name, safe='')}"
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # not a request
        self.request("PUT", where, content=content, headers={"Content-Type": "application/json"})
        self.request("GET", "/api/streams?details=true")
        for part in ("clips", f"clips/{quote(name, safe='')}", "actual"):
            self.request("GET", f"{where}/{part}")
        self.request("DELETE", where)


class RawRequest(Upload):
    """The bytes of a request: its line, Range, Cookie, Origin and other headers."""

    suffix = ".http"

    def prepare(self) -> None:
        self.client = None
        self.video = make_video(self.base / "clip_1.mp4", range(60), size=(32, 64)).read_bytes()
        self.job = ""
        lines = (
            *("Host: 127.0.0.1", "Range: bytes=0-99,200-", "Cookie: ballcast=abc; a=b", "Origin: http://127.0.0.1"),
            *("Authorization: Bearer abc", "If-Range: x", "If-None-Match: *", "X-File-Name: %C3%A9.mp4", "Accept: */*"),
            *("Sec-Fetch-Site: same-origin", "X-Forwarded-For: 1.2.3.4", "Content-Length: 0", "Last-Event-ID: 7"),
        )
        for where in ("/api/jobs/JOB/video", "/", "/api/jobs?password=x", "/static/app.js"):
            self.seeds.append("\r\n".join((f"GET {where} HTTP/1.1", *lines, "", "")).encode())
        self.seeds.append(
            b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 13\r\n\r\n" + b'{"token":"x"}'
        )

    def mutate(self, rng: random.Random) -> bytes:
        raw = rng.choice(self.seeds)
        if rng.random() < 0.5:
            return mutate_bytes(raw, rng)
        lines = raw.split(b"\r\n")
        at = rng.randrange(len(lines))
        name, _, value = lines[at].partition(b": ")
        odd = (b"", b"bytes=-", b"bytes=9-1", b"bytes=0-0,-1", b"bytes=" + b"0-1," * 900, b"\xff", b"=" * 4000)
        more = (b"bytes=99999999999999999999-", b"bytes=-0", b"http://[", b"null", b"a" * 9000, b"9" * 400, b"chunked")
        name = rng.choice((name, name, name, b"Transfer-Encoding", b"Host", b"Content-Type", b"Expect"))
        lines[at] = name + b": " + rng.choice((*odd, *more, value, mutate_bytes(value or b"x", rng)))
        return b"\r\n".join(lines)

    def drive(self, path: Path, out: Path) -> None:
        if self.client is None or not self.job:
            name = {"X-File-Name": "clip_1.mp4"}
            self.job = self.request("POST", "/api/uploads", content=self.video, headers=name).json()["id"]
        port = int(self.served.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(path.read_bytes().replace(b"JOB", self.job.encode()))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(15)
            answer = b""
            while b"\r\n" not in answer and (part := connection.recv(4096)):
                answer += part
        status = answer.split(b" ", 2)[1:2]
        assert not status or not status[0].startswith(b"5"), answer[:300]
        self.request("GET", "/api/health")


class UploadedFeed(Upload):
    """A match's events sent to the page, under any name."""

    commanded = 0.0

    def prepare(self) -> None:
        self.client = None
        self.seeds = [b"events.json\n" + raw for raw in uploaded_feeds(self.base)]

    def mutate(self, rng: random.Random) -> bytes:
        name, _, raw = rng.choice(self.seeds).partition(b"\n")
        if rng.random() < 0.3:
            odd = (
                b"page.json",
                b".",
                b"..",
                b"/",
                b"a/b.xml",
                b"x.parquet",
                b"\xc3\xa9",
                b"a" * 300,
                b".page.json.tmp",
            )
            name = rng.choice((*odd, mutate_bytes(name, rng).replace(b"\n", b"")))
        return name + b"\n" + mutate_feed(raw, rng)

    def drive(self, path: Path, out: Path) -> None:
        name, _, raw = path.read_bytes().partition(b"\n")
        response = self.request("POST", "/api/feeds", content=raw, headers={"X-File-Name": quote(name)})
        if response.status_code == 201 and response.json()["ready"]:
            self.request("GET", f"/feeds/{response.json()['id']}")
