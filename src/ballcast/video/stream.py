"""Streams through PyAV: RTSP, HLS, transport streams over HTTP, TCP or UDP, capture devices, stdin.

A stream is read in stretches of frames without a hole. Lost packets, a damaged picture, a clock that jumps (an HLS
discontinuity) or another picture size end one, and the next begins at the next key frame; a connection that breaks is
opened again, ever less often, until `give_up_s` have passed without a frame. Between two stretches there is a
`StreamGap`, since the frames around it do not follow each other.
"""

import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.video.container import ALONE, HEAD, MAX_GAP_S, TOLERANT, decoded, known_not_video, video_stream
from ballcast.video.file import Grid
from ballcast.video.luma import pixels, turn_of
from ballcast.video.sources import DelayMeter, LiveFrame, Pacer, StreamGap

STDIN = "-"
UNPACED = frozenset({"rtsp", "rtsps", "udp", "rtp"})  # frames come when they are taken
PACED = frozenset({"http", "https", "tcp"})  # frames may come in bursts: HLS sends whole segments
DEVICES = frozenset({"v4l2", "avfoundation", "dshow"})  # v4l2:/dev/video0, avfoundation:0, dshow:video=Camera
CATCH_UP = 1.02  # bursts are played a little faster than real time, so that a slow clock of ours never falls behind
OPTIONS = {"rtsp": {"rtsp_transport": "tcp"}, "rtsps": {"rtsp_transport": "tcp"}}  # over UDP packets get lost
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0  # before opening again
LATE_MS = 10_000  # a broadcast that is read or decoded so late is opened again
SILENT_S = 10.0  # a connection that sends nothing for so long is broken


SECRETS = re.compile(r"(?i)(\w*(?:pass|pwd|token|secret|key|auth|sig)\w*)=[^&;/?#\s]*")  # in a path or query


def is_stream(address: str) -> bool:
    """Whether it names a stream and not a file; an InputError if it names something unknown."""
    scheme = scheme_of(address)
    if address == STDIN or scheme in UNPACED | PACED | DEVICES or address.endswith(".m3u8"):
        return True
    if "://" in address and scheme != "file":
        known = ", ".join(sorted(UNPACED | PACED))
        raise InputError(f"{shown(address)}: a stream's address begins with one of {known}")
    return _is_device(address)


def scheme_of(address: str) -> str:
    scheme, colon, rest = address.partition(":")
    known = rest.startswith("//") or scheme in DEVICES
    return scheme.lower() if colon and known else ""


def shown(address: str) -> str:
    """The address without a password, for people and logs."""
    if address == STDIN:
        return "stdin"
    address = SECRETS.sub(r"\1=***", address)
    parts = urlsplit(address) if "://" in address else None
    if parts is None or "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _is_device(address: str) -> bool:
    try:
        return stat.S_ISCHR(Path(address).stat().st_mode)
    except (OSError, ValueError):
        return False


