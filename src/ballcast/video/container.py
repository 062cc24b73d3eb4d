"""Open a video container and decode its packets; damage is found and reported as one sentence with its time.

The damage is counted here because FFmpeg conceals it: a spoilt frame comes out like a whole one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import av
from av.codec.hwaccel import HWAccel, hwdevices_available
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import PictureType
from av.video.stream import VideoStream

from ballcast.core.actions import FPS
from ballcast.core.backbone_config import MAX_SIDE
from ballcast.core.errors import InputError
from ballcast.core.files import reading
from ballcast.video.damage import DamageError, video_packets

# Titles in unknown encodings must not keep a video from opening. PyAV 19 sees to that itself and takes no such option.
TOLERANT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
# Playlists and descriptions of sessions call themselves what they like and lead FFmpeg to other files and addresses,
# for which it may wait minutes. They are not videos.
_LEADING = {"concat", "dash", "hls", "lavfi", "rtp", "rtsp", "sap", "sdp", "webm_dash_manifest"}
ALONE = {"protocol_whitelist": "file", "format_whitelist": ",".join(sorted(av.formats_available - _LEADING))}

SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".ts", ".mpg", ".mpeg")  # of video files
HEAD = 1024  # bytes enough to recognise a file's kind


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Metadata of a video file, known once its first frame is decoded."""

    container: str  # "mov,mp4,m4a,3gp,3g2,mj2"
    codec: str  # "h264"
    pixels: str  # "yuv420p"
    height: int  # of the upright frame
    width: int
    rate: float | None  # frames a second on average, as the file states it
    duration_ms: int | None  # None: not stated in the file


def open_container(path: Path, accel: HWAccel | None = None) -> tuple[InputContainer, VideoStream]:
    """Open the container and its video stream (cover art does not count), ready to decode, by `accel` where given."""
    with reading(path, "video") as file:
        if not file.read(1):
            raise InputError(f"{path}: is empty (0 bytes); fetch it again")
    try:
        container = av.open(str(path), mode="r", hwaccel=accel, options=ALONE, **TOLERANT)
    except (av.FFmpegError, OSError, ValueError) as error:
        if accel is not None:  # it may be the device's fault, and then the CPU can open it
            raise
        raise InputError(_why_not(path, error)) from None
    return container, video_stream(container, path)


def video_stream(container: InputContainer, name: Path | str) -> VideoStream:
    """The container's video stream, ready to decode; `name` is for the error where there is none."""
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        others = " and ".join(sorted({s.type for s in container.streams}))
        container.close()
        raise InputError(f"{name}: has no video stream{others and f', only {others}'}; give a video")
    if streams[0].codec_context is None:
        container.close()
        raise InputError(f"{name}: is coded in a way that PyAV has no decoder for; encode it again as H.264")
    context = streams[0].codec_context
    if max(context.width, context.height) > MAX_SIDE:
        size = f"{context.width}×{context.height}"
        container.close()
        raise InputError(f"{name}: has pictures of {size}, above {MAX_SIDE} pixels a side; scale it down")
    return streams[0]


def declared_end(container: InputContainer, stream: VideoStream) -> Fraction | None:
    """End of the video stream in seconds on its own clock; None where the file does not state it for this stream."""
    assert stream.time_base is not None
    if stream.duration:
        return (stream.duration + (stream.start_time or 0)) * stream.time_base
    tag = stream.metadata.get("DURATION", "")  # Matroska: "00:00:08.000000000"
    try:
        hours, minutes, seconds = tag.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
    except ValueError:
        pass
    only = len(container.streams) == 1 and "matroska" in container.format.name
    return Fraction(container.duration, 1_000_000) if only and container.duration else None


