"""A minimal RTSP server: one H.264 stream, RTP inside the RTSP connection (TCP), one connection after the other."""

import base64
import socketserver
import struct
from fractions import Fraction
from pathlib import Path

import av
from local_server import LocalServer

MOST = 1400  # bytes of an RTP payload


def nal_units(packet: bytes) -> list[bytes]:
    """Of an Annex B byte stream."""
    parts = packet.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")
    return [part.rstrip(b"\0") if i < len(parts) - 1 else part for i, part in enumerate(parts) if part]


class RtspServer(LocalServer):
    """Sends the pictures of a transport stream (H.264 without B-frames), all at once; then the connection is closed, or
    held open, silent. every_s: seconds between two pictures.
    """

    def __init__(self, path: Path, *, close: bool, every_s: float = 0.0) -> None:
        self._every_s = every_s
        with av.open(str(path)) as given:
            video = given.streams.video[0]
            unit = Fraction(video.time_base or 1)
            self._packets = [(int(p.pts * unit * 90_000), bytes(p)) for p in given.demux(video) if p.size]
        self._close, self.plays = close, 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while request := self._request():
                    method, address, headers = request
                    more, body = outer._answer(method, address, headers)
                    head = ["RTSP/1.0 200 OK", f"CSeq: {headers.get('cseq', '0')}", *more]
                    self.wfile.write("\r\n".join([*head, "", ""]).encode() + body)
                    if method == "PLAY":
                        outer.plays += 1
                        try:
                            outer._send(self.wfile)
                        except OSError:
                            return
                        if not outer._close:
                            outer.over.wait(30)
                        return

            def _request(self) -> tuple[str, str, dict[str, str]] | None:
                first = self.rfile.readline().decode().split()
                headers = {}
                while line := self.rfile.readline().decode().strip():
                    key, _, value = line.partition(":")
                    headers[key.lower()] = value.strip()
                return (first[0], first[1], headers) if len(first) > 1 else None

        super().__init__(Handler)
        self.address = f"rtsp://user:secret@127.0.0.1:{self.port}/1"

    def _answer(self, method: str, address: str, headers: dict[str, str]) -> tuple[list[str], bytes]:
        if method == "OPTIONS":
            return ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN"], b""
        if method == "DESCRIBE":
            sets = [nal for nal in nal_units(self._packets[0][1]) if nal[0] & 31 in (7, 8)]
            given = ",".join(base64.b64encode(nal).decode() for nal in sets)
            sdp = (
                "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n"
                f"a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets={given}\r\n"
                "a=control:track0\r\n"
            ).encode()
            return ["Content-Type: application/sdp", f"Content-Base: {address}/", f"Content-Length: {len(sdp)}"], sdp
        if method == "SETUP":
            return [f"Transport: {headers['transport']}", "Session: 1"], b""
        return ["Session: 1", f"RTP-Info: url={address}/track0;seq=0;rtptime={self._packets[0][0]}"], b""

    def _send(self, out: object) -> None:
        number = 0
        for time, packet in self._packets:
            self.over.wait(self._every_s)
            nals = nal_units(packet)
            for i, nal in enumerate(nals):
                pieces = [nal]
                if len(nal) > MOST:
                    head, body = nal[0], nal[1:]
                    cut = [body[k : k + MOST] for k in range(0, len(body), MOST)]
                    pieces = [
                        bytes([head & 0xE0 | 28, head & 31 | 0x80 * (k == 0) | 0x40 * (k == len(cut) - 1)]) + part
                        for k, part in enumerate(cut)
                    ]
                for k, piece in enumerate(pieces):
                    last = i == len(nals) - 1 and k == len(pieces) - 1
                    rtp = struct.pack(">BBHII", 0x80, 96 | 0x80 * last, number & 0xFFFF, time & 0xFFFFFFFF, 7) + piece
                    number += 1
                    out.write(b"$\0" + struct.pack(">H", len(rtp)) + rtp)  # type: ignore[attr-defined]
