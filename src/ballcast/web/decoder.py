"""Decoding what strangers upload, in a process of its own with bounds on memory, pixels and length.

A video is a program for FFmpeg's decoders. One made in bad faith can ask for gigabytes of frames, never end, or crash
them; whatever it does to this process, the server goes on and says why the video was refused.

`python -m ballcast.web.decoder BOUNDS PATH` writes one line of JSON about the video to stdout, then its frames
(H × W bytes each, 25 a second), as fast as somebody reads them. What is wrong is one sentence on stderr, exit code 2.
"""

import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.video.container import VideoInfo
from ballcast.web.settings import Limits

SNIFFED = 16  # bytes that tell the kind of file


@dataclass(frozen=True)
class Bounds:
    """What the decoding process keeps to. only_probe: it ends after the line about the video."""

    pixels: int
    seconds: float
    memory: int
    only_probe: bool = False


def kind_of(head: bytes) -> str | None:
    """The container a file's first bytes announce, of those that are nothing but a container; None for all else.

    FFmpeg would also open playlists and scripts, which lead it to other files and addresses: they never reach it.
    """
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "MP4"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "Matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "AVI"
    if head[:4] == b"\x00\x00\x01\xba":
        return "MPEG-PS"
    if head[:1] == b"\x47":
        return "MPEG-TS"
    return None


def probe(path: Path, name: str, limits: Limits) -> VideoInfo:
    """What the video says of itself, if it is one and within the limits; else an InputError that calls it `name`."""
    with _process(path, name, limits, only_probe=True) as process:
        return process.info


@contextmanager
def frames(path: Path, name: str, limits: Limits) -> Iterator[Iterator[np.ndarray]]:
    """Frames (H, W) uint8 at 25 fps, exactly those of `VideoFile`; errors call the video `name`."""
    with _process(path, name, limits) as process:
        yield process.frames()


class _Process:
    def __init__(self, running: subprocess.Popen[bytes], path: Path, name: str, limits: Limits) -> None:
        self._running, self._path, self._name, self._limits = running, path, name, limits
        assert running.stdout is not None
        self._pipe: IO[bytes] = running.stdout
        line = bytearray()
        while not line.endswith(b"\n"):
            if not (part := self._read(1)):
                raise self._failure()
            line += part
        self.info = VideoInfo(**json.loads(line))

    def frames(self) -> Iterator[np.ndarray]:
        size = self.info.height * self.info.width
        while True:
            frame = np.empty((self.info.height, self.info.width), np.uint8)
            view, got = frame.data.cast("B"), 0
            while got < size:
                if not (part := self._read(size - got, view[got:])):
                    break
                got += part
            if got < size:
                self._running.wait(10)
                if got or self._running.returncode:
                    raise self._failure()
                return
            yield frame

    def _read(self, most: int, into: memoryview | None = None) -> Any:
        """Bytes, or how many were read `into` memory; an InputError if none come for too long."""
        if not select.select([self._pipe], [], [], self._limits.frame_s)[0]:
            raise InputError(
                f"{self._name}: takes more than {self._limits.frame_s:.0f} s to decode a frame; encode it again"
            )
        return os.read(self._pipe.fileno(), most) if into is None else os.readv(self._pipe.fileno(), [into])

    def _failure(self) -> InputError:
        """What the process said before it ended, or that it ended without a word, as one that is bounded may."""
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(5)
        assert self._running.stderr is not None
        said = self._running.stderr.read(10_000).decode(errors="replace") if self._running.poll() is not None else ""
        if self._running.returncode == 2 and said.strip():
            return InputError(said.strip().splitlines()[-1].replace(str(InputError(self._path)), self._name))
        return InputError(f"{self._name}: cannot be decoded within the memory that is allowed; is it a video?")


@contextmanager
def _process(path: Path, name: str, limits: Limits, *, only_probe: bool = False) -> Iterator[_Process]:
    path = path.absolute()  # the process works in another folder
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    if kind_of(head) is None:
        raise InputError(f"{name}: is not a video in MP4, MOV, Matroska, WebM, AVI, MPEG-TS or MPEG-PS")
    bounds = Bounds(limits.pixels, limits.video_s, limits.memory_bytes, only_probe)
    running = subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(bounds)), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd="/",
    )
    try:
        yield _Process(running, path, name, limits)
    finally:
        running.kill()
        running.wait()
        for pipe in (running.stdout, running.stderr):
            assert pipe is not None
            pipe.close()


def _decode(bounds: Bounds, path: Path) -> None:
    """The process's own part."""
    from ballcast.video.file import VideoFile

    out = sys.stdout.buffer
    with VideoFile(path, threads=2) as video:
        info = video.probe()
        if info.height * info.width > bounds.pixels:
            most = f"more than the {bounds.pixels:,} pixels allowed here"
            raise InputError(f"{path}: its frames are {info.width}×{info.height}, {most}; scale it down")
        most = f"longer than the {bounds.seconds / 60:.0f} minutes allowed here"
        if info.duration_ms is not None and info.duration_ms > 1000 * bounds.seconds:
            raise InputError(f"{path}: is {most}; cut it")
        out.write(json.dumps(asdict(info)).encode() + b"\n")
        out.flush()
        if bounds.only_probe:
            return
        for number, frame in enumerate(video.frames()):
            if number >= FPS * bounds.seconds:
                raise InputError(f"{path}: is {most}; cut it")
            out.write(frame.data)
        out.flush()


def main(arguments: list[str]) -> int:
    bounds, path = Bounds(**json.loads(arguments[0])), Path(arguments[1])
    with suppress(ValueError, OSError):  # some systems know no such bound
        resource.setrlimit(resource.RLIMIT_AS, (bounds.memory, bounds.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # whoever only watches comes first
    said = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # FFmpeg may have more to say than a pipe nobody reads can hold
    try:
        _decode(bounds, path)
    except InputError as error:
        os.write(said, f"{error}\n".encode())
        return 2
    except BrokenPipeError:  # nobody reads any more
        os._exit(0)
    except MemoryError:
        os.write(said, f"{InputError(path)}: needs more memory to decode than is allowed here\n".encode())
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
