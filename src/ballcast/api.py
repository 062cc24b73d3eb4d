"""The Python interface, used by the command line itself.

    import ballcast

    model = ballcast.load()
    for forecast in model.video("match.mp4"):
        print(forecast.at_ms, forecast.predictions)

Forecasts are made while they are read. Leaving the loop early and closing, or a `with` block, ends the work:

    with model.stream("rtsp://camera/1") as forecasts:
        for forecast in forecasts:
            ...
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, ClipForecast, Forecast, Gap
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.core.spots import Spots
from ballcast.inference.forecasts import FeedForecasts, Forecasts
from ballcast.inference.loading import RuntimeKind, open_model

if TYPE_CHECKING:
    from ballcast.features.store import FeatureStore
    from ballcast.inference.event_model import EventModel
    from ballcast.inference.expected_precision import ExpectedPrecision
    from ballcast.inference.loading import VideoRuntime
    from ballcast.inference.runtime import Runtime
    from ballcast.inference.spot_model import SpotModel
    from ballcast.inference.spot_predictor import SpotForecasts
    from ballcast.inference.stream_predictor import StreamPredictor
    from ballcast.live.session import LiveSession
    from ballcast.live.status import Status
    from ballcast.video.file import VideoFile


@dataclass(frozen=True)
class Model:
    """A model that is ready to predict; made by `load`. It may be used from several threads.

    Args:
        network: reads features of stores and feeds; or an event transformer, which reads feeds only, or spots only.
        video_runtime: gives the runtime that reads videos; None: the model has no backbone.
    """

    network: "Runtime | EventModel | SpotModel"
    video_runtime: "VideoRuntime | None" = None

    @property
    def name(self) -> str:
        """The folder or hub id it came from."""
        return self.network.name

    @property
    def runtime(self) -> str:
        """What runs it: "onnx", or torch's device."""
        return self.network.device

    @property
    def emit(self) -> EmitConfig:
        """How its slots become predictions; give `dataclasses.replace(model.emit, threshold=0.1)` to change it."""
        return self.window_model.emit

    @property
    def window_model(self) -> "Runtime":
        """The network that reads features; an InputError if the model is an event transformer, which has none."""
        from ballcast.inference.event_model import EventModel
        from ballcast.inference.spot_model import SpotModel

        if isinstance(self.network, SpotModel):
            raise InputError(f"{self.name}: reads spots only and has no slots to tune or change; use `spots`")
        if isinstance(self.network, EventModel):
            raise InputError(f"{self.name}: reads event feeds only and has no slots to tune or change; use `feed`")
        return self.network

    @property
    def event_model(self) -> "EventModel | None":
        """The event transformer; None: it is another model."""
        from ballcast.inference.event_model import EventModel

        return self.network if isinstance(self.network, EventModel) else None

    @property
    def spot_model(self) -> "SpotModel | None":
        """The event transformer of spots; None: it is another model."""
        from ballcast.inference.spot_model import SpotModel

        return self.network if isinstance(self.network, SpotModel) else None

    @property
    def precision(self) -> "ExpectedPrecision | None":
        """How often its predictions come true, by action and score; None: not measured (`ballcast tune`)."""
        return None if self.event_model or self.spot_model else self.window_model.expected_precision

    def new_runtime(self) -> "Runtime":
        """The runtime that reads videos, for any number of predictors; an InputError if the model reads no videos."""
        if self.video_runtime is None:
            from ballcast.inference.feed_predictor import detail_of

            if self.event_model is not None or detail_of(self.window_model) is not None:
                raise InputError(f"{self.name}: reads event feeds, not videos; use `feed`, or another model")
            raise InputError(f"{self.name}: needs the backbone it was trained on to read videos; give its folder")
        return self.video_runtime()

    def predictor(self, *, every_ms: int = 1000, emit: EmitConfig | None = None) -> "StreamPredictor":
        """A predictor that takes one frame after the other.

        Args:
            every_ms: interval of the forecasts; the first is made at 5 s.
            emit: how slots become predictions; by default the model's own way.
        """
        from ballcast.inference.stream_predictor import StreamPredictor

        return StreamPredictor(self.new_runtime(), every_ms=every_ms, emit=emit)

    def video(
        self,
        path: "Path | str | VideoFile",
        *,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        begin_ms: int = 0,
        end_ms: int | None = None,
        resumed: bool = False,
        strict: bool = False,
        any_video: bool = False,
        progress: ProgressCallback = no_progress,
        on_gap: Callable[[Gap], None] = lambda gap: None,
    ) -> Forecasts[Forecast]:
        """Forecast along a video file, from 5 s on.

        Damage is passed over, and nothing is forecast where no football pitch is seen: `gaps` of the forecasts lists
        both.

        Args:
            path: the file.
            every_ms, emit: as in `predictor`.
            begin_ms, end_ms: make the forecasts between these times only. resumed: there may be none.
            strict: damage is an InputError.
            any_video: forecast also where no football pitch is seen.
            progress: called about once per second of video with the frames done, and their number if the file has it.
            on_gap: called with each part of the video without forecasts, before the forecast that follows it.
        """
        from ballcast.inference.video_predictor import Span, predict_video
        from ballcast.video.file import VideoFile

        predictor = self.predictor(every_ms=every_ms, emit=emit)
        file = path if isinstance(path, VideoFile) else VideoFile(path, strict=strict)
        about = {"every_ms": every_ms, **predictor.runtime.about, "pos_weight": predictor.pos_weight}

        gaps: list[Gap] = []

        def note_gap(gap: Gap) -> None:
            gaps.append(gap)
            on_gap(gap)

        def predict() -> Generator[Forecast, None, None]:
            span = Span(begin_ms, end_ms, resumed)
            with file:
                yield from predict_video(file, predictor, progress, span, any_video=any_video, on_gap=note_gap)

        return Forecasts(predict(), about, gaps)

    def session(
        self,
        source: str,
        *,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        speed: float = 1.0,
        give_up_s: float = 60.0,
        strict: bool = False,
        any_video: bool = False,
    ) -> "LiveSession":
        """A live session on a stream, not started: for several listeners, previews and status records.

        Args:
            source: a file (played in real time), rtsp://…, http(s)://….m3u8, tcp://…, /dev/video0, or - for stdin.
            every_ms, emit: as in `predictor`.
            speed: of a file or stdin; 0: as fast as possible.
            give_up_s: how long a stream that broke off is opened again.
            strict: damage ends a file.
            any_video: forecast also where no football pitch is seen.
        """
        from ballcast.live.session import LiveSession
        from ballcast.video.sources import open_source

        predictor = self.predictor(every_ms=every_ms, emit=emit)
        opened = open_source(source, speed=speed, give_up_s=give_up_s, colour=predictor.colour, strict=strict)
        return LiveSession(opened, predictor, any_video=any_video)

    def stream(
        self,
        source: str,
        *,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        speed: float = 1.0,
        give_up_s: float = 60.0,
        any_video: bool = False,
        on_status: "Callable[[Status], None]" = lambda status: None,
    ) -> Forecasts[Forecast]:
        """Forecast along a live stream until it ends or the forecasts are closed; arguments as in `session`.

        Args:
            on_status: called with each change of the session's state.
        """
        session = self.session(
            source, every_ms=every_ms, emit=emit, speed=speed, give_up_s=give_up_s, any_video=any_video
        )
        about = {"every_ms": every_ms, **session.predictor.runtime.about, "pos_weight": session.predictor.pos_weight}
        return Forecasts(_follow(session, on_status), about)

    def feed(
        self,
        path: Path | str,
        *,
        provider: str = "auto",
        lineup: Path | str | None = None,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        progress: ProgressCallback = no_progress,
    ) -> "Forecasts[Forecast] | FeedForecasts":
        """Forecast along a match's event feed.

        Args:
            path: the feed's file.
            provider: as in `ballcast events`; by default the one it is recognised as.
            lineup: the second file that some providers deliver, where it is not beside the first.
            every_ms: interval of the forecasts.
            emit: of models trained by `ballcast train` on event grids: how slots become predictions.
            progress: called with the forecasts done and in all.

        Returns:
            Of the embedded model, and of any event transformer: `FeedForecasts`, at every interval from 5 s of each
            period on and at every event. Of a model of event grids: forecasts from 30 s of each period on.
        """
        from ballcast.data.events.kloppy_feed import open_feed, warn_missing_kinds
        from ballcast.inference import feed_predictor as feeds

        events = self.event_model
        if events is None:
            feeds.check_reads_events(self.window_model, self.name)
        elif emit is not None:
            raise InputError(f"{self.name}: gives probabilities of every action; there is no emission to change")
        feed, provider, missing = open_feed(Path(path), provider, None if lineup is None else Path(lineup))
        about: dict[str, Any] = {"every_ms": every_ms, "model": self.name, "provider": provider, "match": feed.match}
        about["periods_begin_ms"] = feeds.period_begins(feed)
        if events is not None:
            match = feeds.summarise(feed, provider, missing)
            forecasts = feeds.predict_events(events, feed, missing=missing, every_ms=every_ms, progress=progress)
            return FeedForecasts(
                forecasts, about | {"teams": list(feed.teams), "missing_details": list(missing)}, match
            )
        if feeds.detail_of(self.window_model) == "rich":
            warn_missing_kinds(Path(path), provider)
        config = emit or self.emit
        along = feeds.predict_feed(self.window_model, feed, every_ms=every_ms, config=config, progress=progress)
        return Forecasts(along, about | {"pos_weight": self.window_model.pos_weight})

    def spots(
        self,
        source: Path | str | Spots | Sequence[Spots],
        *,
        every_ms: int = 1000,
        progress: ProgressCallback = no_progress,
    ) -> "SpotForecasts":
        """Forecast along what an action spotter found in videos, from the first spot of each to the last.

        Args:
            source: a file of spots (OSL, SoccerNet or FOOTPASS JSON, or CSV), or the spots of one or several videos.
            every_ms: interval of the forecasts.
            progress: called with the forecasts done and in all.
        """
        from ballcast.data.labels.spots import read_spots
        from ballcast.inference.spot_predictor import SpotForecasts, not_forecast, predict_spots

        model = self.spot_model
        if model is None:
            raise InputError(f'{self.name}: does not read spots; use ballcast.load("spots")')
        videos: Sequence[Spots]
        left_out: dict[str, int] = {}
        if isinstance(source, Path | str):
            found = read_spots(Path(source))
            videos, left_out = found.videos, dict(found.left_out)
        else:
            videos = [source] if isinstance(source, Spots) else list(source)
        about = {"every_ms": every_ms, "model": self.name, "trained_on": model.about.get("trained_on", "")}
        about["not_forecast"] = not_forecast(videos)
        forecasts = predict_spots(model, videos, every_ms=every_ms, progress=progress)
        return SpotForecasts(forecasts, about, videos, left_out)

    def features(
        self,
        store: "FeatureStore | Path | str",
        *,
        clips: Sequence[Clip] | None = None,
        emit: EmitConfig | None = None,
        progress: ProgressCallback = no_progress,
    ) -> Forecasts[ClipForecast]:
        """Predict the clips of a feature store, as for a submission: with calibrated scores if the model was tuned.

        Args:
            store: made by `ballcast extract` with the model's backbone, or by `ballcast events`.
            clips: the clips, in their order; by default all of the store.
            emit: predict in this way instead, with the network's own scores.
            progress: called with the clips done and in all.
        """
        from ballcast.features.store import FeatureStore
        from ballcast.inference.store_predictor import check_fits, open_windows, predict_clips, predict_together

        opened = store if isinstance(store, FeatureStore) else FeatureStore.open(store)
        check_fits(self.window_model, opened, self.name)
        chosen = [Clip(name, labelled=False) for name in opened.names] if clips is None else clips
        samples = open_windows(opened, chosen, self.window_model.config.windows)
        tuned = None if emit else self.window_model.score_mapping
        if tuned is not None:
            forecasts = predict_together([self.window_model], [samples], tuned, progress)
        else:
            forecasts = predict_clips(self.window_model, samples, emit or self.emit, progress)
        return Forecasts(forecasts, {"model": self.name})


