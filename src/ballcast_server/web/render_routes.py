"""HTTP routes of rendered videos."""

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse

from ballcast_server.jobs.renders import NAME, RenderRecord, RenderRequest
from ballcast_server.settings import RequestError
from ballcast_server.web.job_routes import JobId, OpenedFile, service_of
from ballcast_server.web.schema import errors

router = APIRouter(prefix="/api/jobs/{job_id}/renders", tags=["videos"])


@router.post("", status_code=202, responses=errors(404, 409, 422, 429))
def add_render(request: Request, job_id: JobId, wanted: RenderRequest) -> RenderRecord:
    """Render the video with its forecasts drawn below it, with its sound; follow the progress with GET."""
    job = service_of(request).jobs.get(job_id)
    if job.state != "done":
        raise RequestError(409, f"the job is {job.state}; there are results when it is done")
    return service_of(request).renders.add(job, wanted)


@router.get("", responses=errors(404))
def renders(request: Request, job_id: JobId) -> list[RenderRecord]:
    """List the rendered videos of a job, and those that are being made."""
    return service_of(request).renders.of(service_of(request).jobs.get(job_id))


@router.get("/{name}", response_class=FileResponse, responses=errors(404))
def rendered(request: Request, job_id: JobId, name: Annotated[str, Path(pattern=NAME)]) -> FileResponse:
    """Get a rendered video; supports Range."""
    service = service_of(request)
    job = service.jobs.get(job_id)
    shown = f"{FilePath(job.name).stem}-{name}"
    return OpenedFile(service.jobs.folder(job.id) / name, media_type="video/mp4", filename=shown)
