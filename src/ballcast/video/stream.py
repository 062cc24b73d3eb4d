"""Streams through PyAV: RTSP, RTMP, SRT, HLS, transport streams over HTTP, TCP or UDP, capture devices, stdin.

A stream is read in stretches of frames without a hole. Lost packets, a damaged frame, a clock that jumps (an HLS
discontinuity) or another frame size end one, and the next begins at the next key frame; a connection that breaks is
opened again, ever less often, until `give_up_s` have passed without a frame, and so is one that is not there yet.
Between two stretches there is a `StreamGap`, since the frames around it do not follow each other. Ours because PyAV
opens a stream but keeps no clock over a loss or a reconnection.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import chain

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.video.addresses import (
    DEVICES,
    PACED,
    PUSHED,
    STDIN,
    UNPACED,
    SrtReceiver,
    Stdin,
    is_device,
    scheme_of,
    shown,
)
from ballcast.video.container import ALONE, MAX_GAP_S, TOLERANT, declared_end, decoded, known_not_video, video_stream
from ballcast.video.luma import SquarePixels, pixels, turn_of
from ballcast.video.resample import FrameResampler
from ballcast.video.sources import DelayMeter, LiveFrame, Pacer, StreamClock, StreamGap

CATCH_UP = 1.02  # bursts are played a little faster than real time, so that a slow clock of ours never falls behind
OVER_TCP = {"rtsp_transport": "tcp"}  # over UDP packets get lost
SOON = {"analyzeduration": "1000000"}  # µs: FFmpeg else waits many seconds for sound that may never come
OPTIONS = {"rtsp": OVER_TCP, "rtsps": OVER_TCP, "rtmp": SOON, "rtmps": SOON}
# A playlist or the description of a session can name any file or address: each scheme opens only what it needs.
VIDEO = "asf,av1,avi,flv,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mpeg,mpegts,mpegvideo,mpjpeg,nut,obu,ogg"
HLS = f"{VIDEO},aac,ac3,eac3,hls,mp3,webvtt"
HTTP = {"protocol_whitelist": "crypto,data,http,httpproxy,https,tcp,tls", "format_whitelist": HLS}
RTSP = {"protocol_whitelist": "rtp,tcp,tls,udp", "format_whitelist": "rtsp"}
LOCAL = {"protocol_whitelist": "crypto,data,file", "format_whitelist": HLS}
ALLOWED = {
    "": LOCAL,  # a playlist that the user of the command line names
    "http": HTTP,
    "https": HTTP,
    "rtmp": {"protocol_whitelist": "rtmp,tcp", "format_whitelist": VIDEO},
    "rtmps": {"protocol_whitelist": "rtmps,tcp,tls", "format_whitelist": VIDEO},
    "rtp": {"protocol_whitelist": "rtp,udp", "format_whitelist": "rtp"},
    "rtsp": RTSP,
    "rtsps": RTSP,
    "srt": {"protocol_whitelist": "srt", "format_whitelist": VIDEO},
    "tcp": {"protocol_whitelist": "tcp", "format_whitelist": VIDEO},
    "udp": {"protocol_whitelist": "udp", "format_whitelist": VIDEO},
    **{device: {"protocol_whitelist": "file", "format_whitelist": device} for device in DEVICES},
}
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0  # before opening again
LATE_MS = 10_000  # a broadcast that is read or decoded so late is opened again
SILENT_S = 10.0  # a connection that sends nothing for this long is broken; without a frame, twice as long


class StreamSource:
    """A stream as a `LiveSource`.

    address: what `is_stream` takes. speed: of those that can wait (http, tcp, stdin), as in `Pacer`.
    give_up_s: how long a stream that broke, or is not there yet, is tried for.
    silent_s: without data for this long, it is broken. colour: frames are I420.
    check: called with the address before each connection, raises an InputError to refuse it; redirects of the address
    are then not followed.
    """

    def __init__(
        self,
        address: str,
        *,
        speed: float = 1.0,
        give_up_s: float = 60.0,
        silent_s: float = SILENT_S,
        colour: bool = False,
        check: Callable[[str], None] | None = None,
    ) -> None:
        self.name = shown(address)
        self._colour = colour
        self._check = check
        self._address = f"v4l2:{address}" if is_device(address) else address
        self._scheme = scheme_of(self._address)
        self._waits = self._scheme not in UNPACED | DEVICES
        self._speed = speed if self._waits else 1.0
        self._give_up_s = give_up_s
        self._silent_s = silent_s
        self._stopped = threading.Event()
        self._clock = StreamClock(self._speed)

    @property
    def blocking(self) -> bool:
        return self._waits and not self._speed

    def close(self) -> None:
        self._stopped.set()

    def items(self) -> Iterator[LiveFrame | StreamGap]:
        wait_s = FIRST_WAIT_S
        broken_at = time.monotonic()
        reason = ""
        attempts = 0
        ever = False
        while not self._stopped.is_set():
            try:
                with ExitStack() as opened:
                    container, stream = self._open(opened)
                    whole = self._address == STDIN or (self._scheme not in PUSHED and _is_recording(container))
                    if whole and ever:  # a broadcast that is over and can be watched again
                        return
                    reading = _Reading(container, stream, whole=whole, speed=self._speed)
                    reading.limit_s = 2 * self._silent_s
                    for item in self._stretches(reading):
                        if isinstance(item, LiveFrame):
                            ever = True
                            attempts = 0
                            wait_s = FIRST_WAIT_S
                            broken_at = time.monotonic()
                        yield item
                    reason = reading.reason
                    if self._stopped.is_set() or (whole and ever and not reading.failed):
                        return
                    if not ever:
                        kind = _Final if whole else InputError
                        fault = reason or "ends without a single frame"
                        raise kind(f"{self.name}: {fault}; {self._hint(container)}")
                    if whole:
                        raise _Final(f"{self.name}: broke off: {reason}; start it again")
            except InputError as error:
                late = time.monotonic() - broken_at > self._give_up_s
                if isinstance(error, _Final) or (not ever and (late or self._scheme in DEVICES | {""})):
                    raise InputError(str(error)) from None
                reason = _reason(error, self.name)
            if time.monotonic() - broken_at > self._give_up_s:
                fault = f"broke off and did not come back in {self._give_up_s:g} s"
                raise InputError(f"{self.name}: {fault} ({reason or 'it was closed'}); start it again")
            if ever and not attempts:
                yield StreamGap("gap", f"{self.name}: broke off: {reason or 'it was closed'}")
            attempts += 1
            again = "opening again" if ever else f"{reason}, trying again"
            yield StreamGap("reconnecting", f"{self.name}: {again} in {wait_s:g} s, attempt {attempts}")
            if self._stopped.wait(wait_s):
                return
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            self._clock.restarts()

    def _open(self, opened: ExitStack) -> tuple[InputContainer, VideoStream]:
        if self._check is not None:
            try:
                self._check(self._address)
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from None
        device = self._scheme in DEVICES
        place: str | Stdin | SrtReceiver = self._address.partition(":")[2] if device else self._address
        piped = None
        limits = (self._silent_s, self._silent_s)
        options = ALLOWED.get(self._scheme, LOCAL) | OPTIONS.get(self._scheme, {})
        if self._check is not None:
            options |= {"max_redirects": "0"}
        if self._address == STDIN:
            place = piped = Stdin()
        elif self._scheme == "srt":
            place = SrtReceiver(self._address, self._silent_s)
            opened.callback(place.close)
        try:
            container = av.open(
                place,
                mode="r",
                format=self._scheme if device else None,
                options=ALONE if piped else options,
                timeout=limits if isinstance(place, str) else None,
                **TOLERANT,
            )
        except (av.FFmpegError, OSError, ValueError) as error:
            if piped and (known := known_not_video(self.name, piped.head)):
                raise InputError(known) from None
            why = getattr(error, "strerror", None) or str(error)
            if isinstance(error, av.ExitError):
                why = f"no answer in {self._silent_s:g} s"
            fix = "pipe a video into it" if piped else "is the address right, and a video there?"
            if "max_redirects" in options and self._scheme in PACED:
                fix = "is the address right, a video there, and not a redirect, which is not followed?"
            # What a web server answers with will not become a video.
            final = isinstance(error, av.InvalidDataError) and self._scheme in ("http", "https")
            kind = _Final if final else InputError
            raise kind(f"{self.name}: cannot be read as a video stream ({why}); {fix}") from None
        opened.enter_context(container)
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
            if reading.over and not reading.failed and (short := reading.cut_short()):
                reading.failed = True
                reading.reason = short
            if begun and (not reading.over or (reading.reason and reading.whole and not reading.failed)):
                yield StreamGap("gap", f"{self.name}: {reading.reason}")
                begun = False

    def _stretch(self, reading: "_Reading") -> Iterator[LiveFrame]:
        stream = reading.stream
        packets = reading.packets()
        found = decoded(reading.container, stream, self.name, threads=1, packets=packets, broken=reading.broken)
        pairs = reading.noted(found)
        square = SquarePixels(stream.sample_aspect_ratio)
        first = next(pairs, None)
        if first is None:
            return
        assert stream.time_base is not None
        unit = Fraction(stream.time_base)
        shown = square(first[1])
        grid = FrameResampler(origin=first[0], unit=unit, period=1 / Fraction(stream.average_rate or FPS))
        begin_ms = self._clock.begin(first[0] * unit)
        turn = turn_of(first[1], self.name)
        pacer = Pacer(self._speed * CATCH_UP if self._waits else 0.0, self._stopped)
        for n, picture in enumerate(map(square, grid.sample(chain([first], pairs)))):
            if (picture.height, picture.width) != (shown.height, shown.width):
                raise InputError(f"{self.name}: its size changes to {picture.width}×{picture.height}")
            content = pixels(picture, turn, colour=self._colour)
            at_ms = begin_ms + n * FRAME_MS
            if not pacer.wait(at_ms):
                return
            self._clock.end_ms = at_ms + FRAME_MS
            late_ms = reading.lateness.of(at_ms)
            if late_ms > LATE_MS and not reading.whole:
                reading.over = True  # only a new connection begins where the stream is now
                raise InputError(f"{self.name}: its frames come {late_ms / 1000:.0f} s late")
            yield LiveFrame(content, at_ms, time.time(), picture, turn, late_ms=late_ms)
            reading.frame_at = time.monotonic()  # the reader may have taken its time


class _Final(InputError):
    """A fault that stays when the stream is opened again."""


class _Reading:
    """A connection's packets, handed out in stretches that end where some are missing or the clock jumps.

    whole: its end is the video's end, and not a break.
    """

    limit_s = 2 * SILENT_S  # without a frame it is broken, whatever comes; some have a key frame every ten seconds

    def __init__(self, container: InputContainer, stream: VideoStream, *, whole: bool, speed: float) -> None:
        assert stream.time_base is not None
        self.lateness = DelayMeter(speed)
        self.container = container
        self.stream = stream
        self.whole = whole
        self.over = False  # the connection has nothing more,
        self.failed = False  # since it could not be read any further
        self.reason = ""  # why the last stretch ended; "" at a proper end
        self._unit = Fraction(stream.time_base)
        self._all = self._of_video()
        self._back: av.Packet | None = None
        self.last: int | None = None  # timestamp of the last frame
        self.stretches = 0  # begun

    def packets(self) -> Iterator[av.Packet]:
        """From the next key frame to the end of the stretch."""
        last: int | None = None
        begun = False
        while (packet := self._next()) is not None:
            # A recording may end inside a frame. Elsewhere a mark means a loss, in this packet or in the one
            # after it, which may come unmarked; but where the clock jumps too, it is a stream that was joined.
            if packet.is_corrupt:
                following = self._next()
                if following is None and self.whole:
                    yield packet  # the decoder's account will judge
                    return
                self.reason = "packets were lost"
                if following is not None and last is not None and self._jumps(last, following):
                    self._back = following
                    self.reason = "its clock jumps"
                if begun:
                    return
                continue
            if last is not None and self._jumps(last, packet):
                self._back = packet
                self.reason = "its clock jumps"
                return
            begun = begun or packet.is_keyframe
            if begun:
                last = packet.dts if packet.dts is not None else last
                yield packet

    def _jumps(self, last: int, packet: av.Packet) -> bool:
        """Whether the packet's time does not follow the one before."""
        return packet.dts is not None and not -Fraction(1, 2) <= (packet.dts - last) * self._unit <= MAX_GAP_S

    def _of_video(self) -> Iterator[av.Packet]:
        """The video's packets; those of other streams only show that the connection is alive."""
        self.frame_at = time.monotonic()  # of the last frame that was given
        for packet in self.container.demux():
            if time.monotonic() - self.frame_at > self.limit_s:
                raise InputError(f"it sends data, but has given no picture for {self.limit_s:g} s")
            if packet.stream.index == self.stream.index and packet.size:
                yield packet

    def noted(self, pairs: Iterator[tuple[int, av.VideoFrame]]) -> Iterator[tuple[int, av.VideoFrame]]:
        """The same of a stretch; the last timestamp is kept."""
        self.stretches += 1
        for self.last, frame in pairs:
            yield self.last, frame

    def cut_short(self) -> str:
        """Of a recording that is over: where its frames end, if that is before its stated length; or ""."""
        container = self.container
        begin = (self.stream.start_time or 0) * self._unit
        end = declared_end(container, self.stream)
        slack = Fraction(1, 2)
        if end is None and container.format.name == "hls" and container.duration and self.stretches == 1:
            length = Fraction(container.duration, 1_000_000)  # of playlists, whose segments may be rounded to seconds
            end = begin + length
            slack = max(Fraction(1), length / 50)
        if not self.whole or end is None or self.last is None:
            return ""
        last = self.last * self._unit + 1 / Fraction(self.stream.average_rate or FPS)
        short = last < end - slack
        return f"its pictures end at {float(last - begin):.2f} s of {float(end - begin):.2f} s" if short else ""

    def broken(self) -> bool:
        """Whether the last stretch ended where more should have come."""
        return bool(self.reason) or not (self.over and self.whole)

    def _next(self) -> av.Packet | None:
        if self._back is not None:
            packet = self._back
            self._back = None
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


def _is_recording(container: InputContainer) -> bool:
    """Whether it states its length, unlike a broadcast; of HLS only the playlist has a size."""
    return container.duration is not None or (container.format.name != "hls" and container.size > 0)


def _reason(error: InputError, name: str) -> str:
    """The middle of a sentence: without the name before and the advice after it."""
    return str(error).removeprefix(f"{name}: ").partition(";")[0]
