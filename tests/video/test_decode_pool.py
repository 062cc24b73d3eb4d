"""Decoders in processes of their own: the same bytes as here, and what happens when one dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from games import write_video

from ballcast.core.errors import BallcastError, InputError
from ballcast.video.decode_pool import Decoder, DecoderPool, LocalDecoder, SharedMemory, VideoSpec
from ballcast.video.file import VideoFile

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="decoders are threads on this system")


def moving(frames: int, size: tuple[int, int] = (32, 64)) -> np.ndarray:
    y, x = np.mgrid[: size[0], : size[1]]
    return np.stack([(2 * y + x + 3 * t) % 200 + 20 for t in range(frames)]).astype(np.uint8)


def running(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("size", [None, (16, 32)])
def test_a_process_gives_the_bytes_of_this_one(tmp_path: Path, colour: bool, size: tuple[int, int] | None) -> None:
    """Parts in order, which are read on, and out of order; two decoders at once, into one memory."""
    recording = VideoSpec(str(write_video(tmp_path / "ä.mp4", moving(90))), size, colour)
    here = LocalDecoder()
    opened = here.open(recording)
    frame = opened.shape[0] * opened.shape[1]
    parts = [(0, 20), (20, 50), (70, 90), (50, 70)]
    with DecoderPool(["cpu", "cpu"]) as pool:
        assert pool.apart
        assert pool.submit(lambda decoder: decoder.open(recording)).result() == opened
        both = SharedMemory(90 * frame)
        futures = [
            pool.submit(lambda decoder, a=a, b=b: decoder.read(recording, a, b, both, a * frame)) for a, b in parts
        ]
        assert [future.result() for future in futures] == [b - a for a, b in parts]
    single = SharedMemory(90 * frame)
    assert here.read(recording, 0, 90, single) == 90
    assert np.array_equal(both.array, single.array)
    assert both.array.std() > 10
    if size is None and not colour:
        with VideoFile(recording.path) as video:
            assert np.array_equal(both.array.reshape(90, 32, 64), video.read(0, 90))


def test_the_end_of_a_video_and_faults_come_back_as_they_are_here(tmp_path: Path) -> None:
    recording = VideoSpec(str(write_video(tmp_path / "a.mp4", moving(30))))
    (tmp_path / "b.mp4").write_bytes(b"<!doctype html>")
    memory = SharedMemory(100 * 32 * 64)
    with DecoderPool(["cpu"], apart=True) as pool:
        assert pool.submit(lambda decoder: decoder.read(recording, 10, 100, memory)).result() == 20
        with pytest.raises(InputError, match=r"b\.mp4: is a web page, not a video"):
            pool.submit(lambda decoder: decoder.open(VideoSpec(str(tmp_path / "b.mp4")))).result()
        whole = Path(recording.path).read_bytes()
        torn = tmp_path / "c.mp4"
        torn.write_bytes(whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :])
        with pytest.raises(InputError, match=r"c\.mp4: is corrupt at"):
            pool.submit(lambda decoder: decoder.read(VideoSpec(str(torn)), 0, 30, memory)).result()
        with pytest.raises(RuntimeError, match="a decoder failed: ValueError"):
            pool.submit(lambda decoder: decoder.read(recording, -5, 5, memory)).result()
        assert pool.submit(lambda decoder: decoder.read(recording, 0, 30, memory)).result() == 30  # it goes on


def test_a_decoder_that_dies_is_told_and_the_next_task_gets_a_new_one(tmp_path: Path) -> None:
    recording = VideoSpec(str(write_video(tmp_path / "a.mp4", moving(30))))

    def die(decoder: Decoder) -> None:
        decoder.open(recording)
        os.kill(decoder._running.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        decoder.open(recording)

    with DecoderPool(["cpu"], apart=True) as pool:
        with pytest.raises(BallcastError, match=r"a\.mp4: the process that decoded it died \(exit code -9"):
            pool.submit(die).result()
        assert pool.submit(lambda decoder: decoder.open(recording)).result().shape == (32, 64)


def test_decoders_end_with_their_parent_even_by_kill_9(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", moving(30))
    code = f"""
import time
from ballcast.video.decode_pool import DecoderPool, VideoSpec
pool = DecoderPool(["cpu"], apart=True)
print(pool.submit(lambda d: (d.open(VideoSpec({str(path)!r})), d._running.pid)).result()[1], flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert running(pid)
        parent.kill()
    deadline = time.monotonic() + 10
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(pid)


def test_memory_goes_with_its_array() -> None:
    before = len(os.listdir("/proc/self/fd"))
    array = SharedMemory(1 << 20).array
    array[:] = 7
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the map's own; the descriptor was closed
    assert (array == 7).all()
    del array
    assert len(os.listdir("/proc/self/fd")) == before
    assert SharedMemory(0).array.size == 0


@pytest.mark.gpu
def test_nvdec_gives_the_bytes_of_the_cpu(tmp_path: Path) -> None:
    """H.264 is decoded exactly; in colour too, since the conversion from NV12 only moves bytes."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    path = write_video(tmp_path / "a.mp4", moving(60, (144, 256)))
    for colour in (False, True):
        results = []
        for device in ("cpu", "cuda"):
            recording = VideoSpec(str(path), None, colour)
            memory = SharedMemory(60 * 144 * 256 * (3 if colour else 2) // 2)
            with DecoderPool([device], apart=True) as pool:
                opened = pool.submit(lambda decoder, r=recording: decoder.open(r)).result()
                assert (device == "cuda") == ("NVDEC)" in opened.decoder), opened.decoder
                pool.submit(lambda decoder, r=recording, m=memory: decoder.read(r, 0, 60, m)).result()
            results.append(memory.array)
        assert np.array_equal(*results)
