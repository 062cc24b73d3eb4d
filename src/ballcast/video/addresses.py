"""Addresses of streams: which are known, how they are shown, and what opens those that PyAV cannot."""

import os
import re
import select
import shutil
import stat
import subprocess
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.video.container import HEAD

STDIN = "-"
CHUNK = 1 << 20  # bytes read at once: a false header makes FFmpeg ask for gigabytes
PUSHED = frozenset({"rtmp", "rtmps", "srt"})  # always live, even if the sender states the length of what it plays
UNPACED = frozenset({"rtsp", "rtsps", "udp", "rtp"}) | PUSHED  # frames come when they are taken
PACED = frozenset({"http", "https", "tcp"})  # frames may come in bursts: HLS sends whole segments
DEVICES = frozenset({"v4l2", "avfoundation", "dshow"})  # v4l2:/dev/video0, avfoundation:0, dshow:video=Camera
# In a path or query. Each word is looked at once: from its beginning, and as a whole.
SECRETS = re.compile(r"(?i)\b(?=\w*?(?:pass|pwd|token|secret|key|auth|sig|streamid))(\w++)=[^&;/?#\s]*")


def is_stream(address: str) -> bool:
    """Whether it names a stream and not a file; an InputError if it names something unknown.

    A playlist of HLS on this machine counts as a stream: `live` follows it, the server takes none (`is_remote`).
    """
    scheme = scheme_of(address)
    if address == STDIN or scheme in UNPACED | PACED | DEVICES:
        return True
    if not scheme and "://" not in address and address.endswith(".m3u8"):
        return True
    if "://" in address and scheme != "file":
        known = ", ".join(sorted(UNPACED | PACED))
        raise InputError(f"{shown(address)[:200]}: a stream's address begins with one of {known}")
    return is_device(address)


def is_remote(address: str) -> bool:
    """Whether it is the address of a stream on a network: no file, playlist or device of this machine."""
    return scheme_of(address) in UNPACED | PACED and "://" in address


def scheme_of(address: str) -> str:
    scheme, colon, rest = address.partition(":")
    known = rest.startswith("//") or scheme in DEVICES
    return scheme.lower() if colon and known else ""


def shown(address: str) -> str:
    """The address without a password, for people and logs."""
    if address == STDIN:
        return "stdin"
    address = SECRETS.sub(r"\1=***", address)
    scheme, mark, rest = address.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]  # not urlsplit, which refuses some addresses
    return scheme + mark + host.rpartition("@")[2] + rest[len(host) :]


def is_device(address: str) -> bool:
    try:
        return stat.S_ISCHR(Path(address).stat().st_mode)
    except (OSError, ValueError):
        return False


class Stdin:
    """Stdin for PyAV that keeps its first bytes, so that an error can name what is no video."""

    head = b""

    def read(self, most: int) -> bytes:
        """For PyAV: what has come; b"" at the end."""
        got = os.read(0, min(most, CHUNK))
        self.head += got[: HEAD - len(self.head)]
        return got


class SrtReceiver:
    """The bytes of an SRT stream, received by the program ffmpeg: PyAV's own FFmpeg is built without SRT.

    address: srt://HOST:PORT, with ffmpeg's options behind a question mark (mode=listener, passphrase=…).
    silent_s: without a byte for this long, the stream is broken.
    """

    def __init__(self, address: str, silent_s: float) -> None:
        program = shutil.which("ffmpeg")
        if program is None:
            raise InputError(
                f"{shown(address)}: SRT needs the program ffmpeg; install it, or let a server such as MediaMTX turn "
                "the stream into RTSP"
            )
        self._silent_s = silent_s
        quiet = [program, "-nostdin", "-loglevel", "quiet", "-protocol_whitelist", "srt"]
        raw = ["-f", "data"]  # bytes as they come, not looked into
        self._running = subprocess.Popen(
            [*quiet, *raw, "-i", address, "-map", "0", "-c", "copy", *raw, "-flush_packets", "1", "pipe:1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def read(self, most: int) -> bytes:
        """For PyAV: what has come; b"" at the end."""
        assert self._running.stdout is not None
        pipe = self._running.stdout.fileno()
        if not select.select([pipe], [], [], self._silent_s)[0]:
            raise TimeoutError(f"no answer in {self._silent_s:g} s")
        return os.read(pipe, min(most, CHUNK))

    def close(self) -> None:
        self._running.kill()
        self._running.wait()
        assert self._running.stdout is not None
        self._running.stdout.close()
