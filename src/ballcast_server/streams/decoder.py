"""Streams of a network, received and decoded in a process each, with bounds on memory, pixels and time, in a sandbox.

A hostile stream can make FFmpeg allocate gigabytes, decode forever or crash. That ends its process and its session,
and nothing else: the server reports why, and follows the other streams. The latest packets stay in the process, too,
which writes the clips (`ring.py`).

`python -m ballcast_server.streams.decoder` reads an `Order` from stdin, a line of JSON, then commands, each a line:
`stills 1` and `stills 0` (previews are wanted or not), `clip NAME BEGIN END`, `check TEXT` (the answer to a question),
`stop`. It writes records to stdout: two lengths, then the JSON, then pixels and JPEG.
"""

import json
import os
import queue
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.files import replacing
from ballcast.live.reader import PreviewOptions
from ballcast.video.addresses import PACED, is_remote, scheme_of, shown
from ballcast.video.sources import LiveFrame, LiveSource, SourceOptions, Still, StreamGap, open_source
from ballcast.video.stream import StreamSource
from ballcast_server.confined.pipes import pipe_reader
from ballcast_server.confined.process import run_confined, start
from ballcast_server.confined.sandbox import confine
from ballcast_server.settings import Limits
from ballcast_server.streams.ring import RING_BYTES, PacketRing, RecordedStream

LENGTHS = struct.Struct("<II")  # of a record's JSON and of what follows it
LONGEST = 1 << 16  # bytes of a record's JSON
STILL_BYTES = 1 << 21
PIPE_BYTES = 1 << 20
CLIP_S = 30.0  # to write a clip
LINGER_S = 15.0  # that a process stays after its stream, besides the length of its ring: clips may still be due
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Order:
    """What a process is asked for.

    Args:
        address, speed, give_up_s, colour: see `StreamSource`.
        checked: ask before each connection.
        any_video: do not look for a football pitch.
        pixels: of a frame.
        memory: bytes of address space.
        still_ms, still_width: least time between two previews, and their largest width.
        ring_s: seconds of packets to keep; None: none.
        clips: folder that clips are written to.
    """

    address: str
    speed: float
    give_up_s: float
    colour: bool
    checked: bool
    any_video: bool
    pixels: int
    memory: int
    still_ms: int
    still_width: int
    ring_s: float | None
    clips: str


def open_stream(
    address: str,
    *,
    colour: bool,
    options: SourceOptions = SourceOptions(),
    limits: Limits = Limits(),
    any_video: bool = True,
    previews: PreviewOptions = PreviewOptions(),
    ring_s: float | None = None,
) -> LiveSource:
    """Open a source for a session of the server: a stream of a network in a process, a file or device here.

    Args:
        address, colour, options: see `open_source`.
        limits: on pixels, memory and time.
        any_video: do not look for a football pitch.
        previews: size and rate of the previews.
        ring_s: seconds of packets to keep for clips; None: none.
    """
    if is_remote(address):
        return ConfinedStream(address, options, limits, previews, colour=colour, any_video=any_video, ring_s=ring_s)
    if ring_s is not None:
        return RecordedStream(address, PacketRing(ring_s), options, colour=colour)
    return open_source(
        address,
        speed=options.speed,
        give_up_s=options.give_up_s,
        strict=options.strict,
        threads=options.threads,
        check=options.check,
        colour=colour,
    )


