"""What operators watch: metrics for Prometheus, health and readiness, logs as JSON."""

import json
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from fastapi import APIRouter, Request, Response
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import PlainTextResponse

from ballcast import __version__
from ballcast_server.settings import RequestError
from ballcast_server.streams.scheduler import Load
from ballcast_server.streams.stream import Stream
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.schema import Health, errors
from ballcast_server.web.service import Service

router = APIRouter(tags=["server"])
TEXT = "text/plain; version=0.0.4; charset=utf-8"
_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}

Samples = dict[tuple[str, ...], float]  # the values of a metric's labels → its value


@router.get("/healthz")
def healthz() -> Health:
    """Check that the process answers; needs no token."""
    return Health(version=__version__)


@router.get("/readyz", responses=errors(503))
def readyz(request: Request) -> Health:
    """Check that jobs and streams are served: not before the start and during the end; needs no token."""
    if not service_of(request).ready:
        raise RequestError(503, "the server starts or stops")
    return Health(version=__version__)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Get the metrics in the text format of Prometheus."""
    return Response(generate_latest(ServerMetrics(service_of(request))), media_type=TEXT)


class ServerMetrics(Collector):
    """Reads all metrics of a server whenever they are asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield _gauge("build_info", "The version of ballcast.", {(__version__,): 1}, ["version"])
        yield from self._of_streams()
        yield from self._of_the_scheduler()
        yield from self._of_alerts_and_clips()
        with suppress(sqlite3.Error):  # the store is closed already
            active, _ = self._service.jobs.store.count()
            yield _gauge("jobs_active", "Videos that are queued or computed.", active)
        yield _gauge("viewers", "Viewers of streams and jobs.", self._service.viewers.count)
        if (memory := _gpu_bytes()) is not None:
            yield _gauge("gpu_memory_bytes", "GPU memory that this process uses.", memory)

    def _of_streams(self) -> Iterator[Metric]:
        streams = dict(self._service.streams)

        def by_stream(value: Callable[[Stream], float]) -> Samples:
            return {(name,): value(stream) for name, stream in streams.items()}

        yield _gauge("streams", "Streams of the server.", len(streams))
        states: Samples = {(name, stream.state): 1 for name, stream in streams.items()}
        yield _gauge("stream_state", "1 for the state that a stream has.", states, ["stream", "state"])
        gauges: list[tuple[str, str, Callable[[Stream], float]]] = [
            ("waits_for_room", "1 while the machine follows other streams instead.", lambda s: s.waits_for_room),
            ("delay_seconds", "From the last frame to its forecast.", lambda s: s.latency_ms / 1000),
            ("behind_seconds", "Length of the stream that waits to be computed.", lambda s: s.behind_ms / 1000),
            ("viewers", "Viewers of a stream.", lambda s: s.viewers),
        ]
        for name, text, value in gauges:
            yield _gauge(f"stream_{name}", text, by_stream(value), ["stream"])
        counters: list[tuple[str, str, Callable[[Stream], float]]] = [
            ("forecasts", "Forecasts.", lambda s: s.forecasts),
            ("frames_lost", "Frames dropped because the machine was too slow.", lambda s: s.lost("dropped")),
            ("gaps", "Times that frames were missing in the stream.", lambda s: s.lost("gaps")),
            ("reconnects", "Times that the stream was opened again.", lambda s: s.lost("reconnects")),
        ]
        for name, text, value in counters:
            yield _counter(f"stream_{name}", text, by_stream(value), ["stream"])

    def _of_the_scheduler(self) -> Iterator[Metric]:
        scheduler = self._service.scheduler.running
        load = Load() if scheduler is None else scheduler.load
        yield _gauge("scheduler_streams", "Streams that are followed.", load.running)
        yield _gauge("scheduler_waiting", "Streams that wait for room.", load.waiting)
        yield _gauge("scheduler_queue", "Steps that wait to be computed.", load.queued)
        yield _gauge("scheduler_busy", "Share of the time spent computing.", load.busy)
        yield _counter("scheduler_batches", "Batches.", load.batches)
        yield _counter("scheduler_steps", "Steps of streams in them.", load.steps)

    def _of_alerts_and_clips(self) -> Iterator[Metric]:
        alerts = self._service.streams.alerts
        clips = self._service.streams.clips
        yield _counter("alerts", "Alerts raised.", alerts.raised)

        def by_target(what: str) -> Samples:
            return {(delivery.sender.name,): getattr(delivery, what) for delivery in alerts.deliveries}

        yield _counter("alerts_delivered", "Alerts that arrived.", by_target("delivered"), ["target"])
        yield _counter("alerts_failed", "Attempts that failed.", by_target("failed"), ["target"])
        yield _counter("alerts_dropped", "Alerts that were given up.", by_target("dropped"), ["target"])
        yield _gauge("alerts_waiting", "Alerts that have not arrived yet.", by_target("waiting"), ["target"])
        yield _counter("clips_written", "Clips kept.", clips.written)
        yield _counter("clips_failed", "Clips not kept.", clips.failed)
        yield _counter("clips_removed", "Old clips removed.", clips.removed)


def _gauge(name: str, text: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    return _filled(GaugeMetricFamily(f"ballcast_{name}", text, labels=labels), samples)


def _counter(name: str, text: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    """A counter; `_total` is appended to its name."""
    return _filled(CounterMetricFamily(f"ballcast_{name}", text, labels=labels), samples)


def _filled(metric: GaugeMetricFamily | CounterMetricFamily, samples: Samples | float) -> Metric:
    for labels, value in (samples if isinstance(samples, dict) else {(): samples}).items():
        metric.add_metric(labels, float(value))
    return metric


def _gpu_bytes() -> int | None:
    torch = sys.modules.get("torch")  # not imported for this: a server may run without it
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.memory_reserved())


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the record has besides, such as `stream`."""

    def format(self, record: logging.LogRecord) -> str:
        tree: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Ray adds fields to every record; their names begin with an underscore.
        tree |= {k: value for k, value in record.__dict__.items() if k not in _STANDARD and not k.startswith("_")}
        if record.exc_info:
            tree["exception"] = self.formatException(record.exc_info)
        return json.dumps(tree, default=str)


def log_as(kind: str) -> None:
    """Write logs to stderr as "text" (warnings only) or as "json" (every change of a stream too)."""
    handler = logging.StreamHandler()
    root = logging.getLogger()
    ours = logging.getLogger("ballcast")
    if kind == "json":
        handler.setFormatter(JsonFormatter())
        ours.setLevel(logging.INFO)
        root.handlers = [handler]