def _follow(session: "LiveSession", on_status: "Callable[[Status], None]") -> Generator[Forecast, None, None]:
    """Run a session and yield its forecasts; an error that ended it is raised."""
    from ballcast.live.status import LiveForecast, Status

    with session.subscribe(capacity=4096) as records, session:
        for record in records:
            if isinstance(record, LiveForecast):
                yield record.forecast
            elif isinstance(record, Status):
                on_status(record)
    if session.error is not None:
        raise session.error


def load(
    model: Path | str | None = None,
    *,
    backbone: Path | str | None = None,
    runtime: RuntimeKind = "auto",
    device: str = "auto",
    size: str | None = None,
    threads: int | None = None,
) -> Model:
    """Load a model.

    Args:
        model: the folder of a trained model or of an export (`ballcast export`), a hub id like "someone/ballcast", or
            "events" or "spots" for the embedded model of event feeds or of spots; None: the embedded model of videos.
        backbone: the backbone that a trained model was trained on; needed for videos only.
        runtime: "onnx" or "torch"; "auto": ONNX Runtime where it can run the model, but torch if it has a GPU.
        device: of torch: "cpu", "cuda", "mps" or "auto".
        size: size to scale frames to: "trained" (the default), "own", or such as "1280x720".
        threads: of ONNX Runtime; by default OMP_NUM_THREADS, or else the number of cores.
    """
    return Model(*open_model(model, backbone, runtime=runtime, device=device, size=size, threads=threads))
