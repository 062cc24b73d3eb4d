"""Videos to download: a job's video with its forecasts drawn below it, whole or a clip of it, one at a time."""

import re
import shutil
import threading
from collections import deque
from contextlib import suppress
from typing import Literal

from pydantic import BaseModel, Field

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import InputError
from ballcast_server.confined.rendering import RenderOrder, render
from ballcast_server.jobs.jobs import TIMELINE, Jobs, require_space
from ballcast_server.jobs.store import Job
from ballcast_server.settings import Limits, RequestError

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


class Renders:
    """The videos that wait, one that is rendered, and those that failed; finished ones are files of their jobs."""

    def __init__(self, jobs: Jobs, limits: Limits) -> None:
        self._jobs = jobs
        self._limits = limits
        self._records: dict[tuple[str, str], RenderRecord] = {}
        self._queue: deque[tuple[Job, RenderRequest, str]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def of(self, job: Job) -> list[RenderRecord]:
        """The videos of a job."""
        folder = self._jobs.folder(job.id)
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
        folder = self._jobs.folder(job.id)
        video = self._jobs.video_of(job)
        if video is None or not folder.is_dir():
            raise InputError("the video is no longer there")
        require_space(folder, 0, self._limits)
        record.state = "running"
        free = shutil.disk_usage(folder).free - self._limits.free_bytes
        order = RenderOrder(
            memory=self._limits.memory_bytes,
            file_bytes=max(1, min(free, 2 * self._limits.upload_bytes)),
            video=str(video.absolute()),
            timeline=str(folder / TIMELINE),
            target=str(folder / name),
            begin_ms=request.begin_ms,
            end_ms=request.end_ms,
        )
        span = ((request.end_ms or job.duration_ms or 0) - request.begin_ms) or 1

        def progress(frames: int) -> None:
            record.done = min(1.0, max(0.0, (FRAME_MS * frames - request.begin_ms) / span))
            if self._jobs.store.get(job.id) is None:
                raise InputError("the job was deleted")

        code, report = render(order, self._limits.frame_s, progress)
        if code:
            message = report.splitlines()[-1] if code == 2 and report else f"{job.name}: cannot be rendered here"
            raise InputError(self._jobs.hide_folders(message.replace(order.video, job.name)))