class ConfinedStream:
    """A stream of a network as a `LiveSource`; for the arguments see `open_stream`.

    Attributes:
        ring: its latest packets; None: they are not kept.
        watched: whether previews are wanted.
    """

    def __init__(
        self,
        address: str,
        options: SourceOptions,
        limits: Limits,
        previews: PreviewOptions,
        *,
        colour: bool,
        any_video: bool,
        ring_s: float | None,
    ) -> None:
        self.name = shown(address)
        self.watched: Callable[[], bool] = lambda: False
        self.ring = None if ring_s is None else ConfinedRing(ring_s)
        self.blocking = not options.speed and scheme_of(address) in PACED
        self._limits = limits
        self._check = options.check
        self._stopped = threading.Event()
        self._order = Order(
            address=address,
            speed=options.speed,
            give_up_s=options.give_up_s,
            colour=colour,
            checked=options.check is not None,
            any_video=any_video,
            pixels=limits.pixels,
            memory=limits.memory_bytes,
            still_ms=previews.every_ms,
            still_width=previews.width,
            ring_s=ring_s,
            clips="" if self.ring is None else self.ring.folder,
        )

    def close(self) -> None:
        self._stopped.set()

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
        running = start(__name__, stdin=subprocess.PIPE, OMP_NUM_THREADS="1", **proxies)
        process = _Process(running, json.dumps(asdict(self._order)))
        if self.ring is not None:
            self.ring.process = process
        try:
            yield from self._read(process)
        finally:
            process.command("stop")
            if self.ring is None or self.ring.newest_s < 0:
                process.end()
            else:
                later = threading.Timer(self.ring.seconds + LINGER_S, process.end)
                later.daemon = True
                later.start()

    def _read(self, process: "_Process") -> Iterator[LiveFrame | StreamGap]:
        stills = False
        while (record := self._record(process)) is not None:
            if self.watched() != stills:
                stills = not stills
                process.command(f"stills {int(stills)}")
            match record:
                case {"gap": "gap" | "reconnecting" as kind, "message": str(message)}:
                    yield StreamGap(kind, message)
                case {"check": str(address)}:
                    process.command(f"check {json.dumps(self._answer(address))}")
                case {"error": str(message)}:
                    raise InputError(message)
                case {"over": True}:
                    return
                case {"frame": dict(about)}:
                    if (frame := self._frame(process, about)) is None:
                        return
                    yield frame
                case _:
                    raise self._nonsense()

    def _answer(self, address: str) -> str:
        """Why the process may not connect to an address; "": it may."""
        if self._check is not None:
            try:
                self._check(address)
            except InputError as error:
                return str(error)
        return ""

    def _record(self, process: "_Process") -> dict[str, Any] | None:
        """The next record without what follows it; None: the source was closed."""
        lengths = self._bytes(process, LENGTHS.size)
        if lengths is None:
            return None
        length, self._follows = LENGTHS.unpack(lengths)
        if length > LONGEST or self._follows > 2 * self._limits.pixels + STILL_BYTES:
            raise self._nonsense()
        text = self._bytes(process, length)
        try:
            record = None if text is None else json.loads(text)
        except ValueError:
            raise self._nonsense() from None
        if text is not None and not isinstance(record, dict):
            raise self._nonsense()
        return record

    def _frame(self, process: "_Process", about: dict[str, Any]) -> LiveFrame | None:
        """A frame, whose pixels and preview are read; None: the source was closed."""
        try:
            rows, columns, jpeg = int(about["rows"]), int(about["columns"]), int(about["jpeg"])
            if min(rows, columns, jpeg) < 0 or rows * columns + jpeg != self._follows:
                raise ValueError
            content = np.empty((rows, columns), np.uint8)
            still = bytearray(jpeg)
            if not (process.fill(content.data.cast("B"), self) and process.fill(memoryview(still), self)):
                return None
            if self.ring is not None:
                self.ring.newest_s = float(about["newest_s"])
            return LiveFrame(
                content,
                int(about["at_ms"]),
                float(about["arrived"]),
                pitch=bool(about["pitch"]),
                late_ms=int(about["late_ms"]),
                time_s=None if about["time_s"] is None else float(about["time_s"]),
                still=Still(int(about["width"]), int(about["height"]), bytes(still)) if jpeg else None,
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._nonsense() from None

    def _bytes(self, process: "_Process", count: int) -> bytearray | None:
        view = bytearray(count)
        return view if process.fill(memoryview(view), self) else None

    def _nonsense(self) -> InputError:
        return InputError(f"{self.name}: its decoder broke; is it a video?")

    @property
    def stopped(self) -> bool:
        """Whether it was closed."""
        return self._stopped.is_set()

    @property
    def longest_s(self) -> float:
        """Time without a byte after which the process is given up."""
        return self._limits.frame_s


class _Process:
    """The server's end of a process."""

    def __init__(self, running: "subprocess.Popen[bytes]", order: str) -> None:
        self._running = running
        assert running.stdin is not None
        assert running.stdout is not None
        with suppress(ImportError, AttributeError, OSError):  # not Linux, or the user has too many of such pipes
            import fcntl

            fcntl.fcntl(running.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._reader = pipe_reader(running.stdout)
        self._commands = threading.Lock()
        self.command(order)

    def command(self, line: str) -> None:
        """Send a command; nothing if the process has ended."""
        assert self._running.stdin is not None
        with self._commands, suppress(BrokenPipeError, ValueError):
            self._running.stdin.write(line.encode() + b"\n")
            self._running.stdin.flush()

    def fill(self, view: memoryview, source: ConfinedStream) -> bool:
        """Read as many bytes as fit; False: the source was closed. An InputError if the process ends or is silent."""
        got = 0
        began = time.monotonic()
        while got < len(view):
            if source.stopped:
                return False
            part = self._reader.read_into(view[got:], 0.25)
            if part == 0:
                raise self._failure(source.name)
            if part is None and time.monotonic() - began > source.longest_s:
                raise InputError(f"{source.name}: decoding a frame takes more than {source.longest_s:.0f} s")
            got += part or 0
        return True

    def end(self) -> None:
        """End the process."""
        self._running.kill()
        self._running.wait()
        self._reader.close()
        for pipe in (self._running.stdin, self._running.stdout, self._running.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._running.poll() is not None

    def _failure(self, name: str) -> InputError:
        """The error that the process reported, or a general one if it was killed or ran out of memory."""
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(5)
        assert self._running.stderr is not None
        report = self._running.stderr.read(10_000).decode(errors="replace") if self.ended else ""
        if self._running.returncode == 2 and report.strip():
            return InputError(report.strip().splitlines()[-1])
        return InputError(f"{name}: cannot be decoded within the memory limit; is it a video?")


class ConfinedRing:
    """The latest packets of a stream, in its process; see `PacketRing`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.newest_s = -1.0
        self.process: _Process | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="ballcast-clips-")
        self._count = 0
        self._lock = threading.Lock()

    @property
    def folder(self) -> str:
        """Where the process writes clips."""
        return self._folder.name

    def write(self, path: Path, begin_s: float, end_s: float) -> bool:
        """Write the packets of these seconds on its clock, from the key frame before; False: there are none."""
        with self._lock:
            self._count += 1
            clip = Path(self.folder, f"{self._count}.mp4")
            none = clip.with_suffix(".none")
            until = time.monotonic() + CLIP_S
            if self.process is None:
                return False
            self.process.command(f"clip {clip.name} {begin_s} {end_s}")
            while time.monotonic() < until and not (clip.exists() or none.exists() or self.process.ended):
                time.sleep(0.02)
            if not clip.is_file() or clip.is_symlink():
                return False
            try:
                with replacing(path) as new:
                    shutil.copyfile(clip, new)
            finally:
                clip.unlink(missing_ok=True)
        return True


# ------------------------------------------------------------------------------------------------------ in the process


class _Follower:
    """Follows a stream in the process, and obeys commands."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._ring = None if order.ring_s is None else PacketRing(order.ring_s)
        self._stills = False
        self._still_at = -1e9
        self._answers: queue.Queue[str] = queue.Queue()
        check = self._ask if order.checked else None
        options = SourceOptions(speed=order.speed, give_up_s=order.give_up_s, check=check)
        if self._ring is not None:
            self._source: StreamSource = RecordedStream(order.address, self._ring, options, colour=order.colour)
        else:
            self._source = StreamSource(
                order.address, speed=order.speed, give_up_s=order.give_up_s, colour=order.colour, check=check
            )

    def run(self) -> None:
        """Confine the process and follow the stream to its end."""
        from ballcast.video.pitch import PitchDetector
        from ballcast.video.stills import to_jpeg

        self._to_jpeg = to_jpeg
        self._detector = None if self._order.any_video else PitchDetector()
        ffmpeg = shutil.which("ffmpeg") if scheme_of(self._order.address) == "srt" else None
        clips = [Path(self._order.clips)] if self._order.clips else []
        confine(read=[], write=clips, network=True, programs=[Path(ffmpeg).resolve()] if ffmpeg else [])
        threading.Thread(target=self._obey, name="commands", daemon=True).start()
        try:
            for item in self._source.items():
                if isinstance(item, StreamGap):
                    self._send({"gap": item.kind, "message": item.message})
                else:
                    self._send_frame(item)
            self._send({"over": True})
        except InputError as error:
            self._send({"error": str(error)})
        if self._ring is not None:
            threading.Event().wait()  # clips may be due; it ends with stdin

    def _obey(self) -> None:
        for line in sys.stdin.buffer:
            name, _, rest = line.decode().strip().partition(" ")
            if name == "stills":
                self._stills = rest == "1"
            elif name == "check":
                self._answers.put(json.loads(rest))
            elif name == "clip":
                self._write_clip(*rest.split())
            elif name == "stop":
                self._source.close()
                if self._ring is None:
                    break
        os._exit(0)

    def _write_clip(self, name: str, begin: str, end: str) -> None:
        clip = Path(self._order.clips, name)
        assert self._ring is not None
        try:
            written = self._ring.write(clip, float(begin), float(end))
        except Exception:  # packets that no mp4 can hold, a full disk
            written = False
        if not written:
            clip.with_suffix(".none").touch()

    def _ask(self, address: str) -> None:
        self._send({"check": address})
        if fault := self._answers.get():
            raise InputError(fault)

    def _send_frame(self, frame: LiveFrame) -> None:
        picture, order = frame.picture, self._order
        assert picture is not None
        assert frame.turn is not None
        if picture.width * picture.height > order.pixels:
            most = f"more than the {order.pixels:,} pixels allowed here (--max-pixels)"
            raise InputError(f"{self._source.name}: its frames are {picture.width}×{picture.height}, {most}")
        if self._detector is not None:
            self._detector.look(frame.at_ms // FRAME_MS, picture)
        width = 0
        height = 0
        jpeg = b""
        if self._stills and time.monotonic() - self._still_at >= order.still_ms / 1000:
            self._still_at = time.monotonic()
            with suppress(Exception):  # whatever the encoder or a picture of an unusual kind leads to
                width, height, jpeg = self._to_jpeg(picture, frame.turn, order.still_width)
        rows, columns = frame.pixels.shape
        about = {
            "rows": rows,
            "columns": columns,
            "at_ms": frame.at_ms,
            "arrived": frame.arrived,
            "late_ms": frame.late_ms,
            "pitch": self._detector is None or self._detector.pitch,
            "time_s": picture.time,
            "newest_s": -1.0 if self._ring is None else self._ring.newest_s,
            "width": width,
            "height": height,
            "jpeg": len(jpeg),
        }
        self._send({"frame": about}, frame.pixels, jpeg)

    def _send(self, record: dict[str, Any], pixels: np.ndarray | None = None, jpeg: bytes = b"") -> None:
        text = json.dumps(record).encode()
        out = sys.stdout.buffer
        out.write(LENGTHS.pack(len(text), (0 if pixels is None else pixels.size) + len(jpeg)) + text)
        if pixels is not None:
            out.write(np.ascontiguousarray(pixels).data)
        out.write(jpeg)
        out.flush()


def main() -> int:
    """Entry point of the process; returns its exit code."""
    order = Order(**json.loads(sys.stdin.buffer.readline()))

    def work() -> None:
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (2 * RING_BYTES, 2 * RING_BYTES))
        _Follower(order).run()

    out_of_memory = f"{shown(order.address)}: decoding needs more memory than is allowed here"
    return run_confined(work, memory=order.memory, out_of_memory=out_of_memory, lower=False)


if __name__ == "__main__":
    sys.exit(main())
