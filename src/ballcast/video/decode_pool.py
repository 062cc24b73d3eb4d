"""Decode videos in separate processes, into memory shared with this one.

Threads would share one interpreter, whose lock the work in Python around every frame takes: 16 of them kept fewer than
two cores busy. Here a thread only waits for its process. On systems other than Linux the threads decode themselves.

A process is `python -m ballcast.video.decode_pool DEVICE`. It reads requests from the socket that is its standard
input, a packet of JSON each, and answers with one. Frames go into the memory whose descriptor comes with the request.
"""

import json
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import av
import numpy as np

from ballcast.core.errors import BallcastError, InputError
from ballcast.video.container import nvdec
from ballcast.video.file import VideoFile, open_video
from ballcast.video.luma import FrameResizer, Size, array_shape, fitted

T = TypeVar("T")
OPEN = 8  # videos a decoder keeps open
PACKET = 1 << 16  # bytes of a request or an answer: a path and a sentence fit


class SharedMemory:
    """Memory that decoders of other processes write into. array: (size,) uint8, which keeps it alive.

    Not multiprocessing's, which lies in /dev/shm: containers often have 64 MB there.
    """

    def __init__(self, size: int) -> None:
        self.fd: int | None = None
        if not hasattr(os, "memfd_create"):
            self.array = np.empty(size, np.uint8)
            return
        self.fd = os.memfd_create("ballcast-frames")
        weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, max(1, size))
        self.array = np.frombuffer(mmap.mmap(self.fd, max(1, size)), np.uint8)[:size]


@dataclass(frozen=True, slots=True)
class VideoSpec:
    """A video, and how its frames are wanted.

    size: H, W that frames are fitted into (see `FrameResizer`); None: their own. colour: as I420.
    """

    path: str
    size: Size | None = None
    colour: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """shape: of a frame's pixels, as fitted. seen: H, W of the frame. decoder: what decodes it, in words."""

    shape: Size
    seen: Size
    decoder: str


class Decoder(Protocol):
    """Decodes parts of videos. A part that follows the one before it is read on without seeking."""

    def open(self, recording: VideoSpec) -> Opened:
        """Open a video, or find it open; an InputError if it cannot be read."""
        ...

    def read(self, recording: VideoSpec, start: int, stop: int, memory: SharedMemory, offset: int = 0) -> int:
        """Write frames start … stop − 1 into the memory from byte `offset` on; return how many the video has."""
        ...

    def close(self) -> None:
        """Close all."""
        ...


