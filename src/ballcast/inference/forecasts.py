"""Forecasts that are made while they are read, and the tables of them."""

from collections.abc import Generator, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ballcast.core.errors import MissingExtra
from ballcast.core.events import ClipForecast, Forecast, Gap, action_index
from ballcast.core.feed_forecast import FeedForecast, MatchSummary, columns, table_rows

F = TypeVar("F", bound=Forecast)
COLUMNS = ("at_ms", "label", "position_ms", "confidence", "score", "within_5s")


class Forecasts(Generic[F]):
    """An iterator over forecasts, each made when it is asked for; a context manager that ends the work.

    Attributes:
        about: what made them: model, backbone, interval, as in the files of `ballcast predict`.
        gaps: the parts of a video without forecasts that were passed until now.
    """

    def __init__(
        self, forecasts: Generator[F, None, None], about: Mapping[str, Any], gaps: list[Gap] | None = None
    ) -> None:
        self._forecasts = forecasts
        self.about = dict(about)
        self.gaps: list[Gap] = [] if gaps is None else gaps

    def __iter__(self) -> Iterator[F]:
        return self

    def __next__(self) -> F:
        return next(self._forecasts)

    def close(self) -> None:
        """End the work; what was not read is not made."""
        self._forecasts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to_frame(self) -> Any:
        """Read all that are left into a pandas DataFrame, a row for each prediction.

        Columns: `at_ms`, `label`, `position_ms`, `confidence`, the network's own `score`, and `within_5s`, the
        probability of at least one action of that label in the next 5 s, if it was measured; of a feature store also
        `clip`, first. Needs pandas.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            raise MissingExtra("pandas", command="pip install pandas") from None
        rows: list[tuple[Any, ...]] = []
        columns: tuple[str, ...] = COLUMNS
        for forecast in self:
            clip: tuple[str, ...] = ()
            if isinstance(forecast, ClipForecast):
                columns = ("clip", *COLUMNS)
                clip = (forecast.clip,)
            rows += [(*clip, *row) for row in prediction_rows(forecast)]
        return DataFrame(rows, columns=list(columns))


def prediction_rows(forecast: Forecast) -> Iterator[tuple[int, str, int, float, float, float | None]]:
    """A row for each prediction, in the order of `COLUMNS`."""
    for p in forecast.predictions:
        within = forecast.within_5s[action_index(p.label)] if forecast.within_5s else None
        yield forecast.at_ms, p.label, p.position_ms, p.confidence, p.score, within


class FeedForecasts(Forecasts[FeedForecast]):
    """The forecasts along a match's event feed, at every second and every event.

    Attributes:
        match: teams, periods, shots and goals of the match.
    """

    def __init__(
        self, forecasts: Generator[FeedForecast, None, None], about: Mapping[str, Any], match: MatchSummary
    ) -> None:
        super().__init__(forecasts, about)
        self.match = match

    def to_frame(self) -> Any:
        """Read all that are left into a pandas DataFrame, a row for each forecast.

        Columns: match, period, clock and team, then the probability of each action within 1, 2, 3 and 5 s
        (`shot_5s`), of a shot by each team (`shot_5s_team_1`), and the expected place of the next action; see
        docs/events.md.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            raise MissingExtra("pandas", "events") from None
        return DataFrame(list(table_rows(list(self), self.match)), columns=list(columns()))
