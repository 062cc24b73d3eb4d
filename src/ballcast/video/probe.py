"""Opening a video and saying, in one sentence each, why one cannot be opened."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.codec.hwaccel import HWAccel
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from ballcast.core.errors import InputError
from ballcast.core.files import reading

# Titles in unknown encodings must not keep a video from opening. PyAV 19 sees to that itself and takes no such option.
TOLERANT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
# Playlists and descriptions of sessions call themselves what they like and lead FFmpeg to other files and addresses,
# for which it may wait minutes. They are not videos.
_LEADING = {"concat", "dash", "hls", "lavfi", "rtp", "rtsp", "sap", "sdp", "webm_dash_manifest"}
ALONE = {"protocol_whitelist": "file", "format_whitelist": ",".join(sorted(av.formats_available - _LEADING))}

HEAD = 1024  # bytes that tell what a file is


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What the file says of itself, before anything but its first frame is decoded."""

    container: str  # "mov,mp4,m4a,3gp,3g2,mj2"
    codec: str  # "h264"
    pixels: str  # "yuv420p"
    height: int  # of the upright picture
    width: int
    rate: float | None  # frames a second on average, as the file states it
    duration_ms: int | None  # None: the file does not say


def open_container(path: Path, accel: HWAccel | None = None) -> tuple[InputContainer, VideoStream]:
    """The container and its video stream (cover art does not count), ready to decode, by `accel` where given."""
    _check_file(path)
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
        kinds = " and ".join(sorted({s.type for s in container.streams})) or "nothing"
        container.close()
        raise InputError(f"{name}: has no video stream, only {kinds}; give a video")
    if streams[0].codec_context is None:
        container.close()
        raise InputError(f"{name}: is coded in a way that PyAV has no decoder for; encode it again as H.264")
    return streams[0]


def declared_end(container: InputContainer, stream: VideoStream) -> Fraction | None:
    """When the video stream ends, in seconds on its own clock, where the file says so of this very stream."""
    assert stream.time_base is not None
    if stream.duration:
        return (stream.duration + (stream.start_time or 0)) * stream.time_base
    tag = stream.metadata.get("DURATION", "")  # Matroska: "00:00:08.000000000"
    try:
        hours, minutes, seconds = tag.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
    except ValueError:
        pass
    alone = len(container.streams) == 1 and "matroska" in container.format.name
    return Fraction(container.duration, 1_000_000) if alone and container.duration else None


def _check_file(path: Path) -> None:
    with reading(path, "video") as file:
        if not file.read(1):
            raise InputError(f"{path}: is empty (0 bytes); fetch it again")


def _why_not(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        head = file.read(HEAD)
    if known := known_not_video(path, head):
        return known
    if head[4:8] == b"ftyp":
        return f"{path}: the MP4 is cut short, its index (moov) at the end is missing; fetch it again"
    return f"{path}: is not a video that can be read ({getattr(error, 'strerror', None) or error})"


def known_not_video(name: Path | str, head: bytes) -> str | None:
    """A sentence on what people take for a video and is none, told by its first bytes; None: nothing we know."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"#extm3u", b"ffconcat", b"v=0")) or b"<mpd" in start:
        return f"{name}: is a playlist, not a video; give the video itself, or a stream's address to `ballcast live`"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return f"{name}: is a web page, not a video; the download went wrong, fetch it again"
    if start.startswith(b"version https://git-lfs"):
        return f"{name}: is a Git LFS pointer, not a video; fetch the file itself (git lfs pull)"
    return None
