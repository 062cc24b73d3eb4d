"""Streams in processes of their own: what they give is what a stream gives here, and what ends one ends no other."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import psutil
import pytest

from ballcast.core.errors import InputError
from ballcast.live.reader import PreviewOptions
from ballcast.video.sources import LiveFrame, SourceOptions, StreamGap
from ballcast.video.stream import StreamSource
from ballcast_server.confined import sandbox
from ballcast_server.settings import Limits
from ballcast_server.streams.cluster_actor import Follower, Item, StreamOrder
from ballcast_server.streams.decoder import ConfinedStream, open_stream
from tests.stream_server import DrippingServer, FolderServer, PieceServer

FAST = SourceOptions(speed=0, give_up_s=1)
confined = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")


def transport(path: Path, frames: int, size: tuple[int, int]) -> bytes:
    """A transport stream of H.264, a square that moves over gray; `size` is width and height."""
    with av.open(str(path), "w", format="mpegts") as out:
        stream = out.add_stream("libx264", rate=25, options={"preset": "ultrafast", "g": "25", "tune": "zerolatency"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for n in range(frames):
            picture = np.full((size[1] * 3 // 2, size[0]), 128, np.uint8)
            picture[10:40, 4 * n : 4 * n + 30] = 230
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
        out.mux(stream.encode())
    return path.read_bytes()


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    return transport(tmp_path / "small.ts", 60, (320, 180))


@pytest.fixture
def folder(tmp_path: Path, small: bytes) -> Iterator[str]:
    """The address of the stream over HTTP."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.ts").write_bytes(small)
    with FolderServer(tmp_path / "web") as server:
        yield f"http://127.0.0.1:{server.port}/a.ts"


def confined_stream(address: str, *, colour: bool = False, limits: Limits = Limits(), **more: object) -> ConfinedStream:
    source = open_stream(address, colour=colour, options=FAST, limits=limits, **more)  # type: ignore[arg-type]
    assert isinstance(source, ConfinedStream)
    return source


@pytest.mark.parametrize("colour", [False, True])
def test_frames_are_those_of_the_stream(folder: str, colour: bool) -> None:
    here = [i for i in StreamSource(folder, speed=0, give_up_s=1, colour=colour).items() if isinstance(i, LiveFrame)]
    there = list(confined_stream(folder, colour=colour).items())
    assert len(here) == len(there) > 50
    for one, other in zip(here, there, strict=True):
        assert isinstance(other, LiveFrame)
        np.testing.assert_array_equal(one.pixels, other.pixels)
        assert one.picture is not None
        assert (one.at_ms, one.picture.time, other.picture) == (other.at_ms, other.time_s, None)


def test_gaps_and_the_end_are_those_of_the_stream(small: bytes) -> None:
    half = len(small) // 188 // 2 * 188
    found: list[LiveFrame | StreamGap] = []
    with PieceServer([small[:half], small[half:]]) as server:
        with pytest.raises(InputError, match="broke off and did not come back in 1 s"):
            found.extend(confined_stream(server.address).items())
        kinds = [item.kind for item in found if isinstance(item, StreamGap)]
    assert "reconnecting" in kinds
    assert "gap" in kinds


def test_previews_are_made_while_somebody_watches(folder: str) -> None:
    source = confined_stream(folder, previews=PreviewOptions(every_ms=0, width=64))
    source.watched = lambda: True
    stills = [item.still for item in source.items() if isinstance(item, LiveFrame) and item.still]
    assert stills
    assert (stills[0].width, stills[0].height, stills[0].jpeg[:2]) == (64, 36, b"\xff\xd8")
    assert not any(item.still for item in confined_stream(folder).items() if isinstance(item, LiveFrame))


def test_addresses_are_checked_here_before_each_connection(folder: str) -> None:
    asked = []

    def check(address: str) -> None:
        asked.append(address)
        raise InputError("its host is not a public address")

    source = open_stream(folder, colour=False, options=replace(FAST, check=check))
    with pytest.raises(InputError, match="its host is not a public address"):
        list(source.items())
    assert asked
    assert set(asked) == {folder}


def test_clips_are_written_there_also_after_the_end(folder: str, tmp_path: Path) -> None:
    source = confined_stream(folder, ring_s=30.0)
    assert source.ring is not None
    frames = list(source.items())
    assert source.ring.newest_s > 2
    assert source.ring.write(tmp_path / "clips" / "a.mp4", frames[0].time_s, frames[0].time_s + 1)  # type: ignore[union-attr, operator]
    with av.open(str(tmp_path / "clips" / "a.mp4")) as clip:
        assert 25 <= sum(1 for _ in clip.decode(video=0)) <= 30
    assert not source.ring.write(tmp_path / "b.mp4", -20.0, -10.0)
    assert source.ring.process is not None
    source.ring.process.end()
    assert not source.ring.write(tmp_path / "b.mp4", 0.0, 1.0)


