"""Videos: as files, as a stream on stdin, as uploads to the server."""

import json
import os
import random
from contextlib import ExitStack
from fractions import Fraction
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import av
import httpx

from ballcast.video.file import VideoFile
from ballcast.video.stream import StreamSource
from tests.video.conftest import make_video
from tools.fuzzing.mutate import mutate_bytes, mutate_json
from tools.fuzzing.target import Target

# name, codec, and how it is made
SORTS: tuple[tuple[str, dict], ...] = (
    ("a.mp4", {}),
    ("b.mp4", {"codec_options": {"bf": "2", "g": "8"}, "audio": True}),
    ("c.mp4", {"options": {"movflags": "frag_keyframe+empty_moov"}}),
    ("d.mp4", {"unit": Fraction(1001, 30000), "rate": Fraction(30000, 1001), "rotate": 90}),
    ("e.mkv", {}),
    ("f.ts", {"audio": True}),
    ("g.webm", {"codec": "libvpx-vp9", "codec_options": {"deadline": "realtime", "cpu-used": "8"}}),
    ("h.webm", {"codec": "libvpx", "codec_options": {"deadline": "realtime"}}),
    ("i.avi", {"codec": "mpeg4"}),
    ("j.mpg", {"codec": "mpeg2video"}),
    ("k.mp4", {"codec": "libx265", "codec_options": {"x265-params": "log-level=none"}}),
    ("l.avi", {"codec": "mjpeg", "pixels": "yuvj420p"}),
    ("m.mov", {"unit": Fraction(1, 50), "rate": 50, "size": (34, 66)}),
    ("n.flv", {"codec": "flv1"}),
    ("o.y4m", {"codec": "wrapped_avframe"}),
)

# What calls itself a video and is a script for FFmpeg, a picture, or next to nothing.
TRICKS = (
    b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n",
    b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    b"ffconcat version 1.0\nfile '/etc/passwd'\n",
    b"ffconcat version 1.0\nfile 'concat:/etc/passwd|/etc/hosts'\nduration 1e9\n",
    b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'><Period><AdaptationSet/></Period></MPD>",
    b"YUV4MPEG2 W999999 H999999 F25:1 Ip A1:1 C420\nFRAME\n",
    b"YUV4MPEG2 W2 H2 F0:0 Ip A0:0 C420\nFRAME\n\0\0\0\0\0\0" * 3,
    b"YUV4MPEG2 W16 H16 F1000000:1 C420\n" + b"FRAME\n" + bytes(384),
    b"P5 60000 60000 255\n" + bytes(100),
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\0\0\0\0",
    b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x02",
    b"RIFF\xff\xff\xff\xffAVI LIST\xff\xff\xff\xffhdrlavih",
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0",
    b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom\xff\xff\xff\xffmoov",
    b"\0\0\0\x01ftyp\0\0\0\0\0\0\0\x10" * 4,
    b"\x1a\x45\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xfe",
    b"\x47" * 188 * 20,
    b"\0\0\1\xba" * 200,
    b"[Script Info]\n[Events]\nDialogue: 0,0:00:00.00,9:59:59.99,x\n",
    b"1\n00:00:00,000 --> 99:59:59,999\nx\n",
    b"\0" * 4096,
    b"\xff" * 4096,
    b"0",
)


