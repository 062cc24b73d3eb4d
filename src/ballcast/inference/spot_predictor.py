"""Forecasts along what a spotter found in videos, at regular intervals, and a submission for clips of 30 s.

A forecast uses only spots before its time. A class that the spotter does not have is not forecast.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, OBSERVED_MS, SHORT_NAMES
from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.event_schema import HORIZONS_S
from ballcast.core.events import Clip, Forecast, Prediction, clock
from ballcast.core.feed_forecast import SHOWN_S
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.core.spots import DETAILS, Spots
from ballcast.data.labels.soccernet import clip_name
from ballcast.inference.feed_predictor import REACHES_MS, likely_predictions
from ballcast.inference.feed_tables import write_rows
from ballcast.inference.forecasts import Forecasts
from ballcast.inference.spot_model import SpotModel
from ballcast.model.postprocess import POSITIONS_MS, select_times

TOGETHER = 1024  # times run at once
COLUMNS = (
    *("video", "at_ms", "clock", "last", "since_s"),
    *(f"{name.replace(' ', '_')}_{s}s" for name in SHORT_NAMES for s in SHOWN_S),
)


@dataclass(frozen=True, slots=True)
class SpotForecast(Forecast):
    """A forecast at one time of a video, from the spots before it.

    - `video`: its name in the file of spots.
    - `last`: the short name of the newest spot's action; "": none in the last 30 s. `since_ms`: the time since it.
    - `chance` (C, 5): the probability of each action within 1, 2, … 5 s; 0 where not `reported`.
    - `reported` (C,) bool: the classes that are forecast.
    """

    video: str = ""
    last: str = ""
    since_ms: int = OBSERVED_MS
    chance: NDArray[np.float32] = field(default_factory=lambda: np.zeros((10, 5), np.float32))
    reported: NDArray[np.bool_] = field(default_factory=lambda: np.ones(10, bool))

    def within(self, label: str, seconds: int) -> float | None:
        """The probability of an action ("SHOT") within 1 to 5 s; None: the spotter does not have this class."""
        action = ACTIONS.index(label)
        if not self.reported[action]:
            return None
        return float(self.chance[action, HORIZONS_S.index(seconds)])

    def to_json(self) -> dict[str, Any]:
        """`Forecast.to_json`, with the newest spot and the probability of each action within 5 s."""
        further: dict[str, Any] = {"last": self.last, "since_ms": self.since_ms if self.last else None}
        chances = zip(SHORT_NAMES, (self.within(label, 5) for label in ACTIONS), strict=True)
        further["within_5s"] = {name: None if p is None else round(p, 5) for name, p in chances}
        return Forecast.to_json(self) | further


class SpotForecasts(Forecasts[SpotForecast]):
    """The forecasts along the videos of a file of spots, one video after the other.

    Attributes:
        videos: their spots.
        left_out: how many records of the file were of none of the ten actions, by label.
    """

    def __init__(
        self,
        forecasts: Generator[SpotForecast, None, None],
        about: Mapping[str, Any],
        videos: Sequence[Spots],
        left_out: Mapping[str, int],
    ) -> None:
        super().__init__(forecasts, about)
        self.videos = tuple(videos)
        self.left_out = dict(left_out)

    def to_frame(self) -> Any:
        """Read all that are left into a pandas DataFrame, a row for each forecast.

        Columns: video, at_ms, clock, the newest spot and the seconds since it, then the probability of each action
        within 1, 2, 3 and 5 s (`shot_5s`), missing for classes that the spotter does not have.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            raise MissingExtra("pandas", command="pip install pandas") from None
        return DataFrame(list(table_rows(self)), columns=list(COLUMNS))


def not_forecast(videos: Sequence[Spots]) -> list[str]:
    """The classes that the spotter of these videos does not have."""
    return [name for name in DETAILS if name in ACTIONS and not any(name in spots.details for spots in videos)]