class LocalDecoder:
    """Decodes in this process, on the thread that calls. device: "cpu", or "cuda" for NVDEC; see `open_video`."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._videos: OrderedDict[str, VideoFile] = OrderedDict()
        self._works = device == "cpu"  # known of NVDEC once it has decoded a frame
        self._context: av.CodecContext | None = None

    def open(self, recording: VideoSpec) -> Opened:
        video = self.video(recording.path)
        seen = fitted(video.size, recording.size, colour=recording.colour)
        return Opened(array_shape(seen, colour=recording.colour), seen, video.decoder)

    def read(self, recording: VideoSpec, start: int, stop: int, memory: SharedMemory, offset: int = 0) -> int:
        shape = self.open(recording).shape
        size = (stop - start) * shape[0] * shape[1]
        return self.fill(recording, start, memory.array[offset : offset + size].reshape(-1, *shape))

    def fill(self, recording: VideoSpec, start: int, out: np.ndarray) -> int:
        """Write frames from `start` on into `out` (T, …); return how many the video has of them."""
        fit = FrameResizer(recording.size, colour=recording.colour)
        try:
            return self.video(recording.path).read_into(out, start, colour=recording.colour, fit=fit)
        except (av.FFmpegError, NotImplementedError, RuntimeError) as error:
            if self._device == "cpu":
                raise
            video = self._videos[recording.path] = VideoFile(recording.path, threads=1)
            video.decoder = f"PyAV on the CPU, since NVDEC failed: {error}"
            return video.read_into(out, start, colour=recording.colour, fit=fit)

    def video(self, path: str) -> VideoFile:
        """The opened video."""
        if path not in self._videos:
            self._videos[path] = self._open(path)
        self._videos.move_to_end(path)
        while len(self._videos) > OPEN:
            self._videos.popitem(last=False)[1].close()
        return self._videos[path]

    def _open(self, path: str) -> VideoFile:
        if self._device == "cpu":
            return VideoFile(path, threads=1)
        if self._works:  # `open_video` would decode a frame on the GPU to find out
            return VideoFile(path, threads=1, accel=nvdec(self._device))
        with suppress(av.FFmpegError, NotImplementedError, RuntimeError):  # keeps the GPU's context between videos
            self._context = self._context or av.CodecContext.create("h264", "r", hwaccel=nvdec(self._device))
        video = open_video(path, device=self._device, threads=1)
        self._works = "NVDEC)" in video.decoder
        return video

    def close(self) -> None:
        while self._videos:
            self._videos.popitem()[1].close()


class ProcessDecoder:
    """A decoder in a separate process, started when it is first needed.

    device: as for `LocalDecoder`. Attribute busy_s: seconds of CPU time that its `read`s took.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.busy_s = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def open(self, recording: VideoSpec) -> Opened:
        answer = self._ask({"recording": asdict(recording)}, [])
        return Opened(tuple(answer["shape"]), tuple(answer["seen"]), answer["decoder"])

    def read(self, recording: VideoSpec, start: int, stop: int, memory: SharedMemory, offset: int = 0) -> int:
        assert memory.fd is not None
        part = {"start": start, "stop": stop, "offset": offset}
        answer = self._ask({"recording": asdict(recording), **part}, [memory.fd])
        self.busy_s += answer["busy_s"]
        return int(answer["frames"])

    def close(self) -> None:
        if self._running is not None and self._socket is not None:
            self._running.kill()
            self._running.wait()
            self._socket.close()
        self._running = self._socket = None

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        if self._socket is None:
            self._start()
        running, requests = self._running, self._socket  # `close` may come meanwhile, from another thread
        assert running is not None
        assert requests is not None
        try:
            socket.send_fds(requests, [json.dumps(request).encode()], descriptors)
            answer = requests.recv(PACKET)
        except OSError:
            answer = b""
        if not answer:
            code = running.wait()
            self.close()
            raise BallcastError(
                f"{request['recording']['path']}: the process that decoded it died (exit code {code}; out of memory?); "
                "run again with fewer workers"
            )
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise InputError(found["error"])
        if "fault" in found:
            raise RuntimeError(f"a decoder failed: {found['fault']}")
        return found

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(folder for folder in sys.path if folder)  # as it is here, whoever set it
        with theirs:
            self._running = subprocess.Popen(
                [sys.executable, "-m", __name__, self._device],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self._socket = ours


class DecoderPool:
    """Decoders, each with a thread of this process that gives it work.

    devices: what each decodes with, as for `LocalDecoder`.
    apart: whether they are processes; None: if there are several, where the system allows it.
    """

    def __init__(self, devices: Sequence[str], *, apart: bool | None = None) -> None:
        able = hasattr(os, "memfd_create") and hasattr(socket, "AF_UNIX")
        self.apart = able and (len(devices) > 1 if apart is None else apart)
        kind = ProcessDecoder if self.apart else LocalDecoder
        self._decoders: list[Decoder] = [kind(device) for device in devices]
        self._idle: queue.LifoQueue[Decoder] = queue.LifoQueue()  # few tasks keep to few processes
        for decoder in reversed(self._decoders):
            self._idle.put(decoder)
        self._threads = ThreadPoolExecutor(len(devices), thread_name_prefix="decode")

    def submit(self, task: Callable[[Decoder], T]) -> "Future[T]":
        """Run a task with one of the decoders, on its thread."""
        return self._threads.submit(self._run, task)

    def close(self) -> None:
        """End the decoders, and drop what they have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for decoder in self._decoders:
            if isinstance(decoder, ProcessDecoder):
                decoder.close()  # also ends what it is at
        self._threads.shutdown(wait=True)
        for decoder in self._decoders:
            decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, task: Callable[[Decoder], T]) -> T:
        decoder = self._idle.get()
        try:
            return task(decoder)
        finally:
            self._idle.put(decoder)


def _answer(local: LocalDecoder, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    about = request["recording"]
    recording = VideoSpec(**{**about, "size": tuple(about["size"]) if about["size"] else None})
    opened = local.open(recording)
    if not descriptors:
        return asdict(opened)
    start, stop, offset = (int(request[key]) for key in ("start", "stop", "offset"))
    size = (stop - start) * opened.shape[0] * opened.shape[1]
    first = offset - offset % mmap.ALLOCATIONGRANULARITY
    # Only this part, and all its pages at once: page by page costs several times as much.
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    memory = mmap.mmap(descriptors[0], offset - first + size, flags, offset=first)  # closed with the array over it
    out = np.frombuffer(memory, np.uint8, size, offset - first).reshape(-1, *opened.shape)
    began = time.process_time()
    return {"frames": local.fill(recording, start, out), "busy_s": time.process_time() - began}


def _serve(requests: socket.socket, local: LocalDecoder) -> None:
    """Answer requests until the other process closes the socket or ends."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(requests, PACKET, 1)
        if not packet:
            return
        try:
            answer = _answer(local, json.loads(packet), descriptors)
        except BallcastError as error:
            answer = {"error": str(error)}
        except Exception as error:  # a fault of ours: the other process raises it
            answer = {"fault": f"{type(error).__name__}: {error}"[:2000]}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        requests.send(json.dumps(answer).encode())


def main() -> None:
    """A decoder process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other process's to handle
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # FFmpeg's own messages
    try:
        with socket.socket(fileno=os.dup(0)) as requests:
            _serve(requests, LocalDecoder(sys.argv[1]))
    except OSError:  # the other process is gone
        os._exit(1)


if __name__ == "__main__":
    main()
