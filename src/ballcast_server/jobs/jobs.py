"""The jobs: their store, their folders, and how many a user may have."""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.video.container import VideoInfo
from ballcast_server.confined import decoder
from ballcast_server.jobs.library import Library
from ballcast_server.jobs.own_file import is_own_file
from ballcast_server.jobs.store import Job, JobStore
from ballcast_server.settings import FULL, Limits, RequestError

UPLOAD, LABELS, TIMELINE, CSV = "video", "labels.json", "timeline.json", "timeline.csv"  # in a job's folder
UNFINISHED = "unfinished"  # beside an upload until it is a job
PROBES = 2  # videos probed at once: each may use `Limits.memory_bytes`


class Jobs:
    """The jobs of a server; the store exists within `opened`.

    Args:
        data: folder of the server.
        library: videos that jobs may name.
        limits: bounds on videos and users.
    """

    store: JobStore

    def __init__(self, data: Path, library: Library, limits: Limits) -> None:
        self._library = library
        self._limits = limits
        self._data = data
        self._root = data.absolute() / "jobs"  # absolute: the decoder process has another working directory
        self._probing = threading.Semaphore(PROBES)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the store, and remove what interrupted uploads left."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)  # uploads are for this user only, also those of earlier versions
        self.store = JobStore(self._data / "jobs.sqlite")
        try:
            self._remove_partial_uploads()
            yield
        finally:
            self.store.close()

    def get(self, job_id: str) -> Job:
        """The job with this id; raises RequestError 404 if there is none."""
        job = self.store.get(job_id)
        if job is None:
            raise RequestError(404, "there is no such job")
        return job

    def folder(self, job_id: str) -> Path:
        """Folder of a job by its id, which must come from `Job.new_id` or the store, never from a request."""
        return self._root / job_id

    def video_of(self, job: Job) -> Path | None:
        """Path of the job's video; None: it is no longer there."""
        if job.library:
            video = self._library.get(job.library)
            return None if video is None else video.path
        path = self.folder(job.id) / UPLOAD
        return path if is_own_file(path) else None

    def probe(self, path: Path, name: str) -> VideoInfo:
        """Probe a video, at most `PROBES` at a time; raises RequestError 422 if it is no video or over the limits."""
        with self._probing:
            try:
                return decoder.probe(path, name, self._limits)
            except InputError as error:
                raise RequestError(422, str(error)) from None

    def check_quota(self, user: str) -> None:
        """Raise RequestError if the user has too many jobs (429) or the disk is nearly full (507)."""
        require_space(self._root, 0, self._limits)
        active, total = self.store.count(user)
        if active >= self._limits.waiting_a_user:
            raise RequestError(
                429, f"you have {active} jobs that are queued or running; wait for some to end, or cancel them"
            )
        if total >= self._limits.kept_a_user:
            raise RequestError(429, f"you have {total} jobs; delete some")

    def hide_folders(self, text: str) -> str:
        """Remove the server's folders from a message: viewers need not know where its files are."""
        folders = [self._root, self._root.parent]
        if self._library.folder is not None:
            folders += [self._library.folder, self._library.folder.parent]  # labels may lie above a video's folder
        for folder in folders:
            text = text.replace(f"{folder}/", "")
        return text

    def _remove_partial_uploads(self) -> None:
        """Remove the files of interrupted uploads, but no other folders, nor uploads whose database was lost."""
        known = {job.id for job in self.store.all()}
        for folder in self._root.iterdir():
            if not re.fullmatch(r"[0-9a-f]{16}", folder.name) or not folder.is_dir():
                continue
            if folder.name in known:
                (folder / UNFINISHED).unlink(missing_ok=True)
            elif (folder / UNFINISHED).exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with suppress(OSError):  # not empty
                    folder.rmdir()


def require_space(folder: Path, coming: int, limits: Limits) -> None:
    """Raise RequestError 507 if `coming` more bytes would leave less than `Limits.free_bytes` of the disk."""
    if shutil.disk_usage(folder).free - coming < limits.free_bytes:
        raise RequestError(507, FULL)