def predict_spots(
    model: SpotModel,
    videos: Sequence[Spots],
    *,
    every_ms: int = 1000,
    progress: ProgressCallback = no_progress,
) -> Generator[SpotForecast, None, None]:
    """Forecast along videos, from the first spot of each to the last, at multiples of `every_ms`.

    Args:
        model: of spots.
        videos: the spots of each; those without any are passed over.
        every_ms: interval of the forecasts.
        progress: called with the forecasts done and in all.
    """
    times = [_times(spots, every_ms) for spots in videos]
    done = 0
    total = sum(map(len, times))
    for spots, at in zip(videos, times, strict=True):
        for begin in range(0, len(at), TOGETHER):
            some = at[begin : begin + TOGETHER]
            yield from forecasts_at(model, spots, some)
            done += len(some)
            progress(done, total)


def _times(spots: Spots, every_ms: int) -> NDArray[np.int64]:
    if not len(spots):
        return np.zeros(0, np.int64)
    first = int(spots.position_ms[0])
    last = int(spots.position_ms[-1])
    return np.arange(first // every_ms + 1, last // every_ms + 2, dtype=np.int64) * every_ms


def forecasts_at(model: SpotModel, spots: Spots, at_ms: NDArray[np.int64]) -> Iterator[SpotForecast]:
    """Forecast from the spots of a video before each time (S,)."""
    intensity, chance = model.run(spots, at_ms)
    likely = select_times(intensity.transpose(1, 0, 2).copy(), REACHES_MS, count=2)
    newest = np.searchsorted(spots.position_ms, at_ms) - 1
    for i, at in enumerate(at_ms.tolist()):
        since = at - int(spots.position_ms[newest[i]]) if newest[i] >= 0 else OBSERVED_MS
        last = SHORT_NAMES[spots.action[newest[i]]] if since < OBSERVED_MS else ""
        made = likely_predictions(likely[i], at)
        within = tuple(chance[i, :, -1].tolist())
        since = min(since, OBSERVED_MS)
        yield SpotForecast(at, made, spots.name, last, since, chance[i], spots.forecast, within_5s=within)


def predict_clips(
    model: SpotModel, videos: Sequence[Spots], clips: Sequence[Clip] | None = None
) -> dict[str, list[Prediction]]:
    """Predictions for a submission: what comes after the 30 s of each clip, scored for mAP.

    Args:
        model: of spots.
        videos: the spots of each clip, named by it or by its video ("clip_1/224p.mp4").
        clips: in the order of the submission, also those without spots; by default those of the file.
    """
    found: dict[str, Spots] = {}
    for spots in videos:
        name = clip_name(spots.name)
        if len(spots) and spots.position_ms[-1] >= OBSERVED_MS:
            at = clock(int(spots.position_ms[-1]))
            raise InputError(f"{name}: has a spot at {at}; a submission is for clips of which 30 s are seen")
        if name in found:
            raise InputError(f"{name}: appears a second time; give the spots of each clip once")
        found[name] = spots
    if clips is not None and (unknown := found.keys() - {clip.name for clip in clips}):
        raise InputError(f"{min(unknown)}: is no clip of the split; are these spots of another one?")
    names = list(found) if clips is None else [clip.name for clip in clips]
    empty = replace(videos[0].take(np.zeros(0, np.int64)), name="")
    at_end = np.array([OBSERVED_MS])
    result = {}
    for name in names:
        intensity, _ = model.run(found.get(name, empty), at_end)
        scores = model.scores(intensity)[0]  # (32, C)
        bins = np.flatnonzero(scores.any(-1)).tolist()
        result[name] = [Prediction.from_scores(int(POSITIONS_MS[b]), scores[b].tolist()) for b in bins]
    return result


def table_rows(forecasts: Iterable[SpotForecast]) -> Iterator[tuple[Any, ...]]:
    """The table: a row for each forecast, in the order of `COLUMNS`; None for classes that are not forecast."""
    for made in forecasts:
        chances = (made.within(label, s) for label in ACTIONS for s in SHOWN_S)
        since = made.since_ms / 1000 if made.last else None
        head = (made.video, made.at_ms, clock(made.at_ms), made.last, since)
        yield (*head, *(None if p is None else round(p, 5) for p in chances))


def write_spot_table(path: Path, forecasts: Iterable[SpotForecast]) -> None:
    """Write the table, as Parquet if the name ends so, else as CSV."""
    write_rows(path, COLUMNS, table_rows(forecasts))
