"""Videos to download: a job's video with its forecasts drawn below it, whole or a clip of it.

Uploaded videos are hostile until shown otherwise, so a video is rendered in a process with bounds on memory, time and
the size of its file, in a sandbox, one at a time. `python -m ballcast_server.web.renders REQUEST` writes the video of a
request as JSON; its progress is lines of "done total" on stdout. Errors are one sentence on stderr, exit code 2.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import FileResponse

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap, Prediction
from ballcast.core.files import read_json, remove_stale
from ballcast.inference.expected_precision import ExpectedPrecision
from ballcast_server.sandbox import confine
from ballcast_server.web.decoder import child_environment, limit_memory, lower_priority
from ballcast_server.web.job_routes import JobId, OpenedFile, service_of
from ballcast_server.web.jobs import Job
from ballcast_server.web.schema import errors
from ballcast_server.web.service import Service
from ballcast_server.web.settings import RequestError
from ballcast_server.web.uploads import require_space
from ballcast_server.web.workers import TIMELINE

router = APIRouter(prefix="/api/jobs/{job_id}/renders", tags=["videos"])
NAME = r"^(overlay|clip-\d{1,9}-\d{1,9})\.mp4$"
MAX_CLIP_MS = 5 * 60_000
MAX_WAITING = 8  # of all users
MAX_FILES = 20  # of one job


class RenderRequest(BaseModel):
    """The part of a video to render; without times all of it."""

    begin_ms: int = Field(0, ge=0, le=10**9)
    end_ms: int | None = Field(None, ge=0, le=10**9, description="At most five minutes after `begin_ms`.")


class RenderRecord(BaseModel):
    """A video that is being rendered, or is ready at /api/jobs/{job_id}/renders/{name}."""

    name: str
    state: Literal["waiting", "running", "done", "failed"]
    done: float = Field(description="Share of it, 0 to 1.")
    message: str = Field(description="Why it failed.")


@dataclass
class _Order:
    """What the process is asked for."""

    memory: int
    file_bytes: int
    video: str
    timeline: str
    target: str
    begin_ms: int
    end_ms: int | None


class Renders:
    """The videos that wait, one that is rendered, and those that failed; finished ones are files of their jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._records: dict[tuple[str, str], RenderRecord] = {}
        self._queue: deque[tuple[Job, RenderRequest, str]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def of(self, job: Job) -> list[RenderRecord]:
        """The videos of a job."""
        folder = self._service.folder_of(job)
        with self._lock:
            known = {name: record for (job_id, name), record in self._records.items() if job_id == job.id}
        with suppress(OSError):
            for path in sorted(folder.glob("*.mp4")):
                if re.fullmatch(NAME, path.name):
                    known[path.name] = RenderRecord(name=path.name, state="done", done=1, message="")
        return list(known.values())

    def add(self, job: Job, request: RenderRequest) -> RenderRecord:
        """Queue a video, unless it is there; raises RequestError 422 or 429."""
        end = request.end_ms
        if end is not None and not 0 < end - request.begin_ms <= MAX_CLIP_MS:
            raise RequestError(422, f"a clip ends after its begin, and at most {MAX_CLIP_MS // 60_000} minutes later")
        if end is None and request.begin_ms:
            raise RequestError(422, "a clip needs its end")
        name = "overlay.mp4" if end is None else f"clip-{request.begin_ms}-{end}.mp4"
        there = self.of(job)
        for record in there:
            if record.name == name and record.state != "failed":
                return record
        if len(there) >= MAX_FILES:
            raise RequestError(429, f"the video has {len(there)} renderings; delete it, or use those")
        with self._lock:
            if len(self._queue) >= MAX_WAITING:
                raise RequestError(429, "too many videos wait to be rendered; try again later", retry_s=30)
            record = RenderRecord(name=name, state="waiting", done=0, message="")
            self._records[job.id, name] = record
            self._queue.append((job, request, name))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="renders", daemon=True)
                self._thread.start()
        return record

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._thread = None
                    return
                job, request, name = self._queue.popleft()
                record = self._records[job.id, name]
            try:
                self._render(job, request, name, record)
                with self._lock:
                    self._records.pop((job.id, name), None)  # its file says that it is done
            except Exception as error:
                known = isinstance(error, InputError | RequestError)
                record.message = str(error) if known else "internal server error; see the server's log"
                record.state = "failed"

    def _render(self, job: Job, request: RenderRequest, name: str, record: RenderRecord) -> None:
        service, folder = self._service, self._service.folder_of(job)
        video = service.video_of(job)
        if video is None or not folder.is_dir():
            raise InputError("the video is no longer there")
        require_space(folder, 0, service.limits)
        record.state = "running"
        free = shutil.disk_usage(folder).free - service.limits.free_bytes
        order = _Order(
            service.limits.memory_bytes,
            max(1, min(free, 2 * service.limits.upload_bytes)),
            str(video.absolute()),
            str(folder / TIMELINE),
            str(folder / name),
            request.begin_ms,
            request.end_ms,
        )
        span = ((request.end_ms or job.duration_ms or 0) - request.begin_ms) or 1

        def progress(frames: int) -> None:
            record.done = min(1.0, max(0.0, (FRAME_MS * frames - request.begin_ms) / span))
            if service.store.get(job.id) is None:
                raise InputError("the job was deleted")

        code, report = _run_process(order, service.limits.frame_s, progress)
        if code:
            message = report.splitlines()[-1] if code == 2 and report else f"{job.name}: cannot be rendered here"
            raise InputError(service.hide_folders(message.replace(order.video, job.name)))


