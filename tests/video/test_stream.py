"""Streams that break, jump and lose packets: the frames of the file, and a word wherever some are missing."""

import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from rtsp_server import RtspServer
from stream_server import DrippingServer, FolderServer, PieceServer, until

from ballcast.core.errors import InputError
from ballcast.video import stream as stream_source
from ballcast.video.addresses import DEVICES, is_stream, shown
from ballcast.video.file import VideoFile
from ballcast.video.sources import FileSource, LiveFrame, LiveSource, StreamGap, open_source
from ballcast.video.stream import StreamSource
from tests.video.conftest import make_video, number_of

PACKET = 188  # bytes of a transport stream's packet


@pytest.fixture(scope="module")
def ts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 s, a key frame every 12 frames, with B-frames."""
    return make_video(tmp_path_factory.mktemp("stream") / "a.ts", range(300))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "FIRST_WAIT_S", 0.02)


def whole(path: Path) -> np.ndarray:
    with VideoFile(path) as video:
        return video.read(0, 10_000)


def stretches(source: LiveSource) -> tuple[list[list[LiveFrame]], list[StreamGap]]:
    """The frames between breaks, and the breaks; an InputError at the end is raised."""
    runs: list[list[LiveFrame]] = [[]]
    breaks = []
    for item in source.items():
        if isinstance(item, StreamGap):
            breaks.append(item)
            if runs[-1]:
                runs.append([])
        else:
            runs[-1].append(item)
    return [run for run in runs if run], breaks


def assert_part_of(run: list[LiveFrame], frames: np.ndarray) -> range:
    """The run's frames are consecutive ones of the video, bit for bit; which ones."""
    first = number_of(run[0].pixels)
    for i, frame in enumerate(run):
        assert np.array_equal(frame.pixels, frames[first + i]), (first, i)
        assert frame.at_ms == run[0].at_ms + 40 * i
    return range(first, first + len(run))


def test_a_file_gives_its_frames(ts: Path) -> None:
    runs, breaks = stretches(FileSource(ts, speed=0))
    assert (len(runs), breaks) == (1, [])
    assert assert_part_of(runs[0], whole(ts)) == range(300)
    assert runs[0][0].at_ms == 0


@pytest.mark.parametrize("suffix", ["ts", "mkv", "mp4"])
def test_over_http_and_stdin_it_is_the_file(tmp_path: Path, suffix: str) -> None:
    path = make_video(tmp_path / f"a.{suffix}", range(0, 300, 3), rate=10)
    with FolderServer(tmp_path) as server:
        runs, breaks = stretches(open_source(f"{server.address}/a.{suffix}", speed=0))
    assert breaks == []
    (run,) = runs
    assert np.array_equal(np.stack([f.pixels for f in run]), whole(path))
    if suffix == "mp4":
        return  # its index is at the end: nothing to pipe
    with path.open("rb") as file:
        kept = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            runs, breaks = stretches(open_source("-", speed=0))
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    assert breaks == []
    assert np.array_equal(np.stack([f.pixels for f in runs[0]]), whole(path))


