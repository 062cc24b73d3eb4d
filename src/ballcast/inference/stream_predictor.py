"""The predictor of a stream, frame after frame."""

from dataclasses import replace

import numpy as np

from ballcast.core.actions import FRAME_MS, OBSERVED_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast
from ballcast.inference.expected_precision import chance_within_5s
from ballcast.inference.runtime import Floats, Runtime
from ballcast.inference.stream_encoder import StreamEncoder
from ballcast.model.postprocess import SlotArrays, emit
from ballcast.video.luma import FrameResizer
from ballcast.video.resample import snap

FIRST_MS = WINDOW_FRAMES * FRAME_MS  # the first time with a whole window before it


class StreamPredictor:
    """A stateful predictor for one stream of frames; call `reset()` before another.

    Confidences are expected precisions if the runtime's model was measured (`ExpectedPrecision.calibrate`). Scores are
    the network's own, with the inflation of the objectness by the loss's pos_weight undone
    (`SlotArrays.undo_pos_weight`). The threshold applies to the network's own p_obj, as in submissions.

    Args:
        runtime: the model and its backbone, in torch or exported; several predictors may share it.
        every_ms: interval of the forecasts; the first is made at 5 s. May be changed between two frames.
        emit: how slots become predictions; by default as the model's config has it.

    Attributes:
        slots: of the latest forecast; None before the first.
        stride: frames between the beginnings of two snippets.
    """

    def __init__(self, runtime: Runtime, *, every_ms: int = 1000, emit: EmitConfig | None = None) -> None:
        if every_ms < FRAME_MS:
            raise InputError(f"anticipating every {every_ms} ms is more often than there are frames, every 40 ms")
        self.runtime = runtime.for_streams(1)
        self.every_ms = every_ms
        self.emit = (emit or runtime.emit).shown
        self.pos_weight = runtime.pos_weight
        self.stride = runtime.backbone.stride
        self._shifted = runtime.backbone.shift != "none"
        self.stream = StreamEncoder(self.runtime)
        self.fit = FrameResizer(runtime.picture_size, colour=self.colour)
        self.reset()

    def reset(self, begin_ms: int = 0, due_ms: int | None = None) -> None:
        """Clear all state: the next frame is the first of a stream, or of what follows a gap in it.

        Args:
            begin_ms: time of that frame; forecasts are made when 5 s have been seen from there on.
            due_ms: earliest time of the next forecast, among those every `every_ms` from 5 s of the video on; None: as
                soon as 5 s have been seen, and every `every_ms` from then on.
        """
        self.stream.reset()
        self.slots: SlotArrays | None = None
        self.begin_ms = begin_ms
        self._due_ms = begin_ms + FIRST_MS  # time of the next forecast
        if due_ms is not None:
            steps = -(-(max(self._due_ms, due_ms) - FIRST_MS) // self.every_ms)
            self._due_ms = FIRST_MS + steps * self.every_ms
        self._clips = _Rows(self.stream.config.width)  # (n, D): snippets _first, _first + 1, …
        self._first = 0
        self._tokens: dict[int, Floats] = {}  # (N, d) by the first snippet of the window

    def begin_at(self, due_ms: int) -> int:
        """Reset for the first forecast from `due_ms` on; returns the number of the video's frame to push next.

        That is so early that the forecast sees what it would see if all frames had been pushed.
        """
        self.reset(0, due_ms)
        start = max(0, self._due_frames - WINDOW_FRAMES * max(2, self.runtime.lookback))  # 10 s for `PitchDetector`
        start -= start % self.stride
        self.reset(start * FRAME_MS, due_ms)
        return start

    @property
    def frames(self) -> int:
        """Number of frames received since the last reset."""
        return self.stream.frames

    @property
    def colour(self) -> bool:
        """Whether frames are I420 and not luma."""
        return self.runtime.backbone.colour

    def push(self, frame: np.ndarray) -> Forecast | None:
        """Add the next frame, and forecast if one is due.

        Args:
            frame: (H, W) uint8, or I420 if `colour`, of a stream at 25 fps; resized to the frame size of training, if
                known (`FrameResizer`). It is kept for a while and must not be modified later.

        Returns:
            The forecast after this frame, or None if none is due.
        """
        self._keep(self.stream.push(self.fit(frame)))
        if self.stream.frames < self._due_frames:
            return None
        forecast = self._predict()
        self._due_ms += self.every_ms
        return forecast

    @property
    def _due_frames(self) -> int:
        """Number of whole frames before the next forecast, from `begin_ms` on."""
        return (self._due_ms - self.begin_ms) // FRAME_MS

    def _windows(self) -> list[int]:
        """The first snippet of each window of the next forecast, the earliest first; windows before 0 are absent."""
        end = self._due_frames
        starts = range(end - WINDOW_FRAMES * self.runtime.lookback, end, WINDOW_FRAMES)
        return [snap(start, self.stride) // self.stride for start in starts if start >= 0]

    def _keep(self, features: Floats) -> None:
        """Add the features (n, D) of the next snippets, and drop what no later forecast reads."""
        if not len(features) and not self._shifted:
            return
        earliest = max(0, self._due_frames - WINDOW_FRAMES * self.runtime.lookback)  # a window may begin there
        oldest = earliest // self.stride
        self._first += self._clips.add(features, drop=max(0, oldest - self._first))
        self._tokens = {first: tokens for first, tokens in self._tokens.items() if first >= oldest}
        if self._shifted:
            self.stream.forget(oldest)

    def close(self) -> None:
        """Give the stream's place in the runtime to another."""
        self.stream.close()

    def _predict(self) -> Forecast:
        encoded = [self._window_tokens(first) for first in self._windows()]
        absent = self.runtime.lookback - len(encoded)
        tokens = np.stack([np.zeros_like(encoded[0])] * absent + encoded)  # (W, N, d)
        slots = self.runtime.predict(tokens[None], np.arange(len(tokens))[None] >= absent)
        if not np.isfinite(slots.objectness).all():  # NaN is above no threshold, as if nothing was expected
            raise InputError(f"at {self._due_ms} ms: the model gives numbers that are not finite")
        self.slots = slots
        (emitted,) = emit(slots, self.emit, pos_weight=self.pos_weight)
        shift = self._due_ms - OBSERVED_MS  # the horizon begins at 30 000 ms of a clip, and at the due time of a stream
        made = tuple(replace(p, position_ms=p.position_ms + shift) for p in emitted)
        if self.runtime.expected_precision is None:
            return Forecast(self._due_ms, made)
        (chance,) = chance_within_5s(slots, self.pos_weight)
        made, within_5s = self.runtime.expected_precision.calibrate(made, chance)
        return Forecast(self._due_ms, made, within_5s=within_5s)

    def _window_tokens(self, first: int) -> Floats:
        """Tokens (N, d) of the window that begins with snippet `first`; encoded once, then cached."""
        if first not in self._tokens:
            begin = first - self._first
            kept = slice(begin, begin + self.runtime.config.clips)
            features = self.stream.window(first) if self._shifted else self._clips.rows[kept]
            (self._tokens[first],) = self.runtime.encode_windows(features[None])
        return self._tokens[first]


class _Rows:
    """Rows (n, D) that are added at the end and dropped at the beginning, without moving the others each time."""

    def __init__(self, width: int) -> None:
        self._all = np.empty((0, width), np.float32)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def rows(self) -> Floats:
        """A view of them, until the next `add`."""
        return self._all[self._begin : self._end]

    def add(self, rows: Floats, *, drop: int) -> int:
        """Add rows, then drop up to `drop` of the oldest; returns how many were dropped."""
        if self._end + len(rows) > len(self._all):
            kept = self.rows
            self._all = np.empty((2 * (len(kept) + len(rows)), kept.shape[1]), np.float32)
            self._all[: len(kept)] = kept
            self._begin = 0
            self._end = len(kept)
        self._all[self._end : self._end + len(rows)] = rows
        self._end += len(rows)
        dropped = min(drop, len(self))
        self._begin += dropped
        return dropped