def make_sorts(folder: Path, frames: int = 40) -> list[tuple[str, bytes]]:
    """Small videos of every sort that PyAV can write here, with their suffixes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, how in SORTS:
        try:
            path = make_video(folder / name, range(frames), **{"size": (32, 64), **how})
        except (av.FFmpegError, ValueError, OSError):  # this build of PyAV has no such encoder
            continue
        made.append((path.suffix, path.read_bytes()))
    return made


class Video(Target):
    """A file: probed, decoded to its end, sought in, and read as extraction reads it."""

    kind, suffix = "video", ".mp4"
    commanded = 0.002  # which loads both models
    seconds = 20
    mutation = staticmethod(mutate_bytes)

    def prepare(self) -> None:
        av.logging.set_level(None)
        self.seeds = [raw for _, raw in make_sorts(self.base / "sorts")]

    def mutate(self, rng: random.Random) -> bytes:
        if rng.random() < 0.05:
            trick = rng.choice(TRICKS)
            return trick if rng.random() < 0.3 else mutate_bytes(trick, rng)
        return super().mutate(rng)

    def drive(self, path: Path, out: Path) -> None:
        with VideoFile(path, threads=1) as video:
            video.frame_count()
            for frame in islice(video.frames(), 2000):
                assert frame.shape == video.size
            rows = video.read(20, 30)
            assert rows.shape[1:] == video.size

    def command(self, path: Path, out: Path) -> list[str]:
        """The embedded models on it: real, and slow."""
        return ["predict", str(path), "--out", str(out / "timeline.json"), "--every", "60"]


class Playlist(Video):
    """The same under names that make FFmpeg think of something else."""

    suffix = ".m3u8"

    def mutate(self, rng: random.Random) -> bytes:
        return super().mutate(rng) if rng.random() < 0.3 else mutate_bytes(rng.choice(TRICKS[:6]), rng)


class Stdin(Video):
    """`ballcast live -`."""

    kind = "live"

    def drive(self, path: Path, out: Path) -> None:
        source = os.open(path, os.O_RDONLY)
        before = os.dup(0)
        os.dup2(source, 0)
        os.close(source)
        try:
            for item in islice(StreamSource("-", speed=0, give_up_s=0).items(), 2000):
                assert item is not None
        finally:
            os.dup2(before, 0)
            os.close(before)

    def command(self, path: Path, out: Path) -> list[str]:
        return []


class Upload(Video):
    """A video that is uploaded to the server, which decodes it in a process of its own."""

    kind = "serve"
    seconds = 60

    def prepare(self) -> None:
        super().prepare()
        self.client: httpx.Client | None = None

    def begin(self) -> httpx.Client:
        """Start the server in this process, with the first case."""
        if self.client is None:
            from ballcast_server.predictors import PredictorFactory
            from ballcast_server.settings import Limits, Settings
            from tests.server.conftest import Quick, running

            self.stack = ExitStack()
            limits = Limits(free_bytes=0, frame_s=15, memory_bytes=1 << 30, kept_a_user=10**6, waiting_a_user=10**6)
            settings = Settings(data=self.base / f"data-{os.getpid()}", limits=limits)
            predictors = PredictorFactory(Quick, {"every_ms": 1000, "model": "none"})  # type: ignore[arg-type]
            self.served = self.stack.enter_context(running(settings, predictors))
            self.client = self.served.client
        return self.client

    def request(self, method: str, address: str, **how: object) -> httpx.Response:
        response = self.begin().request(method, address, timeout=50, **how)  # type: ignore[arg-type]
        if response.status_code >= 500 or (response.status_code >= 400 and "error" not in response.json()):
            raise AssertionError(f"{method} {address}: {response.status_code} {response.text[:200]}")
        return response

    def drive(self, path: Path, out: Path) -> None:
        raw = path.read_bytes()
        name = quote(raw[-40:], safe="/. ").strip() or "x"
        response = self.request("POST", "/api/uploads", content=raw, headers={"X-File-Name": name})
        if response.status_code == 201:
            job = response.json()["id"]
            done = self.served.until(job, "done", "failed", seconds=40)
            assert "\n" not in (done.get("error") or "")
            self.request("DELETE", f"/api/jobs/{job}")
        jobs = self.served.service.settings.data / "jobs"
        left = [p for p in jobs.rglob("*") if p.is_file()]
        assert not left, f"left behind: {left[:3]}"

    def command(self, path: Path, out: Path) -> list[str]:
        return []


class UploadedLabels(Upload):
    """Labels for a video that was uploaded."""

    suffix = ".json"
    mutation = staticmethod(mutate_json)

    def prepare(self) -> None:
        from tools.fuzzing.texts import HalvesLabels, Labels, Matches, OslJson

        self.client = None
        self.video = make_video(self.base / "clip_1.mp4", range(60), size=(32, 64)).read_bytes()
        for number, sort in enumerate((Labels, HalvesLabels, Matches, OslJson)):
            folder = self.base / str(number)
            folder.mkdir()
            self.seeds += sort(folder).seeds
        self.job = ""

    def mutate(self, rng: random.Random) -> bytes:
        return Target.mutate(self, rng)

    def drive(self, path: Path, out: Path) -> None:
        if self.client is None or not self.job:
            name = {"X-File-Name": "clip_1.mp4"}
            self.job = self.request("POST", "/api/uploads", content=self.video, headers=name).json()["id"]
        self.request("PUT", f"/api/jobs/{self.job}/labels", content=path.read_bytes())
        self.request("GET", f"/api/jobs/{self.job}/actual")
        folder = self.served.service.settings.data / "jobs" / self.job
        assert not list(folder.glob(".*.tmp"))


class Request(Upload):
    """Any other request: an address and a JSON body."""

    suffix = ".json"
    mutation = staticmethod(mutate_json)

    def prepare(self) -> None:
        self.client = None
        job = "0123456789abcdef"
        parts = ("", "/events", "/timeline", "/video", "/actual", "/labels", "/cancel")
        lines = [f'{{"method": "GET", "address": "/api/jobs/{job}{part}", "body": {{"video": "x"}}}}' for part in parts]
        lines += ['{"method": "POST", "address": "/api/jobs", "body": {"video": "../x"}}']
        lines += [
            '{"method": "GET", "address": "/static/../x", "body": {}}',
            '{"method": "GET", "address": "/api/streams", "body": {}}',
        ]
        self.seeds = [line.encode() for line in lines]

    def mutate(self, rng: random.Random) -> bytes:
        return Target.mutate(self, rng)

    def drive(self, path: Path, out: Path) -> None:
        try:
            case = json.loads(path.read_bytes())
            method, address, body = str(case["method"]), "/" + str(case["address"]).lstrip("/"), case["body"]
            content = json.dumps(body).encode()
            httpx.Request(method, "http://x" + address, content=content)
            method.encode("ascii")
        except (ValueError, KeyError, TypeError, RecursionError, httpx.InvalidURL):
            return  # a client would not send it
        if not method.isalpha():
            return
        self.request(method, address, content=content, headers={"Content-Type": "application/json"})
