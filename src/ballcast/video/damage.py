"""Continue after damage: the error that says where it is, and the packets after it."""

from collections import deque
from collections.abc import Iterator

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ballcast.core.errors import InputError

KEPT = 64  # packets that may be with the decoder's threads while a damaged one before them comes out
FAILURES = 8  # of reading in a row, after which the rest of a file is lost
MOST_BETWEEN = 256  # bytes between two packets of Matroska: heads of blocks and clusters, what is added to a frame


class DamageError(InputError):
    """Pictures are missing from timestamp `at` on (None: unknown), for a `reason`; later ones may be whole."""

    def __init__(self, message: str, at: int | None, reason: str) -> None:
        super().__init__(message)
        self.at = at
        self.reason = reason


def video_packets(container: InputContainer, stream: VideoStream) -> Iterator[av.Packet]:
    """The stream's packets; `opaque` is true for the first after bytes of the file that belong to no packet.

    A reader of Matroska passes over blocks whose heads are damaged without a word, to the end of their cluster, which
    would look like a still picture. Other containers have an index or a count of their packets.
    """
    if "matroska" not in container.format.name:
        yield from container.demux(stream)
        return
    begin, end, hole = -1, None, False  # of the last block, which may hold several packets of sound
    for packet in container.demux():
        if packet.pos is not None and packet.size:
            hole = hole or (end is not None and packet.pos - end > MOST_BETWEEN)
            end = packet.size + (end if packet.pos == begin and end is not None else packet.pos)
            begin = packet.pos
        if packet.stream.index == stream.index:
            packet.opaque = hole
            hole = False
            yield packet


class PacketReplay:
    """A stream's packets in stretches: the first from the beginning, each other one from a key frame after damage.

    container, stream: freshly opened, or at the place that was sought. No stretch begins where one before it began.
    """

    def __init__(self, container: InputContainer, stream: VideoStream) -> None:
        self._container = container
        self._stream = stream
        self._read = self._packets()
        self._recent: deque[av.Packet] = deque(maxlen=KEPT)
        self._again: deque[av.Packet] = deque()

    def first(self) -> Iterator[av.Packet]:
        """All packets, to the end or until the reader stops."""
        while (packet := self._next()) is not None:
            yield packet

    def after(self, at: int | None) -> Iterator[av.Packet]:
        """The packets from the next whole key frame on that is later than the damage at timestamp `at`."""
        self._again = deque([*self._recent, *self._again])  # the decoder was given some that come after the damage
        self._recent.clear()
        while (packet := self._next()) is not None:
            later = at is None or packet.pts is None or packet.pts > at
            if packet.is_keyframe and later and not packet.is_corrupt:
                self._recent.clear()
                yield packet
                yield from self.first()
                return

    def _next(self) -> av.Packet | None:
        packet = self._again.popleft() if self._again else next(self._read, None)
        if packet is not None:
            self._recent.append(packet)
        return packet

    def _packets(self) -> Iterator[av.Packet]:
        """The packets that can be read; reading continues where it fails, unless it fails again and again."""
        failures = 0
        while failures < FAILURES:
            try:
                for packet in video_packets(self._container, self._stream):
                    failures = 0
                    if packet.size:
                        yield packet
                return
            except IndexError:  # a packet of a stream that was not there when PyAV opened the file
                continue
            except (av.FFmpegError, OSError):
                failures += 1
