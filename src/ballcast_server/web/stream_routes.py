"""HTTP routes of streams: list, add, change, remove, follow; their clips."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from ballcast.core.errors import InputError
from ballcast_server.jobs.own_file import is_own_file
from ballcast_server.server_sent_events import EventStream
from ballcast_server.settings import RequestError
from ballcast_server.streams.config import StreamConfig
from ballcast_server.streams.store import check_address
from ballcast_server.web.guard import user_of
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.schema import Actual, ClipRecord, StreamRecord, StreamSettings, errors
from ballcast_server.web.service import Service

router = APIRouter(tags=["streams"])


def record_of(service: Service, name: str) -> StreamRecord:
    """The settings and the state of a stream."""
    config = service.streams.config(name)
    stream = service.streams[name]
    return StreamRecord(
        name=name,
        state=stream.state,
        message=stream.message,
        viewers=stream.viewers,
        fixed=config.fixed,
        always=config.always,
        alerts=config.alerts,
        clips=config.clips,
        forecasts=stream.forecasts,
        latency_ms=round(stream.latency_ms, 2),
        behind_ms=stream.behind_ms,
        dropped=stream.lost("dropped"),
        gaps=stream.lost("gaps"),
        reconnects=stream.lost("reconnects"),
        last_error=stream.last_error,
    )


@router.get("/api/streams", response_model_exclude_unset=True)
async def streams(request: Request, details: bool = False) -> list[StreamRecord]:
    """List the streams: name, state and viewers; with `details` all that each does."""
    service = service_of(request)
    if details:
        return [record_of(service, name) for name in service.streams]
    return [StreamRecord(name=s.name, state=s.state, viewers=s.viewers) for s in service.streams.values()]


@router.put("/api/streams/{name}", responses=errors(409, 422, 429))
async def put_stream(request: Request, name: str, settings: StreamSettings) -> StreamRecord:
    """Add a stream, or change it; it is kept over a restart. For administrators."""
    service = service_of(request)
    try:
        check_address(settings.address)
        await run_in_threadpool(service.settings.networks.check_new, settings.address)
        config = StreamConfig(name=name, **settings.model_dump())
    except InputError as error:
        raise RequestError(422, str(error)) from None
    service.streams.put(config)
    return record_of(service, name)


@router.delete("/api/streams/{name}", status_code=204, responses=errors(404, 409))
async def delete_stream(request: Request, name: str) -> Response:
    """Remove a stream. For administrators."""
    service_of(request).streams.remove(name)
    return Response(status_code=204)


@router.get("/api/streams/{name}/events", response_class=EventStream, responses=errors(404, 429, 503))
async def stream_events(request: Request, name: str) -> EventStream:
    """Follow a stream as server-sent events: session, anticipation, status, preview, lost; see docs/live.md."""
    service = service_of(request)
    if name not in service.streams:
        raise RequestError(404, "there is no such stream")
    return EventStream(service.streams[name].follow(), service.viewers.add(user_of(request.scope)))


@router.get("/api/streams/{name}/actual", responses=errors(404, 422))
def stream_actual(request: Request, name: str) -> Actual:
    """Get the actual events of a stream that is a file with labels beside it, on the file's clock."""
    service = service_of(request)
    if name not in service.streams:
        raise RequestError(404, "there is no such stream")
    return Actual.from_events(service.labels.of_stream(service.streams.config(name).address))


@router.get("/api/streams/{name}/clips", responses=errors(404))
def stream_clips(request: Request, name: str) -> list[ClipRecord]:
    """List the clips of a stream, the newest first."""
    service = service_of(request)
    service.streams.config(name)
    found = []
    for path in service.streams.clips.clips(name):
        try:
            about = path.stat()
        except OSError:  # removed meanwhile
            continue
        found.append(ClipRecord(name=path.name, bytes=about.st_size, created=about.st_mtime))
    return found


@router.get("/api/streams/{name}/clips/{clip}", response_class=FileResponse, responses=errors(404))
def stream_clip(request: Request, name: str, clip: str) -> FileResponse:
    """Download a clip."""
    service = service_of(request)
    service.streams.config(name)
    known = {path.name: path for path in service.streams.clips.clips(name)}  # a name is only looked up
    if clip not in known or not is_own_file(known[clip]):
        raise RequestError(404, "there is no such clip")
    return FileResponse(known[clip], media_type="video/mp4", filename=f"{name}_{clip}")
