"""HTTP routes of jobs: submit a video, follow its progress, get the results, cancel, delete."""

import os
import shutil
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from ballcast.core.errors import InputError
from ballcast.core.files import replacing
from ballcast.video.container import VideoInfo
from ballcast_server.confined import decoder
from ballcast_server.jobs.jobs import CSV, LABELS, TIMELINE, UNFINISHED, UPLOAD
from ballcast_server.jobs.own_file import open_own_file
from ballcast_server.jobs.store import ACTIVE, Job
from ballcast_server.server_sent_events import EventStream
from ballcast_server.settings import RequestError
from ballcast_server.web.guard import user_of
from ballcast_server.web.schema import Actual, JobRecord, Submission, VideoRecord, errors
from ballcast_server.web.service import Service
from ballcast_server.web.uploads import UPLOAD_SCHEMA, open_upload, save_body

router = APIRouter(prefix="/api", tags=["videos"])
JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
MEDIA = {"MP4": "video/mp4", "Matroska": "video/webm", "AVI": "video/x-msvideo", "MPEG-TS": "video/mp2t"}


class OpenedFile(FileResponse):
    """Response with a regular file, opened without following links; it stays the one that was checked.

    Args:
        path: of the file.
        media_type: its content type.
        filename: the name under which browsers save it.

    Raises:
        RequestError: 404, if it is not there, or is not a regular file.
    """

    def __init__(self, path: FilePath, *, media_type: str, filename: str | None = None) -> None:
        try:
            self._descriptor = open_own_file(path)
        except OSError:
            raise RequestError(404, "the file is no longer there") from None
        self.head = os.read(self._descriptor, decoder.SNIFFED)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        opened = FilePath(f"/dev/fd/{self._descriptor}")
        super().__init__(opened if opened.exists() else path, media_type=media_type, filename=filename)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.close()


def service_of(request: Request) -> Service:
    """The service of the application."""
    return request.app.state.service


def _record(service: Service, job: Job, user: str) -> JobRecord:
    done = service.workers.done_ms(job.id) if job.state in ACTIVE else 0
    return JobRecord(**job.as_dict() | {"done_ms": done, "mine": job.user == user})  # type: ignore[arg-type]


@router.get("/videos")
def videos(request: Request) -> list[VideoRecord]:
    """List the videos of the server's folder (--videos), which can be submitted by id."""
    return [VideoRecord(id=v.id, name=v.name, bytes=v.bytes) for v in service_of(request).library.all()]


@router.get("/jobs")
def jobs(request: Request) -> list[JobRecord]:
    """List all jobs, newest first."""
    service = service_of(request)
    user = user_of(request.scope)
    return [_record(service, job, user) for job in service.jobs.store.all()]


@router.post("/jobs", status_code=201, responses=errors(404, 422, 429, 507))
def submit(request: Request, submission: Submission) -> JobRecord:
    """Submit a video of the server's folder."""
    service = service_of(request)
    user = user_of(request.scope)
    service.jobs.check_quota(user)
    video = service.library.get(submission.video)
    if video is None:
        raise RequestError(404, "there is no such video")
    info = service.jobs.probe(video.path, video.name)
    job = service.workers.submit(_new_job(Job.new_id(), user, video.name, video.id, info))
    return _record(service, job, user)


@router.post(
    "/uploads",
    status_code=201,
    openapi_extra=UPLOAD_SCHEMA,
    responses=errors(408, 413, 415, 422, 429, 503, 507),
)
async def upload(request: Request, x_file_name: Annotated[str, Header(max_length=2000)] = "video") -> JobRecord:
    """Upload a video as the request's body, or as the file of a form, and submit it.

    X-File-Name is the name of a body, percent-encoded.
    """
    service = service_of(request)
    user = user_of(request.scope)
    kind = request.headers.get("content-type", "application/octet-stream").split(";")[0].strip()
    if kind not in ("application/octet-stream", "multipart/form-data") and not kind.startswith("video/"):
        raise RequestError(415, f"{kind} is not a video")
    await run_in_threadpool(service.jobs.check_quota, user)
    job_id = Job.new_id()
    folder = service.jobs.folder(job_id)
    with service.uploads.enter(user):
        folder.mkdir(mode=0o700)
        (folder / UNFINISHED).touch()
        try:
            name, parts = await open_upload(request, x_file_name, service.limits)
            most = service.limits.upload_bytes
            await save_body(request, folder / UPLOAD, most, service.limits, parts=parts, check=_check_head)
            info = await run_in_threadpool(service.jobs.probe, folder / UPLOAD, name)
            job = await run_in_threadpool(service.workers.submit, _new_job(job_id, user, name, "", info))
        except BaseException:
            await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
            raise
        (folder / UNFINISHED).unlink(missing_ok=True)
    return _record(service, job, user)