def noting(source: ConfinedStream, taken: list[int]) -> Iterator[LiveFrame | StreamGap]:
    """The items of a source; the memory of this process is noted at each."""
    for item in source.items():
        taken.append(psutil.Process().memory_info().rss)
        yield item


def test_a_stream_that_grows_ends_alone(tmp_path: Path, small: bytes) -> None:
    """From 320×180 to 8192×8192: refused, in a process with little memory, while another stream goes on."""
    large = transport(tmp_path / "large.ts", 2, (8192, 8192))
    seen: list[LiveFrame | StreamGap] = []
    taken: list[int] = []  # bytes, at each frame
    with DrippingServer([small, large, large, large], every_s=0.5) as grows, FolderServer(tmp_path) as fine:
        (tmp_path / "fine.ts").write_bytes(small * 4)
        other = confined_stream(f"http://127.0.0.1:{fine.port}/fine.ts")
        frames: list[object] = []
        beside = threading.Thread(target=lambda: frames.extend(other.items()))
        before = psutil.Process().memory_info().rss
        beside.start()
        with pytest.raises(InputError, match=r"its frames are 8192×8192, more than the 9,437,184 pixels"):
            seen.extend(noting(confined_stream(grows.address, limits=Limits(memory_bytes=2 << 30)), taken))
        beside.join(30)
    assert sum(isinstance(item, LiveFrame) and item.pixels.shape == (180, 320) for item in seen) > 40
    assert all(item.pixels.shape == (180, 320) for item in seen if isinstance(item, LiveFrame))
    assert max(taken) - before < 100 << 20
    assert sum(isinstance(item, LiveFrame) for item in frames) > 50


def test_a_decoder_that_dies_or_hangs_is_one_sentence(folder: str) -> None:
    for number, words in (
        (signal.SIGKILL, "cannot be decoded within the memory limit"),
        (signal.SIGSTOP, "more than 1 s"),
    ):
        children = {child.pid for child in psutil.Process().children()}
        source = open_stream(folder, colour=False, options=replace(FAST, speed=1.0))
        items = source.items()
        assert isinstance(next(items), LiveFrame)  # the process has started, which takes seconds on a busy machine
        source._limits = Limits(frame_s=1.0)  # type: ignore[attr-defined]
        (own,) = {child.pid for child in psutil.Process().children()} - children
        os.kill(own, number)
        with pytest.raises(InputError, match=words):
            list(items)
        assert not psutil.pid_exists(own)


def test_a_stream_that_is_closed_leaves_no_process(folder: str) -> None:
    before = {child.pid for child in psutil.Process().children()}
    source = open_stream(folder, colour=False, options=replace(FAST, speed=1.0))
    items = source.items()
    next(items)
    source.close()
    assert len(list(items)) < 50
    assert {child.pid for child in psutil.Process().children()} == before


@confined
def test_the_process_is_confined(folder: str) -> None:
    source = open_stream(folder, colour=False, options=replace(FAST, speed=1.0))
    items = source.items()
    next(items)
    (own,) = (child for child in psutil.Process().children() if "streams.decoder" in " ".join(child.cmdline()))
    status = Path(f"/proc/{own.pid}/status").read_text()
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status
    assert "a.ts" not in " ".join(own.cmdline())  # others on the machine may see it, and it may hold a password
    source.close()
    list(items)


def test_files_and_devices_are_opened_here(tmp_path: Path, small: bytes) -> None:
    (tmp_path / "a.ts").write_bytes(small)
    assert not isinstance(open_stream(str(tmp_path / "a.ts"), colour=False), ConfinedStream)


def test_a_machine_of_a_cluster_writes_clips_of_streams_that_have_ended(folder: str) -> None:
    follower = Follower({}, 1000, None, True)
    order = StreamOrder(folder, 30.0, SourceOptions(give_up_s=1))
    items: list[Item] = []
    until = time.monotonic() + 30
    while not any(item.newest_s > 1.5 for item in items) and time.monotonic() < until:
        items += follower.follow({"a": order}, 0.2)[0]
    assert len(follower.clip("a", 0.0, 3.0)) > 1000
    follower.follow({}, 0.0)
    assert len(follower.clip("a", 0.0, 3.0)) > 1000
    assert follower.clip("b", 0.0, 3.0) == b""