def _why_not(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        head = file.read(HEAD)
    if known := known_not_video(path, head):
        return known
    if head[4:8] == b"ftyp":
        return f"{path}: the MP4 is cut short, its index (moov) at the end is missing; fetch it again"
    return f"{path}: is not a video that can be read ({getattr(error, 'strerror', None) or error})"


def known_not_video(name: Path | str, head: bytes) -> str | None:
    """Error message for a file that is often mistaken for a video, by its first bytes; None: not recognised."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"#extm3u", b"ffconcat", b"v=0")) or b"<mpd" in start:
        return f"{name}: is a playlist, not a video; give the video itself, or a stream's address to `ballcast live`"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return f"{name}: is a web page, not a video; the download went wrong, fetch it again"
    if start.startswith(b"version https://git-lfs"):
        return f"{name}: is a Git LFS pointer, not a video; fetch the file itself (git lfs pull)"
    return None


MAX_GAP_S = 2  # a longer silence between two frames is lost video, not a still picture
# Decoders that give one frame for every packet, so that a frame lost inside them can be noticed.
_ONE_TO_ONE = frozenset({"h264", "hevc", "vp9", "av1", "libdav1d"})
_REMUX = "ffmpeg -i IN -c copy OUT.mp4"
_Timed = tuple[int, av.VideoFrame]


class _Damage(Exception):
    """A frame that is not what was coded, at timestamp `at`; it may `spread` to some that are shown before it."""

    def __init__(self, at: int, *, spreads: bool) -> None:
        self.at = at
        self.spreads = spreads


def decoded(
    container: InputContainer,
    stream: VideoStream,
    path: Path | str,
    *,
    threads: int = 0,
    sought: int | None = None,
    origin: int | None = None,
    packets: Iterator[av.Packet] | None = None,
    begins: bool = False,
    broken: Callable[[], bool] = lambda: False,
) -> Iterator[_Timed]:
    """The stream's frames in order of time, each with its timestamp; damage is a `DamageError` that gives its time.

    container, stream: freshly opened. path: for the messages. threads: 0: one per core; H.264 is decoded by one.
    sought: begin at the key frame before this timestamp; None: at the beginning.
    origin: timestamp of the video's first frame, which the times in messages count from.
    packets: decode these, which may begin anywhere in the stream, from the first key frame among them on.
    begins: the packets begin where the stream does.
    broken: called at their end; true if more should have come. Then the last few frames are left out: a lost one
    may belong between them, which would pass for a still picture.
    """
    if stream.codec_context.is_open:
        stream.codec_context.flush_buffers()
    else:
        stream.thread_type = "AUTO"
        # With several, FFmpeg's h264 may give a frame out before the thread that decodes it finds it damaged.
        stream.codec_context.thread_count = 1 if stream.codec_context.name == "h264" else threads
    if sought is not None:
        container.seek(sought, stream=stream, backward=True)
    account = _Account(path, stream, origin)
    # A damaged frame spoils those that are predicted from it, and B-frames among them are shown before it is. So
    # frames wait here until no later one can be their source.
    waiting: deque[_Timed] = deque()
    begun = begins or (sought is None and packets is None)
    fault: InputError | None = None
    try:
        every = video_packets(container, stream) if packets is None else packets
        for packet in _packets(container, every, account, begins=begun):
            for frame in account.decode(packet):
                begun = begun or frame.key_frame
                if begun:  # what comes out before the key frame refers to frames that were not read
                    waiting.append((account.check(frame), frame))
            while len(waiting) > stream.codec_context.reorder_depth:
                yield waiting.popleft()
        account.close()
    except _Damage as damage:
        at = damage.at
        while damage.spreads and waiting and waiting[-1][1].pict_type == PictureType.B:
            at = min(at, waiting.pop()[0])
        fault = account.sentence(at)
    except InputError as error:
        fault = error
    if not broken():
        yield from waiting
    if fault is not None:
        raise fault


def _packets(
    container: InputContainer, every: Iterator[av.Packet], account: "_Account", *, begins: bool
) -> Iterator[av.Packet | None]:
    """The stream's packets up to the first incomplete one, then None: the frames still in the decoder are good.

    begins: the first packet is the first of the whole stream.
    """
    packets = (packet for packet in every if packet.size)
    # A transport stream is cut anywhere, so a mark on its very first or last packet is no loss inside it.
    transport = container.format.name == "mpegts"
    try:
        for packet in packets:
            if packet.is_corrupt and not (transport and begins):
                last = next(packets, None) is None
                if not (transport and last):
                    account.incomplete(packet, cut=last)
                    break
            begins = False
            yield packet
    except (av.FFmpegError, OSError) as error:
        why = "nothing came in time" if isinstance(error, av.ExitError) else error.strerror
        account.unreadable = f"cannot be read further ({why})"
    except IndexError:  # PyAV knows only the streams that were there when it opened the file
        account.unreadable = "cannot be read further (another stream begins inside it)"
    yield None


class _Account:
    """Which packets went into the decoder and have not come out as a frame yet, by timestamp."""

    def __init__(self, path: Path | str, stream: VideoStream, origin: int | None) -> None:
        assert stream.time_base is not None
        self._path = path
        self._stream = stream
        self._origin = origin
        self._unit = Fraction(stream.time_base)
        self._most_ticks = floor(MAX_GAP_S / self._unit)  # between two frames; fractions would be slow
        self._avi = stream.container.format.name == "avi"  # its times are of decoding, not of display
        self._counts = stream.codec_context.name in _ONE_TO_ONE and not self._avi
        self._pending: set[int] = set()
        self._hole: int | None = None  # timestamp of a packet before which bytes of the file belong to none
        self._period = floor(1 / Fraction(stream.average_rate or FPS) / self._unit)
        # Some recorders, and AVI, give every packet the time of its decoding. Then a B-frame contradicts them, and
        # frames, which come in order of display, take these times in order.
        self._unsorted = True  # all packets until now have the same time of decoding and of display
        self._by_decoding = False
        self._ahead: int | None = None  # AVI: ticks by which frames are decoded before they are shown
        self._last: int | None = None  # timestamp of the last good frame
        self._cut: bool | None = None  # a packet was incomplete: as the file ends there (True), or else
        self._incomplete: int | None = None  # that packet's timestamp: no frame after it may pass
        self.unreadable = ""

    def incomplete(self, packet: av.Packet, *, cut: bool) -> None:
        self._cut = cut
        self._incomplete = packet.pts if packet.pts is not None else self._last or 0

    def decode(self, packet: av.Packet | None) -> list[av.VideoFrame]:
        """The frames that come out when this packet goes in; None: all that are left."""
        if packet is not None and packet.pts is not None and not packet.is_discard:
            self._pending.add(packet.pts)
            self._unsorted = self._unsorted and packet.pts == packet.dts
            self._hole = packet.pts if packet.opaque else self._hole
        try:
            return self._stream.decode(packet)
        except av.EOFError:
            return []
        except av.FFmpegError:
            # The decoder reports in its own order, so what came out until now was decoded before the damage.
            raise _Damage(min(self._pending, default=self._last or 0), spreads=False) from None

    def check(self, frame: av.VideoFrame) -> int:
        """The frame's timestamp, if it is whole, follows the one before it, and none between them is missing."""
        at, last = frame.pts, self._last
        if at is None:
            raise InputError(f"{self._path}: its frames carry no times; give it a container that has them: {_REMUX}")
        self._by_decoding = self._by_decoding or (self._unsorted and frame.pict_type == PictureType.B)
        if self._by_decoding:
            self._counts = False
            at = min(self._pending, default=at)
        elif self._avi and last is not None:
            decoded_at = at if frame.dts is None else frame.dts  # ahead of its display by as much as frames wait
            self._ahead = decoded_at - last - 1 if self._ahead is None else self._ahead
            at = max(decoded_at - max(0, self._ahead), last + 1)
        if self._origin is None:
            self._origin = at
        if last is None:  # an edit list, or a recording that begins between key frames: expect nothing earlier
            self._pending = {t for t in self._pending if t >= at}
        self._counts = self._counts and not frame.interlaced_frame  # a field may be a separate packet
        lost = min(self._missing(), default=at)
        if self._hole is not None:
            if last is not None and 2 * (at - last) > 3 * self._period:  # in the file and on its clock: they are lost
                lost = min(lost, last + 1)
            self._hole = self._hole if at < self._hole else None
        if frame.is_corrupt or lost < at:
            raise _Damage(min(lost, at), spreads=self._cut is None)
        if last is not None and at < last:
            clock = f"at {self._time(at)} the clock of its frames runs backwards"
            raise DamageError(f"{self._path}: {clock}; remux it: {_REMUX}", last, "the clock runs backwards")
        if last is not None and at - last > self._most_ticks:
            gap = f"has no pictures between {self._time(last)} and {self._time(at)}"
            raise DamageError(f"{self._path}: {gap}; fetch it again, or cut it there", last, "there are no pictures")
        self._pending = {t for t in self._pending if t > at}
        self._last = at
        return at

    def close(self) -> None:
        """The stream is over: everything must have come out."""
        if missing := self._missing():
            raise _Damage(min(missing), spreads=self._cut is None)
        if self.unreadable:
            raise _Damage(self._last or 0, spreads=False)

    def _missing(self) -> set[int]:
        """Timestamps of the frames that have not come out and should."""
        due = self._pending if self._counts else set()
        return due if self._incomplete is None else due | {self._incomplete}

    def sentence(self, at: int) -> DamageError:
        if self.unreadable:
            fault = f"{self.unreadable} after {self._time(at)}"
            reason = "the file cannot be read further"
        elif self._cut:
            fault = f"is cut short, it ends inside the picture at {self._time(at)}"
            reason = "the file is cut short"
        else:
            fault = f"is corrupt at {self._time(at)}, where a picture is damaged"
            reason = "a picture is damaged"
        return DamageError(f"{self._path}: {fault}; fetch it again", at, reason)

    def _time(self, at: int) -> str:
        return f"{float((at - (self._origin or 0)) * self._unit):.2f} s"


def is_video(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def clip_video(folder: Path, *, missing_ok: bool = False) -> Path:
    """Find the only video of a clip's folder; an InputError if there are several, such as two resolutions.

    Args:
        folder: such as `train/clip_1`.
        missing_ok: if there is none, return the path it should have instead of raising an InputError.
    """
    videos = sorted(path for path in folder.glob("*") if is_video(path))
    if len(videos) > 1 or not (videos or missing_ok):
        raise InputError(f"{folder}: has {len(videos)} videos; a clip's folder must have one")
    return videos[0] if videos else folder / "224p.mp4"  # missing: listed as failed, the others are still extracted


def decoder_report() -> dict[str, str]:
    """What decodes here, for `ballcast doctor`: the library, and whether it knows NVDEC (not whether there is one)."""
    codec = ".".join(map(str, av.library_versions["libavcodec"]))
    built = "cuda" in hwdevices_available()
    return {
        "decoder": f"PyAV {av.__version__}, libavcodec {codec}",
        "nvdec": "built in; used for device cuda if the driver allows" if built else "not in this build of PyAV",
    }


def nvdec(device: str) -> HWAccel:
    """The decoder of a GPU, "cuda" or "cuda:1", for `VideoFile`; whether it works shows when it decodes."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise InputError(f"device {device!r} is not one that decodes; give cpu, cuda or cuda:1")
    # The process's own context of the GPU, not a new one for every video: those take a tenth of a second to make.
    return HWAccel("cuda", device=number or "0", allow_software_fallback=False, options={"primary_ctx": "1"})
