"""Decode untrusted videos in a separate process with bounds on memory, pixels and length, in a sandbox.

A hostile video can make FFmpeg allocate gigabytes, decode forever or crash. That ends only the decoder process: the
server continues and reports why the video was rejected. One that takes the process over can read that video, and
nothing else (`ballcast_server/confined/sandbox.py`).

`python -m ballcast_server.confined.decoder BOUNDS PATH` writes one line of JSON about the video to stdout, then its
frames, 25 per second of video, as fast as they are read: each is an empty line and H × W bytes, or 3/2 of that as I420.
A line of JSON is a gap, where frames are lost, or a scene, with a pitch or none.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Gap, Scene
from ballcast.video.container import VideoInfo
from ballcast.video.luma import array_shape, fitted
from ballcast_server.confined.pipes import pipe_reader
from ballcast_server.confined.process import run_confined, start
from ballcast_server.confined.sandbox import confine
from ballcast_server.settings import Limits

SNIFFED = 1024  # bytes that identify the container: several packets of MPEG-TS
LONGEST_LINE = 4096  # bytes of a line about the video or a gap
TS_PACKETS = (188, 204)  # sizes in bytes, the second with error correction; each packet begins with 0x47


@dataclass(frozen=True)
class Bounds:
    """Limits of the decoder process.

    Args:
        pixels: of a frame.
        seconds: length of the video.
        memory: bytes of address space.
        only_probe: end after the line about the video.
        colour: write frames as I420.
        any_video: do not look for a football pitch.
    """

    pixels: int
    seconds: float
    memory: int
    only_probe: bool = False
    colour: bool = False
    any_video: bool = True


def kind_of(head: bytes) -> str | None:
    """Identify the container of a video by its first bytes.

    FFmpeg would also open playlists and scripts, which refer to other files and addresses: these are not accepted.

    Args:
        head: the first bytes of the file, `SNIFFED` if it has as many.

    Returns:
        Name of the container; None: not one of those accepted.
    """
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "MP4"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "Matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "AVI"
    if head[:4] == b"\x00\x00\x01\xba":
        return "MPEG-PS"
    if any(len(head) > size and set(head[::size]) == {0x47} for size in TS_PACKETS):
        return "MPEG-TS"
    return None


def probe(path: Path, name: str, limits: Limits) -> VideoInfo:
    """Probe a video.

    Args:
        path: of the file.
        name: by which errors call the video.
        limits: bounds on size, length and memory.

    Returns:
        Size, length and rate of the video.

    Raises:
        InputError: not a video, or over the limits.
    """
    with _process(path, name, limits, only_probe=True) as process:
        return process.info


@contextmanager
def frames(
    path: Path, name: str, limits: Limits, *, colour: bool = False, any_video: bool = True
) -> Iterator[Iterator[np.ndarray | Gap | Scene]]:
    """Iterate over the video as `frames_and_scenes` does; for path, name and limits see `probe`."""
    with _process(path, name, limits, colour=colour, any_video=any_video) as process:
        yield process.frames(colour=colour)


class _Process:
    """The server's end of a decoder process."""

    def __init__(self, running: subprocess.Popen[bytes], path: Path, name: str, limits: Limits) -> None:
        self._running = running
        self._path = path
        self._name = name
        self._limits = limits
        assert running.stdout is not None
        self._reader = pipe_reader(running.stdout)
        line = self._line()
        if not line:
            raise self._failure()
        self.info = VideoInfo(**json.loads(line))

    def frames(self, *, colour: bool) -> Iterator[np.ndarray | Gap | Scene]:
        """Frames (H, W) uint8, or I420, gaps and scenes."""
        shape = array_shape(fitted((self.info.height, self.info.width), None, colour=colour), colour=colour)
        size = shape[0] * shape[1]
        while line := self._line():
            if line != b"\n":
                record = json.loads(line)
                yield Scene(**record) if "pitch" in record else Gap.from_json(record)
                continue
            frame = np.empty(shape, np.uint8)
            view = frame.data.cast("B")
            got = 0
            while got < size:
                if not (part := self._read(view[got:])):
                    raise self._failure()
                got += part
            yield frame
        self._running.wait(10)
        if self._running.returncode:
            raise self._failure()

    def _line(self) -> bytes:
        """The next line; nothing if the process has ended."""
        line = b""
        byte = bytearray(1)
        while not line.endswith(b"\n"):
            if not self._read(memoryview(byte)) or len(line) > LONGEST_LINE:
                return b""
            line += byte
        return line

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()

    def _read(self, view: memoryview) -> int:
        """Read bytes and return their number; raises InputError after `Limits.frame_s` without any."""
        count = self._reader.read_into(view, self._limits.frame_s)
        if count is None:
            raise InputError(
                f"{self._name}: decoding a frame takes more than {self._limits.frame_s:.0f} s; encode the video again"
            )
        return count

    def _failure(self) -> InputError:
        """The error that the process reported, or a general one if it was killed or ran out of memory."""
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(5)
        assert self._running.stderr is not None
        report = self._running.stderr.read(10_000).decode(errors="replace") if self._running.poll() is not None else ""
        if self._running.returncode == 2 and report.strip():
            return InputError(report.strip().splitlines()[-1].replace(str(InputError(self._path)), self._name))
        return InputError(f"{self._name}: cannot be decoded within the memory limit; is it a video?")


