"""What operators watch: metrics for Prometheus, health and readiness, logs as JSON."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

from ballcast import __version__
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.schema import Health, errors
from ballcast_server.web.service import Service
from ballcast_server.web.settings import RequestError

router = APIRouter(tags=["server"])
TEXT = "text/plain; version=0.0.4; charset=utf-8"
_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}

Sample = tuple[Mapping[str, str], float]
Add = Callable[[str, str, str, Iterable[Sample]], None]  # a metric's name, kind, text and samples


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
    return Response(render(service_of(request)), media_type=TEXT)


def render(service: Service) -> str:
    """All metrics of a server."""
    lines: list[str] = []

    def add(name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        own = f"ballcast_{name}"
        lines.extend([f"# HELP {own} {text}", f"# TYPE {own} {kind}"])
        lines.extend(f"{own}{_labels(labels)} {float(value):g}" for labels, value in samples)

    streams = dict(service.streams)

    def of_streams(value: Iterable[tuple[str, float]]) -> list[Sample]:
        return [({"stream": name}, number) for name, number in value]

    add("build_info", "gauge", "The version of ballcast.", [({"version": __version__}, 1)])
    add("streams", "gauge", "Streams of the server.", [({}, len(streams))])
    states = [({"stream": name, "state": stream.state}, 1.0) for name, stream in streams.items()]
    add("stream_state", "gauge", "1 for the state that a stream has.", states)
    waits = ((name, stream.waits_for_room) for name, stream in streams.items())
    add("stream_waits_for_room", "gauge", "1 while the machine follows other streams instead.", of_streams(waits))
    delays = ((name, stream.latency_ms / 1000) for name, stream in streams.items())
    add("stream_delay_seconds", "gauge", "From the last frame to its forecast.", of_streams(delays))
    behind = ((n, s.status.behind_ms / 1000 if s.status else 0.0) for n, s in streams.items())
    add("stream_behind_seconds", "gauge", "Length of the stream that waits to be computed.", of_streams(behind))
    made = ((name, stream.forecasts) for name, stream in streams.items())
    add("stream_forecasts_total", "counter", "Forecasts.", of_streams(made))
    for what, text in {
        "dropped": "Frames dropped because the machine was too slow.",
        "gaps": "Times that frames were missing in the stream.",
        "reconnects": "Times that the stream was opened again.",
    }.items():
        name = "frames_lost" if what == "dropped" else what
        add(f"stream_{name}_total", "counter", text, of_streams((n, s.lost(what)) for n, s in streams.items()))
    viewers = ((name, stream.viewers) for name, stream in streams.items())
    add("stream_viewers", "gauge", "Viewers of a stream.", of_streams(viewers))
    _add_shared(service, add)
    return "\n".join(lines) + "\n"


def _add_shared(service: Service, add: Add) -> None:
    """Metrics of what streams share: the scheduler, alerts, clips, jobs, the device."""
    scheduler = service.scheduler.running
    load = None if scheduler is None else scheduler.load
    add("scheduler_streams", "gauge", "Streams that are followed.", [({}, load.running if load else 0)])
    add("scheduler_waiting", "gauge", "Streams that wait for room.", [({}, load.waiting if load else 0)])
    add("scheduler_queue", "gauge", "Steps that wait to be computed.", [({}, load.queued if load else 0)])
    add("scheduler_busy", "gauge", "Share of the time spent computing.", [({}, load.busy if load else 0)])
    add("scheduler_batches_total", "counter", "Batches.", [({}, load.batches if load else 0)])
    add("scheduler_steps_total", "counter", "Steps of streams in them.", [({}, load.steps if load else 0)])
    alerts, clips = service.stream_store.alerts, service.stream_store.clips
    add("alerts_total", "counter", "Alerts raised.", [({}, alerts.raised)])
    for what, kind, text in (
        ("delivered", "counter", "Alerts that arrived."),
        ("failed", "counter", "Attempts that failed."),
        ("dropped", "counter", "Alerts that were given up."),
        ("waiting", "gauge", "Alerts that have not arrived yet."),
    ):
        name = f"alerts_{what}_total" if kind == "counter" else f"alerts_{what}"
        samples: list[Sample] = [({"target": d.sender.name}, getattr(d, what)) for d in alerts.deliveries]
        add(name, kind, text, samples)
    for what, text in {"written": "Clips kept.", "failed": "Clips not kept.", "removed": "Old clips removed."}.items():
        add(f"clips_{what}_total", "counter", text, [({}, getattr(clips, what))])
    with suppress(Exception):  # the store is closed already
        active, _ = service.store.count()
        add("jobs_active", "gauge", "Videos that are queued or computed.", [({}, active)])
    add("viewers", "gauge", "Viewers of streams and jobs.", [({}, service.viewers())])
    if (memory := _gpu_bytes()) is not None:
        add("gpu_memory_bytes", "gauge", "GPU memory that this process uses.", [({}, memory)])


def _gpu_bytes() -> int | None:
    torch = sys.modules.get("torch")  # not imported for this: a server may run without it
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.memory_reserved())


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {k: v.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for k, v in labels.items()}
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the record has besides, such as `stream`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        tree: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Ray marks every record with fields of its own, which begin with an underscore.
        tree |= {k: value for k, value in record.__dict__.items() if k not in _STANDARD and not k.startswith("_")}
        if record.exc_info:
            tree["exception"] = self.formatException(record.exc_info)
        return json.dumps(tree, default=str)


def log_as(kind: str) -> None:
    """Write logs to stderr as "text" (warnings only) or as "json" (every change of a stream too)."""
    handler = logging.StreamHandler()
    root, own = logging.getLogger(), logging.getLogger("ballcast")
    if kind == "json":
        handler.setFormatter(JsonFormatter())
        own.setLevel(logging.INFO)
        root.handlers = [handler]