class StreamSource:
    """A stream as a `LiveSource`.

    address: what `is_stream` takes. speed: of those that can wait (http, tcp, stdin), as in `Pacer`.
    give_up_s: how long a stream that broke is tried for. silent_s: without data for so long, it is broken.
    colour: frames are I420.
    """

    def __init__(
        self,
        address: str,
        *,
        speed: float = 1.0,
        give_up_s: float = 60.0,
        silent_s: float = SILENT_S,
        colour: bool = False,
    ) -> None:
        self.name, self._colour = shown(address), colour
        self._address = f"v4l2:{address}" if _is_device(address) else address
        self._scheme = scheme_of(self._address)
        self._waits = self._scheme not in UNPACED | DEVICES
        self._speed = speed if self._waits else 1.0
        self._give_up_s, self._silent_s = give_up_s, silent_s
        self._stopped = threading.Event()
        self._clock = _Clock(self._speed)

    @property
    def blocking(self) -> bool:
        return self._waits and not self._speed

    def close(self) -> None:
        self._stopped.set()

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        wait_s, broken_at = FIRST_WAIT_S, time.monotonic()
        reason, attempts, ever = "", 0, False
        while not self._stopped.is_set():
            try:
                container, stream = self._open()
            except InputError as error:
                if not ever:
                    raise
                reason = _reason(error, self.name)
            else:
                with container:
                    whole = self._address == STDIN or _is_recording(container)
                    if whole and ever:  # a broadcast that is over and can be watched again
                        return
                    reading = _Reading(container, stream, whole=whole, speed=self._speed)
                    for item in self._stretches(reading):
                        if isinstance(item, LiveFrame):
                            ever, attempts, wait_s, broken_at = True, 0, FIRST_WAIT_S, time.monotonic()
                        yield item
                reason = reading.reason
                if self._stopped.is_set() or (whole and ever and not reading.failed):
                    return
                if not ever:
                    raise InputError(f"{self.name}: {reason or 'ends without a single frame'}; {self._hint(container)}")
                if whole:
                    raise InputError(f"{self.name}: broke off: {reason}; start it again")
            if time.monotonic() - broken_at > self._give_up_s:
                fault = f"broke off and did not come back in {self._give_up_s:g} s"
                raise InputError(f"{self.name}: {fault} ({reason or 'it was closed'}); start it again")
            if not attempts:
                yield StreamGap("gap", f"{self.name}: broke off: {reason or 'it was closed'}")
            attempts += 1
            yield StreamGap("reconnecting", f"{self.name}: opening again in {wait_s:g} s, attempt {attempts}")
            if self._stopped.wait(wait_s):
                return
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            self._clock.restarts()

    def _open(self) -> tuple[InputContainer, VideoStream]:
        device = self._scheme in DEVICES
        place = self._address.partition(":")[2] if device else self._address
        piped = _Stdin() if self._address == STDIN else None
        try:
            container = av.open(
                piped or place,
                mode="r",
                format=self._scheme if device else None,
                options=ALONE if piped else OPTIONS.get(self._scheme, {}),
                timeout=None if piped else (self._silent_s, self._silent_s),
                **TOLERANT,
            )
        except (av.FFmpegError, OSError, ValueError) as error:
            if piped and (known := known_not_video(self.name, piped.head)):
                raise InputError(known) from None
            why = getattr(error, "strerror", None) or str(error)
            if isinstance(error, av.ExitError):
                why = f"no answer in {self._silent_s:g} s"
            fix = "pipe a video into it" if piped else "is the address right, and a video there?"
            raise InputError(f"{self.name}: cannot be read as a video stream ({why}); {fix}") from None
        return container, video_stream(container, self.name)

    def _hint(self, container: InputContainer) -> str:
        """What to do about a source that was opened and gave no frame."""
        if self._address == STDIN and "mp4" in container.format.name:
            return (
                "an MP4 whose index is at its end cannot be piped: "
                "pipe MPEG-TS (-f mpegts), or move its index to the front (-movflags faststart)"
            )
        return "is it a video?"

    def _stretches(self, reading: "_Reading") -> Iterator[LiveFrame | StreamGap]:
        """All of one connection's frames, a `StreamGap` wherever some are missing."""
        begun = False
        while not reading.over:
            reading.reason = ""
            try:
                for frame in self._stretch(reading):
                    begun = True
                    yield frame
                    if self._stopped.is_set():
                        return
            except InputError as error:
                reading.reason = _reason(error, self.name)
            if begun and (not reading.over or (reading.reason and reading.whole and not reading.failed)):
                yield StreamGap("gap", f"{self.name}: {reading.reason}")
                begun = False

    def _stretch(self, reading: "_Reading") -> Iterator[LiveFrame]:
        stream = reading.stream
        packets = reading.packets()
        pairs = decoded(reading.container, stream, self.name, threads=1, packets=packets, broken=reading.broken)
        first = next(pairs, None)
        if first is None:
            return
        assert stream.time_base is not None
        unit, size = Fraction(stream.time_base), (first[1].height, first[1].width)
        grid = Grid(origin=first[0], unit=unit, period=1 / Fraction(stream.average_rate or FPS))
        begin_ms, turn = self._clock.begin(first[0] * unit), turn_of(first[1], self.name)
        pacer = Pacer(self._speed * CATCH_UP if self._waits else 0.0, self._stopped)
        for n, picture in enumerate(grid.sample(chain([first], pairs))):
            if (picture.height, picture.width) != size:
                raise InputError(f"{self.name}: its size changes to {picture.width}×{picture.height}")
            own, at_ms = pixels(picture, turn, colour=self._colour), begin_ms + n * FRAME_MS
            if not pacer.wait(at_ms):
                return
            self._clock.end_ms, late_ms = at_ms + FRAME_MS, reading.lateness.of(at_ms)
            if late_ms > LATE_MS and not reading.whole:
                reading.over = True  # only a new connection begins where the stream is now
                raise InputError(f"{self.name}: its frames come {late_ms / 1000:.0f} s late")
            yield LiveFrame(own, at_ms, time.time(), picture, turn, late_ms)