@router.get("/jobs/{job_id}", responses=errors(404))
def job(request: Request, job_id: JobId) -> JobRecord:
    """Get the state and progress of a job."""
    service = service_of(request)
    return _record(service, service.jobs.get(job_id), user_of(request.scope))


@router.get("/jobs/{job_id}/events", response_class=EventStream, responses=errors(404, 429, 503))
def job_events(request: Request, job_id: JobId) -> EventStream:
    """Follow an active job as server-sent events: anticipation, progress, state. Earlier ones come first."""
    service = service_of(request)
    service.jobs.get(job_id)
    channel = service.workers.channel(job_id)
    job = service.jobs.store.get(job_id)  # read after the channel exists: else its end could be missed
    if job is None or job.state not in ACTIVE:
        service.workers.close_channel(job or service.jobs.get(job_id))
    return EventStream(channel.follow(), service.viewers.add(user_of(request.scope)))


@router.get("/jobs/{job_id}/timeline", response_class=FileResponse, responses=errors(404, 409))
def timeline(request: Request, job_id: JobId) -> FileResponse:
    """Get all forecasts of the video: the JSON of `ballcast predict`."""
    return _result(request, job_id, TIMELINE, "application/json")


@router.get("/jobs/{job_id}/timeline.csv", response_class=FileResponse, responses=errors(404, 409))
def timeline_csv(request: Request, job_id: JobId) -> FileResponse:
    """Get all forecasts as CSV: at_ms, label, position_ms, confidence."""
    return _result(request, job_id, CSV, "text/csv; charset=utf-8")


@router.get("/jobs/{job_id}/video", response_class=FileResponse, responses=errors(404))
def job_video(request: Request, job_id: JobId) -> FileResponse:
    """Get the video; supports Range."""
    service = service_of(request)
    job = service.jobs.get(job_id)
    path = service.jobs.video_of(job)
    if path is None:
        raise RequestError(404, "the video is no longer there")
    response = OpenedFile(path.resolve() if job.library else path, media_type="application/octet-stream")
    kind = decoder.kind_of(response.head)
    if kind is None:  # another file in its place
        response.close()
        raise RequestError(404, "the video is no longer there")
    response.headers["content-type"] = MEDIA.get(kind, "application/octet-stream")
    return response


@router.get("/jobs/{job_id}/actual", responses=errors(404, 422))
def actual(request: Request, job_id: JobId) -> Actual:
    """Get the actual events of the video, if labels were uploaded or are beside it."""
    service = service_of(request)
    return Actual.from_events(service.labels.of_job(service.jobs.get(job_id)))


@router.put("/jobs/{job_id}/labels", openapi_extra=UPLOAD_SCHEMA, responses=errors(404, 422, 429, 503))
async def put_labels(request: Request, job_id: JobId) -> Actual:
    """Upload labels as the request's body, or as the file of a form: Labels-ball.json, matches.json or OSL JSON."""
    service = service_of(request)
    job = await run_in_threadpool(service.jobs.get, job_id)
    target = service.jobs.folder(job.id) / LABELS
    with service.label_uploads.enter(user_of(request.scope)), replacing(target) as temporary:
        _, parts = await open_upload(request, "labels", service.limits)
        await save_body(request, temporary, service.limits.labels_bytes, service.limits, parts=parts)
        try:
            events = await run_in_threadpool(service.labels.read, temporary, job.name.rsplit("/", 1)[-1])
        except InputError as error:
            raise RequestError(422, str(error).replace(str(temporary), "the labels")) from None
    return Actual.from_events(events)


@router.post("/jobs/{job_id}/cancel", responses=errors(404, 409))
def cancel(request: Request, job_id: JobId) -> JobRecord:
    """Stop an active job and discard its results."""
    service = service_of(request)
    return _record(service, service.workers.cancel(service.jobs.get(job_id)), user_of(request.scope))


@router.delete("/jobs/{job_id}", status_code=204, responses=errors(404))
def delete(request: Request, job_id: JobId) -> Response:
    """Delete a job with its upload and results; a video of the server's folder stays."""
    service = service_of(request)
    service.workers.delete(service.jobs.get(job_id))
    return Response(status_code=204)


def _check_head(head: bytes) -> None:
    if decoder.kind_of(head) is None:
        raise RequestError(415, "this is not a video in MP4, MOV, Matroska, WebM, AVI, MPEG-TS or MPEG-PS")


def _new_job(job_id: str, user: str, name: str, library: str, info: VideoInfo) -> Job:
    return Job(job_id, user, name, library, info.height, info.width, info.duration_ms, codec=info.codec)


def _result(request: Request, job_id: str, file: str, kind: str) -> FileResponse:
    service = service_of(request)
    job = service.jobs.get(job_id)
    if job.state != "done":
        raise RequestError(409, f"the job is {job.state}; there are results when it is done")
    return OpenedFile(service.jobs.folder(job.id) / file, media_type=kind, filename=f"{FilePath(job.name).stem}.{file}")
