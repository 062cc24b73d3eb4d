"""Forecasts along a video, from its frames and what happens between them: damage, and scenes without a pitch."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap, Scene
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.video.queues import Prefetcher

if TYPE_CHECKING:
    from ballcast.video.file import VideoFile

NO_PITCH = "no football pitch is seen"


@dataclass(frozen=True)
class Span:
    """The forecasts to make along a video: those from `begin_ms` to `end_ms` (None: its end).

    resumed: those before are there already, and there may be none left.
    """

    begin_ms: int = 0
    end_ms: int | None = None
    resumed: bool = False


class VideoPredictor:
    """Turns the items of a video into forecasts, in order of time.

    After damage the memory starts again: a forecast needs 5 s without a gap, and no window has one in it. While no
    pitch is seen, the memory is kept and its forecasts are withheld; a gap says from when to when.

    Args:
        predictor: the predictor; it is reset first.
        span: which forecasts to make.
        on_gap: called with each gap as soon as it is known, and before the forecast that follows it.

    Attributes:
        start: the video's frame to begin with.
        done: frames of the video until now, those that are lost included.
        gaps: passed until now.
    """

    def __init__(
        self, predictor: StreamPredictor, span: Span = Span(), *, on_gap: Callable[[Gap], None] = lambda gap: None
    ) -> None:
        self._predictor = predictor
        self._span = span
        self._on_gap = on_gap
        self.start = self.done = predictor.begin_at(span.begin_ms)
        self.gaps: list[Gap] = []
        self._any = False  # a forecast was made or withheld
        self._pitch = True
        self._withheld: list[int] = []  # times of forecasts, since the pitch was lost
        self._begin = self.start  # the frame from which on they are read

    def push(self, item: np.ndarray | Gap | Scene) -> Forecast | None:
        """Take the next frame (H, W) uint8, or I420, gap or scene.

        Returns:
            The forecast after this frame; None if none is due, or it is withheld.
        """
        if isinstance(item, Scene):
            self._pitch = item.pitch
            return None
        if isinstance(item, Gap):
            self.done = item.end_ms // FRAME_MS
            # On the grid of the snippets, so that a run which begins later reads the same ones.
            self._begin = -(-self.done // self._predictor.stride) * self._predictor.stride
            self._predictor.reset(self._begin * FRAME_MS, self._span.begin_ms)
            self._pass(item)
            return None
        forecast = self._predictor.push(item) if self.done >= self._begin else None
        self.done += 1
        if forecast is None:
            return None
        self._any = True
        if not self._pitch:
            self._withheld.append(forecast.at_ms)
            return None
        self._end_withheld(forecast.at_ms)
        return forecast

    def end(self, name: object) -> None:
        """The video is over; an InputError that calls it `name` if there was nothing to forecast from."""
        self._end_withheld(self.done * FRAME_MS)
        if not self._any and not self._span.resumed:
            raise self._no_forecast(name)

    def _end_withheld(self, at_ms: int) -> None:
        """Forecasts are made again, or the video is over: those withheld until now are a gap."""
        if self._withheld:
            begin_ms = self._withheld[0]
            self._withheld = []
            self._pass(Gap(begin_ms, at_ms, NO_PITCH, "pitch"))

    def _pass(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self._on_gap(gap)

    def _no_forecast(self, name: object) -> InputError:
        length = f"{self.done / FPS:.1f} s"
        if self._span != Span():
            return InputError(
                f"{name}: has no forecast in the part asked for; the first is at 5 s, it ends at {length}"
            )
        return no_window(name, length, gaps=bool(self.gaps))


def predict_video(
    video: "VideoFile",
    predictor: StreamPredictor,
    progress: ProgressCallback = no_progress,
    span: Span = Span(),
    *,
    any_video: bool = True,
    on_gap: Callable[[Gap], None] = lambda gap: None,
) -> Generator[Forecast, None, None]:
    """Forecast along a video.

    Args:
        video: the file.
        predictor: the predictor; it is reset first.
        progress: called about once per second of video with the frames done, and their number if the file has it; at
            the end with the number there were.
        span: which forecasts to make. They are those of the whole video: as many frames before the first are read as
            it needs.
        any_video: forecast also where no football pitch is seen.
        on_gap: called with each part of the video without forecasts, before the forecast that follows it.

    Yields:
        The forecasts in order of time.
    """
    from ballcast.video.pitch import frames_and_scenes

    along = VideoPredictor(predictor, span, on_gap=on_gap)
    stop = None if span.end_ms is None else span.end_ms // FRAME_MS
    total = video.frame_count()
    total = total if stop is None or total is None else min(total, stop)
    items = frames_and_scenes(video, along.start, stop, colour=predictor.colour, any_video=any_video)
    with Prefetcher(items) as ahead:
        for item in ahead:
            forecast = along.push(item)
            if forecast is not None:
                yield forecast
            if along.done % FPS == 0:
                progress(along.done, total)
    progress(along.done, along.done)
    along.end(video.path)


def no_window(name: object, length: str, *, gaps: bool) -> InputError:
    """The error about a video or stream of this length, called `name`, without 5 s to forecast from."""
    lack = f"no 5 s of its {length} came without a gap" if gaps else f"is only {length} long"
    return InputError(f"{name}: {lack}; anticipation needs a whole window of 5 s behind it")