class _Reading:
    """A connection's packets, handed out in stretches that end where some are missing or the clock jumps.

    whole: its end is the video's end, and not a break.
    """

    def __init__(self, container: InputContainer, stream: VideoStream, *, whole: bool, speed: float) -> None:
        assert stream.time_base is not None
        self.lateness = DelayMeter(speed)
        self.container, self.stream, self.whole = container, stream, whole
        self.over = False  # the connection has nothing more,
        self.failed = False  # since it could not be read any further
        self.reason = ""  # why the last stretch ended; "" at a proper end
        self._unit = Fraction(stream.time_base)
        self._all: Iterator[av.Packet] = (packet for packet in container.demux(stream) if packet.size)
        self._back: av.Packet | None = None

    def packets(self) -> Iterator[av.Packet]:
        """From the next key frame to the end of the stretch."""
        last: int | None = None
        begun = False
        while (packet := self._next()) is not None:
            # A recording may end inside a picture. Elsewhere a mark means a loss, in this packet or in the one
            # after it, which may come unmarked; but where the clock jumps too, it is a stream that was joined.
            if packet.is_corrupt:
                following = self._next()
                if following is None and self.whole:
                    yield packet  # the decoder's account will judge
                    return
                self.reason = "packets were lost"
                if following is not None and last is not None and self._jumps(last, following):
                    self._back, self.reason = following, "its clock jumps"
                if begun:
                    return
                continue
            if last is not None and self._jumps(last, packet):
                self._back, self.reason = packet, "its clock jumps"
                return
            begun = begun or packet.is_keyframe
            if begun:
                last = packet.dts if packet.dts is not None else last
                yield packet

    def _jumps(self, last: int, packet: av.Packet) -> bool:
        """Whether the packet's time does not follow the one before."""
        return packet.dts is not None and not -Fraction(1, 2) <= (packet.dts - last) * self._unit <= MAX_GAP_S

    def broken(self) -> bool:
        """Whether the last stretch ended where more should have come."""
        return bool(self.reason) or not (self.over and self.whole)

    def _next(self) -> av.Packet | None:
        if self._back is not None:
            packet, self._back = self._back, None
            return packet
        if self.over:
            return None
        try:
            for packet in self._all:
                return packet
        except BaseException:
            self.over = self.failed = True
            raise
        self.over = True
        return None


class _Clock:
    """The session's clock through breaks: by timestamps where they go on, else by the time that passed."""

    def __init__(self, speed: float) -> None:
        self.end_ms = 0  # of the last frame
        self._speed = speed
        self._began: float | None = None  # time.monotonic() of the first frame
        self._anchor: tuple[Fraction, int] | None = None  # a time on the stream's clock, and on ours

    def restarts(self) -> None:
        """The stream's clock means something else from now on."""
        self._anchor = None

    def begin(self, seconds: Fraction) -> int:
        """When a stretch begins whose first frame is at `seconds` on the stream's clock."""
        now = time.monotonic()
        if self._began is None:
            self._began, self._anchor = now, (seconds, 0)
            return 0
        at_ms = max(self.end_ms, round(1000 * (now - self._began) * self._speed))
        if self._anchor is not None:
            goes_on = self._anchor[1] + round(1000 * (seconds - self._anchor[0]))
            if 0 <= goes_on - self.end_ms <= 3_600_000:
                at_ms = goes_on
        self._anchor = (seconds, at_ms)
        return at_ms


class _Stdin:
    """Stdin for PyAV that keeps its first bytes, so that an error can name what is no video."""

    def __init__(self) -> None:
        self.head = b""

    def read(self, most: int) -> bytes:
        got = os.read(0, most)
        self.head += got[: HEAD - len(self.head)]
        return got


def _is_recording(container: InputContainer) -> bool:
    """Whether it states its length, unlike a broadcast; of HLS only the playlist has a size."""
    return container.duration is not None or (container.format.name != "hls" and container.size > 0)


def _reason(error: InputError, name: str) -> str:
    """The middle of a sentence: without the name before and the advice after it."""
    text = str(error).removeprefix(f"{name}: ")
    return text.partition(";")[0]
