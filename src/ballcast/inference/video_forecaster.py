"""Forecasts along a video, from its frames and what happens between them: damage, and scenes without a pitch."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap, Scene
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


class VideoForecaster:
    """Turns the items of a video into forecasts and gaps, in order of time.

    After damage the memory starts anew: a forecast needs 5 s without a gap, and no window has one in it. While no
    pitch is seen, the memory goes on and its forecasts are withheld; a gap says from when to when.

    Args:
        predictor: the predictor; it is reset first.
        span: which forecasts to make.

    Attributes:
        start: the video's frame to begin with.
        done: frames of the video until now, those that are lost included.
        gaps: passed until now.
    """

    def __init__(self, predictor: StreamPredictor, span: Span = Span()) -> None:
        self._predictor, self._span = predictor, span
        self.start = self.done = predictor.begin_at(span.begin_ms)
        self.gaps: list[Gap] = []
        self._any = False  # a forecast was made or withheld
        self._pitch = True
        self._withheld: list[int] = []  # times of forecasts, since the pitch was lost
        self._begin = self.start  # the frame from which on they are read

    def push(self, item: np.ndarray | Gap | Scene) -> Iterator[Forecast | Gap]:
        """Take the next frame (H, W) uint8, or I420, gap or scene; returns what it leads to."""
        if isinstance(item, Scene):
            self._pitch = item.pitch
        elif isinstance(item, Gap):
            self.done = item.end_ms // FRAME_MS
            # On the grid of the snippets, so that a run which begins later reads the same ones.
            self._begin = -(-self.done // self._predictor.stride) * self._predictor.stride
            self._predictor.reset(self._begin * FRAME_MS, self._span.begin_ms)
            yield from self._passed(item)
        else:
            made = self._predictor.push(item) if self.done >= self._begin else None
            self.done += 1
            if made is None:
                return
            self._any = True
            if not self._pitch:
                self._withheld.append(made.at_ms)
                return
            yield from self._seen_again(made.at_ms)
            yield made

    def end(self, name: object) -> Iterator[Gap]:
        """The video is over; an InputError that calls it `name` if there was nothing to forecast from."""
        yield from self._seen_again(self.done * FRAME_MS)
        if not self._any and not self._span.resumed:
            raise no_forecast(self.done, name, gaps=len(self.gaps), span=self._span)

    def _seen_again(self, at_ms: int) -> Iterator[Gap]:
        if self._withheld:
            begin_ms = self._withheld[0]
            self._withheld = []
            yield from self._passed(Gap(begin_ms, at_ms, NO_PITCH, "pitch"))

    def _passed(self, gap: Gap) -> Iterator[Gap]:
        self.gaps.append(gap)
        yield gap


def forecast_video(
    video: "VideoFile",
    predictor: StreamPredictor,
    progress: Callable[[int, int | None], None] = lambda done, all_: None,
    span: Span = Span(),
    *,
    any_video: bool = True,
) -> Generator[Forecast | Gap, None, None]:
    """Forecast along a video.

    Args:
        video: the file.
        predictor: the predictor; it is reset first.
        progress: called about once per second of video with the frames done, and their number if the file has it; at
            the end with the number there were.
        span: which forecasts to make. They are those of the whole video: as many frames before the first are read as
            it needs.
        any_video: forecast also where no football pitch is seen.

    Yields:
        The forecasts and the gaps in order of time, each as soon as it is known.
    """
    from ballcast.video.pitch import frames_and_scenes

    forecaster = VideoForecaster(predictor, span)
    stop = None if span.end_ms is None else span.end_ms // FRAME_MS
    total = video.frame_count()
    total = total if stop is None or total is None else min(total, stop)
    items = frames_and_scenes(video, forecaster.start, stop, colour=predictor.colour, any_video=any_video)
    with Prefetcher(items) as ahead:
        for item in ahead:
            yield from forecaster.push(item)
            if forecaster.done % FPS == 0:
                progress(forecaster.done, total)
    progress(forecaster.done, forecaster.done)
    yield from forecaster.end(video.path)


def no_forecast(frames: int, name: object, *, gaps: int = 0, span: Span = Span()) -> InputError:
    """The error about a video, called `name`, of so many frames, for which no forecast could be made."""
    length = f"{frames / FPS:.1f} s"
    if span != Span():
        return InputError(f"{name}: has no forecast in the part asked for; the first is at 5 s, it ends at {length}")
    lack = f"no 5 s of its {length} came without a gap" if gaps else f"is only {length} long"
    return InputError(f"{name}: {lack}; anticipation needs a whole window of 5 s behind it")
