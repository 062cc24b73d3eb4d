"""A file as a live source."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ballcast.core.actions import FRAME_MS
from ballcast.video.decode import VideoFile
from ballcast.video.live_source import Break, Lateness, LiveFrame, Pacer
from ballcast.video.luma import luma


class FileSource:
    """A file played in real time, `speed` times as fast, or for 0 as fast as it is read. Damage ends it, as it does in
    `VideoFile`.
    """

    def __init__(self, path: Path | str, *, speed: float = 1.0) -> None:
        self.name = str(path)
        self._video = VideoFile(path)
        self._speed = speed
        self._stopped = threading.Event()

    @property
    def patient(self) -> bool:
        return not self._speed

    def items(self) -> Iterator[LiveFrame | Break]:
        pacer, lateness, turn = Pacer(self._speed, self._stopped), Lateness(self._speed), self._video.upright
        for n, picture in enumerate(self._video.sampled()):
            pixels, at_ms = luma(picture, turn), n * FRAME_MS
            if not pacer.wait(at_ms):
                return
            yield LiveFrame(pixels, at_ms, time.time(), picture, turn, lateness.of(at_ms))

    def close(self) -> None:
        self._stopped.set()