@contextmanager
def _process(
    path: Path,
    name: str,
    limits: Limits,
    *,
    only_probe: bool = False,
    colour: bool = False,
    any_video: bool = True,
) -> Iterator[_Process]:
    path = path.absolute()  # the process has another working directory
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    if kind_of(head) is None:
        raise InputError(f"{name}: not a video in MP4, MOV, Matroska, WebM, AVI, MPEG-TS or MPEG-PS")
    bounds = Bounds(limits.pixels, limits.video_s, limits.memory_bytes, only_probe, colour, any_video)
    running = start(__name__, json.dumps(asdict(bounds)), str(path), OMP_NUM_THREADS="1")
    try:
        with closing(_Process(running, path, name, limits)) as process:
            yield process
    finally:
        running.kill()
        running.wait()
        for pipe in (running.stdout, running.stderr):
            assert pipe is not None
            pipe.close()


def _decode(bounds: Bounds, path: Path) -> None:
    """Write the frames of a video to stdout; runs in the decoder process."""
    from ballcast.video.file import VideoFile
    from ballcast.video.pitch import frames_and_scenes

    confine(read=[path])
    out = sys.stdout.buffer
    with VideoFile(path, threads=2, strict=False) as video:
        info = video.probe()
        if info.height * info.width > bounds.pixels:
            most = f"more than the {bounds.pixels:,} pixels allowed here (--max-pixels)"
            raise InputError(f"{path}: its frames are {info.width}×{info.height}, {most}; scale it down")
        most = f"longer than the {bounds.seconds / 60:.0f} minutes allowed here (--max-minutes)"
        if info.duration_ms is not None and info.duration_ms > 1000 * bounds.seconds:
            raise InputError(f"{path}: is {most}; cut it")
        out.write(json.dumps(asdict(info)).encode() + b"\n")
        out.flush()
        if bounds.only_probe:
            return
        done = 0
        for item in frames_and_scenes(video, colour=bounds.colour, any_video=bounds.any_video):
            if isinstance(item, np.ndarray):
                done += 1
            elif isinstance(item, Gap):
                done = item.end_ms // FRAME_MS
            if done > FPS * bounds.seconds:
                raise InputError(f"{path}: is {most}; cut it")
            if isinstance(item, np.ndarray):
                out.write(b"\n")
                out.write(item.data)
            else:
                record = item.to_json() if isinstance(item, Gap) else asdict(item)
                out.write(json.dumps(record).encode() + b"\n")
        out.flush()


def main(arguments: list[str]) -> int:
    """Entry point of the decoder process; returns its exit code."""
    bounds = Bounds(**json.loads(arguments[0]))
    path = Path(arguments[1])
    out_of_memory = f"{InputError(path)}: decoding needs more memory than is allowed here"
    return run_confined(lambda: _decode(bounds, path), memory=bounds.memory, out_of_memory=out_of_memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