def _run_process(order: _Order, stall_s: float, progress: Callable[[int], None]) -> tuple[int, str]:
    """Run the process of an order, killed if it renders nothing for `stall_s`; returns its exit code and report."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(order))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        cwd=os.path.abspath(os.sep),
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        watchdog = threading.Timer(stall_s, running.kill)
        watchdog.start()
        try:
            for line in running.stdout:
                watchdog.cancel()
                watchdog = threading.Timer(stall_s, running.kill)
                watchdog.start()
                progress(int(line.split()[0]))
            report = running.stderr.read(10_000).decode(errors="replace").strip()
        except BaseException:
            running.kill()
            raise
        finally:
            watchdog.cancel()
        return running.wait(), report


def _renders(request: Request) -> Renders:
    return request.app.state.renders


@router.post("", status_code=202, responses=errors(404, 409, 422, 429))
def add_render(request: Request, job_id: JobId, wanted: RenderRequest) -> RenderRecord:
    """Render the video with its forecasts drawn below it, with its sound; follow the progress with GET."""
    job = service_of(request).job(job_id)
    if job.state != "done":
        raise RequestError(409, f"the job is {job.state}; there are results when it is done")
    return _renders(request).add(job, wanted)


@router.get("", responses=errors(404))
def renders(request: Request, job_id: JobId) -> list[RenderRecord]:
    """List the rendered videos of a job, and those that are being made."""
    return _renders(request).of(service_of(request).job(job_id))


@router.get("/{name}", response_class=FileResponse, responses=errors(404))
def rendered(request: Request, job_id: JobId, name: Annotated[str, Path(pattern=NAME)]) -> FileResponse:
    """Get a rendered video; supports Range."""
    service = service_of(request)
    job = service.job(job_id)
    shown = f"{FilePath(job.name).stem}-{name}"
    return OpenedFile(service.folder_of(job) / name, media_type="video/mp4", filename=shown)


def shown_forecasts(result: dict) -> tuple[list[Forecast], list[Gap]]:
    """The forecasts of a result as the page shows them at first: by expected precision, where it was measured."""
    tree = result.get("precision")
    measured = ExpectedPrecision(tree["actions"], tree["default"]) if isinstance(tree, dict) else None
    forecasts = []
    for made in result["anticipations"]:
        read = [Prediction(p["label"], p["position_ms"], p["confidence"]) for p in made["predictions"]]
        if measured is not None:
            read = [Prediction(p.label, p.position_ms, measured.of(p.label, p.confidence)) for p in read]
            read = [p for p in read if p.confidence >= measured.default]
        forecasts.append(Forecast(made["at_ms"], tuple(read)))
    return forecasts, [Gap.from_json(gap) for gap in result.get("gaps", ())]


def _write(order: _Order) -> None:
    """Write the video of an order; runs in the process."""
    from ballcast.video.overlay import write_overlay

    folder = FilePath(order.target).parent
    remove_stale(folder)
    confine(read=[FilePath(order.video)], write=[folder])
    result = read_json(FilePath(order.timeline), "timeline")
    forecasts, gaps = shown_forecasts(result)
    write_overlay(
        FilePath(order.video),
        FilePath(order.target),
        forecasts,
        gaps,
        note=str(result.get("origin", "")),
        begin_ms=order.begin_ms,
        end_ms=order.end_ms,
        progress=lambda done, total: print(done, total, flush=True),  # noqa: T201
    )


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns its exit code."""
    order = _Order(**json.loads(arguments[0]))
    limit_memory(order.memory)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, order.file_bytes))
    lower_priority()
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # FFmpeg's messages could fill the pipe
    try:
        _write(order)
    except InputError as error:
        os.write(stderr, f"{error}\n".encode())
        return 2
    except BrokenPipeError:  # the server has gone
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