def test_a_stream_cut_three_times_comes_back(ts: Path) -> None:
    """Each time a part is lost; the cuts fall anywhere."""
    raw, frames = ts.read_bytes(), whole(ts)
    n = len(raw) // PACKET * PACKET
    cuts = [(0, n // 4 + 77), (n // 3, n // 2 + 5), (n // 2 + 901, 3 * n // 4), (4 * n // 5 + 13, len(raw))]
    with PieceServer([raw[a:b] for a, b in cuts]) as server:
        source = StreamSource(server.address, speed=0, give_up_s=1.0)
        items: list[LiveFrame | StreamGap] = []
        with pytest.raises(InputError, match=r"broke off and did not come back in 1 s .*; start it again"):
            items.extend(source.items())
    runs = [list(g) for frame, g in itertools.groupby(items, lambda i: isinstance(i, LiveFrame)) if frame]
    assert len(runs) == 4
    parts = [assert_part_of(run, frames) for run in runs]  # type: ignore[arg-type]
    assert parts[0].start == 0
    assert all(a.stop < b.start for a, b in itertools.pairwise(parts))
    assert sum(map(len, parts)) > 200
    told = [item for item in items if isinstance(item, StreamGap)]
    assert [b.kind for b in told[:2]] == ["gap", "reconnecting"]
    assert sum(b.kind == "gap" for b in told) == 4
    times = [frame.at_ms for run in runs for frame in run]  # type: ignore[union-attr]
    assert times == sorted(times)  # one clock through it all


def test_a_new_connection_has_a_new_clock(ts: Path, tmp_path: Path) -> None:
    """Its first timestamp, ten minutes on, says nothing about how long the break was."""
    later = make_video(tmp_path / "later.ts", range(15_000, 15_100))
    with PieceServer([ts.read_bytes(), later.read_bytes()]) as server:
        items: list[LiveFrame | StreamGap] = []
        with pytest.raises(InputError, match="did not come back"):
            items.extend(StreamSource(server.address, speed=0, give_up_s=0.2).items())
    runs = [list(g) for frame, g in itertools.groupby(items, lambda i: isinstance(i, LiveFrame)) if frame]
    assert len(runs) == 2
    assert runs[1][0].at_ms == runs[0][-1].at_ms + 40  # type: ignore[union-attr]


def test_a_stream_that_is_not_there_is_one_sentence() -> None:
    with PieceServer([]) as server:
        address = server.address
    items = open_source(address, give_up_s=0.3).items()
    told = next(items)
    assert isinstance(told, StreamGap)
    assert told.kind == "reconnecting"
    assert told.message.endswith("(Connection refused), trying again in 0.02 s, attempt 1")
    with pytest.raises(InputError, match=r"tcp://127.*: cannot be read as a video stream \(Connection refused\); is "):
        list(items)


def test_a_stream_that_comes_later_is_waited_for(ts: Path) -> None:
    """Connections that give nothing, then the stream: no gap is told, since none of its frames are missing."""
    with PieceServer([b"", b"", ts.read_bytes()]) as server:
        items: list[LiveFrame | StreamGap] = []
        with pytest.raises(InputError, match="broke off and did not come back"):
            items.extend(StreamSource(server.address, speed=0, give_up_s=2).items())
    kinds = [key for key, _ in itertools.groupby("frame" if isinstance(i, LiveFrame) else i.kind for i in items)]
    assert kinds == ["reconnecting", "frame", "gap", "reconnecting"]
    assert_part_of([item for item in items if isinstance(item, LiveFrame)], whole(ts))


def test_a_page_instead_of_a_stream_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.m3u8").write_text("<html>")
    with FolderServer(tmp_path) as server, pytest.raises(InputError, match="cannot be read as a video stream"):
        next(open_source(f"{server.address}/a.m3u8").items())


@pytest.mark.parametrize("kind", ["mp4", "mkv", "hls"])
def test_a_recording_that_ends_early_is_a_break(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], segments: tuple[Path, np.ndarray], kind: str
) -> None:
    """A download cut short, a playlist whose last segments are gone; and FFmpeg says nothing of its own about it."""
    name = "hls/all.m3u8" if kind == "hls" else f"a.{kind}"
    if kind == "hls":
        for number in range(5, 10):
            (segments[0] / f"a{number}.ts").unlink()
    else:
        path = make_video(tmp_path / name, range(250), options={"movflags": "faststart"} if kind == "mp4" else None)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    items: list[LiveFrame | StreamGap] = []
    with FolderServer(tmp_path) as server, pytest.raises(InputError, match=r"broke off: .* of .* s; start it again"):
        items.extend(open_source(f"{server.address}/{name}", speed=0, give_up_s=1).items())
    assert sum(isinstance(item, LiveFrame) for item in items) > 40
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg to send the stream")
@pytest.mark.parametrize("scheme", ["rtmp", "srt"])
def test_rtmp_and_srt_that_come_later(tmp_path: Path, capfd: pytest.CaptureFixture[str], scheme: str) -> None:
    """Real senders, started once the address was tried in vain; when they stop, the stream has broken off."""
    path = make_video(tmp_path / "a.mp4", range(75), codec_options={"bf": "0"})
    frames, kind = whole(path), socket.SOCK_DGRAM if scheme == "srt" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        address = f"{scheme}://127.0.0.1:{free.getsockname()[1]}"
    listen = (
        ["-f", "mpegts", f"{address}?mode=listener"]
        if scheme == "srt"
        else ["-f", "flv", "-listen", "1", f"{address}/a"]
    )
    send = ["ffmpeg", "-nostdin", "-loglevel", "quiet", "-re", "-i", str(path), "-c", "copy", *listen]
    items: list[LiveFrame | StreamGap] = []
    sender: subprocess.Popen[bytes] | None = None
    try:
        for item in StreamSource(address if scheme == "srt" else f"{address}/a", silent_s=5, give_up_s=30).items():
            items.append(item)
            if sender is None:
                assert isinstance(item, StreamGap)
                sender = subprocess.Popen(send)
            if isinstance(item, StreamGap) and item.kind == "gap":
                break
    finally:
        assert sender is not None
        sender.kill()
        sender.wait()
    run = [item for item in items if isinstance(item, LiveFrame)]
    part = assert_part_of(run, frames)
    assert len(part) > 60
    assert capfd.readouterr().err == ""


def test_a_broadcast_read_far_too_late_is_opened_again(ts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "LATE_MS", 3000)
    with PieceServer([ts.read_bytes()] * 2) as server:
        breaks = []
        for item in StreamSource(server.address, speed=50).items():
            if isinstance(item, StreamGap):
                breaks.append(item)
                if len(breaks) == 2:
                    break
            elif not breaks:
                time.sleep(0.002)  # a 25th at fifty times the speed is 0.8 ms
    assert [b.kind for b in breaks] == ["gap", "reconnecting"]
    assert "its frames come 3 s late" in breaks[0].message


def test_a_connection_that_falls_silent_is_broken(ts: Path) -> None:
    with PieceServer([ts.read_bytes()[: 400 * PACKET]], hold=True) as server:
        source = StreamSource(server.address, speed=0, give_up_s=0, silent_s=0.4)
        began = time.monotonic()
        with pytest.raises(InputError, match="broke off and did not come back"):
            list(source.items())
    assert 0.3 < time.monotonic() - began < 5


def test_closing_ends_it(ts: Path) -> None:
    with PieceServer([ts.read_bytes()]) as server:
        source = StreamSource(server.address, speed=1)
        items = source.items()
        next(items)
        threading.Timer(0.2, source.close).start()
        began = time.monotonic()
        assert len(list(items)) < 20
        assert time.monotonic() - began < 2


def from_pipe(content: bytes) -> Iterator[LiveFrame | StreamGap]:
    """Through stdin, as a pipe."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(content)

    threading.Thread(target=write, daemon=True).start()
    kept = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield from open_source("-", speed=0).items()
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_clock_that_starts_again_is_a_gap_that_is_told(ts: Path, tmp_path: Path) -> None:
    """Byte-joined transport streams: what a file reader refuses as damaged, a live one takes as two stretches."""
    frames = whole(ts)
    items = list(from_pipe(ts.read_bytes() + ts.read_bytes()))
    breaks = [i for i, item in enumerate(items) if isinstance(item, StreamGap)]
    assert len(breaks) == 1
    told = items[breaks[0]]
    assert isinstance(told, StreamGap)
    assert told.kind == "gap"
    first, second = items[: breaks[0]], items[breaks[0] + 1 :]
    assert assert_part_of(first, frames).start == 0  # type: ignore[arg-type]
    assert len(first) >= 295
    assert assert_part_of(second, frames) == range(300)  # type: ignore[arg-type]
    assert second[0].at_ms >= first[-1].at_ms + 40  # type: ignore[union-attr]


def test_lost_packets_are_a_gap_and_no_frame_is_made_up(ts: Path) -> None:
    raw, frames = ts.read_bytes(), whole(ts)
    packets = [raw[i : i + PACKET] for i in range(0, len(raw), PACKET)]
    of_video = [i for i, packet in enumerate(packets) if packet[1] & 0x1F == 1 and packet[2] == 0]
    n = len(of_video)
    lost = {of_video[n // 3], of_video[n // 2], of_video[n // 2 + 1]}
    lossy = b"".join(packet for i, packet in enumerate(packets) if i not in lost)
    items = list(from_pipe(lossy))
    runs = [list(g) for frame, g in itertools.groupby(items, lambda i: isinstance(i, LiveFrame)) if frame]
    assert len(runs) == 3
    parts = [assert_part_of(run, frames) for run in runs]  # type: ignore[arg-type]
    assert sum(map(len, parts)) > 240
    begins = [run[0].at_ms for run in runs]  # type: ignore[union-attr]
    assert begins == [40 * part.start for part in parts]  # the stream's clock went on


def test_another_size_is_a_gap(ts: Path, tmp_path: Path) -> None:
    other = make_video(tmp_path / "b.ts", range(60), size=(48, 80))
    items = list(from_pipe(ts.read_bytes() + other.read_bytes()))
    sizes = [item.pixels.shape if isinstance(item, LiveFrame) else item.kind for item in items]
    runs = [key for key, _ in itertools.groupby(sizes)]
    assert runs == [(64, 96), "gap", (48, 80)]


def test_garbage_and_nothing_are_one_sentence() -> None:
    for content in (b"", np.random.default_rng(0).bytes(100_000)):
        with pytest.raises(InputError, match=r"stdin: cannot be read as a video stream .*; pipe a video into it"):
            list(from_pipe(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n0.ts\n", "is a playlist, not a video; give the video itself"),
        (b"\xef\xbb\xbf#EXTM3U\r\n#EXT-X-STREAM-INF:BANDWIDTH=1\r\nlow.m3u8", "a stream's address to `ballcast live`"),
        (b'<?xml version="1.0"?>\n<MPD type="dynamic"></MPD>', "is a playlist"),
        (b"v=0\r\nc=IN IP4 127.0.0.1\r\nm=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n", "is a playlist"),
        (b"ffconcat version 1.0\nfile /dev/null\n", "is a playlist"),
        (b"<!DOCTYPE html><title>Log in</title>", "is a web page"),
    ],
    ids=["hls", "hls-master", "dash", "sdp", "concat", "page"],
)
def test_a_playlist_on_stdin_is_not_the_stream(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"stdin: .*{said}"):
        list(from_pipe(content))


def test_an_mp4_with_its_index_at_the_end_cannot_be_piped(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4", range(1000))  # more than is read ahead
    said = r"stdin: .*; an MP4 whose index is at its end cannot be piped: .*MPEG-TS.*faststart"
    with pytest.raises(InputError, match=said):
        list(from_pipe(path.read_bytes()))
    fast = make_video(tmp_path / "b.mp4", range(1000), options={"movflags": "faststart"})
    assert sum(isinstance(item, LiveFrame) for item in from_pipe(fast.read_bytes())) == 1000


def playlist(folder: Path, segments: list[str], *, ended: bool, jump_before: int | None = None) -> None:
    lines = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:1", "#EXT-X-MEDIA-SEQUENCE:0"]
    for i, name in enumerate(segments):
        lines += ["#EXT-X-DISCONTINUITY"] * (i == jump_before) + ["#EXTINF:0.96,", name]
    text = "\n".join(lines + ["#EXT-X-ENDLIST"] * ended) + "\n"
    (folder / ".new").write_text(text)
    (folder / ".new").rename(folder / "live.m3u8")


@pytest.fixture
def segments(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A folder with a0.ts … of 24 frames each, and all frames."""
    source = make_video(tmp_path / "source.mp4", range(240), codec_options={"g": "24", "keyint_min": "24", "bf": "0"})
    folder = tmp_path / "hls"
    folder.mkdir()
    with av.open(str(source)) as given:
        video = given.streams.video[0]
        with av.open(
            str(folder / "all.m3u8"),
            "w",
            format="hls",
            options={"hls_time": "0.9", "hls_list_size": "0", "hls_segment_filename": str(folder / "a%d.ts")},
        ) as out:
            copy = out.add_stream_from_template(video)
            for packet in given.demux(video):
                if packet.size:
                    packet.stream = copy
                    out.mux(packet)
    assert len(list(folder.glob("a*.ts"))) == 10
    return folder, whole(source)


def test_hls_that_grows_and_ends(segments: tuple[Path, np.ndarray]) -> None:
    folder, frames = segments
    names = [f"a{i}.ts" for i in range(10)]
    playlist(folder, names[:3], ended=False)

    def grow() -> None:
        for count in range(4, 11):
            time.sleep(0.15)
            playlist(folder, names[:count], ended=count == 10)

    with FolderServer(folder) as server:
        threading.Thread(target=grow, daemon=True).start()
        source = StreamSource(f"{server.address}/live.m3u8", speed=0, give_up_s=0.5)
        runs, breaks = stretches(source)
    assert [assert_part_of(run, frames) for run in runs] == [range(240)]
    assert [b.kind for b in breaks] == ["gap", "reconnecting"]  # when opened again it states its length: it is over


def test_a_discontinuity_in_hls_is_told(segments: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, frames = segments
    (folder / "b.ts").write_bytes(make_video(tmp_path / "b.ts", range(40), codec_options={"bf": "0"}).read_bytes())
    playlist(folder, ["a0.ts", "a1.ts", "b.ts"], ended=True, jump_before=2)
    with FolderServer(folder) as server:
        runs, breaks = stretches(open_source(f"{server.address}/live.m3u8", speed=0))
    assert [b.kind for b in breaks] == ["gap"]
    assert len(runs) == 2
    assert len(assert_part_of(runs[0], frames)) >= 47
    assert len(runs[1]) == 40


def test_a_playlist_on_this_machine_is_followed(segments: tuple[Path, np.ndarray]) -> None:
    folder, frames = segments
    runs, breaks = stretches(open_source(str(folder / "all.m3u8"), speed=0))
    assert ([assert_part_of(run, frames) for run in runs], breaks) == ([range(240)], [])


@pytest.mark.parametrize("scheme", ["http", "tcp"])
@pytest.mark.parametrize("kind", ["m3u8", "ffconcat"])
def test_what_a_remote_server_sends_names_no_local_file(tmp_path: Path, ts: Path, scheme: str, kind: str) -> None:
    texts = {
        "m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:12\n#EXTINF:12,\nfile://{ts}\n#EXT-X-ENDLIST\n",
        "ffconcat": f"ffconcat version 1.0\nfile file:{ts}\n",
    }
    (tmp_path / f"x.{kind}").write_text(texts[kind])
    with FolderServer(tmp_path) as web, PieceServer([texts[kind].encode()] * 9) as plain:
        server = web if scheme == "http" else plain
        with pytest.raises(InputError):
            assert not [
                item for item in StreamSource(f"{server.address}/x.{kind}", speed=0, give_up_s=0.2).items()
                if isinstance(item, LiveFrame)
            ]  # fmt: skip


def test_a_checked_stream_is_not_redirected(tmp_path: Path, ts: Path) -> None:
    shutil.copy(ts, tmp_path / "a.ts")
    checked = []
    with FolderServer(tmp_path) as inner, FolderServer(tmp_path) as outer:
        outer.redirects["/a.ts"] = f"{inner.address}/a.ts"
        assert isinstance(next(StreamSource(f"{outer.address}/a.ts", speed=0).items()), LiveFrame)
        assert len(inner.asked) == 1
        source = StreamSource(f"{outer.address}/a.ts", speed=0, give_up_s=0, check=checked.append)
        with pytest.raises(InputError, match="not a redirect"):
            list(source.items())
        assert len(inner.asked) == 1
    assert checked == [f"{outer.address}/a.ts"]


@pytest.mark.parametrize("scheme", sorted(stream_source.ALLOWED.keys() - {"", "rtp", "srt", "udp"} - DEVICES))
def test_each_scheme_may_open_what_it_needs(scheme: str) -> None:
    with pytest.raises(InputError, match="Connection refused"):
        next(StreamSource(f"{scheme}://127.0.0.1:1/1", give_up_s=-1).items())


def test_a_name_that_ends_like_a_playlist_is_no_way_around_the_schemes(ts: Path, tmp_path: Path) -> None:
    shutil.copy(ts, tmp_path / "a.m3u8")
    for address in (f"concat:{tmp_path}/a.m3u8", f"subfile:{tmp_path}/a.m3u8"):
        with pytest.raises(InputError, match="cannot be read as a video stream"):
            next(StreamSource(address, speed=0, give_up_s=0).items())
    with pytest.raises(InputError, match="begins with one of http, https"):
        is_stream(f"crypto+file://{tmp_path}/a.m3u8")


def test_pacing_follows_the_timestamps(ts: Path) -> None:
    for source in (FileSource(ts, speed=20), StreamSource(f"file:{ts}", speed=20)):
        began = time.monotonic()
        arrived = [item.arrived for item in source.items() if isinstance(item, LiveFrame)]
        assert time.monotonic() - began < 4
        assert 0.95 * 299 / 25 / 20 < arrived[-1] - arrived[0] < 2  # never early; late where the machine is busy


def test_which_addresses_are_streams(tmp_path: Path) -> None:
    assert all(map(is_stream, ["-", "rtsp://a/b", "HTTPS://a/x.m3u8", "live.m3u8", "v4l2:/dev/video0", "/dev/null"]))
    assert not any(map(is_stream, ["a.mp4", "no:thing.mp4", str(tmp_path)]))
    with pytest.raises(InputError, match="begins with one of http, https"):
        is_stream("gopher://a")
    with pytest.raises(InputError, match="play backwards"):
        open_source("a.mp4", speed=-1)


def test_no_password_is_shown() -> None:
    assert shown("rtsp://user:secret@camera:554/1?a=b") == "rtsp://camera:554/1?a=b"
    assert shown("http://camera/1?user=me&Password=secret&a=b") == "http://camera/1?user=me&Password=***&a=b"
    assert (
        shown("rtsp://camera/user=me&password=secret/1?token=secret")
        == "rtsp://camera/user=me&password=***/1?token=***"
    )
    assert StreamSource("http://camera/1?password=secret").name == "http://camera/1?password=***"
    source = StreamSource("rtsp://user:secret@127.0.0.1:1/1", silent_s=1, give_up_s=0)
    with pytest.raises(InputError) as caught:
        next(source.items())
    assert "secret" not in str(caught.value)
    assert (
        shown("srt://host:1?passphrase=secret&streamid=read:cam:me:secret")
        == "srt://host:1?passphrase=***&streamid=***"
    )


def test_rtsp_that_breaks_and_comes_back(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.ts", range(200), codec_options={"bf": "0"})
    frames, items = whole(path), []
    with RtspServer(path, close=True) as server:
        for item in StreamSource(server.address).items():
            items.append(item)
            if server.plays > 2:
                break
    runs = [list(g) for frame, g in itertools.groupby(items, lambda i: isinstance(i, LiveFrame)) if frame]
    for run in runs[:2]:
        part = assert_part_of(run, frames)  # type: ignore[arg-type]
        assert part.stop == 200
        assert part.start in (0, 12)  # the first picture may come without a time: then from the next key frame on
    told = [item for item in items if isinstance(item, StreamGap)]
    assert [b.kind for b in told[:2]] == ["gap", "reconnecting"]
    assert all("secret" not in b.message for b in told)


def test_rtsp_that_falls_silent(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.ts", range(50), codec_options={"bf": "0"})
    with RtspServer(path, close=False) as server:
        source = StreamSource(server.address, silent_s=0.5, give_up_s=0)
        with pytest.raises(InputError, match="broke off and did not come back"):
            list(source.items())


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(InputError, match="v4l2:/dev/video77: cannot be read"):
        next(open_source("v4l2:/dev/video77").items())


def test_udp_until_it_falls_silent(ts: Path) -> None:
    """A transport stream in datagrams, sent once somebody listens, eight times as fast as it plays."""
    content, size = ts.read_bytes(), 7 * PACKET
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def listening() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                return True
        return False

    def send() -> None:
        assert until(listening)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for at in range(0, len(content), size):
                out.sendto(content[at : at + size], ("127.0.0.1", port))
                time.sleep(12 / 8 * size / len(content))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    items: list[LiveFrame | StreamGap] = []
    with pytest.raises(InputError, match=r"udp://.*: broke off and did not come back in 0.5 s"):
        items.extend(StreamSource(f"udp://127.0.0.1:{port}", silent_s=0.8, give_up_s=0.5).items())
    sender.join()
    frames = [item for item in items if isinstance(item, LiveFrame)]
    part = assert_part_of(frames, whole(ts))  # one stretch, without a hole
    assert part.start == 0
    assert len(part) > 280  # after the last, a silent stream may have lost more
    assert next(item.kind for item in items if isinstance(item, StreamGap)) == "gap"


class FakeConnection:
    """Packets that come for ever, one in 20 ms; of the stream `index`, never a key frame."""

    def __init__(self, index: int) -> None:
        self.index = index

    def demux(self) -> Iterator[SimpleNamespace]:
        for number in itertools.count():
            time.sleep(0.02)
            stream = SimpleNamespace(index=self.index)
            yield SimpleNamespace(stream=stream, size=9, is_corrupt=False, is_keyframe=False, dts=number)


@pytest.mark.parametrize("index", [0, 1])  # pictures without a key frame; sound only
def test_data_without_a_picture_is_a_broken_connection(index: int) -> None:
    video = SimpleNamespace(index=0, time_base=Fraction(1, 25))
    reading = stream_source._Reading(FakeConnection(index), video, whole=False, speed=1)  # type: ignore[arg-type]
    reading.limit_s = 0.2
    with pytest.raises(InputError, match=r"sends data, but has given no picture for 0\.2 s"):
        list(reading.packets())
    assert reading.over


def test_a_stream_whose_pictures_stop_is_given_up(tmp_path: Path) -> None:
    """The sound goes on in small pieces for 12 s; it must not be waited for."""
    path = tmp_path / "a.ts"
    with av.open(str(path), "w", format="mpegts") as container:
        video, sound = container.add_stream("libx264", rate=25), container.add_stream("mp2", rate=48_000)
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        for _ in range(50):
            container.mux(video.encode(av.VideoFrame(96, 64, "yuv420p")))
        container.mux(video.encode())
        for block in range(300):
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 2 * 1152), np.int16), format="s16", layout="stereo")
            tone.sample_rate, tone.pts = 48_000, block * 1152
            container.mux(sound.encode(tone))
    raw = path.read_bytes()
    half = len(raw) // 2 // PACKET * PACKET
    pieces = [raw[:half], *(raw[at : at + PACKET] for at in range(half, half + 240 * PACKET, PACKET))]
    with DrippingServer(pieces, every_s=0.05) as server:
        source = StreamSource(server.address, speed=0, give_up_s=0, silent_s=1)  # a busy machine's server may pause
        began = time.monotonic()
        with pytest.raises(InputError, match="has given no picture for 2 s"):
            list(source.items())
    assert time.monotonic() - began < 8
